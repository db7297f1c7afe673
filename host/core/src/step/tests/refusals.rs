//! Calls that are refused: journaled with their text, answered, never run (L8, L46 to L51).

use super::*;

/// One refused call: what is durable, what the provider gets, and that nothing runs.
#[track_caller]
fn refused(call: Call, policy: CallPolicy, reason: RefusalReason, output: &str) {
    let mut host = Host::new();
    host.begin();
    let effects = host.call(call.clone(), policy.clone());
    assert_eq!(
        effects,
        [Effect::Append(vec![Record::CallRejected {
            call: call.clone(),
            wire_call_id: None,
            reason,
            output: output.into(),
        }])]
    );
    assert_eq!(
        host.checkpoint().to_json()["calls"][call.id.as_str()],
        json!({
            "call": call.to_json(), "replay_safe": false, "replay_class": "never", "state": ready(output), "rejected": true,
        })
    );
    // An equal repeat is the same refusal.
    assert_eq!(host.call(call.clone(), policy.clone()), []);
    // The turn goes on: the output is delivered on the call's id, and no crash runs the call.
    assert_eq!(ran(&host.complete("resp_1")), [""; 0]);
    host.crash();
    assert_eq!(host.open(&[(call.id.as_str(), policy)]), []);
    assert_eq!(host.next(), Next::Deliver);
    host.act(Event::Prepare);
    assert_eq!(host.checkpoint().to_json()["delivery"]["input"], json!([call.output_item(output)]));
}

// covers L8
#[test]
fn async_call_that_policy_does_not_let_run_async_is_refused() {
    refused(
        asynchronous("a"),
        CallPolicy::start(),
        RefusalReason::NotAsync,
        r#"{"error":"tool \"tool\" may not run async here; call it again without async"}"#,
    );
    // The same call is run where policy lets it, and a sync one needs no leave.
    let mut host = Host::new();
    assert_eq!(ran(&host.call(asynchronous("a"), start())), ["a"]);
    assert_eq!(ran(&host.call(sync("b"), CallPolicy::start())), ["b"]);
}

// covers L46, C12
#[test]
fn malformed_arguments_are_kept_raw_and_answered_with_the_fault() {
    for policy in [start(), held(Hold::Approval)] {
        refused(
            Call::function("a", "tool", "{\"x\": 1,\n"),
            policy,
            RefusalReason::MalformedArguments,
            "{\"error\":\"the arguments of call \\\"a\\\" of tool \\\"tool\\\" are not JSON: EOF while parsing an object at \
             line 2 column 0; send the call again with valid JSON\"}",
        );
    }
    // Custom input is never looked into.
    let mut host = Host::new();
    assert_eq!(ran(&host.call(Call::custom("c", "raw", "{\"x\": 1,\n"), start())), ["c"]);
}

// covers L47
#[test]
fn arguments_that_do_not_fit_the_schema_are_answered_with_the_path() {
    refused(
        Call::function("a", "tool", r#"{"n":"1"}"#),
        CallPolicy::refuse(RefusalReason::InvalidInput, "/n is not a number"),
        RefusalReason::InvalidInput,
        r#"{"error":"/n is not a number"}"#,
    );
}

// covers L50
#[test]
fn call_of_an_unknown_tool_is_answered_and_other_calls_run() {
    let unknown = || CallPolicy::refuse(RefusalReason::UnknownTool, "no tool \"raed\"; did you mean \"read\"?");
    refused(
        Call::function("a", "raed", "{}"),
        unknown(),
        RefusalReason::UnknownTool,
        r#"{"error":"no tool \"raed\"; did you mean \"read\"?"}"#,
    );
    let mut host = Host::new();
    let effects = host.respond("resp_1", &[(Call::function("a", "raed", "{}"), unknown()), (sync("b"), start())]);
    assert_eq!(ran(&effects), ["b"]);
}

// covers L51
#[test]
fn unknown_tools_beyond_the_limit_stop_the_turn_with_their_count() {
    let unknown = || CallPolicy::refuse(RefusalReason::UnknownTool, "no such tool");
    let mut host = Host::with(Settings { unknown_tools_max: 2, ..Settings::default() });
    for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(host.turn().unknown_tools, n as u64);
        let response = format!("resp_{n}");
        host.respond(&response, &[(Call::function(id, "raed", "{}"), unknown())]);
        // Other refusals do not count.
        host.call(sync(&format!("policy_{n}")), CallPolicy::refuse(RefusalReason::Policy, "no"));
        if n < 2 {
            assert_eq!(host.next(), Next::Deliver, "at the limit the turn goes on");
        }
    }
    let stopped = PauseReason::UnknownTools { count: 3 };
    assert_eq!(host.next(), Next::Rest(stopped.clone()));
    host.act(Event::Pause(stopped.clone()));
    // It stays stopped over a crash, and somebody can let it go on; outputs were not lost.
    host.crash();
    host.open(&[]);
    assert_eq!(host.next(), Next::Rest(stopped));
    host.act(Event::Resume { why: "try again".into() });
    assert_eq!((host.next(), host.turn().unknown_tools), (Next::Deliver, 0));
}
