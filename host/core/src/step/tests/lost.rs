//! Responses that were never accepted, and turns that are given up (L57 to L60).

use super::*;
use crate::history::History;
use crate::model::Item;
use crate::reconcile::UncertaintyRules;
use crate::record::Closed;

const CANNOT_ASK: Event = Event::Resolve(Evidence::Unasked { can_retrieve: false });

/// The stream of the first response breaks and the request is settled as lost.
fn lose(host: &mut Host) -> Vec<Effect> {
    host.act(Event::StreamBroken);
    host.act(CANNOT_ASK)
}

/// A call in each place when its response is lost: `runs` and `done` were started, `waits` has no permit, `queued` is
/// sync, `held` waits for an approval.
fn with_calls(policy: &CallPolicy) -> Host {
    let mut host = Host::with(Settings { calls_at_once: 1, ..Settings::default() });
    host.begin();
    host.call(asynchronous("done"), policy.clone());
    host.ended("done", "wrote it");
    host.call(asynchronous("runs"), policy.clone());
    host.call(asynchronous("waits"), policy.clone());
    host.call(sync("queued"), policy.clone());
    host.call(asynchronous("held"), held(Hold::Approval));
    host
}

// covers L58, B14, L57
#[test]
fn calls_of_a_lost_response_are_orphans_that_start_no_more_and_run_on() {
    let mut host = with_calls(&safe());
    let effects = lose(&mut host);
    let all = ["done", "runs", "waits", "queued", "held"];
    assert_eq!((ran(&effects), aborted(&effects)), (vec![], vec![]));
    assert_eq!(host.checkpoint().to_json()["orphans"], json!(all));
    assert_eq!(host.machine.running(), 1);
    // What runs is settled; what did not start never does, whatever becomes free and whoever lets it.
    assert_eq!(ran(&host.ended("runs", "late")), [""; 0]);
    for decision in [Decision::Approve { approval: "yes".into() }, Decision::Decline { output: "no".into() }] {
        host.refuses(ErrorKind::Config, Event::Decided { id: "held".into(), decision });
    }
    host.act(Event::Resume { why: "x".into() });
    let states = json!({
        "done": ready("wrote it"), "runs": ready("late"), "waits": "Queued", "queued": "Queued", "held": "Queued",
    });
    assert_eq!(host.states(), states);
    // Nor after a crash.
    host.crash();
    assert_eq!(host.open(&all.map(|id| (id, safe()))), []);
    assert_eq!(host.states(), states);
    // No output is sent on their ids.
    host.begin();
    host.complete("resp_1");
    assert_eq!(host.act(Event::Prepare), []);
    assert_eq!(host.next(), Next::Finished);
}

// covers L58
#[test]
fn running_orphan_keeps_the_turn_open_until_it_is_settled() {
    let mut host = with_calls(&safe());
    lose(&mut host);
    assert_eq!(host.next(), Next::WaitForJob, "its outcome is worth knowing before the model is told");
    host.ended("runs", "late");
    assert_eq!(host.next(), Next::Ask);
}

// covers L59
#[test]
fn model_is_told_once_which_calls_of_the_lost_answer_ran_and_with_what_outcome() {
    let mut host = with_calls(&safe());
    host.call(Call::custom("odd", "raw", "two\nlines").asynchronous(), safe());
    lose(&mut host);
    host.act(Event::JobEnded { id: "runs".into(), outcome: JobOutcome::Error("disk\nfull".into()) });
    let notice = "[host] An earlier answer of yours was lost on the way and is not part of this conversation. These calls \
                  of it were run; do not repeat them without need:\n\
                  - tool \"{}\": \"wrote it\"\n\
                  - tool \"{}\": \"{\\\"error\\\":\\\"disk\\\\nfull\\\"}\"";
    assert_eq!(host.turn().lost_notice().as_deref(), Some(notice));
    assert_eq!(host.next(), Next::Ask);
    // A request that does not arrive tells nothing: it has to be told again, in the next one too.
    for fate in [Fate::NotSent, Fate::Refused] {
        host.begin();
        assert_eq!(host.turn().lost_notice(), None);
        host.act(Event::RequestFailed(RequestError::new(fate, Error::provider("no"))));
        assert_eq!(host.turn().lost_notice().as_deref(), Some(notice));
    }
    host.begin();
    assert_eq!(host.turn().flight.as_ref().unwrap().begun.told, ["done".into(), "runs".into()]);
    host.complete("resp_1");
    assert_eq!(host.turn().lost_notice(), None);
    assert_eq!(host.next(), Next::Finished);
}

