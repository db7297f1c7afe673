//! Deletion on the disk: what was deleted is in no file of the store any more, and a stop in the middle leaves it whole or
//! gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::{BlobDigest, Seq};
use wharf_store::{
    Acquire, Append, DeletionMark, FaultAction, FaultPoint, InboxItem, InboxPut, JournalKey, Lease, NewRecord, Owner,
    SqliteOptions, SqliteStore, Stage, Store as _, StoreError, Swept, Write,
};

use super::{TTL, append, frozen_clock, history, owned, raw, stored, with_fault};

fn mark() -> DeletionMark {
    DeletionMark { who: "ann".into(), at_ms: 9 }
}

fn gone<T>(session: &str) -> Result<T, StoreError> {
    Err(StoreError::Deleted { session: session.into(), who: "ann".into(), at_ms: 9 })
}

/// So many bytes of nothing but the session's word, so that no piece of them goes unseen.
fn text(word: &str, size: usize) -> String {
    word.chars().cycle().take(size).collect()
}

/// A session whose word is in all that it holds but its name.
struct Session {
    word: String,
    lease: Lease,
    head: u64,
}

impl Session {
    fn new(store: &SqliteStore, name: &str, word: &str) -> Self {
        let owner = Owner { token: text(word, 40), label: text(word, 40) };
        let lease = block_on(store.acquire(&JournalKey::local(name), &owner, TTL, Acquire::IfFree)).unwrap();
        Self { word: word.into(), lease, head: 0 }
    }

    /// One append of some size, now and then with all that an append can have.
    fn step(&mut self, store: &SqliteStore, round: usize) {
        let word = &self.word;
        let size = 40 + round * 397 % 2_900;
        let new = NewRecord {
            id: format!("{word}-{round}").into(),
            kind: word.clone(),
            version: 1,
            at_ms: 5,
            body: text(word, size),
        };
        let item = InboxItem {
            id: format!("{word}-{round}").into(),
            target: format!("{word}-{round}"),
            kind: word.clone(),
            who: word.clone(),
            at_ms: 1,
            digest: word.clone(),
            body: text(word, size),
        };
        assert_eq!(block_on(store.put_inbox(&self.lease.key, item.clone())), Ok(InboxPut::Accepted));
        let often = |every: usize| round.is_multiple_of(every);
        let append = Append {
            expected: Seq(self.head),
            records: vec![new],
            blobs: if often(7) {
                vec![(BlobDigest::new(format!("{word}-{round}")), text(word, size * 9).into())]
            } else {
                vec![]
            },
            consumed: if often(2) { vec![item.id] } else { vec![] },
            snapshot: often(5).then(|| text(word, size * (1 + round % 3 * 8))),
            open: often(3).then(|| wharf_store::Open::For(word.to_owned())),
        };
        self.head += 1;
        assert_eq!(block_on(store.append(&self.lease, append)), Ok(Seq(self.head)));
    }
}

/// How often the word is in the store's files.
fn found(dir: &Path, word: &str) -> usize {
    let mut times = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        times += bytes.windows(word.len()).filter(|piece| *piece == word.as_bytes()).count();
    }
    times
}

/// Size of the log. Asked without opening it: closing it again would drop this process's locks.
fn log_size(dir: &Path) -> u64 {
    fs::metadata(dir.join("wharf.db-wal")).map_or(0, |meta| meta.len())
}

// covers N3
#[test]
fn deleted_session_is_in_no_file_any_more() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
    let words = ["first/", "gone-1/", "third/", "gone-2/", "fifth/"];
    let mut sessions: Vec<_> =
        (0..).zip(words).map(|(number, word)| Session::new(&store, &format!("s{number}"), word)).collect();
    for round in 0..90 {
        for (number, session) in sessions.iter_mut().enumerate() {
            // In bursts, so that the sessions' rows share pages and push each other about.
            if !(round + number).is_multiple_of(number + 2) {
                session.step(&store, round);
            }
        }
    }
    let view = |number: usize| {
        let key = &sessions[number].lease.key;
        (
            block_on(store.load(key, Seq(0))).unwrap(),
            history(&store, &sessions[number].lease),
            block_on(store.inbox(key)),
        )
    };
    let before = [0, 2, 4].map(view);
    for number in [1, 3] {
        assert_eq!(block_on(store.delete(&sessions[number].lease, mark())), Ok(()));
        assert_eq!(log_size(dir.path()), 0, "the log is emptied before the deletion is reported");
    }
    assert!([0, 2, 4].map(view) == before, "another session has changed");
    drop(store);
    assert_eq!(["gone-1/", "gone-2/"].map(|word| found(dir.path(), word)), [0, 0]);
    assert!(
        ["first/", "third/", "fifth/"].iter().all(|word| found(dir.path(), word) > 1_000),
        "what is looked for is found"
    );
}

