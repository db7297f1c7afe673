//! What is removed, what is not, and that a crash leaves nothing half.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use wharf_core::harness::{Harness, ModelRef};
use wharf_core::policy::ReplayClass;
use wharf_core::record::{Begun, Settlement};
use wharf_core::{Call, ErrorKind, RecordId};
use wharf_store::{Append, Fault, FaultAction, InboxItem, Loaded, MemoryStore, NewRecord, SessionSummary, Stage};

use super::*;
use crate::testing::SimSeams;
use crate::{Surroundings, Wharf};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct World {
    sim: SimSeams,
    store: Arc<MemoryStore>,
}

impl World {
    fn new() -> Self {
        let sim = SimSeams::new();
        Self { store: Arc::new(MemoryStore::with_clock(sim.clock())), sim }
    }

    /// A session whose last record was appended so long ago, owned by nobody. The output of `c1` is a blob of 40,000 bytes.
    fn session(&self, name: &str, age: Duration, records: &[Record]) -> JournalKey {
        let key = JournalKey::local(name);
        let lease = self.lease(&key, "before");
        let at_ms = self.sim.wall_ms() - u64::try_from(age.as_millis()).unwrap();
        now(self.store.append(&lease, append(&lease, records, at_ms))).unwrap();
        now(self.store.release(&lease)).unwrap();
        key
    }

    fn lease(&self, key: &JournalKey, who: &str) -> Lease {
        let owner = Owner { token: self.sim.fresh(), label: who.to_owned() };
        now(self.store.acquire(key, &owner, limits::LEASE_TTL, Acquire::IfFree)).unwrap()
    }

    /// Leaves a blob that no record names, as an append that did not come to its end does.
    fn leave_blob(&self, key: &JournalKey, bytes: usize) {
        let lease = self.lease(key, "before");
        let blobs = vec![(BlobDigest::new("sha256:left"), vec![0; bytes])];
        now(self.store.append(&lease, Append { expected: lease.head, blobs, ..Append::default() })).unwrap();
        now(self.store.release(&lease)).unwrap();
    }

    fn collect(&self, keep: Option<Duration>, dry_run: bool) -> Collected {
        let order = Order { keep, dry_run, label: "gc".to_owned() };
        let seams = self.sim.shared();
        now(collect(self.store.clone(), seams, &OrgId::local(), &order, &mut |_, _| {})).unwrap()
    }

    fn delete(&self, key: &JournalKey, how: Acquire) -> Result<(), Error> {
        now(delete(self.store.clone(), self.sim.shared(), key, "op", how))
    }

    fn load(&self, key: &JournalKey) -> Result<Loaded, StoreError> {
        now(self.store.load(key, Seq(0)))
    }

