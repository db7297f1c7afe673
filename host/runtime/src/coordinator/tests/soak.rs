//! Random turns under random interleavings, faults and crashes. Whatever happens: a turn comes to its end, each call of an
//! accepted response gets exactly one output on its id, a call of class never runs at most once, and nothing is done before
//! it is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};
use wharf_core::model::{Completion, FinishedCall, Outcome, Retrieved};
use wharf_core::policy::RefusalReason;
use wharf_core::record::PauseReason;
use wharf_core::session::Session;
use wharf_core::step::{Decision, Launch};
use wharf_provider::EventStream;

use super::promises::durable_before_doing;
use super::*;
use crate::coordinator::{Ask, Executor, Requester, Retriever};
use crate::seams::Seams;
use crate::testing::{StoreFault, StoreOp, completion, started};

/// How many turns are tried. A seed that ever fails becomes a test of its own name.
const SEEDS: u64 = 600;

#[test]
fn random_turns_keep_the_promises() {
    // covers L10, L30, L34, L41, L57, L58
    let mut ends = BTreeMap::new();
    for seed in 0..SEEDS {
        let trial = Trial::new(seed);
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trial.run()));
        let end = tried.unwrap_or_else(|_| panic!("seed {seed} fails, see above: {:#?}", trial.timeline.lines()));
        *ends.entry(end).or_insert(0) += 1;
    }
    // The trial itself has to be worth something: most turns end well although much went wrong.
    assert!(ends[&End::Completed] > SEEDS * 3 / 4, "{ends:?}");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Completed,
    Abandoned,
}

/// What the provider knows of a response.
#[derive(Clone)]
struct Answer {
    completion: Option<Completion>,
    calls: Vec<FinishedCall>,
    delivered: Vec<String>,
}

struct Provider {
    sim: SimSeams,
    timeline: Timeline,
    requests: u64,
    calls: u64,
    stored: bool,
    answers: BTreeMap<String, Answer>,
    /// The response that the last request would have made.
    last: String,
    /// The latest accepted response, as each request saw it.
    chain: BTreeSet<String>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Provider>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Provider> {
        self.0.lock().unwrap()
    }
}

const TOOLS: [&str; 10] = ["note", "look", "pay", "bank", "edit", "write", "gate", "form", "nope", "note"];

impl Provider {
    fn chance(&self, percent: u64) -> bool {
        self.sim.random(100) < percent
    }

    fn call(&mut self) -> Call {
        self.calls += 1;
        let tool = TOOLS[usize::try_from(self.sim.random(TOOLS.len() as u64)).unwrap()];
        let text = if self.chance(5) { "{" } else { "{}" };
        let call = Call::function(format!("c{}", self.calls), tool, text);
        if self.chance(60) { call.asynchronous() } else { call }
    }

