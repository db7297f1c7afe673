//! The coordinator under virtual time, by topic. Every test compares whole journals, launches or requests.

#![allow(clippy::unwrap_used)] // a test that fails here fails as it should

mod cancel;
mod delivery;
mod holds;
mod jobs;
mod leases;
mod letters;
mod opening;
mod promises;
mod resume;
mod run;
mod snapshots;
mod streams;
mod transcript;
mod uncertain;

use std::sync::Arc;

use serde_json::{Value, json};
use wharf_core::model::{Fate, RequestError};
use wharf_core::policy::{CallPolicy, Hold, ReplayClass};
use wharf_core::record::{HarnessFacts, Reconcile};
use wharf_core::step::Settings;
use wharf_core::{Call, CallId, Error, ErrorKind, Record, ResponseId};
use wharf_store::{Acquire, JournalKey};

use super::{Coordinator, Options, Plan, Rest};
use crate::testing::{
    FakeExecutor, RecordingObserver, ScriptedRequester, ScriptedRetriever, SimSeams, Step, Timeline, TrialStore, lines,
    stream,
};

/// All that a coordinator needs, seen from outside. Coordinators that are opened one after the other stand for processes.
struct World {
    sim: SimSeams,
    timeline: Timeline,
    store: TrialStore,
    executor: FakeExecutor,
    requester: ScriptedRequester,
    observer: RecordingObserver,
    key: JournalKey,
    settings: Settings,
    retriever: Option<ScriptedRetriever>,
    harness: Option<HarnessFacts>,
    accept_wider: bool,
    acquire: Acquire,
    reconcile: Option<Reconcile>,
}

impl World {
    fn new() -> Self {
        Self::on(SimSeams::new())
    }

    /// Tools: `note` sync, `look` safe, `pay` never, `bank` keyed, `edit` and `write` of class `files`, `gate` held for an
    /// approval, `form` held for an output. All but `note` may run async.
    fn on(sim: SimSeams) -> Self {
        let timeline = Timeline::new();
        let start = || CallPolicy::start().with_async();
        let executor = FakeExecutor::new()
            .on(&timeline)
            .policy("note", CallPolicy::start())
            .policy("look", start().with_replay(ReplayClass::Safe))
            .policy("pay", start())
            .policy("bank", start().with_replay(ReplayClass::Keyed))
            .policy("edit", start().with_class("files"))
            .policy("write", start().with_class("files"))
            .policy("gate", CallPolicy::hold(Hold::Approval).with_async())
            .policy("form", CallPolicy::hold(Hold::Output).with_async());
        Self {
            store: TrialStore::new(&sim).on(&timeline),
            requester: ScriptedRequester::new(&sim).on(&timeline),
            executor,
            timeline,
            observer: RecordingObserver::new(),
            key: JournalKey::local("s1"),
            settings: Settings::default(),
            retriever: None,
            harness: None,
            accept_wider: false,
            acquire: Acquire::IfFree,
            reconcile: None,
            sim,
        }
    }

    fn options(&self) -> Options {
        let mut options =
            Options::new(self.store.shared(), self.key.clone(), self.executor.shared(), Arc::new(self.sim.clone()));
        options.settings = self.settings.clone();
        options.retriever = self.retriever.as_ref().map(ScriptedRetriever::shared);
        options.harness = self.harness.clone();
        options.accept_wider = self.accept_wider;
        options.acquire = self.acquire;
        options.reconcile = self.reconcile.clone().map(|command| (command, "op".to_owned()));
        options
    }

    async fn open(&self) -> Result<Coordinator, Error> {
        Coordinator::open(self.options()).await
    }

    /// After the process that had the session is gone: its lease has ended, or is replaced.
    async fn reopen(&self) -> Result<Coordinator, Error> {
        let mut options = self.options();
        options.acquire = Acquire::TakeOver;
        Coordinator::open(options).await
    }

    /// Opened, with a turn.
    async fn started(&self) -> Coordinator {
        let options = Options { reconcile: None, ..self.options() };
        let mut coordinator = Coordinator::open(options).await.expect("it opens");
        coordinator.start_turn(Vec::new()).await.expect("a turn starts");
        coordinator
    }

    /// Opened, with a turn whose first response is begun and journaled under the id `r1`.
    async fn streaming(&self) -> Coordinator {
        let mut coordinator = self.started().await;
        coordinator.begin_response(whole()).await.expect("it begins");
        coordinator
    }

    /// Opened, with a turn whose first response was accepted as `r1` and made these calls.
    async fn answered(&self, calls: impl IntoIterator<Item = Call>) -> Coordinator {
        let mut coordinator = self.started().await;
        coordinator.begin_transcript_message("m1", whole()).await.expect("it begins");
        let steps = [crate::testing::started("r1")]
            .into_iter()
            .chain(made(calls))
            .chain([crate::testing::finished("r1", "tool_calls")]);
        let completion = self.read(&mut coordinator, steps).await.expect("it is accepted");
        coordinator.finish_pending_message(Some(&completion)).await.expect("it is kept");
        coordinator
    }

    async fn read(
        &self,
        coordinator: &mut Coordinator,
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<wharf_core::model::Completion, Error> {
        coordinator.read_response(stream(&self.sim, steps), &mut self.observer.clone()).await
    }

    async fn run(&self, coordinator: &mut Coordinator, limit: u64) -> Result<Rest, Error> {
        coordinator.run(limit, &mut self.requester.clone(), &mut self.observer.clone()).await
    }

    fn records(&self) -> Vec<Record> {
        self.store.journal(&self.key).expect("the journal reads")
    }

    fn journal(&self) -> Vec<String> {
        lines(&self.records())
    }

    /// The last lines of the journal.
    fn tail(&self, count: usize) -> Vec<String> {
        let all = self.journal();
        all[all.len().saturating_sub(count)..].to_vec()
    }
}

/// The first request of a session.
fn whole() -> Plan {
    Plan { whole_history: true, ..Plan::default() }
}

/// A request that goes on from a stored response.
fn on(id: &str) -> Plan {
    Plan { continues: Some(ResponseId::new(id)), ..Plan::default() }
}

fn call(id: &str, tool: &str) -> Call {
    Call::function(id, tool, "{}")
}

fn background(id: &str, tool: &str) -> Call {
    call(id, tool).asynchronous()
}

/// Calls as a stream brings them: async ones one by one, sync ones as the accumulated set.
fn made(calls: impl IntoIterator<Item = Call>) -> Vec<Step> {
    let mut set = Vec::new();
    calls
        .into_iter()
        .map(|call| {
            if call.is_async {
                return Step::call(call);
            }
            set.push(call);
            Step::sync_calls(set.clone())
        })
        .collect()
}

fn ids(names: &[&str]) -> Vec<CallId> {
    names.iter().map(CallId::new).collect()
}

fn failure(fate: Fate) -> RequestError {
    RequestError::new(fate, Error::provider("the connection broke"))
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.expect_err("it fails").kind
}

/// The states of all calls, as the exported document writes them.
fn states(coordinator: &Coordinator) -> Value {
    let document = coordinator.checkpoint().expect("a turn is there").to_json();
    document["calls"]
        .as_object()
        .expect("calls is an object")
        .iter()
        .map(|(id, call)| (id.clone(), call["state"].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn ready(output: &str) -> Value {
    json!({ "Ready": { "output": output } })
}
