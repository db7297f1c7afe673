//! Faults during a write, and writes that share a commit.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::join_all;
use tempfile::TempDir;
use wharf_core::{BlobDigest, Seq};
use wharf_store::{
    Acquire, Append, Fault, FaultAction, FaultPoint, InboxItem, InboxPut, JournalKey, Lease, SqliteOptions,
    SqliteStats, SqliteStore, Stage, Store as _, StoreError, Swept, Write,
};

use super::{TTL, append, frozen_clock, history, owned, owner, raw, record, stored, with_fault};

fn full() -> StoreError {
    StoreError::Io { what: "appending".into(), why: "no space".into(), transient: true }
}

fn broken() -> StoreError {
    StoreError::Io { what: "appending".into(), why: "no rights".into(), transient: false }
}

/// Does this at the point, so many times.
fn fault(write: Write, stage: Stage, times: usize, action: FaultAction) -> Fault {
    let left = AtomicUsize::new(times);
    Arc::new(move |point| {
        let here = point == FaultPoint { write, stage };
        if here && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            action.clone()
        } else {
            FaultAction::Go
        }
    })
}

/// What an append that meets this is told, what then is in the journal, and how often it was tried again.
fn meet(stage: Stage, times: usize, error: &StoreError, ttl: Duration) -> (Result<Seq, StoreError>, Vec<String>, u64) {
    let dir = TempDir::new().unwrap();
    let store = with_fault(dir.path(), fault(Write::Append, stage, times, FaultAction::Fail(error.clone())));
    let lease = owned(&store, "s", ttl);
    let told = block_on(store.append(&lease, append(0, "r1")));
    let ids = history(&store, &lease).into_iter().map(|stored| stored.record.id.to_string()).collect();
    (told, ids, store.stats().retries)
}

const STAGES: [Stage; 3] = [Stage::BeforeWrite, Stage::AfterWriteBeforeSync, Stage::AfterSyncBeforeAnswer];

// covers L63
#[test]
fn append_that_fails_for_a_while_is_tried_again_and_is_there_once() {
    for stage in STAGES {
        assert_eq!(meet(stage, 3, &full(), TTL), (Ok(Seq(1)), vec!["r1".into()], 3), "{stage:?}");
    }
}

// covers L63
#[test]
fn append_with_too_little_lease_left_fails_with_what_is_known() {
    let short = Duration::from_millis(1);
    assert_eq!(meet(Stage::BeforeWrite, 9, &full(), short), (Err(full()), vec![], 0));
    assert_eq!(meet(Stage::AfterWriteBeforeSync, 9, &full(), short), (Err(full()), vec![], 0));
    // Nobody can tell the caller that it is not there, because it is.
    let unknown = StoreError::Unknown { what: "appending to the journal".into(), why: full().to_string() };
    assert_eq!(meet(Stage::AfterSyncBeforeAnswer, 9, &full(), short), (Err(unknown), vec!["r1".into()], 0));
}

// covers L63
#[test]
fn failure_that_will_not_pass_is_not_tried_again() {
    assert_eq!(meet(Stage::BeforeWrite, 1, &broken(), TTL), (Err(broken()), vec![], 0));
    assert_eq!(meet(Stage::AfterWriteBeforeSync, 1, &broken(), TTL), (Err(broken()), vec![], 0));
}

// covers L63
#[test]
fn consuming_append_without_records_is_not_done_twice_either() {
    let dir = TempDir::new().unwrap();
    let store =
        with_fault(dir.path(), fault(Write::Append, Stage::AfterSyncBeforeAnswer, 1, FaultAction::Fail(full())));
    let lease = owned(&store, "s", TTL);
    let item = InboxItem {
        id: "i1".into(),
        target: "t1".into(),
        kind: "cancel".into(),
        who: "me".into(),
        at_ms: 1,
        digest: String::new(),
        body: "{}".into(),
    };
    assert_eq!(block_on(store.put_inbox(&lease.key, item)), Ok(InboxPut::Accepted));
    let consume = Append { consumed: vec!["i1".into()], ..Append::default() };
    assert_eq!(block_on(store.append(&lease, consume)), Ok(Seq(0)));
    assert_eq!(block_on(store.inbox(&lease.key)), Ok(vec![]));
}