    /// What a request leads to: its failure, or the steps of its stream.
    fn answer(&mut self, ask: &Ask) -> Result<Vec<Step>, RequestError> {
        self.requests += 1;
        let id = format!("r{}", self.requests);
        self.last.clone_from(&id);
        self.chain.extend(ask.latest.iter().map(ToString::to_string));
        let delivered = ask.delivery.iter().flat_map(|delivery| &delivery.input);
        let delivered = delivered.map(|item| item["call_id"].as_str().unwrap().to_owned()).collect();
        let trouble = self.requests < 12;
        for (percent, fate) in [(6, Fate::NotSent), (6, Fate::Refused), (5, Fate::Unknown)] {
            if trouble && self.chance(percent) {
                return Err(failure(fate));
            }
        }
        let count = if self.requests < 6 { self.sim.random(4) } else { 0 };
        let calls: Vec<Call> = (0..count).map(|_| self.call()).collect();
        let mut steps = vec![started(&id)];
        for step in made(calls.clone()) {
            steps.push(Step::Wait(Duration::from_millis(self.sim.random(4_000))));
            steps.push(step);
        }
        let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let whole = completion(&id, reason);
        let cut = Completion {
            outcome: Outcome::Incomplete { reason: "max_output_tokens".to_owned() },
            ..completion(&id, "length")
        };
        let failed = Completion {
            outcome: Outcome::Failed { code: String::new(), message: "it broke".to_owned() },
            ..completion(&id, "error")
        };
        let ending = match self.sim.random(100) {
            0..5 if trouble => cut,
            5..10 if trouble => failed,
            10..14 if trouble => completion(&id, "steered"),
            _ => whole,
        };
        let calls = calls.into_iter().map(FinishedCall::from).collect();
        let mut answer = Answer { completion: Some(ending.clone()), calls, delivered };
        if trouble && self.chance(15) {
            // The stream breaks somewhere; what became of the response is the provider's to know.
            steps.truncate(usize::try_from(self.sim.random(steps.len() as u64 + 1)).unwrap());
            if steps.is_empty() || self.chance(30) {
                answer.completion = None;
            }
            if self.chance(50) {
                steps.push(Step::Fail(failure(Fate::Unknown)));
            }
        } else {
            steps.push(Step::Wait(Duration::from_millis(self.sim.random(4_000))));
            steps.push(Step::completed(ending));
        }
        self.answers.insert(id, answer);
        Ok(steps)
    }
}

fn is_accepted(completion: &Completion) -> bool {
    matches!(completion.outcome, Outcome::Completed | Outcome::Incomplete { .. })
}

impl Requester for Shared {
    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error> {
        let continues = ask.latest.clone().filter(|_| self.lock().stored);
        Ok(Plan { whole_history: continues.is_none(), continues, maker: None })
    }

    fn send(&mut self, ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let (answer, sim, wait) = {
            let mut provider = self.lock();
            provider.timeline.push("send");
            (provider.answer(&ask), provider.sim.clone(), provider.sim.random(3_000))
        };
        Box::pin(async move {
            sim.sleep(Duration::from_millis(wait)).await;
            answer.map(|steps| stream(&sim, steps))
        })
    }
}

impl Retriever for Shared {
    fn retrieve(&self, _maker: Option<&str>, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        let provider = self.lock();
        let (flaky, slow) = (provider.chance(10), provider.chance(20));
        let answer = match provider.answers.get(id.as_str()) {
            _ if flaky => Err(failure(Fate::Unknown)),
            Some(_) if slow => Ok(Retrieved::InProgress),
            Some(Answer { completion: Some(completion), calls, .. }) => {
                Ok(Retrieved::Ended { completion: completion.clone(), calls: calls.clone() })
            }
            Some(_) | None => Ok(Retrieved::NotFound),
        };
        Box::pin(async move { answer })
    }
}

/// Calls take a random time and end in a random way.
struct Worker {
    sim: SimSeams,
    timeline: Timeline,
    launches: Arc<Mutex<Vec<Launch>>>,
}

impl Executor for Worker {
    fn authorize(&self, call: &Call) -> Result<CallPolicy, Error> {
        let start = || CallPolicy::start().with_async();
        Ok(match call.name.as_str() {
            "note" => CallPolicy::start(),
            "look" => start().with_replay(ReplayClass::Safe),
            "pay" => start(),
            "bank" => start().with_replay(ReplayClass::Keyed),
            "edit" | "write" => start().with_class("files"),
            "gate" => CallPolicy::hold(Hold::Approval).with_async(),
            "form" => CallPolicy::hold(Hold::Output).with_async(),
            other => CallPolicy::refuse(RefusalReason::UnknownTool, format!("unknown tool {other:?}")),
        })
    }

