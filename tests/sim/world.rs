//! One world: virtual time, a store with its faults, and a log of all that can be seen from outside. Processes live in it; the
//! provider's books and the tools are in modules of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use serde_json::Value;
use wharf::coordinator::Handle;
use wharf::seams::{Seams, Task};
use wharf::testing::SimSeams;
use wharf_core::{ResponseId, Seq};
use wharf_store::{Fault as StoreFault, FaultAction, FaultPoint, JournalKey, MemoryStore, Stage, Store, StoreError};

use crate::outside::{Event, Outside, Owner, marked, names};
use crate::plan::{Fault, InboxWay, OwnerWay, WriteWay};
use crate::provider::Book;
use crate::script::{CallPlan, Script};

/// How long a paused process sleeps: longer than a lease.
pub const PAUSE: Duration = Duration::from_secs(70);

/// How long a store is away, within a lease and beyond one.
const AWAY_SHORT: Duration = Duration::from_secs(5);
const AWAY_LONG: Duration = Duration::from_secs(100);

/// So much of a record's text is kept; what it is about stands at its beginning.
const TEXT_BYTES_MAX: usize = 4_096;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// All turns are over.
    Done,
    /// An operator has to answer for an uncertain request.
    NeedsAnswer,
    /// The turn was parked because somebody has to answer for a lost response.
    Lost,
    /// Another process may go on.
    Stopped(String),
    /// It was killed, or its machine stopped.
    Killed,
    /// It was no owner, but somebody who told the owner something.
    Told,
}

/// What the world tells who starts processes.
#[derive(Debug)]
pub enum Signal {
    Exit(Owner, Exit),
    Second(OwnerWay),
    Inbox(InboxWay),
}

/// Cheap to clone.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    sim: SimSeams,
    store: Arc<MemoryStore>,
    script: Script,
    signals: mpsc::UnboundedSender<Signal>,
    state: Mutex<State>,
}

/// What changes.
#[derive(Default)]
pub struct State {
    plan: Vec<Fault>,
    /// What went wrong, and how many writes there had been by then.
    pub occurred: Vec<(Fault, usize)>,
    /// How many writes, wakings, requests, tools' moments and retrievals there were.
    pub writes: usize,
    pub wakings: usize,
    pub requests: usize,
    pub moments: usize,
    pub retrievals: usize,
    pub seen: Outside,
    pub book: Book,
    pub calls: BTreeMap<String, CallPlan>,
    pub handles: BTreeMap<Owner, Handle>,
    /// The provider's name of each call, and the call of each of the host's names, where they differ.
    pub wires: BTreeMap<String, String>,
    pub keys: BTreeMap<String, String>,
    pub narrow: bool,
    owners: usize,
    tellers: BTreeSet<Owner>,
    polled: Option<Owner>,
    broken: BTreeSet<Owner>,
    doomed: BTreeSet<Owner>,
    wakers: BTreeMap<Owner, Waker>,
    /// The machine stopped while this one was at work.
    crashed: Option<Owner>,
    away: Option<Duration>,
    /// What belongs to no process.
    tasks: Vec<Task>,
    records: usize,
    /// Where in the log records belong that are found once the store is back, and whose they are.
    hole: Option<(usize, Owner)>,
}

impl World {
    /// A world in which nothing has happened yet.
    pub fn new(script: Script, plan: Vec<Fault>, seed: Option<u64>, signals: mpsc::UnboundedSender<Signal>) -> Self {
        let sim = seed.map_or_else(SimSeams::new, SimSeams::seeded);
        let store = Arc::new(MemoryStore::with_clock(sim.clock()));
        let state = Mutex::new(State { plan, ..State::default() });
        let world = Self(Arc::new(Inner { sim, store, script, signals, state }));
        world.watch_store();
        world
    }

    pub fn sim(&self) -> &SimSeams {
        &self.0.sim
    }

    pub fn store(&self) -> &Arc<MemoryStore> {
        &self.0.store
    }

    pub fn script(&self) -> &Script {
        &self.0.script
    }

