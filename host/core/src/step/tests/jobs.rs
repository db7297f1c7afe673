//! Which call runs when, and what its end does (L1 to L14, L20, L27 to L32).

use super::*;

fn capped(calls_at_once: usize) -> Settings {
    Settings { calls_at_once, ..Settings::default() }
}

// covers L2, L3
#[test]
fn cap_of_nothing_is_a_cap_of_one_and_no_cap_is_exceeded() {
    for (cap, at_once) in [(0, 1), (1, 1), (2, 2)] {
        let mut host = Host::with(capped(cap));
        let mut effects = Vec::new();
        for id in ["a", "b", "c"] {
            effects.extend(host.call(sync(id), start()));
        }
        assert_eq!(ran(&effects), ["a", "b", "c"][..at_once], "cap {cap}");
        assert_eq!(host.machine.running(), at_once);
        // Each end lets the next one start, in order.
        assert_eq!(ran(&host.ended("a", "1")), [["a", "b", "c"][at_once]]);
        assert_eq!(host.machine.running(), at_once);
    }
}

// covers L4
#[test]
fn without_parallel_one_call_runs_at_a_time_over_all_calls() {
    let mut host = Host::with(Settings { parallel: false, calls_at_once: 8, ..Settings::default() });
    assert_eq!(ran(&host.call(sync("a"), start().with_class("x"))), ["a"]);
    assert_eq!(ran(&host.call(sync("b"), start())), [""; 0]);
    host.begin();
    assert_eq!(ran(&host.call(asynchronous("c"), start().with_class("y"))), [""; 0]);
    assert_eq!(ran(&host.ended("a", "1")), ["b"]);
    assert_eq!(ran(&host.ended("b", "2")), ["c"]);
}

// covers L5
#[test]
fn calls_of_one_class_run_one_at_a_time_in_their_order_and_others_overlap_with_them() {
    let mut host = Host::with(capped(8));
    let mut effects = Vec::new();
    for (id, class) in [("x1", Some("x")), ("x2", Some("x")), ("x3", Some("x")), ("y1", Some("y")), ("none", None)] {
        let policy = CallPolicy { class: class.map(Arc::from), ..start() };
        effects.extend(host.call(sync(id), policy));
    }
    assert_eq!(ran(&effects), ["x1", "y1", "none"]);
    assert_eq!(ran(&host.ended("y1", "")), [""; 0]);
    assert_eq!(ran(&host.ended("x1", "")), ["x2"]);
    assert_eq!(ran(&host.ended("none", "")), [""; 0]);
    assert_eq!(ran(&host.ended("x2", "")), ["x3"]);
}

// covers L6
#[test]
fn class_lock_is_taken_before_a_permit() {
    // One permit. The first call of class x gets the lock while it waits for the permit; a later one of its class cannot
    // overtake it, and a call that waits for the lock takes no permit.
    let mut host = Host::with(capped(1));
    assert_eq!(ran(&host.call(sync("plain"), start())), ["plain"]);
    for (id, class) in [("x1", "x"), ("x2", "x"), ("y1", "y")] {
        assert_eq!(ran(&host.call(sync(id), start().with_class(class))), [""; 0]);
    }
    assert_eq!(ran(&host.ended("plain", "")), ["x1"]);
    assert_eq!(ran(&host.ended("x1", "")), ["x2"]);
    assert_eq!(ran(&host.ended("x2", "")), ["y1"]);
    let mut host = Host::with(capped(2));
    assert_eq!(ran(&host.call(sync("x1"), start().with_class("x"))), ["x1"]);
    assert_eq!(ran(&host.call(sync("x2"), start().with_class("x"))), [""; 0]);
    assert_eq!(ran(&host.call(sync("plain"), start())), ["plain"], "x2 waits for its lock and holds no permit");
}

// covers L9
#[test]
fn repeated_call_is_not_run_again() {
    let mut host = Host::new();
    host.begin();
    assert_eq!(ran(&host.call(asynchronous("a"), safe())), ["a"]);
    assert_eq!(host.call(asynchronous("a"), safe()), []);
    host.ended("a", "1");
    assert_eq!(host.call(asynchronous("a"), safe()), []);
    assert_eq!(host.states(), json!({ "a": ready("1") }));
    // It is authorised again: another class of the same call is a contradiction, not a repeat.
    let event = host.called(asynchronous("a"), start());
    host.refuses(ErrorKind::Config, event);
}

