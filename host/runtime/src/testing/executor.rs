//! Calls that end when a test says so.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use futures::future::BoxFuture;
use wharf_core::policy::{CallPolicy, RefusalReason};
use wharf_core::step::Launch;
use wharf_core::{Call, CallId, Error};

use super::{Gate, Timeline};
use crate::coordinator::Executor;

/// How a call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With this output.
    Output(String),
    /// With this error.
    Error(String),
    /// With a panic in its job.
    Panic,
}

impl Ending {
    /// With this output.
    pub fn output(text: impl Into<String>) -> Self {
        Self::Output(text.into())
    }

    /// With this error.
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }
}

/// An executor whose calls run until the test settles them. Clones are the same executor.
///
/// A tool without a policy is refused as unknown.
#[derive(Clone, Default)]
pub struct FakeExecutor(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    policies: BTreeMap<String, Result<CallPolicy, Error>>,
    plans: HashMap<CallId, Ending>,
    gates: HashMap<CallId, oneshot::Sender<Ending>>,
    authorized: Vec<CallId>,
    launches: Vec<Launch>,
    dropped: Vec<CallId>,
    waiting: Vec<(usize, Gate)>,
    running: usize,
    most_at_once: usize,
    timeline: Timeline,
}

impl FakeExecutor {
    /// One that knows no tool.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a policy for a tool.
    #[must_use]
    pub fn policy(self, tool: &str, policy: CallPolicy) -> Self {
        self.set_policy(tool, Ok(policy));
        self
    }

    /// The same with launches noted on a timeline.
    #[must_use]
    pub fn on(self, timeline: &Timeline) -> Self {
        self.lock().timeline = timeline.clone();
        self
    }

    /// Says from now on this of a tool.
    pub fn set_policy(&self, tool: &str, policy: Result<CallPolicy, Error>) {
        self.lock().policies.insert(tool.to_owned(), policy);
    }

    /// For [`Options::new`](crate::coordinator::Options::new).
    pub fn shared(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }

    /// Ends each run of a call so, as soon as it starts.
    pub fn plan(&self, call: &str, ending: Ending) {
        self.lock().plans.insert(CallId::new(call), ending);
    }

    /// Ends a running call.
    ///
    /// # Panics
    /// If it does not run.
    pub fn settle(&self, call: &str, ending: Ending) {
        let gate = self.lock().gates.remove(&CallId::new(call));
        let gate = gate.unwrap_or_else(|| panic!("call {call:?} does not run"));
        assert!(gate.send(ending).is_ok(), "call {call:?} was dropped");
    }

    /// Ready once this many launches were seen.
    pub async fn launched(&self, count: usize) {
        let gate = {
            let mut state = self.lock();
            if state.launches.len() >= count {
                return;
            }
            let gate = Gate::new();
            state.waiting.push((count, gate.clone()));
            gate
        };
        gate.passed().await;
    }

    /// All launches, in order.
    pub fn launches(&self) -> Vec<Launch> {
        self.lock().launches.clone()
    }

    /// All launches as `id#attempt`.
    pub fn runs(&self) -> Vec<String> {
        self.lock().launches.iter().map(|launch| format!("{}#{}", launch.call.id, launch.attempt)).collect()
    }

    /// The calls whose policy was asked for, in order.
    pub fn authorized(&self) -> Vec<CallId> {
        self.lock().authorized.clone()
    }

    /// The calls whose run was dropped before it ended, in order.
    pub fn dropped(&self) -> Vec<CallId> {
        self.lock().dropped.clone()
    }

    /// Most runs that were under way together.
    pub fn most_at_once(&self) -> usize {
        self.lock().most_at_once
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor for FakeExecutor {
    fn authorize(&self, call: &Call) -> Result<CallPolicy, Error> {
        let mut state = self.lock();
        state.authorized.push(call.id.clone());
        state.policies.get(call.name.as_str()).cloned().unwrap_or_else(|| {
            let known: Vec<&str> = state.policies.keys().map(String::as_str).collect();
            let message = format!("unknown tool {:?}; close names: {}", call.name.as_str(), known.join(", "));
            Ok(CallPolicy::refuse(RefusalReason::UnknownTool, message))
        })
    }

    fn execute(&self, launch: Launch) -> BoxFuture<'static, Result<String, String>> {
        let id = launch.call.id.clone();
        let (gate, ended) = oneshot::channel();
        let reached = {
            let mut state = self.lock();
            state.timeline.push(format!("run {id} #{}", launch.attempt));
            state.launches.push(launch);
            state.running += 1;
            state.most_at_once = state.most_at_once.max(state.running);
            match state.plans.get(&id).cloned() {
                // The other end is ours and alive.
                Some(ending) => drop(gate.send(ending)),
                None => drop(state.gates.insert(id.clone(), gate)),
            }
            let seen = state.launches.len();
            state.waiting.extract_if(.., |(count, _)| *count <= seen).map(|(_, gate)| gate).collect::<Vec<_>>()
        };
        reached.iter().for_each(Gate::open);
        let run = Run { executor: self.clone(), id, ended: false };
        Box::pin(async move {
            let mut run = run; // the whole of it, so that dropping the future drops it
            let ending = ended.await;
            run.ended = true;
            match ending {
                Ok(Ending::Output(output)) => Ok(output),
                Ok(Ending::Error(message)) => Err(message),
                Ok(Ending::Panic) => panic!("the tool's job crashes, as the test wants it"),
                // Another run of the same call took its place: this one belongs to a host that is gone.
                Err(_) => futures::future::pending().await,
            }
        })
    }
}

/// Notes the end of a run, however it comes.
struct Run {
    executor: FakeExecutor,
    id: CallId,
    ended: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut state = self.executor.lock();
        state.running -= 1;
        if !self.ended {
            state.dropped.push(self.id.clone());
        }
    }
}
