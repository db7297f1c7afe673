//! What holds for any run of events. [`Host::feed`] checks at each step that an error changes nothing, that live state is
//! the fold of what is durable, and that nothing runs before it is durable; here is what else holds.

mod damage;
mod recovery;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;
use crate::checkpoint::CallState;
use crate::inbox::{About, Command, Letter};
use crate::limits::INLINE_OUTPUT_BYTES_MAX;
use crate::model::Usage;
use crate::reconcile::UncertaintyRules;
use crate::record::tests::some;

/// A kind of event and two choices, read against the state so that most events fit it.
type Choice = (u8, u8, u8);

/// Drives a host by choices and remembers the policy of each call.
struct Run {
    host: Host,
    policies: Vec<(CallId, CallPolicy)>,
    turns: u32,
    responses: u32,
}

fn policy(choice: u8) -> CallPolicy {
    match choice % 11 {
        0 => CallPolicy::start(),
        1 | 2 => start(),
        3 => safe(),
        4 => start().with_replay(ReplayClass::Keyed),
        5 => start().with_class("x"),
        6 => safe().with_class("x"),
        7 => held(Hold::Approval),
        8 => held(Hold::Output),
        9 => CallPolicy::refuse(RefusalReason::Policy, "no"),
        _ => CallPolicy::refuse(RefusalReason::UnknownTool, "no such tool"),
    }
}

/// Ids repeat on purpose, between responses and within one.
fn call(choice: u8) -> Call {
    let id = format!("call_{}", choice % 5);
    match choice / 5 % 5 {
        0 | 1 => sync(&id),
        2 => asynchronous(&id),
        3 => Call::custom(id.as_str(), "raw", "text\n").asynchronous(),
        _ => Call::function(id.as_str(), "tool", "{").asynchronous(),
    }
}

fn ending(choice: u8) -> (Outcome, Option<&'static str>) {
    match choice % 10 {
        0..=3 => (Outcome::Completed, None),
        4 => (Outcome::Completed, Some("tool_calls")),
        5 => (Outcome::Incomplete { reason: "max_output_tokens".into() }, Some("length")),
        6 => (Outcome::Incomplete { reason: "steered".into() }, Some("steered")),
        7 => (Outcome::Failed { code: String::new(), message: "broke".into() }, Some("error")),
        8 => (Outcome::Cancelled, Some("cancelled")),
        _ => (Outcome::Completed, Some("odd")),
    }
}

fn job_outcome(choice: u8) -> JobOutcome {
    match choice % 32 {
        0 => JobOutcome::Output("x".repeat(INLINE_OUTPUT_BYTES_MAX + 1)),
        1..=4 => JobOutcome::Error("broke\0".into()),
        5 | 6 => JobOutcome::Crashed,
        _ => JobOutcome::Output("done".into()),
    }
}

fn harness(choice: u8) -> HarnessFacts {
    HarnessFacts {
        name: "h".into(),
        component: "c".into(),
        authority: format!("a{}", choice % 2),
        conversation: "v".into(),
        authority_value: json!({ "n": choice }),
    }
}

impl Run {
    fn new(rules: u8) -> Self {
        let uncertainty = UncertaintyRules {
            resend_lost: u32::from(rules % 3),
            resend_unknown: rules & 4 > 0,
            continue_after_lost: rules & 8 > 0,
        };
        let settings = Settings { calls_at_once: usize::from(rules / 16 % 4), uncertainty, ..Settings::default() };
        Self { host: Host::with(settings), policies: Vec::new(), turns: 1, responses: 0 }
    }

    fn some_call(&self, choice: u8) -> CallId {
        let calls: Vec<CallId> = self.host.checkpoint().calls().map(|p| p.call.id.clone()).collect();
        calls.get(usize::from(choice) % calls.len().max(1)).cloned().unwrap_or_else(|| "ghost".into())
    }

    /// One that waits for somebody, if there is one.
    fn some_held_call(&self, choice: u8) -> CallId {
        let held = self.host.checkpoint().calls().filter(|p| p.hold.is_some()).map(|p| p.call.id.clone());
        let held: Vec<CallId> = held.collect();
        held.get(usize::from(choice) % held.len().max(1)).cloned().unwrap_or_else(|| self.some_call(choice))
    }

