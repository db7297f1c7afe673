//! E: settling.

use super::*;

// covers E1
#[test]
fn settling_an_unknown_call_is_refused() {
    let mut c = each_state();
    c.refuses(ErrorKind::Config, |c| c.give("ghost", "x"));
}

// covers E2
#[test]
fn settling_a_queued_or_running_call_makes_it_ready() {
    for state in ["queued", "running"] {
        let mut c = each_state();
        let mut expected = c.to_json();
        assert!(c.give(state, "done").unwrap());
        expected["calls"][state]["state"] = ready("done");
        assert_eq!(c.to_json(), expected);
    }
}

// covers E3
#[test]
fn first_result_wins() {
    let mut c = each_state();
    for state in ["ready", "delivered"] {
        c.leaves_alone(false, |c| c.give(state, "another"));
    }
}

// covers E4
#[test]
fn result_after_a_cancel_does_not_count() {
    let mut c = each_state();
    c.cancel_all();
    for state in ["queued", "running"] {
        c.leaves_alone(false, |c| c.give(state, "late"));
        assert_eq!(c.states()[state], ready(r#"{"error":"cancelled"}"#));
    }
}

// covers E5
#[test]
fn empty_output_is_an_output() {
    let mut c = each_state();
    assert!(c.give("running", "").unwrap());
    assert_eq!(c.states()["running"], ready(""));
    let delivery = c.prepare().unwrap().unwrap();
    assert_eq!(delivery.input[0]["output"], "");
}
