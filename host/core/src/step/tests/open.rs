//! Opening a journal (G1, G3, G18, L1, L15).

use super::*;
use crate::reconcile::UncertaintyRules;

const CANNOT_ASK: Event = Event::Resolve(Evidence::Unasked { can_retrieve: false });

fn opened(policies: &[(&str, CallPolicy)]) -> Event {
    Event::Opened { policies: policies.iter().map(|(id, policy)| (CallId::new(id), policy.clone())).collect() }
}

/// Calls in each place, by a crash: `never`, `safe` and `keyed` ran, `waits` was queued, `held` waits for an approval.
fn crashed() -> Host {
    let mut host = Host::new();
    let keyed = start().with_replay(ReplayClass::Keyed);
    host.respond(
        "resp_1",
        &[
            (sync("safe"), safe()),
            (sync("never"), start()),
            (sync("held"), held(Hold::Approval)),
            (sync("keyed"), keyed),
            (sync("one"), start().with_class("x")),
            (sync("waits"), start().with_class("x")),
        ],
    );
    host.ended("one", "1");
    host.crash();
    // As it was before `waits` took the lock.
    host.journal.pop();
    host.crash();
    host
}

fn policies() -> Vec<(&'static str, CallPolicy)> {
    vec![
        ("never", start()),
        ("safe", safe()),
        ("keyed", start().with_replay(ReplayClass::Keyed)),
        ("held", held(Hold::Approval)),
        ("waits", start().with_class("x")),
    ]
}

// covers L1, G4, G5, G12
#[test]
fn opening_mends_saves_and_launches_what_waits_in_call_order() {
    let mut host = crashed();
    let before = host.journal.len();
    let effects = host.open(&policies());
    assert_eq!(ran(&effects), ["safe", "keyed", "waits"]);
    assert_eq!(
        host.kinds_since(before),
        ["call.requeued", "call.settled", "call.requeued", "call.started", "call.started", "call.started"]
    );
    let interrupted = ready(&json!({ "error": crate::checkpoint::INTERRUPTED }).to_string());
    assert_eq!(
        host.states(),
        json!({
            "safe": "Running", "never": interrupted, "held": "Queued", "keyed": "Running", "one": ready("1"),
            "waits": "Running",
        })
    );
    // Classes are in force again.
    assert_eq!(ran(&host.call(sync("x3"), start().with_class("x"))), [""; 0]);
    assert_eq!(ran(&host.ended("waits", "2")), ["x3"]);
}

// covers L1
#[test]
fn cap_holds_on_opening_too() {
    let mut host = crashed();
    host.settings.calls_at_once = 1;
    host.crash();
    assert_eq!(ran(&host.open(&policies())), ["safe"]);
    assert_eq!(ran(&host.ended("safe", "x")), ["keyed"]);
}

// covers L1, G7
#[test]
fn opening_twice_over_is_opening_once() {
    let mut host = crashed();
    let mut again = host.clone();
    host.open(&policies());
    again.open(&policies());
    again.crash();
    again.open(&policies());
    // But for `waits`, which the first opening started and which must not run twice.
    let mut expected = host.checkpoint().to_json();
    expected["calls"]["waits"]["state"] = expected["calls"]["never"]["state"].clone();
    assert_eq!(again.checkpoint().to_json(), expected);
    // What may not run again was started once over all of it.
    assert_eq!(again.turn().attempts(&"never".into()), 1);
    assert_eq!(again.turn().attempts(&"safe".into()), 3);
}

/// What may run before a journal is opened is nothing: who decides meanwhile only changes what the opening finds.
// covers L1, L61
#[test]
fn call_that_is_approved_before_the_opening_starts_with_it_in_call_order() {
    let decided = |now: CallPolicy| {
        let mut host = Host::new();
        host.respond("resp_1", &[(sync("first"), safe()), (sync("held"), held(Hold::Approval))]);
        host.crash();
        assert_eq!(ran(&host.act(approve("held", "yes"))), [""; 0]);
        let effects = host.open(&[("first", safe()), ("held", now)]);
        (ran(&effects).join(" "), host.states())
    };
    assert_eq!(decided(held(Hold::Approval)), ("first held".into(), json!({ "first": "Running", "held": "Running" })));
    let refused = json!({ "first": "Running", "held": ready(r#"{"error":"no"}"#) });
    assert_eq!(decided(CallPolicy::refuse(RefusalReason::Policy, "no")), ("first".into(), refused));
}

// covers G4, L1
#[test]
fn approved_call_that_may_run_again_does_so_without_another_approval() {
    let policy = || held(Hold::Approval).with_replay(ReplayClass::Safe);
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), policy())]);
    host.act(approve("a", "yes"));
    host.crash();
    assert_eq!(ran(&host.open(&[("a", policy())])), ["a"]);
    assert_eq!((host.turn().attempts(&"a".into()), host.turn().approvals.clone()), (2, Vec::new()));
}

