//! Going on with sessions that nobody has: a worker claims those whose turns are open and runs them, many at once, until it
//! is told to stop.
//!
//! Which session waits, the store knows; what is to be done with it, the journal says. A worker decides nothing but how many
//! it runs at once and when it tries one again that failed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::{Either, select};
use futures::{FutureExt as _, StreamExt as _};
use wharf_core::{Error, ErrorKind, OrgId, SessionId};
use wharf_store::limits::CLAIM_NAMES_MAX;
use wharf_store::{Claim, Lease, Owner, Store};

use crate::agent::Agent;
use crate::coordinator::Handle;
use crate::limits;
use crate::seams::{Seams, Task};
use crate::session::{TurnOptions, TurnResult};

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkOptions {
    /// Sessions that it runs at once, at least one.
    pub at_once: usize,
    /// Come back once nothing runs and nothing waits, instead of waiting for more.
    pub until_idle: bool,
}

impl Default for WorkOptions {
    fn default() -> Self {
        Self { at_once: limits::WORKER_SESSIONS, until_idle: false }
    }
}

/// What a worker did.
#[derive(Debug)]
pub enum Worked {
    /// It has the session now.
    Claimed {
        /// Which.
        session: SessionId,
    },
    /// It let the session go.
    Ended {
        /// Which.
        session: SessionId,
        /// How the turn ended or came to rest, or why it did not.
        result: Result<TurnResult, Error>,
        /// After what time this worker tries it again, if it failed for a reason that may pass.
        again: Option<Duration>,
    },
    /// The store could not be asked; it is asked again.
    StoreFailed(Error),
}

/// Runs the open turns of the harnesses of these agents, which share a store, until `stop` is ready; then it starts nothing
/// new, gives what runs its time ([`limits::SHUTDOWN_GRACE`]), and lets all sessions go.
///
/// A turn of which a person has to decide something (an approval, an uncertain request, a wider harness) is left alone until
/// there is an answer. One that fails for a reason that may pass, as a provider that is down, is tried again after
/// [`limits::WORKER_RETRY`], longer each time.
///
/// # Errors
/// A config error if two agents have one harness name, or different stores.
pub async fn work(
    agents: Vec<Agent>,
    options: WorkOptions,
    stop: impl Future<Output = ()> + Send,
    mut observe: impl FnMut(Worked) + Send,
) -> Result<(), Error> {
    let mut worker = Worker::new(agents, options)?;
    let (store, org) = (worker.store.clone(), worker.org.clone());
    let mut stop = std::pin::pin!(stop.fuse());
    loop {
        // Before the claim: what arrives from here on wakes us.
        let arrives = store.work_arrives(&org);
        let claimed = if worker.running.len() < worker.at_once { worker.claim().await } else { Ok(None) };
        let wait = match claimed {
            Ok(Some(lease)) => {
                observe(Worked::Claimed { session: lease.key.session.clone() });
                worker.start(lease);
                Duration::ZERO
            }
            Ok(None) if worker.until_idle && worker.running.is_empty() => return Ok(()),
            Ok(None) => limits::WORKER_LOOK_EVERY,
            Err(error) => {
                observe(Worked::StoreFailed(error));
                limits::WORKER_LOOK_EVERY
            }
        };
        // A store that cannot tell of work is looked at now and then.
        let seams = worker.seams.clone();
        let look = select(arrives.map(drop), seams.sleep(wait)).map(drop);
        match select(select(&mut stop, worker.ended.next()), look).await {
            Either::Left((Either::Left(((), _)), _)) => break,
            Either::Left((Either::Right((ended, _)), _)) => worker.note(ended, &mut observe),
            Either::Right(((), _)) => {}
        }
    }
    worker.stop();
    while !worker.running.is_empty() {
        let ended = worker.ended.next().await;
        worker.note(ended, &mut observe);
    }
    Ok(())
}

type Ended = (SessionId, Result<TurnResult, Error>);

struct Worker {
    agents: BTreeMap<String, Agent>,
    store: Arc<dyn Store>,
    seams: Arc<dyn Seams>,
    org: OrgId,
    label: String,
    at_once: usize,
    until_idle: bool,
    running: HashMap<SessionId, Task>,
    handles: Arc<Mutex<Handles>>,
    /// Sessions that failed: how often in a row, and when they are tried again.
    failed: HashMap<SessionId, (u32, Duration)>,
    ends: mpsc::UnboundedSender<Ended>,
    ended: mpsc::UnboundedReceiver<Ended>,
}

#[derive(Default)]
struct Handles {
    stopping: bool,
    by_session: HashMap<SessionId, Handle>,
}