    fn some_response(&mut self, choice: u8) -> ResponseId {
        if !choice.is_multiple_of(7) {
            self.responses += 1; // else the latest one again
        }
        format!("resp_{}", self.responses).as_str().into()
    }

    fn event(&mut self, (kind, one, two): Choice) -> Event {
        match kind % 32 {
            0..=2 => Event::RequestBegun {
                message_id: (one % 4 == 0).then(|| format!("msg_{one}")),
                continues: None,
                whole_history: two % 2 == 0,
                maker: (one % 3 == 0).then(|| format!("maker_{}/m", two % 2)),
            },
            3 => Event::ResponseStarted(self.some_response(one)),
            4..=9 => self.host.called(call(one), policy(two)),
            10..=13 => {
                let (outcome, finish_reason) = ending(one);
                let id = self.some_response(two);
                let finish_reason = finish_reason.map(str::to_owned);
                let text = "line\n".repeat(usize::from(two % 3));
                let items =
                    vec![json!({ "type": "odd", "n": u64::MAX - u64::from(two), "x": [text] }); text.len().min(1)];
                let usage = (two % 5 == 0).then(|| Usage { total: u64::from(two), ..Usage::default() });
                completed(Completion { id: Some(id), outcome, finish_reason, text, items, usage, ..completion("") })
            }
            14 => Event::StreamBroken,
            15 => {
                let fate = [Fate::NotSent, Fate::Refused, Fate::Unknown][usize::from(one) % 3];
                Event::RequestFailed(RequestError::new(fate, Error::provider("no")))
            }
            16..=19 => Event::JobEnded { id: self.some_call(one), outcome: job_outcome(two) },
            20 | 21 => Event::Prepare,
            22..=24 => {
                let decision = match two % 3 {
                    0 => Decision::Approve { approval: format!("approval_{one}") },
                    1 => Decision::Decline { output: "no".into() },
                    _ => Decision::Output { output: "outside".into() },
                };
                Event::Decided { id: self.some_held_call(one), decision }
            }
            25 => match one % 12 {
                0 => Event::Cancel,
                1 => Event::Pause(PauseReason::Shutdown),
                2 => Event::Pause(PauseReason::Held { calls: vec![self.some_call(two)] }),
                3 => Event::Parked { why: "x".into() },
                4 => Event::OutcomeStored(json!({})),
                5 => Event::TurnEnded { status: "completed".into() },
                6 => Event::SummaryStaged(json!({ "n": two })),
                7 => Event::CutOff(vec![(self.some_call(one), JobOutcome::Output("late".into()))]),
                8 => Event::CancelAfter(vec![(self.some_call(two), JobOutcome::Output("late".into()))]),
                9 => Event::HarnessBound(harness(two)),
                10 => Event::ReceiptRead { id: self.some_response(two), who: "op".into() },
                _ => Event::Stop,
            },
            26 if one % 4 == 0 => self.letter(one / 4, two),
            26 => Event::Resume { why: "x".into() },
            27 => {
                let command = match one % 16 {
                    0..=6 => Reconcile::Receipt(self.some_response(two)),
                    7..=14 => Reconcile::Resend,
                    _ => Reconcile::Abandon,
                };
                Event::Reconcile { command, who: "op".into() }
            }
            28 => Event::Resolve(match one % 3 {
                0 => Evidence::Unasked { can_retrieve: true },
                1 => Evidence::Unasked { can_retrieve: false },
                _ => Evidence::Unsettled,
            }),
            29 => {
                Event::TranscriptCommitted(self.host.checkpoint().transcript_message_id().unwrap_or("none").to_owned())
            }
            _ => {
                self.host.crash();
                let open = Event::Opened { policies: self.policies_now(one) };
                self.feed(Event::Resolve(Evidence::Unasked { can_retrieve: false }));
                open
            }
        }
    }