// covers L15
#[test]
fn narrower_class_replaces_the_stored_one_before_recovery_and_is_journaled() {
    let mut host = crashed();
    let before = host.journal.len();
    let mut narrower = policies();
    narrower[1].1 = start();
    narrower[2].1 = start();
    assert_eq!(ran(&host.open(&narrower)), ["waits"]);
    assert_eq!(
        host.kinds_since(before),
        ["call.narrowed", "call.narrowed", "call.settled", "call.settled", "call.settled", "call.started"]
    );
    let document = host.checkpoint().to_json();
    for id in ["safe", "keyed", "never"] {
        let call = &document["calls"][id];
        assert_eq!((call["replay_class"].clone(), call["replay_safe"].clone()), (json!("never"), json!(false)), "{id}");
        let output = call["state"]["Ready"]["output"].as_str().unwrap();
        assert!(output.contains("interrupted"), "{id}: {output}");
    }
}

/// Found by a random run: an opening queues a call again, a crash comes before it starts, and policy narrows it.
// covers L15, G5
#[test]
fn call_that_was_queued_to_run_again_does_not_once_its_class_is_never() {
    for now in [start(), CallPolicy::refuse(RefusalReason::Policy, "not any more"), held(Hold::Approval)] {
        let mut host = Host::with(Settings { calls_at_once: 1, ..Settings::default() });
        host.respond("resp_1", &[(sync("a"), safe())]);
        host.crash();
        host.act(Event::Stop);
        host.open(&[("a", safe())]);
        assert_eq!((host.states(), host.turn().attempts(&"a".into())), (json!({ "a": "Queued" }), 1));
        host.crash();
        let before = host.journal.len();
        assert_eq!(ran(&host.open(&[("a", now)])), [""; 0]);
        assert_eq!(host.kinds_since(before), ["call.narrowed", "call.settled"]);
        let interrupted = ready(&json!({ "error": crate::checkpoint::INTERRUPTED }).to_string());
        assert_eq!(host.states(), json!({ "a": interrupted }));
    }
}

// covers G5, B11
#[test]
fn second_start_of_a_call_that_must_not_run_again_contradicts_the_journal() {
    let journal = |replay: ReplayClass| {
        let mut host = Host::new();
        host.respond("resp_1", &[(sync("a"), safe())]);
        host.crash();
        host.act(Event::Stop);
        host.open(&[("a", safe())]);
        if replay == ReplayClass::Never {
            host.journal.push(Record::ReplayNarrowed { id: "a".into() });
        }
        host.journal.push(Record::CallStarted { id: "a".into(), attempt: 2, idempotency_key: None, approval: None });
        Session::fold(&host.journal)
    };
    assert!(journal(ReplayClass::Safe).is_ok());
    let error = journal(ReplayClass::Never).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corruption);
    assert!(error.message.ends_with("call \"a\" must not run again and was started again"), "{error}");
}

// covers L15, G3
#[test]
fn any_other_change_of_class_is_a_conflict_and_nothing_is_relaunched() {
    for (at, replay) in
        [(0, ReplayClass::Safe), (0, ReplayClass::Keyed), (1, ReplayClass::Keyed), (2, ReplayClass::Safe)]
    {
        let mut host = crashed();
        let before = host.checkpoint().to_json();
        let mut other = policies();
        other[at].1 = start().with_replay(replay);
        // A narrower one beside it does not come through alone.
        let narrow = (at + 1) % 3;
        other[narrow].1 = start();
        let error = host.refuses(ErrorKind::Conflict, opened(&other));
        assert!(error.message.contains(other[at].0), "{error}");
        assert_eq!(host.checkpoint().to_json(), before);
        assert_eq!(host.machine.running(), 0);
    }
}

// covers L15, B14
#[test]
fn orphan_that_never_runs_again_is_in_nobodys_way() {
    let mut host = Host::new();
    host.begin();
    host.call(sync("withdrawn"), start());
    host.crash();
    host.act(CANNOT_ASK);
    for policy in [safe(), CallPolicy::refuse(RefusalReason::Policy, "no"), held(Hold::Approval)] {
        assert_eq!(host.open(&[("withdrawn", policy)]), []);
        assert_eq!(host.states(), json!({ "withdrawn": "Queued" }));
    }
}