// covers L10, L14
#[test]
fn async_call_starts_during_its_stream_behind_one_append_of_acceptance_and_start() {
    let mut host = Host::new();
    host.begin();
    let call = Call::custom("a", "raw", "line\nline").asynchronous();
    let policy = start().with_replay(ReplayClass::Keyed);
    assert_eq!(
        host.call(call.clone(), policy),
        [
            Effect::Append(vec![
                Record::CallAccepted {
                    call: call.clone(),
                    wire_call_id: None,
                    replay: ReplayClass::Keyed,
                    hold: None,
                    idempotency_key: Some("fresh_1".into()),
                },
                Record::CallStarted {
                    id: "a".into(),
                    attempt: 1,
                    idempotency_key: Some("fresh_1".into()),
                    approval: None
                },
            ]),
            Effect::Run(Launch {
                call,
                attempt: 1,
                idempotency_key: Some("fresh_1".into()),
                replay: ReplayClass::Keyed
            }),
        ]
    );
    assert!(host.checkpoint().response_in_flight());
}

// covers L12, L20
#[test]
fn sync_call_of_a_response_waits_for_its_acceptance_and_then_runs_in_order() {
    let mut host = Host::new();
    host.begin();
    for id in ["b", "a"] {
        assert_eq!(ran(&host.call(sync(id), start())), [""; 0]);
    }
    host.call(sync("held"), held(Hold::Approval));
    assert_eq!(host.states(), json!({ "b": "Queued", "a": "Queued", "held": "Queued" }));
    let before = host.journal.len();
    assert_eq!(ran(&host.complete("resp_1")), ["b", "a"]);
    assert_eq!(
        host.kinds_since(before),
        ["response.completed", "response.recorded", "flight.cleared", "call.started", "call.started"]
    );
}

// covers L13
#[test]
fn sync_call_outside_of_a_response_starts_at_once_unless_it_is_held() {
    let mut host = Host::new();
    assert_eq!(ran(&host.call(sync("a"), start())), ["a"]);
    assert_eq!(ran(&host.call(sync("b"), held(Hold::Output))), [""; 0]);
}

// covers L27
#[test]
fn waiting_makes_sense_only_while_a_call_runs() {
    let mut host = Host::with(capped(1));
    assert!(!host.machine.has_jobs());
    host.call(sync("a"), start());
    host.call(sync("b"), start());
    assert!(host.machine.has_jobs());
    host.ended("a", "");
    assert!(host.machine.has_jobs(), "b runs now");
    host.ended("b", "");
    assert!(!host.machine.has_jobs());
    // What waits and will never start is nothing to wait for.
    host.call(sync("c"), start());
    host.call(sync("d"), start());
    host.act(Event::Stop);
    host.ended("c", "");
    assert_eq!(host.states()["d"], json!("Queued"));
    assert!(!host.machine.has_jobs());
}

