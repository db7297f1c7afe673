//! A store in memory, for tests, simulations and hosts that want no disk.
//!
//! It keeps two images, as a disk under a cache does: what was written, and what was synced. Every write reaches both before
//! it is reported as done, unless a [`crate::Fault`] hook stops it in between. It knows no executor (every future is ready at
//! once), no wall clock (time is what the given clock says) and no record's meaning.

mod journal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::ready;
use wharf_core::{BlobDigest, Fence, OrgId, Seq};

use self::journal::Journal;
use crate::fault::{Fault, FaultAction, FaultPoint, Stage, Write};
use crate::{
    Acquire, Append, Claim, DeletionMark, InboxItem, InboxPut, JournalKey, Lease, Loaded, Owner, SessionSummary, Store,
    StoreError, StoreFuture, StoredRecord, Swept,
};

/// Time since any fixed moment; never goes back.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

type Image = BTreeMap<JournalKey, Journal>;

#[derive(Default)]
struct State {
    written: Image,
    synced: Image,
    down: bool,
    fault: Option<Fault>,
    waiting: Vec<Waiter>,
}

/// Somebody who waits until an inbox holds more than `seen` items.
struct Waiter {
    key: JournalKey,
    seen: usize,
    wake: oneshot::Sender<Result<(), StoreError>>,
}

/// Journals in memory. Share one between owners through an `Arc`.
pub struct MemoryStore {
    clock: Clock,
    state: Mutex<State>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store on the machine's monotonic clock.
    pub fn new() -> Self {
        let start = Instant::now();
        Self::with_clock(Arc::new(move || start.elapsed()))
    }

    /// An empty store whose leases follow the given clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Sets what happens at each point of each write from now on; `None` for nothing special.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    /// The machine stops and starts again: what was not synced is gone, and a fault hook with it. Leases stay, as they are
    /// data.
    pub fn crash(&self) {
        let mut state = self.lock();
        state.written = state.synced.clone();
        state.down = false;
        state.fault = None;
        state.waiting.clear();
    }

    // A panic elsewhere leaves whole journals behind: every change is checked before it begins.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, key: &JournalKey, look: impl FnOnce(&Journal) -> T) -> Result<T, StoreError> {
        let state = self.lock();
        if state.down {
            return Err(down());
        }
        let nothing = Journal::default();
        Ok(look(state.written.get(key).unwrap_or(&nothing).alive(key)?))
    }

    fn longest_waiting(&self, claim: &Claim) -> Option<JournalKey> {
        let now = (self.clock)();
        let state = self.lock();
        let ours = state.written.iter().filter(|(key, _)| key.org == claim.org && !claim.skip.contains(&key.session));
        let waiting = ours.filter_map(|(key, journal)| Some((journal.waits(claim, now)?, key)));
        waiting.min().map(|(_, key)| key.clone())
    }

    /// Makes one change in both images. `change` must refuse before it alters anything, and depend on nothing but its
    /// arguments: it is applied once to each image.
    fn write<T>(
        &self,
        write: Write,
        key: &JournalKey,
        change: impl Fn(&mut Journal, Duration) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.write_in_parts(write, key, |_| {}, change)
    }

    /// The same for a change of which `first` may be on the disk without the rest.
    fn write_in_parts<T>(
        &self,
        write: Write,
        key: &JournalKey,
        first: impl FnOnce(&mut Journal),
        change: impl Fn(&mut Journal, Duration) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let now = (self.clock)();
        let mut state = self.lock();
        state.pass(FaultPoint { write, stage: Stage::BeforeWrite })?;
        let change = |image: &mut Image| {
            let journal = image.entry(key.clone()).or_default();
            journal.alive(key)?;
            change(journal, now)
        };
        change(&mut state.written)?;
        let point = FaultPoint { write, stage: Stage::AfterWriteBeforeSync };
        let action = state.ask(point);
        let torn = action == FaultAction::Tear;
        if let Err(error) = state.meet(action) {
            let former = state.synced.entry(key.clone()).or_default();
            if torn {
                first(former);
            }
            let former = former.clone();
            state.written.insert(key.clone(), former);
            return Err(error);
        }
        let done = change(&mut state.synced)?;
        state.pass(FaultPoint { write, stage: Stage::AfterSyncBeforeAnswer })?;
        Ok(done)
    }
}

impl State {
    fn pass(&mut self, point: FaultPoint) -> Result<(), StoreError> {
        if self.down {
            return Err(down());
        }
        let action = self.ask(point);
        self.meet(action)
    }

    fn ask(&self, point: FaultPoint) -> FaultAction {
        self.fault.as_ref().map_or(FaultAction::Go, |fault| fault(point))
    }

    fn meet(&mut self, action: FaultAction) -> Result<(), StoreError> {
        match action {
            FaultAction::Go => Ok(()),
            FaultAction::Fail(error) => Err(error),
            FaultAction::Crash | FaultAction::Tear => {
                self.down = true;
                Err(down())
            }
        }
    }

    /// Wakes whoever waits for what is there now, and forgets who does not wait any more.
    fn wake(&mut self) {
        let nothing = Journal::default();
        for waiter in std::mem::take(&mut self.waiting) {
            let journal = self.written.get(&waiter.key).unwrap_or(&nothing);
            let grown = journal.alive(&waiter.key).map(|journal| journal.waiting().count() > waiter.seen);
            if grown != Ok(false) {
                // Refused only if nobody waits any more.
                let _ = waiter.wake.send(grown.map(|_| ()));
            } else if !waiter.wake.is_canceled() {
                self.waiting.push(waiter);
            }
        }
    }
}

