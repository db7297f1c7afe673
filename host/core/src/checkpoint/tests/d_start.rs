//! D: starting.

use serde_json::json;

use super::*;
use crate::policy::Hold;

// covers D1
#[test]
fn starting_an_unknown_call_is_refused() {
    let mut c = each_state();
    let error = c.refuses(ErrorKind::Config, |c| c.run("ghost"));
    assert_eq!(error.message, "call \"ghost\" is unknown");
}

// covers D2
#[test]
fn starting_a_queued_call_makes_it_running() {
    let mut c = each_state();
    let mut expected = c.to_json();
    c.run("queued").unwrap();
    expected["calls"]["queued"]["state"] = json!("Running");
    assert_eq!(c.to_json(), expected);
}

// covers D3
#[test]
fn starting_any_other_call_is_refused() {
    let mut c = each_state();
    for (state, word) in [("running", "Running"), ("ready", "Ready"), ("delivered", "Delivered")] {
        let error = c.refuses(ErrorKind::Config, |c| c.run(state));
        assert_eq!(error.message, format!("call {state:?} cannot be started: it is {word}"));
    }
}

// covers L61
#[test]
fn held_call_starts_only_once_it_was_let_go() {
    let mut c = Checkpoint::default();
    let held = Registration { hold: Some(Hold::Approval), ..Registration::new(call("a"), ReplayClass::Never) };
    c.fold(&c.register(&held).unwrap().unwrap());
    let error = c.refuses(ErrorKind::Config, |c| c.run("a"));
    assert_eq!(error.message, "call \"a\" cannot be started: it is held");
    c.fold(&Record::HoldReleased { id: id("a"), approval: "yes".into() });
    c.run("a").unwrap();
    assert_eq!(
        c.to_json()["calls"]["a"],
        json!({ "call": call("a").to_json(), "replay_safe": false, "replay_class": "never", "state": "Running" })
    );
}
