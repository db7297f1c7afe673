//! A store that fails where it is told to, and notes what became durable.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use wharf_core::{BlobDigest, Error, OrgId, Record, Seq};
use wharf_store::{
    Acquire, Append, DeletionMark, InboxItem, InboxPut, JournalKey, Lease, Loaded, MemoryStore, Owner, SessionSummary,
    Store, StoreError, StoreFuture, StoredRecord, Swept,
};

use super::{Gate, SimSeams, Timeline, line};

/// An operation that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// [`Store::acquire`].
    Acquire,
    /// [`Store::load`].
    Load,
    /// [`Store::append`].
    Append,
    /// [`Store::renew`].
    Renew,
    /// [`Store::release`].
    Release,
    /// [`Store::blob`].
    Blob,
}

/// How an operation fails.
#[derive(Debug, Clone)]
pub enum StoreFault {
    /// It fails for good before anything is changed.
    Broken,
    /// It fails before anything is changed, and may work later.
    Busy,
    /// It has its effect, and the answer is lost.
    LostAnswer,
    /// It has no effect, and nobody can tell.
    LostRequest,
    /// The lease is another's.
    Fenced,
    /// What is stored cannot be read.
    Damaged,
    /// It has its effect once the gate is open.
    Late(Gate),
}

type Rule = Box<dyn FnMut(StoreOp, usize) -> Option<StoreFault> + Send>;

/// A memory store on virtual time behind a rule of faults. Clones share everything.
#[derive(Clone)]
pub struct TrialStore {
    inner: Arc<MemoryStore>,
    timeline: Timeline,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    counts: HashMap<StoreOp, usize>,
}

impl TrialStore {
    /// One without faults.
    pub fn new(sim: &SimSeams) -> Self {
        Self { inner: Arc::new(MemoryStore::with_clock(sim.clock())), timeline: Timeline::new(), state: Arc::default() }
    }

    /// The same with what becomes durable noted on a timeline.
    #[must_use]
    pub fn on(mut self, timeline: &Timeline) -> Self {
        self.timeline = timeline.clone();
        self
    }