#[test]
fn log_that_others_read_is_emptied_when_they_are_done() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
    let mut session = Session::new(&store, "s", "gone/");
    session.step(&store, 0);
    let reader = raw(dir.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM record").unwrap();
    assert_eq!(block_on(store.delete(&session.lease, mark())), Ok(()));
    assert!(log_size(dir.path()) > 0, "somebody reads from it");
    // Who reads sees what was there when it began, and nothing after.
    let count =
        |from: &rusqlite::Connection| from.query_row("SELECT count(*) FROM record", [], |row| row.get::<_, u32>(0));
    assert_eq!(count(&reader), Ok(1));
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&reader), Ok(0));
    drop(store);
    assert_eq!(log_size(dir.path()), 0, "closing the store was the next chance");
    drop(reader);
    assert_eq!(found(dir.path(), "gone/"), 0);
}

#[test]
fn deletion_makes_room_in_a_full_database() {
    let dir = TempDir::new().unwrap();
    let options = SqliteOptions { bytes_max: Some(1 << 20), ..frozen_clock() };
    let store = SqliteStore::open_with(dir.path(), options).unwrap();
    let short = std::time::Duration::from_millis(1);
    let [filling, other] = ["filling", "other"].map(|name| owned(&store, name, short));
    let blobs = |size| vec![(BlobDigest::new("sha256:01"), vec![1; size])];
    let large = |size| Append { blobs: blobs(size), ..append(0, "r1") };
    assert_eq!(block_on(store.append(&filling, large(600 << 10))), Ok(Seq(1)));
    let refused = block_on(store.append(&other, large(500 << 10)));
    assert!(matches!(refused, Err(StoreError::Io { transient: true, .. })), "{refused:?}");
    assert_eq!(block_on(store.delete(&filling, mark())), Ok(()));
    assert_eq!(block_on(store.append(&other, large(500 << 10))), Ok(Seq(1)));
}

fn at(write: Write, stage: Stage, action: FaultAction) -> wharf_store::Fault {
    let left = Mutex::new(1);
    Arc::new(move |point| {
        if point == (FaultPoint { write, stage }) && std::mem::take(&mut *left.lock().unwrap()) > 0 {
            action.clone()
        } else {
            FaultAction::Go
        }
    })
}

// covers M5
#[test]
fn crash_during_a_deletion_leaves_the_session_whole_or_gone() {
    for stage in [Stage::BeforeWrite, Stage::AfterWriteBeforeSync, Stage::AfterSyncBeforeAnswer] {
        let dir = TempDir::new().unwrap();
        let store = with_fault(dir.path(), at(Write::Delete, stage, FaultAction::Crash));
        let lease = owned(&store, "s", TTL);
        assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
        let told = block_on(store.delete(&lease, mark()));
        assert!(matches!(told, Err(StoreError::Unknown { .. })), "{told:?}");
        drop(store);
        let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
        if stage == Stage::AfterSyncBeforeAnswer {
            assert_eq!(block_on(store.history(&lease.key, Seq(0), 10)), gone("s"));
        } else {
            assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
            assert_eq!(block_on(store.delete(&lease, mark())), Ok(()));
        }
    }
}

// covers L63
#[test]
fn deletion_whose_answer_was_lost_is_known_by_its_mark() {
    let lost = StoreError::Io { what: "deleting".into(), why: "no answer".into(), transient: true };
    let dir = TempDir::new().unwrap();
    let fault = at(Write::Delete, Stage::AfterSyncBeforeAnswer, FaultAction::Fail(lost));
    let store = with_fault(dir.path(), fault);
    let lease = owned(&store, "s", TTL);
    assert_eq!(block_on(store.delete(&lease, mark())), Ok(()));
    assert_eq!(store.stats().retries, 1);
    assert_eq!(block_on(store.delete(&lease, mark())), gone("s"), "only who cannot know is told that it is done");
}

#[test]
fn sweep_collects_what_a_cut_off_append_left_over() {
    let dir = TempDir::new().unwrap();
    let left = Mutex::new(2);
    // The third transaction of the append is the one that stops.
    let store = with_fault(
        dir.path(),
        Arc::new(move |point| {
            let mut left = left.lock().unwrap();
            let here = point == (FaultPoint { write: Write::Append, stage: Stage::AfterWriteBeforeSync });
            match (here, *left) {
                (true, 0) => FaultAction::Crash,
                (true, _) => {
                    *left -= 1;
                    FaultAction::Go
                }
                (false, _) => FaultAction::Go,
            }
        }),
    );
    let lease = owned(&store, "s", TTL);
    let digests = ["sha256:01", "sha256:02"].map(BlobDigest::new);
    let blobs = vec![(digests[0].clone(), vec![1; 1 << 20]), (digests[1].clone(), vec![2; 3 << 20])];
    let large = Append { blobs, ..append(0, "r1") };
    assert!(block_on(store.append(&lease, large)).is_err());
    drop(store);
    let store = SqliteStore::open_with(dir.path(), frozen_clock()).unwrap();
    let there = |digest| block_on(store.blob(&lease.key, digest)).unwrap().map(|bytes| bytes.len());
    assert_eq!(digests.each_ref().map(there), [Some(1 << 20), None], "one whole, a piece of the other");
    assert_eq!(block_on(store.sweep(&lease, &BTreeSet::new())), Ok(Swept { blobs: 2, bytes: 2 << 20 }));
    let rows = |table: &str| {
        raw(dir.path()).query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, u32>(0)).unwrap()
    };
    assert_eq!(["blob", "blob_piece"].map(rows), [0, 0]);
}
