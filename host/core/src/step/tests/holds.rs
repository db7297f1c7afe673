//! Calls that wait for somebody (L30, L61, L67).

use super::*;

fn decided(call: &str, decision: Decision) -> Event {
    Event::Decided { id: call.into(), decision }
}

fn output(text: &str) -> Decision {
    Decision::Output { output: text.into() }
}

// covers L61
#[test]
fn held_call_is_queued_with_its_hold_and_starts_neither_now_nor_after_a_crash() {
    for hold in [Hold::Approval, Hold::Output] {
        let mut host = Host::new();
        host.begin();
        for call in [sync("sync"), asynchronous("async")] {
            assert_eq!(ran(&host.call(call, held(hold.clone()))), [""; 0]);
        }
        assert_eq!(ran(&host.complete("resp_1")), [""; 0]);
        host.crash();
        assert_eq!(host.open(&[("sync", held(hold.clone())), ("async", held(hold.clone()))]), []);
        assert_eq!(ran(&host.act(Event::Resume { why: "x".into() })), [""; 0]);
        for id in ["sync", "async"] {
            let entry = host.checkpoint().to_json()["calls"][id].clone();
            assert_eq!((entry["state"].clone(), entry["hold"].clone()), (json!("Queued"), json!(hold.as_str())));
        }
    }
}

// covers L61, L67
#[test]
fn approval_lets_a_call_run_and_is_used_up_in_the_record_of_its_start() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), held(Hold::Approval))]);
    let before = host.journal.len();
    assert_eq!(ran(&host.act(approve("a", "approval_1"))), ["a"]);
    assert_eq!(
        host.journal[before..],
        [
            Record::HoldReleased { id: "a".into(), approval: "approval_1".into() },
            Record::CallStarted {
                id: "a".into(),
                attempt: 1,
                idempotency_key: None,
                approval: Some("approval_1".into())
            },
        ]
    );
    assert_eq!(host.turn().approvals, []);
    assert_eq!(host.checkpoint().to_json()["calls"]["a"].get("hold"), None);
    // It cannot be used again: neither by a second decision nor by a record.
    host.refuses(ErrorKind::Config, approve("a", "approval_2"));
    let mut forged = host.machine.session().clone();
    let started =
        Record::CallStarted { id: "a".into(), attempt: 2, idempotency_key: None, approval: Some("approval_1".into()) };
    assert_eq!(forged.apply(&started).unwrap_err().kind, ErrorKind::Corruption);
}

// covers L67
#[test]
fn no_crash_falls_between_the_start_and_the_use_of_its_approval() {
    // At each length of the journal the call is either not started and has its approval, or started and has used it.
    let mut host = Host::with(Settings { calls_at_once: 1, ..Settings::default() });
    host.respond("resp_1", &[(sync("first"), start()), (sync("a"), held(Hold::Approval))]);
    host.act(approve("a", "approval_1"));
    host.ended("first", "x");
    assert_eq!(host.states()["a"], json!("Running"));
    for length in 0..=host.journal.len() {
        let session = Session::fold(&host.journal[..length]).unwrap();
        let Some(turn) = session.turn() else { continue };
        let Some(call) = turn.checkpoint.call(&"a".into()) else { continue };
        let (started, unused) = (turn.attempts(&"a".into()), turn.approvals.len());
        match call.hold {
            Some(_) => assert_eq!((started, unused), (0, 0)),
            None => assert_eq!(started as usize + unused, 1, "after {length} records"),
        }
    }
    // A crash before the start: the approval is still there and is used by the start that follows.
    host.journal.truncate(host.journal.len() - 1);
    host.crash();
    let before = host.journal.len();
    assert_eq!(ran(&host.open(&[("a", held(Hold::Approval))])), ["a"]);
    assert!(
        matches!(&host.journal[before..], [Record::CallStarted { approval: Some(used), .. }] if used == "approval_1")
    );
}

// covers L61
#[test]
fn decision_or_output_ends_the_hold_and_settles_the_call() {
    for (hold, decision, how) in [
        (Hold::Approval, Decision::Decline { output: "rejected by Ann".into() }, Settlement::Declined),
        (Hold::Output, Decision::Decline { output: "rejected by Ann".into() }, Settlement::Declined),
        (Hold::Output, output("from outside"), Settlement::Outside),
    ] {
        let text = match &decision {
            Decision::Decline { output } | Decision::Output { output } => output.clone(),
            Decision::Approve { .. } => unreachable!(),
        };
        let mut host = Host::new();
        host.respond("resp_1", &[(sync("a"), held(hold))]);
        let effects = host.act(decided("a", decision));
        assert_eq!(effects, [Effect::Append(vec![Record::CallSettled { id: "a".into(), output: text.clone(), how }])]);
        assert_eq!(host.checkpoint().to_json()["calls"]["a"].get("hold"), None);
        assert_eq!(host.states(), json!({ "a": ready(&text) }));
        assert_eq!(host.next(), Next::Deliver);
    }
}