    /// For [`Options::new`](crate::coordinator::Options::new).
    pub fn shared(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    /// Asks this at each operation from now on. The number counts operations of that kind from now on, from 1.
    pub fn set_rule(&self, rule: impl FnMut(StoreOp, usize) -> Option<StoreFault> + Send + 'static) {
        let mut state = self.lock();
        state.counts.clear();
        state.rule = Some(Box::new(rule));
    }

    /// Makes the n-th operation of this kind from now on fail, counted from 1; all others work.
    pub fn fail_at(&self, op: StoreOp, n: usize, fault: StoreFault) {
        self.set_rule(move |now, count| (now == op && count == n).then(|| fault.clone()));
    }

    /// Makes each operation of this kind fail from now on.
    pub fn fail_all(&self, op: StoreOp, fault: StoreFault) {
        self.set_rule(move |now, _| (now == op).then(|| fault.clone()));
    }

    /// Nothing fails any more.
    pub fn mend(&self) {
        self.set_rule(|_, _| None);
    }

    /// How often an operation was asked for since the last rule was set.
    pub fn count(&self, op: StoreOp) -> usize {
        self.lock().counts.get(&op).copied().unwrap_or(0)
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    /// What a journal holds.
    ///
    /// # Errors
    /// Corruption errors.
    pub fn journal(&self, key: &JournalKey) -> Result<Vec<Record>, Error> {
        // A memory store's futures are ready at once.
        let read = async {
            let stored = self.inner.history(key, Seq(0), usize::MAX).await?;
            crate::journal::decode(&*self.inner, key, &stored).await
        };
        read.now_or_never().unwrap_or_else(|| Err(Error::store("the memory store is not ready at once")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries an operation out, or not, as the rule says.
    async fn tried<T>(&self, op: StoreOp, session: &str, work: StoreFuture<'_, T>) -> Result<T, StoreError> {
        let fault = {
            let mut state = self.lock();
            let count = state.counts.entry(op).or_default();
            *count += 1;
            let count = *count;
            state.rule.as_mut().and_then(|rule| rule(op, count))
        };
        let what = format!("{op:?}").to_lowercase();
        let why = "the test wants it".to_owned();
        match fault {
            None => work.await,
            Some(StoreFault::Broken) => Err(StoreError::Io { what, why, transient: false }),
            Some(StoreFault::Busy) => Err(StoreError::Io { what, why, transient: true }),
            Some(StoreFault::LostAnswer) => {
                work.await?;
                Err(StoreError::Unknown { what, why })
            }
            Some(StoreFault::LostRequest) => Err(StoreError::Unknown { what, why }),
            Some(StoreFault::Damaged) => Err(StoreError::Corrupt { place: what, why }),
            Some(StoreFault::Fenced) => Err(StoreError::Fenced { session: session.to_owned() }),
            Some(StoreFault::Late(gate)) => {
                gate.passed().await;
                work.await
            }
        }
    }
}

impl Store for TrialStore {
    fn acquire<'a>(
        &'a self,
        key: &'a JournalKey,
        owner: &'a Owner,
        ttl: Duration,
        how: Acquire,
    ) -> StoreFuture<'a, Lease> {
        let work = Box::pin(async move { self.inner.acquire(key, owner, ttl, how).await });
        Box::pin(self.tried(StoreOp::Acquire, key.session.as_str(), work))
    }

    fn load<'a>(&'a self, key: &'a JournalKey, after: Seq) -> StoreFuture<'a, Loaded> {
        let work = Box::pin(async move { self.inner.load(key, after).await });
        Box::pin(self.tried(StoreOp::Load, key.session.as_str(), work))
    }

    fn history<'a>(&'a self, key: &'a JournalKey, after: Seq, limit: usize) -> StoreFuture<'a, Vec<StoredRecord>> {
        self.inner.history(key, after, limit)
    }

    fn append<'a>(&'a self, lease: &'a Lease, append: Append) -> StoreFuture<'a, Seq> {
        let work = Box::pin(async move {
            let written = append.clone();
            let head = self.inner.append(lease, append).await?;
            for record in written.records {
                let blob =
                    |digest: &BlobDigest| written.blobs.iter().find(|(at, _)| at == digest).map(|(_, b)| b.clone());
                let named = Record::named_blob(&record.kind, &record.body).and_then(|digest| blob(&digest));
                match Record::decode(&record.kind, record.version, &record.body, |_| named) {
                    Ok(record) => self.timeline.push(line(&record)),
                    Err(error) => self.timeline.push(format!("{} cannot be read: {error}", record.kind)),
                }
            }
            Ok(head)
        });
        Box::pin(self.tried(StoreOp::Append, lease.key.session.as_str(), work))
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        let work = Box::pin(async move { self.inner.renew(lease).await });
        Box::pin(self.tried(StoreOp::Renew, lease.key.session.as_str(), work))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        let work = Box::pin(async move { self.inner.release(lease).await });
        Box::pin(self.tried(StoreOp::Release, lease.key.session.as_str(), work))
    }

    fn delete<'a>(&'a self, lease: &'a Lease, mark: DeletionMark) -> StoreFuture<'a, ()> {
        self.inner.delete(lease, mark)
    }

    fn sweep<'a>(&'a self, lease: &'a Lease, named: &'a BTreeSet<BlobDigest>) -> StoreFuture<'a, Swept> {
        self.inner.sweep(lease, named)
    }

    fn sessions<'a>(&'a self, org: &'a OrgId, limit: usize) -> StoreFuture<'a, Vec<SessionSummary>> {
        self.inner.sessions(org, limit)
    }

    fn blob<'a>(&'a self, key: &'a JournalKey, digest: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>> {
        let work = Box::pin(async move { self.inner.blob(key, digest).await });
        Box::pin(self.tried(StoreOp::Blob, key.session.as_str(), work))
    }

    fn put_inbox<'a>(&'a self, key: &'a JournalKey, item: InboxItem) -> StoreFuture<'a, InboxPut> {
        self.inner.put_inbox(key, item)
    }

    fn inbox<'a>(&'a self, key: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>> {
        self.inner.inbox(key)
    }

    fn inbox_grows<'a>(&'a self, key: &'a JournalKey, seen: usize) -> StoreFuture<'a, ()> {
        self.inner.inbox_grows(key, seen)
    }
}