// covers L63
#[test]
fn renewal_is_tried_again_too() {
    let dir = TempDir::new().unwrap();
    let store = with_fault(dir.path(), fault(Write::Renew, Stage::AfterWriteBeforeSync, 2, FaultAction::Fail(full())));
    assert_eq!(block_on(store.renew(&owned(&store, "s", TTL))), Ok(()));
    assert_eq!(store.stats().retries, 2);
}

// covers M5
#[test]
fn crash_during_an_append_leaves_the_former_state_or_the_whole_append() {
    for stage in STAGES {
        let dir = TempDir::new().unwrap();
        let store = with_fault(dir.path(), fault(Write::Append, stage, 1, FaultAction::Crash));
        let lease = owned(&store, "s", TTL);
        let crashed = || StoreError::Unknown { what: "the operation".into(), why: "the store crashed".into() };
        let large = Append { blobs: vec![(BlobDigest::new("sha256:01"), vec![1; 3 << 20])], ..append(0, "r1") };
        let told = block_on(store.append(&lease, large.clone()));
        assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
        assert_eq!(block_on(store.renew(&lease)), Err(crashed()));
        drop(store);
        let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
        assert_eq!(history(&store, &lease), vec![], "{stage:?}");
        assert_eq!(block_on(store.blob(&lease.key, &BlobDigest::new("sha256:01"))), Ok(None));
        // What is left over of the blob does no harm.
        assert_eq!(block_on(store.append(&lease, large)), Ok(Seq(1)));
        let blob = block_on(store.blob(&lease.key, &BlobDigest::new("sha256:01")));
        assert!(blob == Ok(Some(vec![1; 3 << 20])), "the blob is not what was put");
    }
}

// covers M5
#[test]
fn torn_append_keeps_the_pieces_before_its_records_and_no_record() {
    let dir = TempDir::new().unwrap();
    let digests = ["sha256:01", "sha256:02"].map(BlobDigest::new);
    let blobs = vec![(digests[0].clone(), vec![1; 1 << 20]), (digests[1].clone(), vec![2; 1 << 20])];
    let large = Append { blobs, ..append(0, "r1") };
    let small = Append { blobs: vec![(BlobDigest::new("sha256:03"), vec![3; 10])], ..append(0, "r1") };
    // Where blobs and records share a transaction nothing of it stays.
    for (append, kept) in [(&small, [false, false]), (&large, [true, false])] {
        let store = with_fault(dir.path(), fault(Write::Append, Stage::AfterWriteBeforeSync, 1, FaultAction::Tear));
        let lease = owned(&store, "s", TTL);
        let told = block_on(store.append(&lease, append.clone()));
        assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
        assert!(matches!(block_on(store.renew(&lease)), Err(StoreError::Unknown { .. })));
        drop(store);
        let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
        assert_eq!(history(&store, &lease), vec![]);
        let there = |digest| block_on(store.blob(&lease.key, digest)).unwrap().is_some();
        assert_eq!(digests.each_ref().map(there), kept);
        assert_eq!(block_on(store.blob(&lease.key, &BlobDigest::new("sha256:03"))), Ok(None));
    }
    let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
    let lease = owned(&store, "s", TTL);
    assert_eq!(block_on(store.append(&lease, large)), Ok(Seq(1)));
    let swept = block_on(store.sweep(&Lease { head: Seq(1), ..lease }, &BTreeSet::new()));
    assert_eq!(swept, Ok(Swept { blobs: 2, bytes: 2 << 20 }), "nothing was left over beside them");
}

/// A store whose writer stops at the first append until it is told to go on, so that the next writes have to wait.
struct Gate {
    reached: Receiver<()>,
    go: Sender<()>,
}