// covers L61
#[test]
fn output_stands_in_for_no_approval_and_an_approval_for_no_output() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), held(Hold::Approval)), (sync("b"), held(Hold::Output)), (sync("c"), start())]);
    host.refuses(ErrorKind::Config, decided("a", output("x")));
    host.refuses(ErrorKind::Config, approve("b", "yes"));
    host.refuses(ErrorKind::Config, approve("c", "yes"));
    host.refuses(ErrorKind::Config, approve("ghost", "yes"));
}

// covers L61, L12
#[test]
fn sync_call_that_is_let_go_during_its_response_waits_for_the_acceptance() {
    let mut host = Host::new();
    host.begin();
    host.call(sync("sync"), held(Hold::Approval));
    host.call(asynchronous("async"), held(Hold::Approval));
    assert_eq!(ran(&host.act(approve("sync", "1"))), [""; 0]);
    assert_eq!(ran(&host.act(approve("async", "2"))), ["async"]);
    assert_eq!(ran(&host.complete("resp_1")), ["sync"]);
}

// covers L66, L61
#[test]
fn sync_call_that_is_let_go_in_an_incomplete_turn_waits_for_the_resume() {
    let mut host = Host::new();
    host.begin();
    host.call(sync("a"), held(Hold::Approval));
    host.act(completed(Completion { finish_reason: Some("length".into()), ..completion("resp_1") }));
    assert_eq!(ran(&host.act(approve("a", "1"))), [""; 0]);
    assert_eq!(ran(&host.act(Event::Resume { why: "go on".into() })), ["a"]);
}

// covers L30, L61
#[test]
fn held_sync_call_keeps_requests_back_and_a_held_async_call_blocks_nothing() {
    let mut host = Host::new();
    host.respond(
        "resp_1",
        &[(sync("held"), held(Hold::Approval)), (sync("done"), start()), (asynchronous("runs"), start())],
    );
    assert_eq!(host.next(), Next::WaitForJob);
    host.ended("done", "x");
    assert_eq!(host.next(), Next::WaitForJob, "the turn is not at rest while something runs");
    host.ended("runs", "y");
    let reason = PauseReason::Held { calls: vec!["held".into()] };
    assert_eq!(host.next(), Next::Rest(reason.clone()));
    host.act(Event::Pause(reason));
    host.act(decided("held", Decision::Decline { output: "no".into() }));
    host.act(Event::Resume { why: "decided".into() });
    host.act(Event::Prepare);
    assert_eq!(host.checkpoint().delivery().unwrap().call_ids, ["held".into(), "done".into(), "runs".into()]);

    let mut host = Host::new();
    host.respond("resp_1", &[(asynchronous("held"), held(Hold::Approval)), (sync("done"), start())]);
    host.ended("done", "x");
    assert_eq!(host.next(), Next::Deliver);
    host.act(Event::Prepare);
    host.begin_on("resp_1");
    host.complete("resp_2");
    assert_eq!(host.states(), json!({ "held": "Queued", "done": "Delivered" }));
    // Nothing else is left: the turn rests, and may not complete.
    assert_eq!(host.next(), Next::Rest(PauseReason::Held { calls: vec!["held".into()] }));
    assert!(!host.checkpoint().may_complete());
}

// covers H1, L61
#[test]
fn cancel_settles_held_calls_too() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), held(Hold::Approval))]);
    host.act(Event::Cancel);
    assert_eq!(
        host.checkpoint().to_json()["calls"]["a"],
        json!({ "call": sync("a").to_json(), "replay_safe": false, "replay_class": "never", "state": ready(CANCELLED) })
    );
    host.refuses(ErrorKind::Config, approve("a", "late"));
}

// covers L61, L62, X4
#[test]
fn turn_that_waits_for_held_calls_goes_on_by_itself_once_the_last_one_is_decided() {
    let decisions = [Decision::Approve { approval: "yes".into() }, Decision::Decline { output: "no".into() }];
    for last in decisions {
        let mut host = Host::new();
        host.respond("resp_1", &[(sync("a"), held(Hold::Approval)), (sync("b"), held(Hold::Approval))]);
        let waits = PauseReason::Held { calls: vec!["a".into(), "b".into()] };
        assert_eq!(host.next(), Next::Rest(waits.clone()));
        host.act(Event::Pause(waits.clone()));
        host.act(decided("a", Decision::Decline { output: "no".into() }));
        assert_eq!(host.turn().paused, Some(waits));
        host.act(decided("b", last.clone()));
        assert_eq!(host.turn().paused, None);
        if last == (Decision::Approve { approval: "yes".into() }) {
            assert_eq!(host.next(), Next::WaitForJob);
            host.ended("b", "done");
        }
        assert_eq!(host.next(), Next::Deliver);
    }
    // So does one whose last held call was withdrawn.
    let mut host = Host::new();
    host.begin();
    host.call(asynchronous("a"), held(Hold::Approval));
    host.act(Event::Pause(PauseReason::Held { calls: vec!["a".into()] }));
    host.act(Event::StreamBroken);
    host.act(Event::Resolve(Evidence::Unasked { can_retrieve: false }));
    assert_eq!((host.turn().paused.clone(), host.next()), (None, Next::Ask));
}