    /// How many records a session has; `None` once it is deleted.
    fn records(&self, key: &JournalKey) -> Option<usize> {
        match self.load(key) {
            Ok(loaded) => Some(loaded.records.len()),
            Err(StoreError::Deleted { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    }

    fn summaries(&self) -> Vec<SessionSummary> {
        now(self.store.sessions(&OrgId::local(), 100)).unwrap()
    }
}

fn append(lease: &Lease, records: &[Record], at_ms: u64) -> Append {
    let new = |(n, record): (usize, &Record)| {
        let encoded = record.encode().unwrap();
        let (kind, version, body) = (encoded.kind.into(), encoded.version, encoded.body);
        NewRecord { id: RecordId::new(format!("{}-{n}", lease.key.session)), kind, version, at_ms, body }
    };
    Append {
        expected: lease.head,
        blobs: records.iter().filter_map(|record| record.encode().unwrap().blob).collect(),
        records: records.iter().enumerate().map(new).collect(),
        ..Append::default()
    }
}

/// Everything is ready at once in memory.
fn now<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("it is ready at once")
}

fn open() -> Vec<Record> {
    let call = Call::function("c1", "tool", "{}").asynchronous();
    let replay = ReplayClass::Never;
    vec![
        Record::TurnStarted { turn: "t1".into(), input: Vec::new(), closes: Vec::new() },
        Record::ResponseBegun(Begun { ordinal: 1, whole_history: true, ..Begun::default() }),
        Record::CallAccepted { call, wire_call_id: None, replay, hold: None, idempotency_key: None },
        Record::CallSettled { id: "c1".into(), output: "x".repeat(40_000), how: Settlement::Done },
        Record::ResponseCompleted { id: "r1".into() },
        Record::FlightCleared,
        Record::DeliveryPrepared { previous_response_id: "r1".into(), call_ids: vec!["c1".into()], after: Vec::new() },
        Record::ResponseBegun(Begun { ordinal: 2, whole_history: true, ..Begun::default() }),
        Record::DeliveryAcknowledged { receipt: "r2".into() },
        Record::FlightCleared,
    ]
}

fn done() -> Vec<Record> {
    let mut records = open();
    records.push(Record::TurnEnded { turn: "t1".into(), status: "completed".into() });
    records
}

fn removed(world: &World, key: &JournalKey, age: Duration) -> Removed {
    let last_ms = world.sim.wall_ms() - u64::try_from(age.as_millis()).unwrap();
    Removed { key: key.clone(), last_ms, records: 11, blobs: Swept { blobs: 1, bytes: 40_000 } }
}

#[test]
fn a_deleted_session_is_gone_whole_and_says_who_did_it() {
    let world = World::new();
    let (s1, s2) = (world.session("s1", DAY, &done()), world.session("s2", DAY, &open()));
    let item = InboxItem {
        id: "i1".into(),
        target: "cancel".into(),
        kind: "cancel".into(),
        who: "op".into(),
        at_ms: 0,
        digest: String::new(),
        body: "{}".into(),
    };
    now(world.store.put_inbox(&s1, item)).unwrap();
    world.delete(&s1, Acquire::IfFree).unwrap();
    let mark = DeletionMark { who: "op".into(), at_ms: world.sim.wall_ms() };
    assert_eq!(world.load(&s1), Err(mark.refusal(&s1)));
    assert_eq!(world.delete(&s1, Acquire::IfFree), Err(mark.refusal(&s1).into()));
    // The other one is as it was, its turn open or not.
    assert_eq!(world.records(&s2), Some(10));
    let listed: Vec<_> = world.summaries().into_iter().map(|one| (one.key, one.owner)).collect();
    assert_eq!(listed, [(s2, None)]);
}

#[test]
fn a_session_in_use_is_deleted_only_by_taking_it() {
    // covers N2, M2
    let world = World::new();
    let key = world.session("s1", DAY, &done());
    let theirs = world.lease(&key, "host 1");
    let refused = world.delete(&key, Acquire::IfFree).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Store);
    assert!(refused.message.starts_with("session \"s1\" is in use by host 1 for at least "), "{}", refused.message);
    assert!(refused.hint.unwrap().ends_with("wharf session delete SESSION --take-over"));
    assert_eq!(world.records(&key), Some(11));
    world.delete(&key, Acquire::TakeOver).unwrap();
    assert_eq!(world.records(&key), None);
    let refused = now(world.store.append(&theirs, append(&theirs, &[], 0))).unwrap_err();
    assert!(matches!(refused, StoreError::Deleted { .. }), "{refused}");
}

#[test]
fn a_session_that_is_not_there_is_not_made_by_deleting_it() {
    let world = World::new();
    let key = JournalKey::local("s1");
    assert_eq!(world.delete(&key, Acquire::IfFree), Err(Error::config("there is no session \"s1\"")));
    assert_eq!(world.summaries(), []);
}

#[test]
fn old_sessions_at_rest_are_deleted_and_no_others() {
    let world = World::new();
    let old = world.session("old", DAY + Duration::from_millis(1), &done());
    let young = world.session("young", DAY, &done());
    let unfinished = world.session("unfinished", 9 * DAY, &open());
    let owned = world.session("owned", 9 * DAY, &done());
    world.lease(&owned, "host 1");
    let mut records = done();
    records[2] = Record::FlightCleared;
    let broken = world.session("broken", 9 * DAY, &records);

    let before = [&old, &young, &unfinished, &owned, &broken].map(|key| world.load(key));
    let would = world.collect(Some(DAY), true);
    assert_eq!(
        [&old, &young, &unfinished, &owned, &broken].map(|key| world.load(key)),
        before,
        "a dry run changes nothing"
    );
    let did = world.collect(Some(DAY), false);
    assert_eq!(did, would);
    assert_eq!(did.sessions, 5);
    assert_eq!(did.deleted, [removed(&world, &old, DAY + Duration::from_millis(1))]);
    let mut left: Vec<_> = did.left.iter().map(|left| (&left.key, &left.why)).collect();
    left.sort_by_key(|(key, _)| *key);
    let why = Error::corruption("record 4: call \"c1\" was settled, and is unknown");
    assert_eq!(left, [(&broken, &Why::Failed(why)), (&owned, &Why::InUse { owner: "host 1".into() })]);

    let at_ms = world.sim.wall_ms();
    assert_eq!(world.load(&old), Err(DeletionMark { who: "retention".into(), at_ms }.refusal(&old)));
    let kept = [&young, &unfinished, &owned, &broken].map(|key| world.records(key));
    assert_eq!(kept, [Some(11), Some(10), Some(11), Some(11)]);
    // Its lease is free again.
    assert!(world.summaries().iter().all(|one| one.owner.is_none() || one.key == owned));
    // There is nothing left to do.
    assert_eq!(world.collect(Some(DAY), false).deleted, []);
}

#[test]
fn a_clock_that_was_set_back_makes_nothing_old() {
    let world = World::new();
    let key = JournalKey::local("s1");
    let lease = world.lease(&key, "before");
    now(world.store.append(&lease, append(&lease, &done(), world.sim.wall_ms() + 1_000))).unwrap();
    now(world.store.release(&lease)).unwrap();
    assert_eq!(world.collect(Some(Duration::from_millis(1)), false).deleted, []);
    assert_eq!(world.records(&key), Some(11));
}

#[test]
fn without_a_setting_only_what_no_record_names_is_removed() {
    let world = World::new();
    let (s1, s2) = (world.session("s1", 900 * DAY, &done()), world.session("s2", DAY, &open()));
    world.leave_blob(&s1, 7);
    world.leave_blob(&s2, 9);
    let found = world.collect(None, false);
    let swept = Swept { blobs: 2, bytes: 16 };
    assert_eq!(found, Collected { sessions: 2, deleted: Vec::new(), swept, left: Vec::new() });
    for key in [&s1, &s2] {
        assert_eq!(now(world.store.blob(key, &BlobDigest::new("sha256:left"))), Ok(None));
        let named = open()[3].encode().unwrap().blob.unwrap();
        assert_eq!(now(world.store.blob(key, &named.0)), Ok(Some(named.1)));
    }
}

#[test]
fn nothing_is_swept_beside_a_record_that_is_not_understood() {
    let world = World::new();
    let key = world.session("s1", DAY, &done());
    world.leave_blob(&key, 7);
    let lease = world.lease(&key, "a newer version");
    let mut newer = append(&lease, &[Record::FlightCleared], 0);
    newer.records[0].version = 2;
    now(world.store.append(&lease, newer)).unwrap();
    now(world.store.release(&lease)).unwrap();
    let found = world.collect(Some(Duration::from_millis(1)), false);
    assert_eq!((found.swept, found.deleted), (Swept::default(), Vec::new()));
    let [Left { why: Why::Failed(why), .. }] = &found.left[..] else { panic!("{:?}", found.left) };
    assert!(why.message.starts_with("record 12: "), "{}", why.message);
    assert_eq!(now(world.store.blob(&key, &BlobDigest::new("sha256:left"))), Ok(Some(vec![0; 7])));
    assert_eq!(world.summaries()[0].owner, None);
}

#[test]
fn a_crash_at_any_write_leaves_each_session_whole_or_gone() {
    // covers M5
    let mut tried = 0;
    loop {
        let world = World::new();
        let keys = [world.session("s1", 9 * DAY, &done()), world.session("s2", 8 * DAY, &done())];
        let young = world.session("young", DAY, &done());
        world.leave_blob(&young, 7);
        let passed = Arc::new(AtomicUsize::new(0));
        let count = passed.clone();
        let fault: Fault = Arc::new(move |_| match count.fetch_add(1, Ordering::Relaxed) {
            now if now == tried => FaultAction::Crash,
            _ => FaultAction::Go,
        });
        world.store.set_fault(Some(fault));
        world.collect(Some(2 * DAY), false);
        world.store.crash();
        let left = keys.each_ref().map(|key| world.records(key));
        assert!(left.iter().all(|left| matches!(left, None | Some(11))), "at {tried}: {left:?}");
        assert_eq!(world.records(&young), Some(11));
        let named = open()[3].encode().unwrap().blob.unwrap().0;
        assert_ne!(now(world.store.blob(&young, &named)), Ok(None));
        if passed.load(Ordering::Relaxed) <= tried {
            assert_eq!(left, [None, None]);
            break;
        }
        tried += 1;
    }
    // Each of acquire and delete, and of acquire, sweep and release, has three points.
    assert_eq!(tried, 3 * (2 + 2 + 3));
}

#[test]
fn a_deletion_whose_answer_was_lost_is_found_by_its_mark() {
    // covers L63
    let lost = |stage: Stage| {
        let world = World::new();
        let key = world.session("s1", DAY, &done());
        let fault: Fault = Arc::new(move |point| {
            let hit = point.write == wharf_store::Write::Delete && point.stage == stage;
            let unknown = || StoreError::Unknown { what: "deleting".into(), why: "the test wants it".into() };
            if hit { FaultAction::Fail(unknown()) } else { FaultAction::Go }
        });
        world.store.set_fault(Some(fault));
        let done = world.delete(&key, Acquire::IfFree).map_err(|error| error.kind);
        (done, world.records(&key), world.summaries().iter().all(|one| one.owner.is_none()))
    };
    assert_eq!(lost(Stage::AfterSyncBeforeAnswer), (Ok(()), None, true));
    assert_eq!(lost(Stage::BeforeWrite), (Err(ErrorKind::Store), Some(11), true));
}

#[tokio::test]
async fn how_long_sessions_are_kept_is_in_no_digest() {
    // covers X14, L52
    let facts = async |rest: &str| {
        let text = format!("[harness]\nname = \"t\"\nmodel = \"p/m\"\n{rest}");
        let harness = Harness::parse("h.toml", &text).unwrap();
        let surroundings = Surroundings::of_file(std::path::Path::new("h.toml"));
        let agent = Wharf::builder().build().unwrap().load(harness, surroundings).await.unwrap();
        agent.facts(&ModelRef { provider: "p".into(), model: "m".into() })
    };
    assert_eq!(facts("[sessions]\nkeep = \"90d\"").await, facts("").await);
}
