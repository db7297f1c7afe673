//! C: registering.

use serde_json::json;

use super::*;

const STATES: [&str; 4] = ["queued", "running", "ready", "delivered"];

// covers C1
#[test]
fn validation_comes_before_the_duplicate_check_and_both_before_any_change() {
    let mut c = each_state();
    // Both faults at once: the invalid one is reported.
    c.refuses(ErrorKind::Provider, |c| c.add(Call::function("queued", "", "{}"), ReplayClass::Never));
    c.refuses(ErrorKind::Provider, |c| c.add(Call::function("queued", "tool", "{"), ReplayClass::Safe));
    // One that is valid and differs.
    c.refuses(ErrorKind::Config, |c| c.add(Call::function("queued", "tool", "[]"), ReplayClass::Never));
    // Invalid ones that are new.
    c.refuses(ErrorKind::Provider, |c| c.add(Call::function(" ", "tool", "{}"), ReplayClass::Never));
    c.refuses(ErrorKind::Provider, |c| c.add(Call::custom("new", "\t", ""), ReplayClass::Never));
}

// covers C2, C11
#[test]
fn new_call_goes_to_the_end_of_the_order_and_is_queued() {
    let mut c = Checkpoint::default();
    for id in ["c", "a", "b"] {
        assert!(c.add(call(id), ReplayClass::Safe).unwrap());
    }
    let entry = |id: &str| json!({ "call": call(id).to_json(), "replay_safe": true, "replay_class": "safe", "state": "Queued" });
    let document = c.to_json();
    assert_eq!(document["order"], json!(["c", "a", "b"]));
    assert_eq!(document["calls"], json!({ "c": entry("c"), "a": entry("a"), "b": entry("b") }));
    assert_eq!(c.calls().map(|p| p.call.id.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
}

// covers C3, C8
#[test]
fn equal_call_again_gives_false_and_changes_nothing_in_any_state() {
    let mut c = each_state();
    for state in STATES {
        c.leaves_alone(false, |c| c.add(call(state), ReplayClass::Never));
    }
}

// covers C4, C5, C6, C7, C8
#[test]
fn same_id_with_anything_else_is_refused_in_any_state() {
    let mut c = each_state();
    for state in STATES {
        let others = [
            (Call::function(state, "tool", "{ }"), ReplayClass::Never, "payloads"),
            (Call::function(state, "other", "{}"), ReplayClass::Never, "payloads"),
            (call(state).asynchronous(), ReplayClass::Never, "async flags"),
            (Call::custom(state, "tool", "{}"), ReplayClass::Never, "kinds of tool"),
            (call(state), ReplayClass::Safe, "replay classes"),
            (call(state), ReplayClass::Keyed, "replay classes"),
        ];
        for (other, replay, what) in others {
            let error = c.refuses(ErrorKind::Config, |c| c.add(other, replay));
            assert_eq!(error.message, format!("call id {state:?} is used twice with different {what}"));
        }
    }
}

// covers C9
#[test]
fn two_calls_of_one_tool_are_independent() {
    let mut c = Checkpoint::default();
    assert!(c.add(call("one"), ReplayClass::Never).unwrap());
    assert!(c.add(call("two"), ReplayClass::Safe).unwrap());
    c.run("two").unwrap();
    c.give("two", "2").unwrap();
    assert_eq!(c.states(), json!({ "one": "Queued", "two": ready("2") }));
    c.run("one").unwrap();
    assert_eq!(c.states(), json!({ "one": "Running", "two": ready("2") }));
}

// covers C10
#[test]
fn registering_is_allowed_in_any_state_of_response_and_delivery() {
    let mut flying = each_state();
    flying.begin();
    let mut delivering = each_state();
    delivering.prepare().unwrap();
    let mut both = delivering.clone();
    both.begin();
    for mut c in [Checkpoint::default(), flying, delivering, both] {
        let mut expected = c.to_json();
        assert!(c.add(call("new"), ReplayClass::Never).unwrap());
        expected["order"].as_array_mut().unwrap().push(json!("new"));
        expected["calls"]["new"] =
            json!({ "call": call("new").to_json(), "replay_safe": false, "replay_class": "never", "state": "Queued" });
        assert_eq!(c.to_json(), expected);
    }
}

// covers C12
#[test]
fn invalid_arguments_only_give_the_error_and_recording_the_refusal_is_another_step() {
    let mut c = each_state();
    let broken = Call::function("bad", "tool", "{");
    c.refuses(ErrorKind::Provider, |c| c.add(broken.clone(), ReplayClass::Never));
    assert_eq!(kind(broken.validate()), ErrorKind::Provider);
    assert!(c.call(&id("bad")).is_none());
    assert!(c.add_rejected(&broken, "mend it").unwrap());
    assert_eq!(c.states()["bad"], ready(r#"{"error":"mend it"}"#));
    // The refusal is one call too: an equal repeat changes nothing, another payload is refused.
    c.leaves_alone(false, |c| c.add_rejected(&broken, "mend it"));
    c.refuses(ErrorKind::Config, |c| c.add_rejected(&Call::function("bad", "tool", "{{"), "mend it"));
}

// covers C3
#[test]
fn refusing_a_call_that_was_accepted_before_leaves_it_what_it_is() {
    let mut c = Checkpoint::default();
    c.add(call("a"), ReplayClass::Safe).unwrap();
    c.leaves_alone(false, |c| c.add_rejected(&call("a"), "not any more"));
}
