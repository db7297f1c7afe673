//! The memory store passes the suite, and stops where a fault hook says.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use wharf_core::{BlobDigest, Fence, RecordId, Seq};
use wharf_store::conformance::{Fixture, claims, suite};
use wharf_store::{
    Acquire, Append, DeletionMark, FaultAction, FaultPoint, InboxItem, InboxPut, JournalKey, Lease, Loaded,
    MemoryStore, NewRecord, Owner, Stage, Store, StoreError, StoredRecord, Swept, Write,
};

struct InMemory {
    now: Arc<Mutex<Duration>>,
    store: MemoryStore,
}

impl InMemory {
    fn new() -> Self {
        let now = Arc::new(Mutex::new(Duration::ZERO));
        let clock = Arc::clone(&now);
        Self { store: MemoryStore::with_clock(Arc::new(move || *clock.lock().unwrap())), now }
    }
}

impl Fixture for InMemory {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
    }

    fn reopen(&mut self) {
        self.store.crash();
    }
}

// covers M1, M2, M3, M4, M5, M6, M7, M8, M9, N1, N2, N3, N4, N5, N6, N7
#[test]
fn memory_store_passes_the_suite() {
    block_on(suite(InMemory::new));
    block_on(claims(InMemory::new));
}

fn record(id: &str) -> NewRecord {
    NewRecord { id: RecordId::new(id), kind: "note".into(), version: 1, at_ms: 5, body: "{}".into() }
}

fn item(id: &str) -> InboxItem {
    InboxItem {
        id: id.into(),
        target: id.into(),
        kind: "cancel".into(),
        who: "me".into(),
        at_ms: 1,
        digest: String::new(),
        body: "{}".into(),
    }
}

fn append(expected: u64, id: &str) -> Append {
    Append { expected: Seq(expected), records: vec![record(id)], ..Append::default() }
}

fn stored(seq: u64, id: &str) -> StoredRecord {
    StoredRecord { seq: Seq(seq), fence: Fence(1), record: record(id) }
}

fn owned(store: &MemoryStore) -> Lease {
    let owner = Owner { token: "a".into(), label: "a".into() };
    block_on(store.acquire(&JournalKey::local("s"), &owner, Duration::from_secs(60), Acquire::IfFree)).unwrap()
}

fn crashed<T>() -> Result<T, StoreError> {
    Err(StoreError::Unknown { what: "the operation".into(), why: "the store crashed".into() })
}

/// What is in the journal after an append met this at that stage, and what the caller was told.
fn fault(stage: Stage, action: FaultAction) -> (Result<Seq, StoreError>, Vec<StoredRecord>, MemoryStore, Lease) {
    let store = MemoryStore::new();
    let lease = owned(&store);
    let at = FaultPoint { write: Write::Append, stage };
    let hook = action.clone();
    store.set_fault(Some(Arc::new(move |point| if point == at { hook.clone() } else { FaultAction::Go })));
    let told = block_on(store.append(&lease, append(0, "r1")));
    if matches!(action, FaultAction::Crash | FaultAction::Tear) {
        assert_eq!(block_on(store.load(&lease.key, Seq(0))), crashed());
        assert_eq!(block_on(store.renew(&lease)), crashed());
        store.crash();
    }
    store.set_fault(None);
    let records = block_on(store.history(&lease.key, Seq(0), 10)).unwrap();
    (told, records, store, lease)
}

// covers M5
#[test]
fn crash_during_an_append_leaves_the_former_state_or_the_whole_append() {
    let (told, records, store, lease) = fault(Stage::BeforeWrite, FaultAction::Crash);
    assert_eq!((told, records), (crashed(), vec![]));
    assert_eq!(block_on(store.append(&lease, append(0, "r2"))), Ok(Seq(1)));

    let (told, records, store, lease) = fault(Stage::AfterWriteBeforeSync, FaultAction::Crash);
    assert_eq!((told, records), (crashed(), vec![]));
    assert_eq!(block_on(store.append(&lease, append(0, "r2"))), Ok(Seq(1)));

    let (told, records, store, lease) = fault(Stage::AfterSyncBeforeAnswer, FaultAction::Crash);
    assert_eq!((told, records), (crashed(), vec![stored(1, "r1")]));
    assert_eq!(block_on(store.append(&lease, append(1, "r2"))), Ok(Seq(2)));
}