    pub fn key(&self) -> JournalKey {
        JournalKey::local("sim")
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn signal(&self, signal: Signal) {
        // Whoever listens goes when the world does.
        self.0.signals.unbounded_send(signal).ok();
    }

    /// Adds to the log. What became durable before is noted first.
    pub fn saw(&self, event: Event) {
        let owner = self.lock().polled;
        self.note_durable(owner);
        self.lock().seen.events.push(event);
    }

    /// The number of this process, before anything of it runs.
    pub fn new_owner(&self, is_teller: bool) -> Owner {
        let mut state = self.lock();
        state.owners += 1;
        let owner = state.owners;
        if is_teller {
            state.tellers.insert(owner);
        }
        owner
    }

    /// Starts a process.
    pub fn start(&self, owner: Owner, body: BoxFuture<'static, Exit>) -> Task {
        let process = Process { world: self.clone(), owner, body: Some(body), paused: None };
        self.0.sim.spawn("process", Box::pin(process))
    }

    /// False for a process that is about to die: it does nothing any more.
    pub fn lives(&self, owner: Owner) -> bool {
        let state = self.lock();
        !state.doomed.contains(&owner) && state.crashed != Some(owner)
    }

    /// A tool begins or ends. False if its process dies here.
    pub fn tool_moment(&self, owner: Owner) -> bool {
        let mut state = self.lock();
        state.moments += 1;
        let moment = state.moments;
        if state.take(|fault| *fault == Fault::KillInTool { moment }).is_some() {
            state.doomed.insert(owner);
            if let Some(waker) = state.wakers.get(&owner) {
                waker.wake_by_ref();
            }
            return false;
        }
        true
    }

    /// Takes the fault of the plan that `wanted` picks, which then happens.
    pub fn take(&self, wanted: impl Fn(&Fault) -> bool) -> Option<Fault> {
        self.lock().take(wanted)
    }

    /// The store is started again after a crash.
    pub fn restart_store(&self) {
        self.0.store.crash();
        self.watch_store();
        self.note_durable(None);
        let mut state = self.lock();
        state.hole = None;
        state.crashed = None;
    }

    /// Whether the journal has a snapshot of its fold.
    pub fn has_snapshot(&self) -> bool {
        let loaded = self.store().load(&self.key(), Seq(0)).now_or_never();
        matches!(loaded, Some(Ok(loaded)) if loaded.snapshot.is_some())
    }

    /// What the library itself finds wrong with the journal; nothing while the store is away.
    pub fn verify(&self) -> Vec<String> {
        let found = wharf::verify::verify(&**self.store(), &self.key(), &mut |_| {}).now_or_never();
        match found {
            Some(Ok(found)) => {
                let said = |breach: wharf::verify::Breach| format!("journal: {}", breach.to_error(&self.key()).message);
                found.breaches.into_iter().map(said).collect()
            }
            Some(Err(_)) | None => Vec::new(), // a turn that is stuck with its store is told of already
        }
    }

    /// Ends what belongs to no process.
    pub fn drop_tasks(&self) {
        let tasks = std::mem::take(&mut self.lock().tasks);
        drop(tasks);
    }

    fn watch_store(&self) {
        let world = Arc::downgrade(&self.0);
        let fault: StoreFault = Arc::new(move |point| match world.upgrade() {
            Some(inner) => inner.state.lock().unwrap_or_else(PoisonError::into_inner).at(point),
            None => FaultAction::Go,
        });
        self.0.store.set_fault(Some(fault));
    }

    /// Notes records that became durable since the last look; they are this owner's.
    fn note_durable(&self, owner: Option<Owner>) {
        let after = self.lock().records;
        let found = self.0.store.history(&self.key(), Seq(after as u64), usize::MAX).now_or_never();
        let Some(Ok(found)) = found else { return };
        let mut state = self.lock();
        state.records += found.len();
        let (mut at, owner) = state.hole.unwrap_or((state.seen.events.len(), owner.unwrap_or(0)));
        let mut events = Vec::new();
        if !found.is_empty() && state.tellers.remove(&owner) {
            events.push(Event::Opened(owner)); // it found nobody there, and did it itself
        }
        for stored in found {
            let (kind, mut text) = (stored.record.kind, stored.record.body);
            let body: Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(key) = body["call"]["call_id"].as_str() {
                state.keys.insert(key.to_owned(), marked(&text));
            }
            // Where a provider names calls alike the host has names of its own: say which call is meant.
            if let Some(call) =
                body["id"].as_str().and_then(|key| state.keys.get(key)).filter(|call| !names(&text, call))
            {
                text = format!("\"{call}\": {text}");
            }
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            events.push(Event::Durable { owner, kind, text });
        }
        for event in events {
            state.seen.events.insert(at, event);
            at += 1;
        }
    }

    /// What happens to a process that is woken.
    fn woken(&self, owner: Owner, waker: &Waker) -> Woken {
        let (faults, handle) = {
            let mut state = self.lock();
            state.polled = Some(owner);
            state.wakers.insert(owner, waker.clone());
            if state.doomed.contains(&owner) {
                return Woken::Dies;
            }
            state.wakings += 1;
            let now = state.wakings;
            let mut faults = Vec::new();
            while let Some(fault) = state.take(|fault| match fault {
                Fault::Kill { waking }
                | Fault::Owner { waking, .. }
                | Fault::Jump { waking, .. }
                | Fault::Cancel { waking }
                | Fault::Stop { waking }
                | Fault::Inbox { waking, .. } => *waking == now,
                _ => false,
            }) {
                faults.push(fault);
            }
            (faults, state.handles.get(&owner).cloned())
        };
        for fault in faults {
            match fault {
                Fault::Kill { .. } => return Woken::Dies,
                Fault::Owner { way, .. } => {
                    self.saw(Event::Disturbed(owner));
                    self.signal(Signal::Second(way));
                    if way == OwnerWay::Expiry {
                        return Woken::Pauses;
                    }
                }
                Fault::Jump { seconds, .. } => {
                    self.saw(Event::Disturbed(owner));
                    self.sim().advance(Duration::from_secs(seconds));
                }
                Fault::Cancel { .. } => {
                    if let Some(handle) = &handle {
                        self.saw(Event::Cancelled);
                        handle.cancel();
                    }
                }
                Fault::Stop { .. } => {
                    if let Some(handle) = &handle {
                        handle.stop();
                    }
                }
                Fault::Inbox { way, .. } => self.signal(Signal::Inbox(way)),
                _ => {}
            }
        }
        Woken::Goes
    }

    /// What is so after a process went on. True if it died meanwhile.
    fn went_on(&self, owner: Owner) -> bool {
        self.note_durable(Some(owner));
        let (away, dies) = {
            let mut state = self.lock();
            state.polled = None;
            (state.away.take(), state.crashed == Some(owner))
        };
        if let Some(away) = away {
            let world = self.clone();
            let back = async move {
                world.sim().sleep(away).await;
                world.restart_store();
            };
            let task = self.sim().spawn("store", Box::pin(back));
            self.lock().tasks.push(task);
        }
        dies
    }

    /// The response that the last request led to, if it came to the provider after the last record of a request, and what it
    /// is: what an operator sees who looks into the provider's books and into the journal.
    pub fn last_made(&self) -> Option<(ResponseId, bool)> {
        let state = self.lock();
        let events = &state.seen.events;
        let begun = |event: &Event| matches!(event, Event::Durable { kind, .. } if kind == "response.begun");
        let last_begun = events.iter().rposition(begun)?;
        events[last_begun..].iter().rev().find_map(|event| match event {
            Event::Made { response, accepted, .. } => Some((ResponseId::new(response), *accepted)),
            _ => None,
        })
    }
}

impl State {
    /// The machine of the store's writer stopped, and was not started again.
    pub fn is_down(&self) -> bool {
        self.crashed.is_some()
    }

