//! H: cancelling.

use serde_json::json;

use super::*;
use crate::checkpoint::INTERRUPTED;

// covers H1, H2
#[test]
fn cancelling_settles_what_has_no_result_and_leaves_what_has_one() {
    let mut c = each_state();
    let mut expected = c.to_json();
    c.cancel_all();
    expected["calls"]["queued"]["state"] = ready(r#"{"error":"cancelled"}"#);
    expected["calls"]["running"]["state"] = ready(r#"{"error":"cancelled"}"#);
    assert_eq!(c.to_json(), expected);
}

// covers H3
#[test]
fn cancelling_touches_neither_delivery_nor_flight_nor_latest_id() {
    let mut c = each_state();
    c.prepare().unwrap();
    c.begin();
    let mut expected = c.to_json();
    c.cancel_all();
    for id in ["queued", "running"] {
        expected["calls"][id]["state"] = ready(r#"{"error":"cancelled"}"#);
    }
    assert_eq!(c.to_json(), expected);
    assert_eq!(
        json!([expected["response_in_flight"], expected["latest_response_id"], expected["delivery"]["call_ids"]]),
        json!([true, "resp_2", ["ready"]])
    );
}

// covers H4
#[test]
fn cancelling_twice_is_cancelling_once() {
    let mut c = each_state();
    c.cancel_all();
    c.leaves_alone((), |c| {
        c.cancel_all();
        Ok(())
    });
}

// covers H5
#[test]
fn cancelled_calls_keep_the_turn_open_until_they_are_delivered_unless_they_are_orphans() {
    let mut c = each_state();
    c.cancel_all();
    assert!(!c.may_complete());
    let mut lost = c.clone();
    lost.make_orphans(&["queued", "running"]);
    assert!(!lost.may_complete(), "a ready call is left that is no orphan");
    lost.make_orphans(&["ready"]);
    assert!(lost.may_complete());
    c.prepare().unwrap();
    c.receipt("resp_3").unwrap();
    assert!(c.may_complete());
}

// covers H6
#[test]
fn interrupted_call_keeps_its_text_when_it_is_cancelled_later() {
    let mut c = each_state();
    c.mend().unwrap();
    let interrupted = ready(&json!({ "error": INTERRUPTED }).to_string());
    assert_eq!(c.states()["running"], interrupted);
    c.cancel_all();
    assert_eq!(c.states()["running"], interrupted);
    assert_eq!(c.states()["queued"], ready(r#"{"error":"cancelled"}"#));
}