// covers L59
#[test]
fn turn_whose_last_answer_stands_is_not_over_before_the_model_is_told() {
    let mut host = Host::new();
    host.respond("resp_1", &[]);
    host.begin();
    host.call(asynchronous("a"), safe());
    host.ended("a", "x");
    lose(&mut host);
    assert!(host.checkpoint().may_complete());
    assert_eq!(host.next(), Next::Ask);
}

// covers L59, I10
#[test]
fn notice_stands_after_the_outputs_of_a_delivery() {
    let mut host = Host::new();
    host.respond("resp_1", &[(sync("a"), start())]);
    host.ended("a", "x");
    host.act(Event::Prepare);
    host.begin();
    host.call(asynchronous("b"), safe());
    host.ended("b", "y");
    lose(&mut host);
    assert_eq!(host.next(), Next::Deliver);
    host.act(Event::Prepare);
    let delivery = host.checkpoint().delivery().unwrap();
    assert_eq!(delivery.input, [json!({ "type": "function_call_output", "call_id": "a", "output": "x" })]);
    let text = host.turn().lost_notice().unwrap();
    assert!(text.ends_with("\n- tool \"{}\": \"y\""), "{text}");
    assert_eq!(delivery.after, [Item::Message { role: Role::User, text }]);
}

// covers L59
#[test]
fn lost_answer_in_which_nothing_ran_needs_no_word() {
    let mut host = Host::new();
    host.begin();
    host.call(sync("queued"), start());
    lose(&mut host);
    assert_eq!((host.turn().lost_notice(), host.next()), (None, Next::Ask));
    host.begin();
    assert_eq!(host.turn().flight.as_ref().unwrap().begun.told, []);
}