    pub fn take(&mut self, wanted: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let at = self.plan.iter().position(wanted)?;
        let fault = self.plan.remove(at);
        self.occurred.push((fault, self.writes));
        Some(fault)
    }

    fn disturbed(&mut self) {
        let owner = self.polled.unwrap_or(0);
        self.seen.events.push(Event::Disturbed(owner));
    }

    /// What happens at a point of a write.
    fn at(&mut self, point: FaultPoint) -> FaultAction {
        let what = format!("{:?}", point.write).to_lowercase();
        let why = "its disk wants it".to_owned();
        let owner = self.polled.unwrap_or(0);
        let broken = || FaultAction::Fail(StoreError::Io { what: what.clone(), why: why.clone(), transient: false });
        if point.stage == Stage::BeforeWrite {
            self.writes += 1;
            if self.broken.contains(&owner) {
                return broken();
            }
        }
        let now = self.writes;
        let here = |fault: &Fault| matches!(fault, Fault::Write { n, way } if *n == now && way.stage() == point.stage);
        let Some(Fault::Write { way, .. }) = self.take(here) else { return FaultAction::Go };
        match way {
            WriteWay::CrashBefore | WriteWay::CrashUnsynced | WriteWay::CrashSynced | WriteWay::Torn => {
                self.disturbed();
                self.crashed = Some(owner);
                self.hole = Some((self.seen.events.len(), owner));
                if way == WriteWay::Torn { FaultAction::Tear } else { FaultAction::Crash }
            }
            WriteWay::DownShort | WriteWay::DownLong => {
                self.away = Some(if way == WriteWay::DownShort { AWAY_SHORT } else { AWAY_LONG });
                if way == WriteWay::DownLong {
                    self.disturbed();
                }
                self.hole = Some((self.seen.events.len(), owner));
                FaultAction::Crash
            }
            WriteWay::Busy => FaultAction::Fail(StoreError::Io { what, why, transient: true }),
            WriteWay::Undone | WriteWay::LostRequest | WriteWay::LostAnswer => {
                FaultAction::Fail(StoreError::Unknown { what, why })
            }
            WriteWay::Broken | WriteWay::BrokenUnsynced | WriteWay::BrokenSynced => {
                self.disturbed();
                self.broken.insert(owner);
                match way {
                    WriteWay::BrokenSynced => FaultAction::Fail(StoreError::Unknown { what, why }),
                    _ => broken(),
                }
            }
        }
    }
}

enum Woken {
    Goes,
    Dies,
    Pauses,
}

/// A process as a task: woken, paused, killed.
struct Process {
    world: World,
    owner: Owner,
    body: Option<BoxFuture<'static, Exit>>,
    paused: Option<BoxFuture<'static, ()>>,
}

impl Process {
    fn end(&mut self, exit: Exit) -> Poll<()> {
        if exit == Exit::Killed {
            self.world.saw(Event::Disturbed(self.owner));
        }
        self.body = None; // all that it owns goes with it
        self.world.saw(Event::Gone(self.owner));
        let mut state = self.world.lock();
        state.handles.remove(&self.owner);
        state.doomed.remove(&self.owner);
        state.wakers.remove(&self.owner);
        state.polled = None;
        drop(state);
        self.world.signal(Signal::Exit(self.owner, exit));
        Poll::Ready(())
    }
}

impl Future for Process {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(paused) = &mut self.paused {
            if paused.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.paused = None;
        }
        match self.world.woken(self.owner, context.waker()) {
            Woken::Goes => {}
            Woken::Dies => return self.end(Exit::Killed),
            Woken::Pauses => {
                self.world.lock().polled = None;
                let mut pause = self.world.sim().sleep(PAUSE);
                if pause.as_mut().poll(context).is_pending() {
                    self.paused = Some(pause);
                }
                return Poll::Pending;
            }
        }
        let Some(body) = &mut self.body else { return Poll::Ready(()) };
        let polled = body.as_mut().poll(context);
        if self.world.went_on(self.owner) {
            return self.end(Exit::Killed);
        }
        match polled {
            Poll::Ready(exit) => self.end(exit),
            Poll::Pending => Poll::Pending,
        }
    }
}
