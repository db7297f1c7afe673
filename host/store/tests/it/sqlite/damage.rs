//! What is stored is damaged: the error names the record, the rest is readable, nothing is overwritten.

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::{BlobDigest, Seq};
use wharf_store::{Append, JournalKey, Lease, Loaded, SqliteStore, Store as _, StoreError};

use super::{TTL, append, history, owned, raw, record, stored};

struct Damaged {
    dir: TempDir,
    store: SqliteStore,
    lease: Lease,
}

impl Damaged {
    /// Three records, a snapshot at the second, a blob; then this happens to the tables.
    fn by(sql: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        let lease = owned(&store, "s", TTL);
        let blobs = vec![(BlobDigest::new("sha256:01"), vec![7; 3 << 20])];
        let two = Append { records: vec![record("r1"), record("r2")], blobs, ..Append::default() };
        assert_eq!(block_on(store.append(&lease, two)), Ok(Seq(2)));
        let snapshot = Append { snapshot: Some("at 2".into()), expected: Seq(2), ..Append::default() };
        assert_eq!(block_on(store.append(&lease, snapshot)), Ok(Seq(2)));
        assert_eq!(block_on(store.append(&lease, append(2, "r3"))), Ok(Seq(3)));
        let changed = raw(dir.path()).execute(sql, []).unwrap();
        assert_eq!(changed, 1, "the damage is done");
        Self { dir, store, lease }
    }

    fn corrupt<T>(&self, what: &str, why: &str) -> Result<T, StoreError> {
        let file = self.dir.path().canonicalize().unwrap().join("wharf.db");
        let place = format!("{what} of session \"s\" in {}", file.display());
        Err(StoreError::Corrupt { place, why: why.into() })
    }

    fn load(&self) -> Result<Loaded, StoreError> {
        block_on(self.store.load(&self.lease.key, Seq(0)))
    }
}

// covers M3
#[test]
fn altered_record_is_named_and_the_records_before_it_are_readable() {
    for part in ["body = '{\"id\":\"r9\"}'", "kind = 'other'", "at_ms = 6", "id = 'r9'", "version = 2"] {
        let damaged = Damaged::by(&format!("UPDATE record SET {part} WHERE seq = 3"));
        assert_eq!(damaged.load(), damaged.corrupt("record 3", "its checksum does not fit"), "{part}");
        let history = block_on(damaged.store.history(&damaged.lease.key, Seq(0), 2));
        assert_eq!(history, Ok(stored(&damaged.lease, &["r1", "r2"])));
        // Another session is not harmed.
        let other = block_on(damaged.store.load(&JournalKey::local("other"), Seq(0)));
        assert_eq!(other, Ok(Loaded::default()));
    }
}

// covers M3
#[test]
fn missing_record_is_named() {
    let damaged = Damaged::by("DELETE FROM record WHERE seq = 1");
    let history = block_on(damaged.store.history(&damaged.lease.key, Seq(0), 10));
    assert_eq!(history, damaged.corrupt("record 1", "it is missing"));
    let damaged = Damaged::by("DELETE FROM record WHERE seq = 3");
    assert_eq!(damaged.load(), damaged.corrupt("record 3", "it is missing"));
}

// covers M3
#[test]
fn damaged_snapshot_costs_reading_all_records_and_nothing_else() {
    let damaged = Damaged::by("UPDATE snapshot SET body = 'other'");
    let records = stored(&damaged.lease, &["r1", "r2", "r3"]);
    assert_eq!(damaged.load(), Ok(Loaded { snapshot: None, records, head: Seq(3) }));
}

#[test]
fn missing_or_cut_blob_harms_that_output_alone() {
    let digest = BlobDigest::new("sha256:01");
    let damaged = Damaged::by("DELETE FROM blob");
    assert_eq!(block_on(damaged.store.blob(&damaged.lease.key, &digest)), Ok(None));
    assert_eq!(history(&damaged.store, &damaged.lease), stored(&damaged.lease, &["r1", "r2", "r3"]));
    let damaged = Damaged::by("DELETE FROM blob_piece WHERE piece = 1");
    let expected = damaged.corrupt("blob sha256:01", "2097152 of its 3145728 bytes are there");
    assert_eq!(block_on(damaged.store.blob(&damaged.lease.key, &digest)), expected);
    assert_eq!(history(&damaged.store, &damaged.lease), stored(&damaged.lease, &["r1", "r2", "r3"]));
}

#[test]
fn removed_file_stops_reading_and_writing() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let lease = owned(&store, "s", TTL);
    assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
    std::fs::remove_file(store.path()).unwrap();
    let gone = || StoreError::Io {
        what: format!("using {}", store.path().display()),
        why: "the file was removed or replaced while it was open".into(),
        transient: false,
    };
    assert_eq!(block_on(store.append(&lease, append(1, "r2"))), Err(gone()));
    assert_eq!(block_on(store.load(&lease.key, Seq(0))), Err(gone()));
    assert_eq!(block_on(store.inbox_grows(&lease.key, 0)), Err(gone()));
    // Another one in its place is not taken for it.
    std::fs::write(store.path(), "").unwrap();
    assert_eq!(block_on(store.append(&lease, append(1, "r2"))), Err(gone()));
}

// covers M4, M6
#[test]
fn removed_log_stops_writing_and_loses_nothing_that_was_reported() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let lease = owned(&store, "s", TTL);
    assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
    let log = store.path().with_file_name("wharf.db-wal");
    std::fs::remove_file(&log).unwrap();
    let gone = || StoreError::Io {
        what: format!("using {}", log.display()),
        why: "the file was removed or replaced while it was open".into(),
        transient: false,
    };
    assert_eq!(block_on(store.append(&lease, append(1, "x"))), Err(gone()));
    assert_eq!(block_on(store.renew(&lease)), Err(gone()));
    // Another one in its place is not taken for it.
    std::fs::write(&log, "").unwrap();
    assert_eq!(block_on(store.append(&lease, append(1, "x"))), Err(gone()));
    assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
    drop(store);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
    assert_eq!(block_on(store.append(&lease, append(1, "r2"))), Ok(Seq(2)));
}