fn down() -> StoreError {
    StoreError::Unknown { what: "the operation".to_owned(), why: "the store crashed".to_owned() }
}

impl Store for MemoryStore {
    fn acquire<'a>(
        &'a self,
        key: &'a JournalKey,
        owner: &'a Owner,
        ttl: Duration,
        how: Acquire,
    ) -> StoreFuture<'a, Lease> {
        Box::pin(ready(self.write(Write::Acquire, key, |journal, now| journal.take(key, owner, ttl, how, now))))
    }

    fn load<'a>(&'a self, key: &'a JournalKey, after: Seq) -> StoreFuture<'a, Loaded> {
        Box::pin(ready(self.read(key, |journal| {
            let snapshot = journal.snapshot.clone().filter(|_| after == Seq(0));
            let after = snapshot.as_ref().map_or(after, |(seq, _)| *seq);
            Loaded { snapshot, records: journal.after(after).cloned().collect(), head: journal.head() }
        })))
    }

    fn history<'a>(&'a self, key: &'a JournalKey, after: Seq, limit: usize) -> StoreFuture<'a, Vec<StoredRecord>> {
        Box::pin(ready(self.read(key, |journal| journal.after(after).take(limit).cloned().collect())))
    }

    fn append<'a>(&'a self, lease: &'a Lease, append: Append) -> StoreFuture<'a, Seq> {
        Box::pin(ready(append.check_bounds().and_then(|()| {
            let first = |journal: &mut Journal| journal.keep_in_part(&append.blobs);
            self.write_in_parts(Write::Append, &lease.key, first, |journal, now| journal.append(lease, &append, now))
        })))
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        Box::pin(ready(self.write(Write::Renew, &lease.key, |journal, now| {
            journal.check(lease, now)?;
            journal.held = Some((lease.owner.clone(), now.saturating_add(lease.ttl)));
            Ok(())
        })))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        Box::pin(ready(self.write(Write::Release, &lease.key, |journal, now| journal.release(lease, now))))
    }

    fn delete<'a>(&'a self, lease: &'a Lease, mark: DeletionMark) -> StoreFuture<'a, ()> {
        let deleted = self.write(Write::Delete, &lease.key, |journal, now| journal.delete(lease, &mark, now));
        self.lock().wake();
        Box::pin(ready(deleted))
    }

    fn sweep<'a>(&'a self, lease: &'a Lease, named: &'a BTreeSet<BlobDigest>) -> StoreFuture<'a, Swept> {
        Box::pin(ready(self.write(Write::Sweep, &lease.key, |journal, now| journal.sweep(lease, named, now))))
    }

    fn sessions<'a>(&'a self, org: &'a OrgId, limit: usize) -> StoreFuture<'a, Vec<SessionSummary>> {
        let now = (self.clock)();
        let state = self.lock();
        if state.down {
            return Box::pin(ready(Err(down())));
        }
        let acquired = state.written.iter().filter(|(key, journal)| key.org == *org && journal.fence > Fence(0));
        let mut lines: Vec<_> = acquired
            .map(|(key, journal)| SessionSummary {
                key: key.clone(),
                head: journal.head(),
                updated_ms: journal.records.last().map_or(0, |last| last.record.at_ms),
                owner: journal.owner(now).map(|(owner, left)| (owner.clone(), left)),
            })
            .collect();
        lines.sort_by(|a, b| b.updated_ms.cmp(&a.updated_ms).then_with(|| a.key.cmp(&b.key)));
        lines.truncate(limit);
        Box::pin(ready(Ok(lines)))
    }

    fn blob<'a>(&'a self, key: &'a JournalKey, digest: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(ready(self.read(key, |journal| journal.blobs.get(digest).map(|bytes| bytes.to_vec()))))
    }

    fn put_inbox<'a>(&'a self, key: &'a JournalKey, item: InboxItem) -> StoreFuture<'a, InboxPut> {
        let put =
            item.check_bounds().and_then(|()| self.write(Write::PutInbox, key, |journal, now| journal.put(&item, now)));
        self.lock().wake();
        Box::pin(ready(put))
    }

    fn inbox<'a>(&'a self, key: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>> {
        Box::pin(ready(self.read(key, |journal| journal.waiting().cloned().collect())))
    }

    fn claim<'a>(&'a self, claim: &'a Claim, owner: &'a Owner) -> StoreFuture<'a, Option<Lease>> {
        Box::pin(ready(claim.check_bounds().and_then(|()| {
            while let Some(key) = self.longest_waiting(claim) {
                let take = |journal: &mut Journal, now| match journal.waits(claim, now) {
                    Some(_) => journal.take(&key, owner, claim.ttl, Acquire::IfFree, now).map(Some),
                    None => Ok(None), // somebody else was faster
                };
                if let Some(lease) = self.write(Write::Claim, &key, take)? {
                    return Ok(Some(lease));
                }
            }
            Ok(None)
        })))
    }

    fn inbox_grows<'a>(&'a self, key: &'a JournalKey, seen: usize) -> StoreFuture<'a, ()> {
        let (wake, woken) = oneshot::channel();
        let mut state = self.lock();
        state.waiting.push(Waiter { key: key.clone(), seen, wake });
        state.wake();
        Box::pin(woken.map(|answer| answer.unwrap_or_else(|_| Err(down()))))
    }
}
