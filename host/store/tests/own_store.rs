//! A store of one's own takes little, and the suite says when it is one (N7).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, HashMap};
use std::future::{poll_fn, ready};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use wharf_core::{BlobDigest, Fence, OrgId, Seq};
use wharf_store::conformance::{Fixture, suite};
use wharf_store::{
    Acquire, Append, DeletionMark, InboxItem, InboxPut, JournalKey, Lease, Loaded, Owner, SessionSummary, Store,
    StoreError, StoreFuture, StoredRecord, Swept, limits,
};

#[derive(Default, Clone)]
struct Journal {
    fence: u64,
    owner: Option<(Owner, Duration)>,
    records: Vec<StoredRecord>,
    snapshot: Option<(Seq, String)>,
    blobs: HashMap<BlobDigest, Vec<u8>>,
    waiting: Vec<InboxItem>,
    consumed: Vec<InboxItem>,
    gone: Option<StoreError>,
}

#[derive(Default)]
struct Inner {
    now: Duration,
    journals: HashMap<JournalKey, Journal>,
    asleep: Vec<Waker>,
}

#[derive(Default, Clone)]
struct OwnStore(Arc<Mutex<Inner>>);

impl Inner {
    fn journal(&self, key: &JournalKey) -> Result<Journal, StoreError> {
        let journal = self.journals.get(key).cloned().unwrap_or_default();
        journal.gone.clone().map_or(Ok(journal), Err)
    }
}

impl Journal {
    fn head(&self) -> Seq {
        Seq(self.records.len() as u64)
    }

    fn live(&self, now: Duration) -> Option<(Owner, Duration)> {
        self.owner.clone().filter(|(_, until)| *until > now).map(|(owner, until)| (owner, until - now))
    }

    fn check(&self, lease: &Lease, now: Duration) -> Result<(), StoreError> {
        let ours = self.live(now).is_some_and(|(owner, _)| owner.token == lease.owner.token);
        ensure(ours && Fence(self.fence) == lease.fence, StoreError::Fenced { session: lease.key.session.to_string() })
    }

    fn append(&mut self, lease: &Lease, append: Append, now: Duration) -> Result<Seq, StoreError> {
        append.check_bounds()?;
        self.check(lease, now)?;
        let (session, expected, found) = (lease.key.session.to_string(), append.expected, self.head());
        ensure(expected == found, StoreError::Stale { session, expected, found })?;
        for id in &append.consumed {
            let at = self.waiting.iter().position(|item| item.id == *id).ok_or_else(|| StoreError::not_waiting(id))?;
            self.consumed.push(self.waiting.remove(at));
        }
        self.blobs.extend(append.blobs);
        for record in append.records {
            self.records.push(StoredRecord { seq: self.head().next(), fence: lease.fence, record });
        }
        self.snapshot = append.snapshot.map(|text| (self.head(), text)).or(self.snapshot.take());
        self.owner = Some((lease.owner.clone(), now + lease.ttl));
        Ok(self.head())
    }

    fn put(&mut self, item: InboxItem) -> Result<InboxPut, StoreError> {
        item.check_bounds()?;
        let clash = |there: &&InboxItem| there.id == item.id || there.target == item.target;
        let clashes: Vec<_> = self.waiting.iter().chain(&self.consumed).filter(clash).collect();
        if !clashes.is_empty() {
            return Ok(if clashes.contains(&&item) { InboxPut::Repeated } else { InboxPut::TooLate });
        }
        ensure(self.waiting.len() < limits::INBOX_ITEMS_MAX, StoreError::inbox_full())?;
        self.waiting.push(item);
        Ok(InboxPut::Accepted)
    }
}

fn ensure(fine: bool, error: StoreError) -> Result<(), StoreError> {
    if fine { Ok(()) } else { Err(error) }
}

impl OwnStore {
    /// A change is tried on a copy, so that a refused one leaves nothing behind.
    fn change<T: Send + 'static>(
        &self,
        key: &JournalKey,
        change: impl FnOnce(&mut Journal, Duration) -> Result<T, StoreError>,
    ) -> StoreFuture<'static, T> {
        let mut inner = self.0.lock().unwrap();
        let done = inner.journal(key).and_then(|mut journal| {
            let done = change(&mut journal, inner.now)?;
            inner.journals.insert(key.clone(), journal);
            inner.asleep.drain(..).for_each(Waker::wake);
            Ok(done)
        });
        Box::pin(ready(done))
    }

    fn look<T: Send + 'static>(&self, key: &JournalKey, look: impl FnOnce(Journal) -> T) -> StoreFuture<'static, T> {
        Box::pin(ready(self.0.lock().unwrap().journal(key).map(look)))
    }
}