fn gate(then: Option<Fault>) -> (Fault, Gate) {
    let (reach, reached) = channel();
    let (go, wait) = channel();
    let first = Mutex::new(Some((reach, wait)));
    let hook: Fault = Arc::new(move |point| {
        if point == (FaultPoint { write: Write::Append, stage: Stage::BeforeWrite })
            && let Some((reach, wait)) = first.lock().unwrap().take()
        {
            reach.send(()).unwrap();
            wait.recv().unwrap();
            return FaultAction::Go;
        }
        then.as_ref().map_or(FaultAction::Go, |then| then(point))
    });
    (hook, Gate { reached, go })
}

fn difference(later: SqliteStats, earlier: SqliteStats) -> SqliteStats {
    SqliteStats {
        commits: later.commits - earlier.commits,
        writes: later.writes - earlier.writes,
        retries: later.retries - earlier.retries,
    }
}

// covers N4
#[test]
fn what_waits_shares_one_commit_and_a_refused_write_harms_only_itself() {
    let dir = TempDir::new().unwrap();
    let (hook, gate) = gate(None);
    let store = with_fault(dir.path(), hook);
    let leases: Vec<Lease> = (0..20).map(|number| owned(&store, &format!("s{number}"), TTL)).collect();
    let stolen = block_on(store.acquire(&leases[7].key, &owner("thief"), TTL, Acquire::TakeOver)).unwrap();
    let before = store.stats();
    let first = store.append(&leases[0], append(0, "r1"));
    gate.reached.recv().unwrap();
    let rest: Vec<_> = leases[1..].iter().map(|lease| store.append(lease, append(0, "r1"))).collect();
    let stale = store.append(&leases[3], append(5, "x"));
    gate.go.send(()).unwrap();
    assert_eq!(block_on(first), Ok(Seq(1)));
    let mut expected = vec![Ok(Seq(1)); 19];
    expected[6] = Err(StoreError::Fenced { session: "s7".into() });
    assert_eq!(block_on(join_all(rest)), expected);
    assert_eq!(block_on(stale), Err(StoreError::Stale { session: "s3".into(), expected: Seq(5), found: Seq(1) }));
    let done = SqliteStats { commits: 2, writes: 19, retries: 0 };
    assert_eq!(difference(store.stats(), before), done, "one commit for the first, one for all that waited");
    assert_eq!(history(&store, &stolen), vec![]);
    assert_eq!(history(&store, &leases[3]), stored(&leases[3], &["r1"]));
}

#[test]
fn commit_that_fails_for_several_is_done_for_each() {
    let dir = TempDir::new().unwrap();
    let (hook, gate) = gate(Some(fault(Write::Append, Stage::AfterWriteBeforeSync, 2, FaultAction::Fail(broken()))));
    let store = with_fault(dir.path(), hook);
    let leases: Vec<Lease> = (0..5).map(|number| owned(&store, &format!("s{number}"), TTL)).collect();
    let first = store.append(&leases[0], append(0, "r1"));
    gate.reached.recv().unwrap();
    let rest: Vec<_> = leases[1..].iter().map(|lease| store.append(lease, append(0, "r1"))).collect();
    gate.go.send(()).unwrap();
    // The first one's commit fails, and it is alone; that of the others fails, and each then has one of its own.
    assert_eq!(block_on(first), Err(broken()));
    assert_eq!(block_on(join_all(rest)), vec![Ok(Seq(1)); 4]);
}

#[test]
fn blob_for_which_there_is_no_room_harms_only_its_own_session() {
    let dir = TempDir::new().unwrap();
    let (hook, gate) = gate(None);
    let options = SqliteOptions { fault: Some(hook), bytes_max: Some(2 << 20), ..frozen_clock() };
    let store = SqliteStore::open_with(dir.path(), options).unwrap();
    let leases = ["s0", "s1", "s2"].map(|session| owned(&store, session, Duration::from_millis(1)));
    let first = store.append(&leases[0], append(0, "r1"));
    gate.reached.recv().unwrap();
    let digest = BlobDigest::new("sha256:01");
    let large = Append { blobs: vec![(digest.clone(), vec![1; 4 << 20])], ..append(0, "r1") };
    let large = store.append(&leases[1], large);
    let small = store.append(&leases[2], append(0, "r1"));
    gate.go.send(()).unwrap();
    assert_eq!(block_on(first), Ok(Seq(1)));
    assert_eq!(block_on(small), Ok(Seq(1)));
    let no_room = StoreError::Io {
        what: format!("writing in {}", store.path().display()),
        why: "database or disk is full (no space is left for it)".into(),
        transient: true,
    };
    assert_eq!(block_on(large), Err(no_room));
    assert_eq!(history(&store, &leases[1]), vec![]);
    assert_eq!(block_on(store.blob(&leases[1].key, &digest)), Ok(None));
    drop(store);
    // Room is made: the session goes on.
    let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
    let large = Append { blobs: vec![(digest.clone(), vec![1; 4 << 20])], ..append(0, "r1") };
    assert_eq!(block_on(store.append(&leases[1], large)), Ok(Seq(1)));
}

