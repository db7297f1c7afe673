//! What `step` decides, driven without a process: no future, no clock, no store. [`Host`] checks after each event what holds
//! for all of them.

mod bounds;
mod holds;
mod jobs;
mod keys;
mod letters;
mod lost;
mod next;
mod open;
mod properties;
mod refusals;
mod stream;
mod uncertain;

use serde_json::{Value, json};

use super::*;
use crate::error::ErrorKind;
use crate::model::{Fate, Outcome, Role};
use crate::policy::{Hold, RefusalReason};
use crate::record::{FlightFate, Settlement};

/// A machine, what it made durable, and fresh texts that count up.
#[derive(Clone)]
struct Host {
    machine: Machine,
    journal: Vec<Record>,
    settings: Settings,
    fresh: u32,
}

impl Host {
    /// With an open turn and nothing else.
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let mut host = Self::empty(settings);
        host.act(Event::TurnStarted { turn: "turn_1".into(), input: Vec::new() });
        host
    }

    /// With no turn.
    fn empty(settings: Settings) -> Self {
        let machine = Machine::new(Session::default(), settings.clone());
        Self { machine, journal: Vec::new(), settings, fresh: 0 }
    }

    /// Feeds an event, and checks what holds for every one:
    /// an error changes nothing; live state is the fold of what was made durable, in its stored form, and what its snapshot
    /// reads back as; a call runs only
    /// behind the append that has its start (L10, design promise 1).
    #[track_caller]
    fn feed(&mut self, event: Event) -> Result<Vec<Effect>, Error> {
        let before = self.machine.session().clone();
        let effects = match step(&mut self.machine, event) {
            Ok(effects) => effects,
            Err(error) => {
                assert_eq!(*self.machine.session(), before, "an error changed something: {error}");
                return Err(error);
            }
        };
        let durable = self.journal.len();
        for (at, effect) in effects.iter().enumerate() {
            match effect {
                Effect::Append(records) => {
                    assert_eq!(at, 0, "the append comes first");
                    assert!(!records.is_empty());
                    self.journal.extend(records.iter().map(through_store));
                }
                Effect::Run(launch) => {
                    let start = Record::CallStarted {
                        id: launch.call.id.clone(),
                        attempt: launch.attempt,
                        idempotency_key: launch.idempotency_key.clone(),
                        approval: None,
                    };
                    let journaled = self.journal[durable..].iter().map(|record| match record {
                        Record::CallStarted { id, attempt, idempotency_key, approval: _ } => Record::CallStarted {
                            id: id.clone(),
                            attempt: *attempt,
                            idempotency_key: idempotency_key.clone(),
                            approval: None,
                        },
                        other => other.clone(),
                    });
                    assert!(
                        journaled.into_iter().any(|record| record == start),
                        "{launch:?} runs before it is durable"
                    );
                }
                Effect::Abort(_) | Effect::Retrieve(_) | Effect::Fail(_) => {}
            }
        }
        assert_eq!(Session::fold(&self.journal).as_ref(), Ok(self.machine.session()), "live state is the fold");
        // Of all runs together enough states, at a part of the time.
        if self.journal.len().is_multiple_of(5) {
            let snapshot = self.machine.session().to_snapshot().unwrap();
            assert_eq!(Session::from_snapshot(&snapshot).as_ref(), Ok(self.machine.session()), "and its snapshot");
        }
        Ok(effects)
    }

    /// Feeds an event that works.
    #[track_caller]
    fn act(&mut self, event: Event) -> Vec<Effect> {
        self.feed(event).unwrap()
    }

    /// Feeds an event that is refused, and nothing is durable by it.
    #[track_caller]
    fn refuses(&mut self, kind: ErrorKind, event: Event) -> Error {
        let durable = self.journal.len();
        let error = self.feed(event).expect_err("this has to fail");
        assert_eq!((error.kind, self.journal.len()), (kind, durable), "{error}");
        error
    }

    /// The process dies; another one folds the journal.
    fn crash(&mut self) {
        let session = Session::fold(&self.journal).unwrap();
        self.machine = Machine::new(session, self.settings.clone());
    }

    /// Opens what a crash left, with nothing uncertain.
    #[track_caller]
    fn open(&mut self, policies: &[(&str, CallPolicy)]) -> Vec<Effect> {
        let policies = policies.iter().map(|(id, policy)| (CallId::new(id), policy.clone())).collect();
        self.act(Event::Opened { policies })
    }

    /// Begins a request that carries the whole history.
    #[track_caller]
    fn begin(&mut self) {
        self.act(Event::RequestBegun { message_id: None, continues: None, whole_history: true, maker: None });
    }

    /// Begins a request that goes on from a stored response.
    #[track_caller]
    fn begin_on(&mut self, response: &str) {
        let continues = Some(response.into());
        self.act(Event::RequestBegun { message_id: None, continues, whole_history: false, maker: None });
    }

    #[track_caller]
    fn call(&mut self, call: Call, policy: CallPolicy) -> Vec<Effect> {
        let event = self.called(call, policy);
        self.act(event)
    }

    fn called(&mut self, call: Call, policy: CallPolicy) -> Event {
        self.fresh += 1;
        Event::Called { finished: call.into(), policy, fresh: format!("fresh_{}", self.fresh) }
    }

    /// The response ends well.
    #[track_caller]
    fn complete(&mut self, response: &str) -> Vec<Effect> {
        self.act(completed(completion(response)))
    }

    /// A whole response with these calls.
    #[track_caller]
    fn respond(&mut self, response: &str, calls: &[(Call, CallPolicy)]) -> Vec<Effect> {
        self.begin();
        let mut effects = Vec::new();
        for (call, policy) in calls {
            effects.extend(self.call(call.clone(), policy.clone()));
        }
        effects.extend(self.complete(response));
        effects
    }

    #[track_caller]
    fn ended(&mut self, call: &str, output: &str) -> Vec<Effect> {
        self.act(ended(call, output))
    }

    fn next(&self) -> Next {
        self.machine.next().unwrap()
    }

    fn checkpoint(&self) -> &Checkpoint {
        self.machine.checkpoint().unwrap()
    }

    fn turn(&self) -> &Turn {
        self.machine.session().turn().unwrap()
    }

    /// The states of all calls, as the document has them.
    fn states(&self) -> Value {
        let document = self.checkpoint().to_json();
        let calls = document["calls"].as_object().unwrap();
        calls.iter().map(|(id, call)| (id.clone(), call["state"].clone())).collect()
    }

    /// What was made durable since there were `from` records, by kind.
    fn kinds_since(&self, from: usize) -> Vec<&'static str> {
        self.journal[from..].iter().map(Record::kind).collect()
    }
}