impl Worker {
    fn new(all: Vec<Agent>, options: WorkOptions) -> Result<Self, Error> {
        let mut agents: BTreeMap<String, Agent> = BTreeMap::new();
        let mut parts = None;
        for agent in all {
            let (store, name) = (agent.wharf.0.store.clone(), agent.harness().name().to_owned());
            let (first, ..) =
                parts.get_or_insert_with(|| (store.clone(), agent.wharf.0.seams.clone(), agent.wharf.0.label.clone()));
            if !Arc::ptr_eq(first, &store) {
                return Err(Error::config(format!(
                    "harness {name:?} has another store than the others of this worker"
                )));
            }
            if agents.insert(name.clone(), agent).is_some() {
                return Err(Error::config(format!("two harnesses of this worker are named {name:?}"))
                    .hint("a session names its harness, so each needs a name of its own"));
            }
        }
        let Some((store, seams, label)) = parts else { return Err(Error::config("a worker needs a harness to run")) };
        let (ends, ended) = mpsc::unbounded();
        Ok(Self {
            agents,
            store,
            seams,
            org: OrgId::local(),
            label,
            at_once: options.at_once.max(1),
            until_idle: options.until_idle,
            running: HashMap::new(),
            handles: Arc::default(),
            failed: HashMap::new(),
            ends,
            ended,
        })
    }

    async fn claim(&mut self) -> Result<Option<Lease>, Error> {
        let now = self.seams.now();
        let mut skip: Vec<SessionId> = self.running.keys().cloned().collect();
        skip.extend(self.failed.iter().filter(|(_, (_, again))| *again > now).map(|(session, _)| session.clone()));
        skip.truncate(CLAIM_NAMES_MAX);
        let claim = Claim {
            org: self.org.clone(),
            harnesses: self.agents.keys().cloned().collect(),
            skip,
            ttl: limits::LEASE_TTL,
        };
        let owner = Owner { token: self.seams.fresh(), label: self.label.clone() };
        Ok(self.store.claim(&claim, &owner).await?)
    }

    /// Goes on with a claimed session in a task of its own.
    fn start(&mut self, lease: Lease) {
        let session = lease.key.session.clone();
        let (handles, ends, agents) = (self.handles.clone(), self.ends.clone(), self.agents.clone());
        let (store, id) = (self.store.clone(), session.clone());
        let task = async move {
            let result = go_on(&*store, agents, lease, handles.clone()).await;
            lock(&handles).by_session.remove(&id);
            ends.unbounded_send((id, result)).ok(); // nobody waits once the worker is dropped
        };
        self.running.insert(session, self.seams.spawn("session", Box::pin(task)));
    }

    fn note(&mut self, ended: Option<Ended>, observe: &mut impl FnMut(Worked)) {
        // The worker keeps a sender itself, so the channel never closes.
        let Some((session, result)) = ended else { return };
        self.running.remove(&session);
        let mut again = None;
        match &result {
            Err(error) if may_pass(error.kind) => {
                let failures = self.failed.get(&session).map_or(0, |(failures, _)| *failures).saturating_add(1);
                let (first, longest) = limits::WORKER_RETRY;
                let wait = first.saturating_mul(1 << (failures - 1).min(16)).min(longest);
                self.failed.insert(session.clone(), (failures, self.seams.now() + wait));
                again = Some(wait);
            }
            Ok(_) | Err(_) => drop(self.failed.remove(&session)),
        }
        observe(Worked::Ended { session, result, again });
    }

    fn stop(&mut self) {
        let mut handles = lock(&self.handles);
        handles.stopping = true;
        handles.by_session.values().for_each(Handle::stop);
    }
}

/// What a worker tries again by itself. All else waits for a person, and the coordinator said so in the store; or for whoever
/// has the session now.
fn may_pass(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Provider | ErrorKind::Config | ErrorKind::Store | ErrorKind::Tool => true,
        ErrorKind::Cancelled | ErrorKind::Conflict | ErrorKind::Corruption => false,
    }
}

async fn go_on(
    store: &dyn Store,
    agents: BTreeMap<String, Agent>,
    lease: Lease,
    handles: Arc<Mutex<Handles>>,
) -> Result<TurnResult, Error> {
    let harness = crate::journal::fold(store, &lease.key)
        .await
        .map(|folded| folded.session.harness().map(|facts| facts.name.clone()).unwrap_or_default());
    let agent = match harness {
        Ok(harness) => agents.get(&harness).ok_or_else(|| {
            Error::config(format!("the session is of harness {harness:?}, which this worker does not run"))
        }),
        Err(error) => Err(error),
    };
    let agent = match agent {
        Ok(agent) => agent,
        Err(error) => {
            if let Err(failure) = store.release(&lease).await {
                tracing::debug!(%failure, "a claimed session was not released");
            }
            return Err(error);
        }
    };
    let session = agent.session(lease.key.session.clone());
    let id = lease.key.session.clone();
    let options = TurnOptions {
        claimed: Some(lease.owner),
        on_start: Some(Box::new(move |handle: Handle| {
            let mut handles = lock(&handles);
            if handles.stopping {
                handle.stop();
            }
            handles.by_session.insert(id, handle);
        })),
        ..TurnOptions::default()
    };
    session.resume(options, &mut ()).await
}

fn lock(handles: &Mutex<Handles>) -> MutexGuard<'_, Handles> {
    handles.lock().unwrap_or_else(PoisonError::into_inner)
}