// covers L28, L29, L65
#[test]
fn each_end_of_a_job_is_an_output_and_the_turn_goes_on() {
    let mut host = Host::new();
    for id in ["text", "error", "crash"] {
        host.call(sync(id), start());
    }
    let text = "  {\"exactly\": 1e2}\n";
    let outcomes = [
        ("text", JobOutcome::Output(text.into()), ready(text), Settlement::Done),
        (
            "error",
            JobOutcome::Error("no \"such\" file".into()),
            ready(r#"{"error":"no \"such\" file"}"#),
            Settlement::Failed,
        ),
        ("crash", JobOutcome::Crashed, ready(r#"{"error":"cancelled: the tool's job crashed"}"#), Settlement::Crashed),
    ];
    for (id, outcome, state, how) in outcomes {
        let effects = host.act(Event::JobEnded { id: id.into(), outcome });
        assert_eq!(host.states()[id], state);
        let Some(Effect::Append(records)) = effects.first() else { panic!("{effects:?}") };
        assert!(matches!(&records[..], [Record::CallSettled { how: found, .. }] if *found == how), "{records:?}");
    }
    assert!(!host.machine.has_jobs());
}

// covers L31, E4
#[test]
fn cancel_keeps_results_that_came_before_and_settles_the_rest() {
    let mut host = Host::with(capped(2));
    host.begin();
    for id in ["done", "runs", "waits"] {
        host.call(asynchronous(id), start());
    }
    host.call(sync("queued"), start());
    host.ended("done", "kept");
    let before = host.journal.len();
    let effects = host.act(Event::Cancel);
    assert_eq!(aborted(&effects), ["runs", "waits"], "what runs is stopped, behind the append");
    assert_eq!(host.kinds_since(before), ["call.settled", "call.settled", "call.settled"]);
    let expected = json!({
        "done": ready("kept"), "runs": ready(CANCELLED), "waits": ready(CANCELLED), "queued": ready(CANCELLED),
    });
    assert_eq!(host.states(), expected);
    // A result that still comes does not count, and starts nothing.
    assert_eq!(host.ended("runs", "late"), []);
    assert_eq!(host.states(), expected);
}

// covers L31
#[test]
fn job_that_ended_before_the_cancel_was_heard_keeps_its_result_and_nothing_starts_in_its_place() {
    let mut host = Host::with(capped(2));
    for id in ["done", "failed", "waits"] {
        host.call(sync(id), start());
    }
    let ended = vec![
        (CallId::new("failed"), JobOutcome::Error("no".into())),
        (CallId::new("done"), JobOutcome::Output("kept".into())),
    ];
    let effects = host.act(Event::CancelAfter(ended));
    assert_eq!((ran(&effects), aborted(&effects)), (vec![], vec![]));
    let expected = json!({ "done": ready("kept"), "failed": ready(r#"{"error":"no"}"#), "waits": ready(CANCELLED) });
    assert_eq!(host.states(), expected);
}

// covers L32
#[test]
fn after_a_cancel_there_is_nothing_to_wait_for_and_the_next_delivery_has_the_cancelled_outputs() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start()), (asynchronous("b"), start())]);
    host.ended("b", "kept");
    host.act(Event::Cancel);
    assert!(!host.machine.has_jobs());
    assert!(!host.checkpoint().may_complete());
    assert_eq!(host.next(), Next::Deliver);
    host.act(Event::Prepare);
    assert_eq!(
        host.checkpoint().to_json()["delivery"]["input"],
        json!([
            { "type": "function_call_output", "call_id": "a", "output": CANCELLED },
            { "type": "function_call_output", "call_id": "b", "output": "kept" },
        ])
    );
}

// covers L11
#[test]
fn journal_that_failed_poisons_everything_but_reading() {
    let mut host = Host::new();
    host.call(sync("a"), start());
    host.call(sync("b"), start());
    let before = host.checkpoint().to_json();
    let effects = host.act(Event::JournalFailed(Error::new(ErrorKind::Conflict, "the lease is lost")));
    assert_eq!(effects, [Effect::Abort("a".into()), Effect::Abort("b".into())]);
    let events = [
        Event::TurnStarted { turn: "t".into(), input: Vec::new() },
        ended("a", "late"),
        Event::Cancel,
        Event::Prepare,
        Event::RequestBegun { message_id: None, continues: None, whole_history: true, maker: None },
        Event::Parked { why: String::new() },
        Event::JournalFailed(Error::store("again")),
    ];
    for event in events {
        assert_eq!(host.refuses(ErrorKind::Store, event).message, "the lease is lost");
    }
    assert_eq!(host.machine.next().unwrap_err().kind, ErrorKind::Store);
    assert_eq!(host.machine.poisoned().unwrap().kind, ErrorKind::Store);
    assert!(!host.machine.has_jobs());
    assert_eq!(host.checkpoint().to_json(), before);
}

// covers L62
#[test]
fn stopped_host_starts_nothing_new_and_comes_to_rest_once_what_runs_has_ended() {
    let mut host = Host::with(capped(1));
    host.respond("resp_1", &[(sync("a"), start()), (sync("b"), start())]);
    assert_eq!(host.act(Event::Stop), []);
    assert_eq!(host.next(), Next::WaitForJob);
    assert_eq!(ran(&host.ended("a", "1")), [""; 0]);
    assert_eq!(host.next(), Next::Rest(PauseReason::Shutdown));
    host.act(Event::Pause(PauseReason::Shutdown));
    host.act(Event::Parked { why: "shutdown".into() });
    // Any process may open it later, and goes on where it stopped.
    host.crash();
    assert_eq!(ran(&host.open(&[("b", start())])), ["b"]);
}

// covers L56
#[test]
fn keyed_call_has_one_key_for_all_its_runs_and_shares_it_with_no_other() {
    let keyed = start().with_replay(ReplayClass::Keyed);
    let mut host = Host::new();
    host.begin();
    let key = |effects: &[Effect]| match effects {
        [Effect::Append(_), Effect::Run(launch)] => (launch.attempt, launch.idempotency_key.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(key(&host.call(asynchronous("a"), keyed.clone())), (1, Some("fresh_1".into())));
    host.complete("resp_1");
    assert_eq!(key(&host.call(sync("b"), keyed.clone())), (1, Some("fresh_2".into())));
    assert_eq!(key(&host.call(sync("c"), safe())), (1, None), "a key is for keyed calls");
    for attempt in [2, 3] {
        host.crash();
        let effects = host.open(&[("a", keyed.clone()), ("b", keyed.clone()), ("c", safe())]);
        let keys: Vec<_> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Run(launch) => {
                    Some((launch.call.id.to_string(), launch.attempt, launch.idempotency_key.clone()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            keys,
            [
                ("a".to_owned(), attempt, Some("fresh_1".to_owned())),
                ("b".to_owned(), attempt, Some("fresh_2".to_owned())),
                ("c".to_owned(), attempt, None),
            ]
        );
    }
}

// covers L64
#[test]
fn policy_alone_says_whether_a_call_starts_waits_or_is_refused() {
    // The same call under each policy; nothing else differs.
    let outcome = |policy: CallPolicy| {
        let mut host = Host::new();
        host.begin();
        let effects = host.call(asynchronous("a"), policy);
        (ran(&effects).len(), host.checkpoint().to_json()["calls"]["a"].clone())
    };
    let entry = |members: Value| {
        let mut entry = json!({ "call": asynchronous("a").to_json(), "replay_safe": false, "replay_class": "never" });
        entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        entry
    };
    assert_eq!(outcome(start()), (1, entry(json!({ "state": "Running" }))));
    assert_eq!(outcome(safe()), (1, entry(json!({ "state": "Running", "replay_safe": true, "replay_class": "safe" }))));
    assert_eq!(outcome(held(Hold::Approval)), (0, entry(json!({ "state": "Queued", "hold": "approval" }))));
    assert_eq!(outcome(held(Hold::Output)), (0, entry(json!({ "state": "Queued", "hold": "output" }))));
    assert_eq!(
        outcome(CallPolicy::refuse(RefusalReason::Policy, "no")),
        (0, entry(json!({ "state": ready(r#"{"error":"no"}"#), "rejected": true })))
    );
    let (runs, refused) = outcome(CallPolicy::start());
    assert_eq!((runs, &refused["rejected"]), (0, &json!(true)), "async is not allowed");
}

/// A job that ends after its turn was abandoned, in a later turn, is nobody's mistake.
#[test]
fn late_end_of_an_earlier_turns_job_changes_nothing() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start())]);
    host.act(Event::Reconcile { command: Reconcile::Abandon, who: "op".into() });
    assert_eq!(host.ended("a", "late"), []);
    host.act(Event::TurnStarted { turn: "turn_2".into(), input: Vec::new() });
    assert_eq!(host.ended("a", "late"), []);
    host.refuses(ErrorKind::Config, ended("ghost", "x"));
}

// covers L57, L62, H1, G4, G12
#[test]
fn cut_off_host_queues_what_may_run_again_and_settles_the_rest_as_cancelled() {
    let mut host = Host::with(capped(5));
    let keyed = start().with_replay(ReplayClass::Keyed);
    host.respond(
        "resp_1",
        &[(sync("never"), start()), (sync("safe"), safe()), (sync("keyed"), keyed.clone()), (sync("done"), start())],
    );
    host.call(sync("h"), held(Hold::Approval));
    host.act(Event::Stop);
    let effects = host.act(Event::CutOff(vec![("done".into(), JobOutcome::Output("out".into()))]));
    assert_eq!(aborted(&effects), ["keyed", "never", "safe"]);
    assert_eq!(
        host.states(),
        json!({
            "never": ready(r#"{"error":"cancelled"}"#), "safe": "Queued", "keyed": "Queued", "done": ready("out"),
            "h": "Queued",
        })
    );
    assert_eq!(host.next(), Next::Rest(PauseReason::Shutdown), "nothing starts in their place");
    host.act(Event::Pause(PauseReason::Shutdown));
    host.act(Event::Parked { why: "shutdown".into() });
    host.crash();
    assert_eq!(ran(&host.open(&[("safe", safe()), ("keyed", keyed), ("h", held(Hold::Approval))])), ["safe", "keyed"]);
}
