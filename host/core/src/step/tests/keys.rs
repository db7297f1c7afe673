//! Ids of calls: the host's keys, repeats, and what has no id (B13, L16, L48, L49).

use super::*;

// covers B13
#[test]
fn id_that_an_earlier_response_used_gets_a_key_of_its_own_and_keeps_its_wire_id() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("call_1"), start())]);
    host.ended("call_1", "first");
    host.act(Event::Prepare);
    host.begin_on("resp_1");
    host.call(sync("fresh"), start());
    assert_eq!(ran(&host.call(sync("call_1"), start())), [""; 0]);
    assert_eq!(ran(&host.complete("resp_2")), ["fresh", "call_1~r2.1"]);
    let document = host.checkpoint().to_json();
    assert_eq!(document["order"], json!(["call_1", "fresh", "call_1~r2.1"]));
    assert_eq!(
        document["calls"]["call_1~r2.1"],
        json!({
            "call": sync("call_1~r2.1").to_json(), "replay_safe": false, "replay_class": "never", "state": "Running",
            "wire_call_id": "call_1",
        })
    );
    assert_eq!(document["calls"]["call_1"]["state"], json!("Delivered"));
    // Only the wire has the wire id.
    host.ended("call_1~r2.1", "second");
    host.ended("fresh", "other");
    host.act(Event::Prepare);
    let delivery = &host.checkpoint().to_json()["delivery"];
    assert_eq!(delivery["call_ids"], json!(["fresh", "call_1~r2.1"]));
    assert_eq!(
        delivery["input"][1],
        json!({ "type": "function_call_output", "call_id": "call_1", "output": "second" })
    );
}

// covers B13
#[test]
fn ids_are_kept_apart_over_the_turns_of_a_session_and_from_our_own_suffixes() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("c"), start()), (sync("c~r2.0"), start())]);
    host.act(Event::Reconcile { command: Reconcile::Abandon, who: "op".into() });
    host.act(Event::TurnStarted { turn: "turn_2".into(), input: Vec::new() });
    host.crash();
    host.open(&[]);
    host.respond("resp_2", &[(sync("c"), start()), (sync("c~r2.0"), start())]);
    assert_eq!(host.checkpoint().to_json()["order"], json!(["c~r2.0'", "c~r2.0~r2.1"]));
}

// covers B13, C3, L49
#[test]
fn equal_repeat_in_one_response_is_one_call_and_in_a_re_attached_stream_too() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start())]);
    host.ended("a", "x");
    host.act(Event::Prepare);
    host.begin_on("resp_1");
    host.act(Event::ResponseStarted("resp_2".into()));
    host.call(sync("a"), start());
    host.call(sync("a"), start());
    assert_eq!(host.checkpoint().to_json()["order"], json!(["a", "a~r2.0"]));
    // The host dies, asks for the response, and gets the same calls again.
    host.crash();
    assert_eq!(host.call(sync("a"), start()), []);
    assert_eq!(host.checkpoint().to_json()["order"], json!(["a", "a~r2.0"]));
}

// covers L49, C4
#[test]
fn second_call_with_a_used_id_and_another_payload_is_refused_by_name() {
    let mut host = Host::new();
    host.begin();
    host.call(sync("a"), start());
    let before = host.checkpoint().to_json();
    for (other, policy) in [
        (Call::function("a", "tool", "[1]"), start()),
        (Call::function("a", "other", "{}"), start()),
        (Call::custom("a", "tool", "{}"), start()),
        (Call::function("a", "tool", "{"), start()),
        (Call::function("a", "raed", "{}"), CallPolicy::refuse(RefusalReason::UnknownTool, "no")),
        (asynchronous("a"), start()),
    ] {
        let event = host.called(other, policy);
        let error = host.refuses(ErrorKind::Config, event);
        assert!(error.message.contains("\"a\""), "{error}");
    }
    assert_eq!(host.checkpoint().to_json(), before);
}

// covers L16
#[test]
fn call_that_comes_by_two_routes_is_one_call() {
    // First as an event of its own, then in the accumulated set, with its raw text both times.
    let raw = Call::function("a", "tool", "{ \"n\": 1.0 }");
    let mut host = Host::new();
    host.begin();
    host.call(raw.clone(), start());
    assert_eq!(host.call(raw.clone(), start()), []);
    assert_eq!(ran(&host.complete("resp_1")), ["a"]);
    assert_eq!(host.checkpoint().to_json()["calls"]["a"]["call"], raw.to_json());
    // Known from the set alone, it is a sync function call that waits for the acceptance.
    host.ended("a", "1");
    host.act(Event::Prepare);
    host.begin_on("resp_1");
    assert_eq!(ran(&host.call(sync("b"), start())), [""; 0]);
    assert_eq!(host.states()["b"], json!("Queued"));
}

// covers L48
#[test]
fn call_without_id_or_name_is_a_provider_error_even_where_policy_refuses_it() {
    for policy in [start(), CallPolicy::refuse(RefusalReason::UnknownTool, "no")] {
        for call in [Call::function("", "tool", "{}"), Call::function("a", " ", "{}"), Call::function("a", "", "{")] {
            let mut host = Host::new();
            host.begin();
            let event = host.called(call, policy.clone());
            host.refuses(ErrorKind::Provider, event);
        }
    }
}