// covers L15, L64
#[test]
fn call_that_policy_refuses_by_now_is_answered_instead_of_run() {
    let refuse = CallPolicy::refuse(RefusalReason::Policy, "not any more");
    let mut host = crashed();
    let mut now = policies();
    now[1].1 = refuse.clone().with_replay(ReplayClass::Safe);
    now[4].1 = refuse;
    assert_eq!(ran(&host.open(&now)), ["keyed"]);
    assert_eq!(host.states()["waits"], ready(r#"{"error":"not any more"}"#));
    let output = host.states()["safe"]["Ready"]["output"].as_str().unwrap().to_owned();
    assert!(output.contains("interrupted"), "it did run, and says so: {output}");
    // The same where somebody is to be asked now and never was.
    let mut host = crashed();
    let mut now = policies();
    now[4].1 = held(Hold::Approval);
    assert_eq!(ran(&host.open(&now)), ["safe", "keyed"]);
    assert_eq!(
        host.states()["waits"],
        ready(r#"{"error":"the rules changed before this call ran: it needs an approval now; call it again"}"#)
    );
}

// covers G1, G3, G11
#[test]
fn damage_is_found_before_anything_is_settled_or_mended() {
    // A stored call whose arguments are no JSON, and an uncertain request.
    let damaged = |uncertain: bool| {
        let mut host = Host::new();
        host.respond("resp_1", &[(sync("a"), safe())]);
        if uncertain {
            host.begin();
        }
        for record in &mut host.journal {
            if let Record::CallAccepted { call, .. } = record {
                *call = Call::function("a", "tool", "{");
            }
        }
        host.crash();
        host
    };
    for event in [
        CANNOT_ASK,
        Event::Resolve(Evidence::Unsettled),
        Event::Reconcile { command: Reconcile::Resend, who: "op".into() },
        Event::Reconcile { command: Reconcile::Receipt("resp_2".into()), who: "op".into() },
        opened(&[]),
    ] {
        let error = damaged(true).refuses(ErrorKind::Corruption, event);
        assert!(error.message.contains("stored call \"a\" is damaged"), "{error}");
    }
    // Whatever else there is to complain about.
    for policy in [safe(), start().with_replay(ReplayClass::Keyed)] {
        damaged(false).refuses(ErrorKind::Corruption, opened(&[("a", policy)]));
    }
}

// covers G1, G3
#[test]
fn uncertainty_is_settled_before_calls_are_mended_and_what_was_settled_stays() {
    let mut host = Host::new();
    host.respond("resp_1", &[(asynchronous("safe"), safe()), (sync("a"), start())]);
    host.ended("a", "x");
    host.act(Event::Prepare);
    host.act(Event::RequestBegun { message_id: Some("msg".into()), continues: None, whole_history: true, maker: None });
    host.crash();
    let before = host.checkpoint().to_json();
    host.refuses(ErrorKind::Store, opened(&[("safe", safe())]));
    assert_eq!(host.checkpoint().to_json(), before);
    host.act(CANNOT_ASK);
    let settled = host.checkpoint().to_json();
    // An error of recovery leaves what was settled, and nothing more.
    host.refuses(ErrorKind::Conflict, opened(&[("safe", start().with_replay(ReplayClass::Keyed))]));
    assert_eq!(host.checkpoint().to_json(), settled);
    assert_eq!(Session::fold(&host.journal).unwrap().turn().unwrap().checkpoint.to_json(), settled);
    assert_eq!(ran(&host.open(&[("safe", safe())])), ["safe"]);
}

// covers G3, G18
#[test]
fn transcript_is_not_finished_where_opening_fails() {
    // The message is pending, its response accepted; the next delivery is prepared. Opening has to fail on the delivery.
    let mut host = Host::new();
    host.act(Event::RequestBegun {
        message_id: Some("msg_1".into()),
        continues: None,
        whole_history: true,
        maker: None,
    });
    host.call(sync("a"), start());
    host.complete("resp_1");
    host.ended("a", "x");
    host.act(Event::Prepare);
    host.crash();
    let before = host.checkpoint().to_json();
    host.refuses(ErrorKind::Store, opened(&[]));
    assert_eq!(host.checkpoint().to_json(), before);
}

/// A turn whose first message is pending: its response accepted, its summary staged or not.
fn pending_message(staged: bool) -> Host {
    let mut host = Host::new();
    host.act(Event::RequestBegun {
        message_id: Some("msg_1".into()),
        continues: None,
        whole_history: true,
        maker: None,
    });
    host.complete("resp_1");
    if staged {
        host.act(Event::SummaryStaged(json!({ "n": 1 })));
    }
    host
}

// covers G18
#[test]
fn pending_message_with_its_summary_is_finished_once() {
    let mut host = pending_message(true);
    host.crash();
    assert_eq!(host.open(&[]), [Effect::Append(vec![Record::TranscriptCommitted { message_id: "msg_1".into() }])]);
    let document = host.checkpoint().to_json();
    assert_eq!(json!([document["transcript_message_id"], document["host_responses"]]), json!([null, [{ "n": 1 }]]));
    host.crash();
    assert_eq!(host.open(&[]), [], "once");
}

// covers G18
#[test]
fn pending_message_without_a_summary_is_dropped_with_its_response_and_kept_with_a_receipt() {
    let in_flight = || {
        let mut host = Host::new();
        host.act(Event::RequestBegun {
            message_id: Some("msg_1".into()),
            continues: None,
            whole_history: true,
            maker: None,
        });
        host.act(Event::ResponseStarted("resp_1".into()));
        host.crash();
        host
    };
    let mut lost = in_flight();
    let before = lost.journal.len();
    lost.act(CANNOT_ASK);
    assert_eq!(lost.kinds_since(before), ["flight.settled", "transcript.dropped"]);
    assert_eq!(lost.checkpoint().to_json()["transcript_message_id"], json!(null));
    assert_eq!(lost.open(&[]), []);
    let mut accepted = in_flight();
    accepted.act(Event::Reconcile { command: Reconcile::Receipt("resp_1".into()), who: "op".into() });
    assert_eq!(accepted.checkpoint().to_json()["transcript_message_id"], json!("msg_1"));
    accepted.open(&[]);
    let document = accepted.checkpoint().to_json();
    assert_eq!(
        json!([document["transcript_message_id"], document["host_responses"]]),
        json!([null, [{ "response_id": "resp_1" }]])
    );
}

// covers G18
#[test]
fn message_that_has_its_summary_survives_a_lost_request_that_had_none() {
    let mut host = pending_message(true);
    host.begin();
    host.crash();
    host.act(CANNOT_ASK);
    assert_eq!(host.checkpoint().transcript_message_id(), Some("msg_1"));
    assert_eq!(host.open(&[]), [Effect::Append(vec![Record::TranscriptCommitted { message_id: "msg_1".into() }])]);
}

// covers G18
#[test]
fn message_that_contradicts_its_summaries_is_an_error() {
    // Two responses were accepted under one message, so there is one summary too few.
    let mut host = pending_message(false);
    host.begin();
    host.complete("resp_2");
    host.crash();
    let before = host.checkpoint().to_json();
    let error = host.refuses(ErrorKind::Store, opened(&[]));
    assert_eq!(error.message, "transcript message \"msg_1\" does not fit: 0 summaries for 2 responses");
    assert_eq!(host.checkpoint().to_json(), before);
}

/// Opening is about the open turn; a session at rest is left alone.
#[test]
fn opening_without_an_open_turn_does_nothing() {
    assert_eq!(Host::empty(Settings::default()).open(&[]), []);
    let mut host = Host::with(Settings { uncertainty: UncertaintyRules::default(), ..Settings::default() });
    host.act(Event::Reconcile { command: Reconcile::Abandon, who: "op".into() });
    host.crash();
    assert_eq!(host.open(&[]), []);
    host.act(Event::TurnStarted { turn: "turn_2".into(), input: Vec::new() });
    assert_eq!(ran(&host.call(sync("a"), start())), ["a"]);
}

/// Neither an opening that never came nor a stream that broke holds up the turn after the one that was given up.
// covers L13, L60
#[test]
fn turn_after_an_abandoned_one_starts_its_calls() {
    for crashes in [true, false] {
        let mut host = Host::new();
        host.begin();
        host.act(Event::StreamBroken);
        if crashes {
            host.crash();
        }
        host.act(Event::Reconcile { command: Reconcile::Abandon, who: "op".into() });
        host.act(Event::TurnStarted { turn: "turn_2".into(), input: Vec::new() });
        assert_eq!(ran(&host.call(sync("a"), start())), ["a"]);
    }
}
