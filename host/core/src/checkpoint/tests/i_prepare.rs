//! I: preparing a delivery.

use serde_json::json;

use super::*;
use crate::model::{Item, Role};

// covers I1
#[test]
fn nothing_is_prepared_while_a_response_is_in_flight() {
    let mut c = each_state();
    c.begin();
    c.refuses(ErrorKind::Store, Checkpoint::prepare);
    let mut empty = Checkpoint::default();
    empty.begin();
    empty.refuses(ErrorKind::Store, Checkpoint::prepare);
}

// covers I2
#[test]
fn nothing_is_prepared_while_a_delivery_is_open() {
    let mut c = each_state();
    c.prepare().unwrap();
    c.give("running", "new").unwrap();
    c.refuses(ErrorKind::Store, Checkpoint::prepare);
}

// covers I3
#[test]
fn without_a_ready_call_there_is_no_delivery() {
    let mut c = Checkpoint::default();
    c.leaves_alone(None, Checkpoint::prepare);
    c.add(call("queued"), ReplayClass::Never).unwrap();
    c.add(call("running"), ReplayClass::Never).unwrap();
    c.run("running").unwrap();
    c.leaves_alone(None, Checkpoint::prepare);
    c.complete("resp_1").unwrap();
    c.leaves_alone(None, Checkpoint::prepare);
    // An orphan is none, with and without a response.
    for mut c in [c, Checkpoint::default()] {
        c.add(call("lost"), ReplayClass::Never).unwrap();
        c.give("lost", "x").unwrap();
        c.make_orphans(&["lost"]);
        c.leaves_alone(None, Checkpoint::prepare);
    }
}

// covers I4
#[test]
fn ready_call_without_a_response_to_go_on_from_is_refused() {
    let mut c = Checkpoint::default();
    c.add(call("a"), ReplayClass::Never).unwrap();
    c.give("a", "x").unwrap();
    c.refuses(ErrorKind::Store, Checkpoint::prepare);
}

// covers I5, I6, I8, I9
#[test]
fn all_ready_calls_enter_in_call_order_and_stay_ready() {
    let mut c = Checkpoint::default();
    for new in [
        call("z"),
        Call::custom("custom", "raw", "text"),
        call("queued"),
        call("running"),
        call("lost"),
        call("a").asynchronous(),
    ] {
        c.add(new, ReplayClass::Never).unwrap();
    }
    c.complete("resp_1").unwrap();
    c.run("running").unwrap();
    // Settled in another order than they were made.
    for (id, output) in [("a", "3"), ("lost", "!"), ("custom", "2"), ("z", "1")] {
        c.give(id, output).unwrap();
    }
    c.make_orphans(&["lost"]);
    let mut expected = c.to_json();
    c.prepare().unwrap();
    expected["delivery"] = json!({
        "previous_response_id": "resp_1",
        "call_ids": ["z", "custom", "a"],
        "input": [
            { "type": "function_call_output", "call_id": "z", "output": "1" },
            { "type": "custom_tool_call_output", "call_id": "custom", "output": "2" },
            { "type": "function_call_output", "call_id": "a", "output": "3" },
        ],
    });
    assert_eq!(c.to_json(), expected);
}

// covers I5
#[test]
fn delivered_call_is_not_delivered_again() {
    let mut c = each_state();
    assert_eq!(c.prepare().unwrap().unwrap().call_ids, [id("ready")]);
}

// covers I7
#[test]
fn delivery_goes_on_from_the_latest_response_of_that_moment() {
    let mut c = each_state();
    c.complete("resp_3").unwrap();
    c.complete("resp_4").unwrap();
    assert_eq!(c.prepare().unwrap().unwrap().previous_response_id.as_str(), "resp_4");
}

// covers I9, B13
#[test]
fn output_carries_the_id_that_the_provider_knows_and_the_host_key_stands_beside_it() {
    let mut c = Checkpoint::new_turn(Some("resp_0".into()));
    let renamed = Registration {
        wire_call_id: Some("call_1".into()),
        ..Registration::new(call("call_1~r2.0"), ReplayClass::Never)
    };
    c.fold(&c.register(&renamed).unwrap().unwrap());
    c.give("call_1~r2.0", "x").unwrap();
    c.prepare().unwrap();
    assert_eq!(
        c.to_json()["delivery"],
        json!({
            "previous_response_id": "resp_0",
            "call_ids": ["call_1~r2.0"],
            "input": [{ "type": "function_call_output", "call_id": "call_1", "output": "x" }],
        })
    );
}

// covers I10
#[test]
fn what_a_host_adds_stands_behind_the_outputs() {
    let mut c = each_state();
    let after = vec![Item::Message { role: Role::User, text: "note".into() }];
    c.fold(&c.prepare_delivery(after.clone()).unwrap().unwrap());
    let delivery = c.delivery().unwrap();
    // There is no place before the outputs: they are one list, and what is added is another that stands behind it.
    assert_eq!(delivery.input, [json!({ "type": "function_call_output", "call_id": "ready", "output": "out" })]);
    assert_eq!(delivery.after, after);
    // What is added alone makes no delivery.
    let mut empty = Checkpoint::new_turn(Some("resp".into()));
    empty.leaves_alone(None, |c| c.prepare_delivery(after));
}