    /// A command that fits, or one that was left at another time.
    fn letter(&mut self, one: u8, two: u8) -> Event {
        let command = match one % 5 {
            0 => Command::Cancel,
            1 => Command::Reconcile(Reconcile::Abandon),
            2 => Command::Reconcile(Reconcile::Receipt(self.some_response(two))),
            _ => Command::Reconcile(Reconcile::Resend),
        };
        let about = command.about(self.host.machine.session());
        let About { target, digest } =
            about.unwrap_or_else(|_| About { target: "none".into(), digest: "of another time".into() });
        let (kind, body) = (command.kind().to_owned(), command.body());
        let letter = Letter { id: target.clone(), kind, target, digest, body, who: "op".into() };
        Event::Letter { letter, ended: vec![(self.some_call(two), JobOutcome::Output("late".into()))] }
    }

    /// As they were, or narrower.
    fn policies_now(&self, choice: u8) -> Vec<(CallId, CallPolicy)> {
        let narrow = |policy: &CallPolicy| match choice % 6 {
            0 => start(),
            1 => CallPolicy::refuse(RefusalReason::Policy, "not any more"),
            2 => held(Hold::Approval),
            _ => policy.clone(),
        };
        self.policies.iter().map(|(id, policy)| (id.clone(), narrow(policy))).collect()
    }

    fn feed(&mut self, event: Event) {
        let called = match &event {
            Event::Called { policy, .. } => Some(policy.clone()),
            _ => None,
        };
        let orphans: Vec<CallId> = self.host.checkpoint().orphans().to_vec();
        let held: Vec<CallId> =
            self.host.checkpoint().calls().filter(|p| p.hold.is_some()).map(|p| p.call.id.clone()).collect();
        let approves = matches!(&event, Event::Decided { decision: Decision::Approve { .. }, .. });
        let effects = match self.host.feed(event) {
            Ok(effects) => effects,
            Err(error) => {
                assert_ne!(error.kind, ErrorKind::Corruption, "the host contradicted itself: {error}");
                return;
            }
        };
        for effect in &effects {
            if let Effect::Run(launch) = effect {
                let id = &launch.call.id;
                assert!(!orphans.contains(id), "{id} was withdrawn");
                assert!(approves || !held.contains(id), "{id} is held");
                assert!(launch.attempt == 1 || launch.replay != ReplayClass::Never, "{id} must not run twice");
            }
        }
        if let (Some(policy), Some(last)) = (called, self.host.checkpoint().calls().last()) {
            let id = last.call.id.clone();
            if !self.policies.iter().any(|(known, _)| *known == id) {
                self.policies.push((id, policy));
            }
        }
        self.check();
    }

    fn check(&self) {
        let machine = &self.host.machine;
        let checkpoint = self.host.checkpoint();
        checkpoint.check_damage().unwrap();
        let cap = machine.jobs_cap();
        assert!(machine.running() <= cap.max(1));
        let live: Vec<&CallId> = checkpoint.live_calls().map(|p| &p.call.id).collect();
        for pending in checkpoint.calls() {
            let id = &pending.call.id;
            let finished = pending.state == CallState::Delivered
                || (checkpoint.is_orphan(id) && pending.state != CallState::Running);
            assert_eq!(live.contains(&id), !finished, "{id}");
        }
        let Some(turn) = machine.session().open_turn() else { return };
        if machine.opening {
            return;
        }
        let running = checkpoint.calls().filter(|p| p.state == CallState::Running).count();
        assert_eq!(machine.running(), running, "what is Running has a job");
        // There is always something to do, or somebody to wait for: no turn is stranded. (A message that its caller did not
        // finish is the caller's to finish.)
        if turn.checkpoint.transcript_message_id().is_none() {
            machine.next().unwrap();
        }
    }
}

impl Machine {
    fn jobs_cap(&self) -> usize {
        if self.settings.parallel { self.settings.calls_at_once } else { 1 }
    }
}

fn run(rules: u8, choices: Vec<Choice>) -> Run {
    let mut run = Run::new(rules);
    for choice in choices {
        if run.host.machine.session().open_turn().is_none() {
            run.turns += 1;
            run.policies.clear();
            let turn = format!("turn_{}", run.turns);
            run.feed(Event::TurnStarted { turn: turn.as_str().into(), input: Vec::new() });
        }
        let event = run.event(choice);
        run.feed(event);
    }
    run
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec(any::<Choice>(), 1..70)
}