// covers M5
#[test]
fn torn_append_leaves_blobs_that_nothing_names_and_no_record() {
    let store = MemoryStore::new();
    let lease = owned(&store);
    assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
    let digests = ["sha256:01", "sha256:02"].map(BlobDigest::new);
    let blobs: Vec<_> = digests.iter().cloned().zip([vec![1; 10], vec![2; 8]]).collect();
    let item = item("i1");
    assert_eq!(block_on(store.put_inbox(&lease.key, item.clone())), Ok(InboxPut::Accepted));
    let torn = Append {
        blobs: blobs.clone(),
        consumed: vec![item.id.clone()],
        snapshot: Some("{}".into()),
        ..append(1, "r2")
    };
    let tear = |store: &MemoryStore| {
        let at = FaultPoint { write: Write::Append, stage: Stage::AfterWriteBeforeSync };
        store.set_fault(Some(Arc::new(move |point| if point == at { FaultAction::Tear } else { FaultAction::Go })));
        assert_eq!(block_on(store.append(&lease, torn.clone())), crashed());
        assert_eq!(block_on(store.renew(&lease)), crashed());
        store.crash();
        // Of the records' transaction there is nothing.
        let loaded = Loaded { snapshot: None, records: vec![stored(1, "r1")], head: Seq(1) };
        assert_eq!(block_on(store.load(&lease.key, Seq(0))), Ok(loaded));
        assert_eq!(block_on(store.inbox(&lease.key)), Ok(vec![item.clone()]));
    };
    let there =
        |store: &MemoryStore| digests.each_ref().map(|digest| block_on(store.blob(&lease.key, digest)).unwrap());
    tear(&store);
    assert_eq!(there(&store), [Some(vec![1; 10]), None], "one is whole, of the other there is a part");
    let swept = |store: &MemoryStore, head| {
        block_on(store.sweep(&Lease { head: Seq(head), ..lease.clone() }, &BTreeSet::new()))
    };
    assert_eq!(swept(&store, 1), Ok(Swept { blobs: 2, bytes: 14 }));
    assert_eq!(there(&store), [None, None]);
    // Torn again, and then put whole.
    tear(&store);
    assert_eq!(block_on(store.append(&lease, Append { blobs, ..append(1, "r2") })), Ok(Seq(2)));
    assert_eq!(there(&store), [Some(vec![1; 10]), Some(vec![2; 8])]);
    assert_eq!(swept(&store, 2), Ok(Swept { blobs: 2, bytes: 18 }), "nothing is left over beside them");
}

// covers M5
#[test]
fn write_in_one_transaction_is_not_torn() {
    for stage in [Stage::BeforeWrite, Stage::AfterWriteBeforeSync, Stage::AfterSyncBeforeAnswer] {
        let (told, records, ..) = fault(stage, FaultAction::Tear);
        let expected = if stage == Stage::AfterSyncBeforeAnswer { vec![stored(1, "r1")] } else { vec![] };
        assert_eq!((told, records), (crashed(), expected), "{stage:?}");
        let store = MemoryStore::new();
        let lease = owned(&store);
        assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
        let at = FaultPoint { write: Write::Delete, stage };
        store.set_fault(Some(Arc::new(move |point| if point == at { FaultAction::Tear } else { FaultAction::Go })));
        let mark = DeletionMark { who: "ann".into(), at_ms: 9 };
        assert_eq!(block_on(store.delete(&lease, mark.clone())), crashed());
        store.crash();
        let records = block_on(store.history(&lease.key, Seq(0), 10));
        let gone = stage == Stage::AfterSyncBeforeAnswer;
        assert_eq!(records, if gone { Err(mark.refusal(&lease.key)) } else { Ok(vec![stored(1, "r1")]) }, "{stage:?}");
    }
}

#[test]
fn failed_append_is_undone_before_the_sync_and_stays_after_it() {
    let full = StoreError::Io { what: "appending".into(), why: "no space".into(), transient: true };
    let fail = FaultAction::Fail(full.clone());
    let (told, records, ..) = fault(Stage::BeforeWrite, fail.clone());
    assert_eq!((told, records), (Err(full.clone()), vec![]));
    let (told, records, store, lease) = fault(Stage::AfterWriteBeforeSync, fail.clone());
    assert_eq!((told, records), (Err(full.clone()), vec![]));
    assert_eq!(block_on(store.append(&lease, append(0, "r2"))), Ok(Seq(1)));
    let (told, records, ..) = fault(Stage::AfterSyncBeforeAnswer, fail);
    assert_eq!((told, records), (Err(full), vec![stored(1, "r1")]));
}

#[test]
fn every_write_passes_all_three_points() {
    let store = MemoryStore::new();
    let points = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&points);
    store.set_fault(Some(Arc::new(move |point| {
        seen.lock().unwrap().push(point);
        FaultAction::Go
    })));
    let lease = owned(&store);
    block_on(store.append(&lease, append(0, "r1"))).unwrap();
    block_on(store.renew(&lease)).unwrap();
    block_on(store.put_inbox(&lease.key, item("i1"))).unwrap();
    block_on(store.sweep(&Lease { head: Seq(1), ..lease.clone() }, &BTreeSet::new())).unwrap();
    block_on(store.release(&lease)).unwrap();
    let lease = owned(&store);
    block_on(store.delete(&lease, DeletionMark { who: "ann".into(), at_ms: 9 })).unwrap();
    let stages = [Stage::BeforeWrite, Stage::AfterWriteBeforeSync, Stage::AfterSyncBeforeAnswer];
    let writes = [
        Write::Acquire,
        Write::Append,
        Write::Renew,
        Write::PutInbox,
        Write::Sweep,
        Write::Release,
        Write::Acquire,
        Write::Delete,
    ];
    let expected: Vec<_> =
        writes.into_iter().flat_map(|write| stages.map(|stage| FaultPoint { write, stage })).collect();
    assert_eq!(*points.lock().unwrap(), expected);
}