// covers L59, G17
#[test]
fn started_call_of_class_never_pauses_the_turn_for_an_operators_answer() {
    let reason = PauseReason::LostResponse { calls: vec!["done".into(), "runs".into()] };
    let mut host = with_calls(&start());
    let effects = lose(&mut host);
    let [Effect::Append(records)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(records.last(), Some(&Record::Paused { reason: reason.clone() }));
    // What runs is waited for, then the turn is at rest, also after a crash.
    assert_eq!(host.next(), Next::WaitForJob);
    host.ended("runs", "paid");
    assert_eq!(host.next(), Next::Rest(reason.clone()));
    host.crash();
    host.open(&[]);
    assert_eq!(host.next(), Next::Rest(reason.clone()));
    // Neither a plain resume nor a shutdown stands in for the answer.
    let error = host.refuses(ErrorKind::Store, Event::Resume { why: "go".into() });
    let hint = error.hint.unwrap();
    assert!(hint.contains("--resend") && hint.contains("--abandon"), "{hint}");
    assert_eq!(host.act(Event::Pause(PauseReason::Shutdown)), []);
    assert_eq!(host.next(), Next::Rest(reason));
    // The answer goes on, and the model is told.
    let mut resent = host.clone();
    resent.act(Event::Reconcile { command: Reconcile::Resend, who: "op".into() });
    assert_eq!(resent.next(), Next::Ask);
    assert!(resent.turn().lost_notice().unwrap().contains("\"paid\""));
    host.act(Event::Reconcile { command: Reconcile::Abandon, who: "op".into() });
    assert_eq!(host.turn().ended.as_deref(), Some("abandoned"));
}

// covers L59
#[test]
fn no_answer_is_needed_where_the_harness_says_continue_or_nothing_irrevocable_was_started() {
    let says = UncertaintyRules { continue_after_lost: true, ..UncertaintyRules::default() };
    let mut host = Host::with(Settings { uncertainty: says, ..Settings::default() });
    host.begin();
    host.call(asynchronous("a"), start());
    host.ended("a", "x");
    lose(&mut host);
    assert_eq!((host.turn().paused.clone(), host.next()), (None, Next::Ask));
    assert!(host.turn().lost_notice().is_some(), "the model is told all the same");
    // Calls that may run again, that never started, or that were refused.
    let mut host = Host::new();
    host.begin();
    host.call(asynchronous("safe"), safe());
    host.call(asynchronous("keyed"), start().with_replay(ReplayClass::Keyed));
    host.call(sync("queued"), start());
    host.call(sync("refused"), CallPolicy::refuse(RefusalReason::Policy, "no"));
    lose(&mut host);
    assert_eq!(host.turn().paused, None);
}

// covers L59, L66
#[test]
fn failed_response_with_a_started_call_of_class_never_pauses_too() {
    let mut host = Host::new();
    host.begin();
    host.call(asynchronous("a"), start());
    let outcome = Outcome::Failed { code: String::new(), message: "broke".into() };
    host.act(completed(Completion { outcome, ..completion("resp_1") }));
    host.ended("a", "x");
    assert_eq!(host.next(), Next::Rest(PauseReason::LostResponse { calls: vec!["a".into()] }));
    // A request that is proven not to have been accepted needs nobody.
    let mut host = Host::new();
    host.begin();
    host.act(Event::RequestFailed(RequestError::new(Fate::Refused, Error::provider("no"))));
    assert_eq!((host.turn().paused.clone(), host.next()), (None, Next::Ask));
}

// covers L59, L18
#[test]
fn operators_answer_does_not_release_what_waits_for_a_successor() {
    let mut host = Host::new();
    host.begin();
    host.call(sync("old"), start());
    host.act(completed(Completion { finish_reason: Some("steered".into()), ..completion("resp_1") }));
    host.begin();
    host.call(asynchronous("paid"), start());
    host.ended("paid", "x");
    lose(&mut host);
    assert_eq!(ran(&host.act(Event::Reconcile { command: Reconcile::Resend, who: "op".into() })), [""; 0]);
    assert_eq!(host.states()["old"], json!("Queued"));
    assert_eq!(host.next(), Next::Ask);
    host.begin();
    assert_eq!(ran(&host.complete("resp_2")), ["old"]);
}

// covers L59, L1
#[test]
fn calls_of_earlier_responses_run_on_after_a_crash_in_a_pause() {
    let mut host = Host::new();
    host.respond("resp_1", &[(asynchronous("slow"), safe())]);
    host.begin();
    host.call(asynchronous("paid"), start());
    host.ended("paid", "x");
    lose(&mut host);
    host.crash();
    assert_eq!(ran(&host.open(&[("slow", safe())])), ["slow"], "a pause keeps requests back, not calls");
    host.act(Event::Reconcile { command: Reconcile::Resend, who: "op".into() });
    assert_eq!(host.next(), Next::WaitForJob);
    host.ended("slow", "y");
    assert_eq!(host.next(), Next::Deliver);
}

// covers L60
#[test]
fn abandoning_cancels_what_runs_and_leaves_a_turn_that_may_be_released() {
    let mut host = Host::with(Settings { calls_at_once: 1, ..Settings::default() });
    host.respond("resp_1", &[(sync("done"), start()), (asynchronous("runs"), start())]);
    host.ended("done", "x");
    assert_eq!(ran(&host.call(sync("waits"), start())), [""; 0]);
    host.act(Event::Prepare);
    host.act(Event::RequestBegun {
        message_id: Some("msg_1".into()),
        continues: Some("resp_1".into()),
        whole_history: false,
        maker: None,
    });
    host.call(sync("queued"), start());
    host.call(sync("held"), held(Hold::Approval));
    host.act(Event::StreamBroken);
    let effects = host.act(Event::Reconcile { command: Reconcile::Abandon, who: "op".into() });
    assert_eq!((ran(&effects), aborted(&effects)), (vec![], vec!["runs"]));
    let document = host.checkpoint().to_json();
    assert_eq!(
        json!([
            document["delivery"],
            document["response_in_flight"],
            document["transcript_message_id"],
            document["host_outcome"],
            document["orphans"],
            host.states(),
        ]),
        json!([
            null, false, null, { "status": "abandoned" },
            ["done", "runs", "waits", "queued", "held"],
            { "done": ready("x"), "runs": ready(CANCELLED), "waits": "Queued", "queued": "Queued", "held": "Queued" },
        ])
    );
    assert!(host.checkpoint().may_complete());
    assert!(!host.machine.has_jobs());
    // It is over: nothing starts, and another turn can.
    host.crash();
    assert_eq!(host.open(&[]), []);
    host.act(Event::TurnStarted { turn: "turn_2".into(), input: Vec::new() });
    assert_eq!(host.next(), Next::Ask);
}

/// The turn is given up, and the next one begins; gives what its record closes.
fn give_up(host: &mut Host) -> Value {
    host.act(Event::Reconcile { command: Reconcile::Abandon, who: "op".into() });
    host.crash();
    let effects = host.act(Event::TurnStarted { turn: "turn_2".into(), input: vec![said("again")] });
    let [Effect::Append(records)] = &effects[..] else { panic!("{effects:?}") };
    let [Record::TurnStarted { closes, .. }] = &records[..] else { panic!("{records:?}") };
    closes.iter().map(|closed| json!([closed.id.as_str(), closed.output])).collect()
}

fn said(text: &str) -> Item {
    Item::Message { role: Role::User, text: text.into() }
}

fn history(host: &Host) -> Vec<Item> {
    let mut history = History::new();
    host.journal.iter().for_each(|record| history.apply(record));
    history.items().to_vec()
}

// covers L60, H1, G5, E3
// PROV-12, PROV-13
#[test]
fn turn_after_an_abandoned_one_answers_each_call_that_was_left_open_once() {
    let mut host = Host::with(Settings { calls_at_once: 1, ..Settings::default() });
    let calls = ["done", "refused", "runs", "waits"].map(asynchronous);
    let policies = [start(), CallPolicy::refuse(RefusalReason::Policy, "no"), start(), start()];
    let items = calls.iter().map(Call::to_json).collect();
    host.begin();
    for (call, policy) in calls.iter().zip(policies) {
        host.call(call.clone(), policy);
        if call.id.as_str() == "done" {
            host.ended("done", "wrote it");
        }
    }
    host.act(completed(Completion { items, ..completion("resp_1") }));
    host.act(Event::Prepare);
    // Of the response in flight the provider may know nothing.
    host.begin_on("resp_1");
    host.call(asynchronous("lost"), start());
    let cut = r#"{"error":"this call was cut off when its turn was abandoned: its outcome is unknown, and it must not be retried automatically"}"#;
    let never = r#"{"error":"this call was not executed: its turn was abandoned before it could start"}"#;
    assert_eq!(give_up(&mut host), json!([["done", null], ["refused", null], ["runs", cut], ["waits", never]]));
    let outputs = ["wrote it", r#"{"error":"no"}"#, cut, never];
    let closing: Vec<Item> = calls
        .iter()
        .zip(outputs)
        .map(|(call, output)| Item::Output { call: call.clone(), output: output.into() })
        .collect();
    assert_eq!(host.turn().closing, closing);
    let whole: Vec<Item> = calls.into_iter().map(Item::Call).chain(closing.clone()).chain([said("again")]).collect();
    assert_eq!(history(&host), whole);
    // A request that was not accepted told nobody; a turn that is given up before one was leaves them to the next.
    host.begin_on("resp_1");
    host.act(Event::RequestFailed(RequestError::new(Fate::Refused, Error::provider("no"))));
    assert_eq!(host.turn().closing, closing);
    assert_eq!(give_up(&mut host), json!([]));
    assert_eq!(host.turn().closing, closing);
    assert_eq!(history(&host), [whole, vec![said("again")]].concat());
    host.begin_on("resp_1");
    host.complete("resp_2");
    assert_eq!(host.turn().closing, []);
    assert_eq!(give_up(&mut host), json!([]), "once");
    assert_eq!(host.turn().closing, []);
}

// covers L59, L60, H1
#[test]
fn turn_after_an_abandoned_one_tells_what_ran_in_lost_responses() {
    let mut host = Host::with(Settings {
        uncertainty: UncertaintyRules { continue_after_lost: true, ..UncertaintyRules::default() },
        ..Settings::default()
    });
    host.begin();
    host.call(asynchronous("done"), start());
    host.ended("done", "wrote it");
    host.call(asynchronous("runs"), start());
    lose(&mut host);
    host.begin();
    host.call(Call::function("too", "other", "[1]").asynchronous(), start());
    give_up(&mut host);
    let notice = "[host] An earlier answer of yours was lost on the way and is not part of this conversation. These calls \
                  of it were run; do not repeat them without need:\n\
                  - tool \"{}\": \"wrote it\"\n\
                  - tool \"{}\": not known\n\
                  - other \"[1]\": not known";
    assert_eq!(host.turn().lost_notice().as_deref(), Some(notice));
    host.begin();
    host.act(Event::RequestFailed(RequestError::new(Fate::NotSent, Error::provider("no"))));
    give_up(&mut host);
    assert_eq!(host.turn().lost_notice().as_deref(), Some(notice));
    host.begin();
    host.complete("resp_1");
    assert_eq!(host.turn().lost_notice(), None);
    assert_eq!(host.next(), Next::Finished);
}

// covers B11
#[test]
fn closing_a_call_that_no_turn_left_open_is_damage() {
    let start = |turn: &str, closes: Vec<Closed>| Record::TurnStarted { turn: turn.into(), input: Vec::new(), closes };
    let closed = Closed { id: "ghost".into(), output: None };
    let error = Session::fold(&[start("turn_1", vec![closed])]).unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (
            ErrorKind::Corruption,
            "record 1 (turn.started) contradicts the journal: call \"ghost\" was closed, and no turn left it open",
        )
    );
}