proptest! {
    #![proptest_config(some(400))]

    // covers L3, L10, L58, G12
    #[test]
    fn any_run_of_events_keeps_what_holds(rules: u8, choices in choices()) {
        run(rules, choices);
    }

    // covers B6
    #[test]
    fn any_document_reads_back_as_an_equal_checkpoint(rules: u8, choices in choices()) {
        let run = run(rules, choices);
        let document = run.host.checkpoint().to_json();
        let read = Checkpoint::from_json(&serde_json::from_str(&document.to_string()).unwrap()).unwrap();
        prop_assert_eq!(&read, run.host.checkpoint());
        prop_assert_eq!(read.to_json(), document);
    }

    // covers G7, G9
    #[test]
    fn recovering_any_prefix_twice_or_after_a_trip_is_recovering_it_once(rules: u8, choices in choices()) {
        let run = run(rules, choices);
        for length in 0..=run.host.journal.len() {
            let session = Session::fold(&run.host.journal[..length]).unwrap();
            let Some(turn) = session.turn() else { continue };
            let mut once = turn.checkpoint.clone();
            let mut travelled = Checkpoint::from_json(&once.to_json()).unwrap();
            let found = once.recover();
            prop_assert_eq!(travelled.recover(), found.clone());
            let Ok(records) = found else {
                prop_assert_eq!(&once, &turn.checkpoint);
                continue;
            };
            for record in &records {
                once.apply(record).unwrap();
                travelled.apply(record).unwrap();
            }
            prop_assert_eq!(once.recover(), Ok(Vec::new()));
            prop_assert_eq!(travelled, once);
        }
    }

    // covers B11
    #[test]
    fn damaged_journal_folds_or_says_which_record_contradicts(
        rules: u8, choices in choices(), at: prop::sample::Index, to: prop::sample::Index, how in 0..3u8,
    ) {
        let mut journal = run(rules, choices).host.journal;
        for length in 0..=journal.len() {
            prop_assert!(Session::fold(&journal[..length]).is_ok(), "each prefix folds");
        }
        let (at, to) = (at.index(journal.len()), to.index(journal.len()));
        match how {
            0 => drop(journal.remove(at)),
            1 => journal.insert(to, journal[at].clone()),
            _ => journal.swap(at, to),
        }
        // The record that is named is the first one that does not fold; what stands before it does.
        if let Err(error) = Session::fold(&journal) {
            prop_assert_eq!(error.kind, ErrorKind::Corruption);
            let good = (0..=journal.len()).take_while(|n| Session::fold(&journal[..*n]).is_ok()).count() - 1;
            let named = format!("record {} ({}) contradicts the journal: ", good + 1, journal[good].kind());
            prop_assert!(error.message.starts_with(&named), "{} instead of {named}", error.message);
            let mut session = Session::fold(&journal[..good]).unwrap();
            let before = session.clone();
            prop_assert!(session.apply(&journal[good]).is_err());
            prop_assert_eq!(session, before, "a record that does not fold changes nothing");
        }
    }
}

/// What the tests here say holds for no more than what the runs reach.
#[test]
fn runs_of_events_make_every_kind_of_record_that_a_machine_makes() {
    let mut runner = TestRunner::deterministic();
    let mut made = BTreeSet::new();
    for _ in 0..200 {
        let (rules, choices) = (any::<u8>(), choices()).new_tree(&mut runner).unwrap().current();
        made.extend(run(rules, choices).host.journal.iter().map(Record::kind));
    }
    // Calls become orphans by the record that settles their request; none is made for that alone.
    let kinds = [
        "call.accepted",
        "call.narrowed",
        "call.rejected",
        "call.released",
        "call.requeued",
        "call.settled",
        "call.started",
        "delivery.acknowledged",
        "delivery.prepared",
        "flight.cleared",
        "flight.settled",
        "harness.bound",
        "inbox.consumed",
        "outcome.stored",
        "response.begun",
        "response.completed",
        "response.recorded",
        "response.started",
        "summary.staged",
        "transcript.committed",
        "transcript.dropped",
        "turn.ended",
        "turn.parked",
        "turn.paused",
        "turn.reconciled",
        "turn.resumed",
        "turn.started",
    ];
    assert_eq!(made, BTreeSet::from(kinds));
}