// covers M4, M5
#[test]
fn full_database_keeps_what_was_reported() {
    let dir = TempDir::new().unwrap();
    let options = SqliteOptions { bytes_max: Some(1 << 20), ..frozen_clock() };
    let store = SqliteStore::open_with(dir.path(), options).unwrap();
    let lease = owned(&store, "s", Duration::from_millis(1));
    let mut reported = Vec::new();
    let error = loop {
        let mut record = record(&format!("r{}", reported.len()));
        record.body = "x".repeat(64 << 10);
        let append =
            Append { expected: Seq(reported.len() as u64), records: vec![record.clone()], ..Append::default() };
        match block_on(store.append(&lease, append)) {
            Ok(_) => reported.push(record),
            Err(error) => break error,
        }
    };
    let full = StoreError::Io {
        what: format!("writing in {}", store.path().display()),
        why: "database or disk is full (no space is left for it)".into(),
        transient: true,
    };
    assert_eq!(error, full);
    let hint = "make room on the disk, or wait until the store can be reached and nothing holds it up any more; then resume the session";
    assert_eq!(wharf_core::Error::from(error).hint, Some(hint.into()));
    assert!(reported.len() > 5, "{}", reported.len());
    let kept = |store: &SqliteStore| history(store, &lease).into_iter().map(|stored| stored.record).collect::<Vec<_>>();
    assert!(kept(&store) == reported);
    drop(store);
    let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
    assert!(kept(&store) == reported);
    let next = append(reported.len() as u64, "next");
    assert_eq!(block_on(store.append(&lease, next)), Ok(Seq(reported.len() as u64 + 1)));
}

// covers L63
#[test]
fn append_waits_out_another_process_that_writes() {
    let dir = TempDir::new().unwrap();
    let options = SqliteOptions { busy_timeout: Duration::from_millis(1), ..frozen_clock() };
    let store = SqliteStore::open_with(dir.path(), options).unwrap();
    let lease = owned(&store, "s", TTL);
    let other = raw(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = store.append(&lease, append(0, "r1"));
    while store.stats().retries < 2 {
        std::thread::yield_now();
    }
    // Reading goes on meanwhile; what is not the owner's is tried once.
    assert_eq!(history(&store, &lease), vec![]);
    let busy = StoreError::Io {
        what: format!("writing in {}", store.path().display()),
        why: "database is locked (another process is writing)".into(),
        transient: true,
    };
    assert_eq!(block_on(store.acquire(&JournalKey::local("t"), &owner("a"), TTL, Acquire::IfFree)), Err(busy));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(block_on(waiting), Ok(Seq(1)));
    assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
}

#[test]
fn closing_finishes_what_waits() {
    let dir = TempDir::new().unwrap();
    let (hook, gate) = gate(None);
    let store = with_fault(dir.path(), hook);
    let lease = owned(&store, "s", TTL);
    let other = owned(&store, "other", TTL);
    drop(store.append(&lease, append(0, "r1")));
    gate.reached.recv().unwrap();
    drop(store.append(&other, append(0, "r1")));
    gate.go.send(()).unwrap();
    drop(store);
    let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
    let both = [history(&store, &lease), history(&store, &other)];
    assert_eq!(both, [stored(&lease, &["r1"]), stored(&other, &["r1"])]);
}