impl Store for OwnStore {
    fn acquire<'a>(
        &'a self,
        key: &'a JournalKey,
        owner: &'a Owner,
        ttl: Duration,
        how: Acquire,
    ) -> StoreFuture<'a, Lease> {
        self.change(key, |journal, now| {
            match journal.live(now) {
                Some((live, _)) if live.token == owner.token => {}
                Some((Owner { label, .. }, left)) if how == Acquire::IfFree => {
                    return Err(StoreError::Busy { session: key.session.to_string(), owner: label, left });
                }
                _ => journal.fence += 1,
            }
            journal.owner = Some((owner.clone(), now + ttl));
            Ok(Lease { key: key.clone(), owner: owner.clone(), fence: Fence(journal.fence), head: journal.head(), ttl })
        })
    }

    fn load<'a>(&'a self, key: &'a JournalKey, after: Seq) -> StoreFuture<'a, Loaded> {
        self.look(key, |journal| {
            let snapshot = journal.snapshot.clone().filter(|_| after == Seq(0));
            let after = snapshot.as_ref().map_or(after, |(seq, _)| *seq);
            let records = journal.records.iter().filter(|record| record.seq > after).cloned().collect();
            Loaded { snapshot, records, head: journal.head() }
        })
    }

    fn history<'a>(&'a self, key: &'a JournalKey, after: Seq, limit: usize) -> StoreFuture<'a, Vec<StoredRecord>> {
        self.look(key, |journal| journal.records.into_iter().filter(|record| record.seq > after).take(limit).collect())
    }

    fn append<'a>(&'a self, lease: &'a Lease, append: Append) -> StoreFuture<'a, Seq> {
        self.change(&lease.key, |journal, now| journal.append(lease, append, now))
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.change(&lease.key, |journal, now| {
            journal.append(lease, Append { expected: journal.head(), ..Append::default() }, now).map(drop)
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.change(&lease.key, |journal, now| journal.check(lease, now).map(|()| journal.owner = None))
    }

    fn delete<'a>(&'a self, lease: &'a Lease, mark: DeletionMark) -> StoreFuture<'a, ()> {
        self.change(&lease.key, |journal, now| {
            let gone = Some(mark.refusal(&lease.key));
            journal.check(lease, now).map(|()| *journal = Journal { gone, ..Journal::default() })
        })
    }

    fn sweep<'a>(&'a self, lease: &'a Lease, named: &'a BTreeSet<BlobDigest>) -> StoreFuture<'a, Swept> {
        self.change(&lease.key, |journal, now| {
            journal.append(lease, Append { expected: lease.head, ..Append::default() }, now)?;
            let swept = journal.blobs.extract_if(|digest, _| !named.contains(digest));
            Ok(Swept::of(swept.map(|(_, bytes)| bytes.len())))
        })
    }

    fn sessions<'a>(&'a self, org: &'a OrgId, limit: usize) -> StoreFuture<'a, Vec<SessionSummary>> {
        let inner = self.0.lock().unwrap();
        let line = |(key, journal): (&JournalKey, &Journal)| SessionSummary {
            key: key.clone(),
            head: journal.head(),
            updated_ms: journal.records.last().map_or(0, |last| last.record.at_ms),
            owner: journal.live(inner.now),
        };
        let ours = inner.journals.iter().filter(|(key, journal)| key.org == *org && journal.fence > 0);
        let mut lines: Vec<_> = ours.map(line).collect();
        lines.sort_by_key(|line| (u64::MAX - line.updated_ms, line.key.clone()));
        lines.truncate(limit);
        Box::pin(ready(Ok(lines)))
    }

    fn blob<'a>(&'a self, key: &'a JournalKey, digest: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>> {
        self.look(key, |mut journal| journal.blobs.remove(digest))
    }

    fn put_inbox<'a>(&'a self, key: &'a JournalKey, item: InboxItem) -> StoreFuture<'a, InboxPut> {
        self.change(key, |journal, _| journal.put(item))
    }

    fn inbox<'a>(&'a self, key: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>> {
        self.look(key, |journal| journal.waiting)
    }

    fn inbox_grows<'a>(&'a self, key: &'a JournalKey, seen: usize) -> StoreFuture<'a, ()> {
        Box::pin(poll_fn(move |context| {
            let mut inner = self.0.lock().unwrap();
            inner.asleep.push(context.waker().clone());
            match inner.journal(key).map(|journal| journal.waiting.len() > seen) {
                Ok(false) => Poll::Pending,
                end => Poll::Ready(end.map(drop)),
            }
        }))
    }
}

impl Fixture for OwnStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn advance(&self, by: Duration) {
        self.0.lock().unwrap().now += by;
    }

    // It lasts as long as the process, which is what it promises.
    fn reopen(&mut self) {}
}

// covers N7
#[test]
fn store_of_ones_own_passes_the_suite() {
    futures::executor::block_on(suite(OwnStore::default));
}

// covers N7
#[test]
fn it_takes_under_180_lines() {
    let source = include_str!("own_store.rs");
    let store = source.split("struct Journal").nth(1).and_then(|rest| rest.split("impl Fixture").next()).unwrap();
    let lines = store.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).count();
    assert!(lines < 180, "{lines}");
}