/// A record as it is read back from a store.
fn through_store(record: &Record) -> Record {
    let stored = record.encode().unwrap();
    let blob = stored.blob.clone().map(|(_, bytes)| bytes);
    let read = Record::decode(stored.kind, stored.version, &stored.body, |_| blob).unwrap();
    assert_eq!(read, *record);
    read
}

/// The calls that run by these effects, in order.
fn ran(effects: &[Effect]) -> Vec<&str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Run(launch) => Some(launch.call.id.as_str()),
            Effect::Append(_) | Effect::Abort(_) | Effect::Retrieve(_) | Effect::Fail(_) => None,
        })
        .collect()
}

fn aborted(effects: &[Effect]) -> Vec<&str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Abort(id) => Some(id.as_str()),
            Effect::Append(_) | Effect::Run(_) | Effect::Retrieve(_) | Effect::Fail(_) => None,
        })
        .collect()
}

fn failed(effects: &[Effect]) -> Option<&Error> {
    effects.iter().find_map(|effect| match effect {
        Effect::Fail(error) => Some(error),
        Effect::Append(_) | Effect::Run(_) | Effect::Abort(_) | Effect::Retrieve(_) => None,
    })
}

fn sync(id: &str) -> Call {
    Call::function(id, "tool", "{}")
}

fn asynchronous(id: &str) -> Call {
    sync(id).asynchronous()
}

/// Policy that lets a call start, async too.
fn start() -> CallPolicy {
    CallPolicy::start().with_async()
}

fn safe() -> CallPolicy {
    start().with_replay(ReplayClass::Safe)
}

fn held(hold: Hold) -> CallPolicy {
    CallPolicy::hold(hold).with_async()
}

fn completion(response: &str) -> Completion {
    Completion {
        id: Some(response.into()),
        outcome: Outcome::Completed,
        finish_reason: None,
        usage: None,
        items: Vec::new(),
        text: String::new(),
        refusal: None,
        model: None,
    }
}

fn completed(completion: Completion) -> Event {
    Event::Completed { completion, first_token_ms: None }
}

fn ended(call: &str, output: &str) -> Event {
    Event::JobEnded { id: call.into(), outcome: JobOutcome::Output(output.into()) }
}

fn approve(call: &str, approval: &str) -> Event {
    Event::Decided { id: call.into(), decision: Decision::Approve { approval: approval.into() } }
}

fn ready(output: &str) -> Value {
    json!({ "Ready": { "output": output } })
}

const CANCELLED: &str = r#"{"error":"cancelled"}"#;