    fn execute(&self, launch: Launch) -> BoxFuture<'static, Result<String, String>> {
        let id = launch.call.id.clone();
        self.timeline.push(format!("run {id} #{}", launch.attempt));
        self.launches.lock().unwrap().push(launch);
        let (sim, wait, end) = (self.sim.clone(), self.sim.random(15_000), self.sim.random(20));
        Box::pin(async move {
            sim.sleep(Duration::from_millis(wait)).await;
            match end {
                0 => Err("it did not work".to_owned()),
                _ => Ok(format!("output of {id}")),
            }
        })
    }
}

struct Trial {
    sim: SimSeams,
    timeline: Timeline,
    store: TrialStore,
    provider: Shared,
    launches: Arc<Mutex<Vec<Launch>>>,
    settings: Settings,
    retrieves: bool,
    key: JournalKey,
}

/// How a process went.
enum Went {
    TurnOver,
    /// It stopped, and another one may open the session.
    Stopped,
    Crashed,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let sim = SimSeams::seeded(seed);
        let timeline = Timeline::new();
        let settings = Settings {
            calls_at_once: usize::try_from(1 + sim.random(4)).unwrap(),
            parallel: sim.random(4) > 0,
            ..Settings::default()
        };
        let provider = Provider {
            sim: sim.clone(),
            timeline: timeline.clone(),
            requests: 0,
            calls: 0,
            stored: sim.random(2) == 0,
            answers: BTreeMap::new(),
            last: String::new(),
            chain: BTreeSet::new(),
        };
        Self {
            store: TrialStore::new(&sim).on(&timeline),
            provider: Shared(Arc::new(Mutex::new(provider))),
            launches: Arc::default(),
            settings,
            retrieves: sim.random(3) > 0,
            key: JournalKey::local("soak"),
            timeline,
            sim,
        }
    }

    fn options(&self, reconcile: Option<Reconcile>) -> Options {
        let worker = Worker { sim: self.sim.clone(), timeline: self.timeline.clone(), launches: self.launches.clone() };
        let mut options = Options::new(self.store.shared(), self.key.clone(), Arc::new(worker), self.sim.shared());
        options.acquire = Acquire::TakeOver;
        options.settings = self.settings.clone();
        options.retriever = self.retrieves.then(|| Arc::new(self.provider.clone()) as _);
        options.reconcile = reconcile.map(|command| (command, "op".to_owned()));
        options
    }

    /// The store fails now and then, in every way that is not for good by itself.
    fn faults(&self) {
        let sim = self.sim.clone();
        let mut left = sim.random(6);
        self.store.set_rule(move |op, _| {
            if left == 0 || sim.random(12) > 0 {
                return None;
            }
            left -= 1;
            match (op, sim.random(5)) {
                (StoreOp::Append | StoreOp::Renew | StoreOp::Load, 0) => Some(StoreFault::Broken),
                (StoreOp::Append, 1 | 2) => Some(StoreFault::LostAnswer),
                (StoreOp::Append | StoreOp::Renew, 3) => Some(StoreFault::LostRequest),
                (StoreOp::Append | StoreOp::Renew | StoreOp::Load, _) => Some(StoreFault::Busy),
                (StoreOp::Acquire | StoreOp::Release | StoreOp::Blob, _) => None,
            }
        });
    }

    /// What an operator says who looks into the provider's books and into the journal: a receipt where the request came there
    /// and the answer can be read.
    fn operator(&self) -> Reconcile {
        let journaled: BTreeSet<CallId> = self
            .store
            .journal(&self.key)
            .expect("the journal reads")
            .into_iter()
            .filter_map(|record| match record {
                Record::CallAccepted { call, .. } | Record::CallRejected { call, .. } => Some(call.id),
                _ => None,
            })
            .collect();
        let timeline = self.timeline.lines();
        let last = |what: &str| timeline.iter().rposition(|line| line.starts_with(what));
        let provider = self.provider.lock();
        match provider.answers.get(&provider.last).filter(|_| last("send") > last("begun ")) {
            Some(Answer { completion: Some(completion), calls, .. }) if is_accepted(completion) => {
                let all_seen = calls.iter().all(|call| journaled.contains(&call.call.id));
                match (self.retrieves, all_seen) {
                    (true, _) => Reconcile::Receipt(provider.last.as_str().into()),
                    (false, true) => Reconcile::Resend,
                    (false, false) => Reconcile::Abandon,
                }
            }
            Some(_) | None => Reconcile::Resend,
        }
    }

    fn run(&self) -> End {
        self.faults();
        let session = self.sim.run(self.processes());
        self.check(&session)
    }

    /// One process after the other until the turn is over.
    async fn processes(&self) -> Session {
        let mut reconcile = None;
        let mut undead: Option<Coordinator> = None;
        for _ in 0..300 {
            let mut c = match Coordinator::open(self.options(reconcile.take())).await {
                Ok(c) => c,
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Store, "{error}");
                    if error.hint.is_some_and(|hint| hint.contains("reconcile")) {
                        reconcile = Some(self.operator());
                    }
                    continue;
                }
            };
            if let Some(mut undead) = undead.take() {
                // It went on all the time without knowing that it was replaced.
                let after = undead.run(3, &mut Silent, &mut ()).await;
                assert!(matches!(after, Err(_) | Ok(Rest::Finished | Rest::Paused(_))));
            }
            if c.session().turn().is_some_and(|turn| turn.ended.is_some()) {
                return c.session().clone();
            }
            let patience = if self.sim.random(3) == 0 { self.sim.random(30_000) } else { 10_000_000 };
            let crash = self.sim.sleep(Duration::from_millis(patience));
            let went = match select(Box::pin(self.process(&mut c)), crash).await {
                Either::Left((went, _)) => went,
                Either::Right(_) => Went::Crashed,
            };
            match went {
                Went::TurnOver => return c.session().clone(),
                Went::Stopped => c.abort().await,
                Went::Crashed if self.sim.random(3) == 0 => undead = Some(c),
                Went::Crashed => drop(c),
            }
        }
        panic!("the turn does not come to its end: {:#?}", self.timeline.lines());
    }

    /// What one process does until the turn is over, it stops, or the store is lost to it.
    async fn process(&self, c: &mut Coordinator) -> Went {
        if c.session().turn().is_none() && c.start_turn(Vec::new()).await.is_err() {
            return Went::Stopped;
        }
        loop {
            if let Some(reason) = c.session().open_turn().and_then(|turn| turn.paused.clone())
                && self.unpause(c, reason).await.is_err()
            {
                return Went::Stopped;
            }
            match self.sim.random(40) {
                0 => c.handle().stop(),
                1 => c.handle().cancel(),
                _ => {}
            }
            match c.run(1 + self.sim.random(4), &mut self.provider.clone(), &mut ()).await {
                Ok(Rest::Finished) => {
                    assert!(c.may_complete());
                    let ended = async {
                        c.store_outcome(json!({ "status": "completed" })).await?;
                        c.end_turn("completed").await?;
                        c.release().await
                    };
                    return if ended.await.is_ok() { Went::TurnOver } else { Went::Stopped };
                }
                Ok(Rest::Paused(PauseReason::Shutdown)) => {
                    return match c.park("shutdown").await {
                        Ok(()) | Err(_) => Went::Stopped,
                    };
                }
                Ok(Rest::Paused(_)) if self.sim.random(2) == 0 => {
                    return match c.park("it waits").await {
                        Ok(()) | Err(_) => Went::Stopped,
                    };
                }
                Ok(Rest::Paused(_)) => {}
                Err(error) => match error.kind {
                    ErrorKind::Provider | ErrorKind::Cancelled => {
                        if let Err(error) = c.settle_uncertain().await {
                            if !error.hint.as_ref().is_some_and(|hint| hint.contains("reconcile")) {
                                return Went::Stopped;
                            }
                            let command = self.operator();
                            let abandons = command == Reconcile::Abandon;
                            if c.reconcile(command, "op").await.is_err() {
                                return Went::Stopped;
                            }
                            if abandons {
                                return Went::TurnOver;
                            }
                        }
                    }
                    ErrorKind::Config => {} // the limit of this run
                    ErrorKind::Store => return Went::Stopped,
                    ErrorKind::Corruption | ErrorKind::Conflict | ErrorKind::Tool => panic!("{error}"),
                },
            }
        }
    }

    async fn unpause(&self, c: &mut Coordinator, reason: PauseReason) -> Result<(), Error> {
        match reason {
            PauseReason::LostResponse { .. } => return c.reconcile(Reconcile::Resend, "op").await,
            PauseReason::Held { calls } => {
                for id in calls {
                    let Some(pending) = c.checkpoint().and_then(|checkpoint| checkpoint.call(&id)) else { continue };
                    let decision = match &pending.hold {
                        None => continue,
                        Some(Hold::Approval) if self.sim.random(3) == 0 => {
                            Decision::Decline { output: "no".to_owned() }
                        }
                        Some(Hold::Approval) => Decision::Approve { approval: format!("ok {id}") },
                        Some(Hold::Output) => Decision::Output { output: "from outside".to_owned() },
                    };
                    c.decide(&id, decision).await?;
                }
            }
            PauseReason::Incomplete { .. } | PauseReason::UnknownTools { .. } | PauseReason::Shutdown => {}
        }
        c.resume("somebody said so").await
    }

    fn check(&self, session: &Session) -> End {
        let records = self.store.journal(&self.key).expect("the journal reads");
        assert_eq!(Session::fold(&records).as_ref(), Ok(session), "what is journaled is what is so");
        durable_before_doing(&self.timeline.lines());

        let mut runs: BTreeMap<String, Vec<Launch>> = BTreeMap::new();
        for launch in self.launches.lock().unwrap().iter() {
            runs.entry(launch.call.id.to_string()).or_default().push(launch.clone());
        }
        for (id, runs) in &runs {
            let once = runs.len() == 1 || runs.iter().all(|launch| launch.replay != ReplayClass::Never);
            assert!(once, "call {id} of class never ran {} times", runs.len());
            assert!(
                runs.iter().all(|launch| launch.idempotency_key == runs[0].idempotency_key),
                "the key of {id} changed"
            );
        }

        let turn = session.turn().expect("there is a turn");
        let end = match turn.ended.as_deref() {
            Some("completed") => End::Completed,
            Some("abandoned") => End::Abandoned,
            other => panic!("the turn ended as {other:?}"),
        };
        let mut provider = self.provider.lock();
        provider.chain.extend(session.latest_response_id().map(ToString::to_string));
        let accepted: Vec<&Answer> = provider.chain.iter().map(|id| &provider.answers[id]).collect();
        for answer in &accepted {
            for call in &answer.calls {
                let id = call.call.id.as_str();
                let outputs = accepted.iter().flat_map(|answer| &answer.delivered).filter(|at| *at == id).count();
                match end {
                    End::Completed => assert_eq!(outputs, 1, "outputs of call {id}"),
                    End::Abandoned => assert!(outputs <= 1, "outputs of call {id}"),
                }
            }
        }
        let known: BTreeSet<&str> = accepted.iter().flat_map(|a| &a.calls).map(|call| call.call.id.as_str()).collect();
        for id in accepted.iter().flat_map(|answer| &answer.delivered) {
            assert!(known.contains(id.as_str()), "an output for {id}, which the provider does not know");
        }
        end
    }
}

/// A requester that must not be asked: its coordinator was replaced.
struct Silent;

impl Requester for Silent {
    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error> {
        Ok(Plan { continues: ask.latest.clone(), whole_history: ask.latest.is_none(), maker: None })
    }

    fn send(&mut self, _ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        panic!("an owner that was replaced sent a request")
    }
}
