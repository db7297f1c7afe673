//! Opening: what is made, who may read it, what is refused, and that what is refused stays as it was.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::Seq;
use wharf_store::conformance::Fixture as _;
use wharf_store::{Acquire, JournalKey, Lease, SqliteOptions, SqliteStore, Store as _, StoreError};

use super::{OnDisk, TTL, append, frozen_clock, history, owned, owner, raw, stored};

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

// SQLite up to 3.51.2 could damage a log that several processes use.
#[test]
fn bundled_sqlite_is_newer_than_the_one_that_damages_its_log() {
    assert!(rusqlite::version_number() > 3_051_002, "{}", rusqlite::version());
}

// covers M1, M4
#[test]
fn folder_and_files_are_for_their_owner_only() {
    let room = TempDir::new().unwrap();
    let dir = room.path().join("deep/.wharf");
    let store = SqliteStore::open(&dir).unwrap();
    block_on(store.append(&owned(&store, "s", TTL), append(0, "r1"))).unwrap();
    assert_eq!(store.path(), dir.canonicalize().unwrap().join("wharf.db"));
    let files = ["wharf.db", "wharf.db-wal", "wharf.db-shm"].map(|name| mode(dir.join(name)));
    assert_eq!((mode(room.path().join("deep")), mode(&dir), files), (0o700, 0o700, [0o600; 3]));
}

// covers M4
#[test]
fn database_that_others_could_read_is_closed_to_them() {
    let dir = TempDir::new().unwrap();
    drop(SqliteStore::open(dir.path()).unwrap());
    let file = dir.path().join("wharf.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    block_on(store.append(&owned(&store, "s", TTL), append(0, "r1"))).unwrap();
    assert_eq!([mode(&file), mode(dir.path().join("wharf.db-wal"))], [0o600; 2]);
}

// covers M1
#[test]
fn two_stores_on_one_database_see_each_other_and_exclude_per_session() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (
        SqliteStore::open_with(dir.path(), frozen_clock()).unwrap(),
        SqliteStore::open_with(dir.path(), frozen_clock()).unwrap(),
    );
    let lease = owned(&one, "s", TTL);
    block_on(one.append(&lease, append(0, "r1"))).unwrap();
    assert_eq!(history(&two, &lease), stored(&lease, &["r1"]));
    let refused = block_on(two.acquire(&lease.key, &owner("b"), TTL, Acquire::IfFree));
    assert_eq!(refused, Err(StoreError::Busy { session: "s".into(), owner: "a".into(), left: TTL }));
    let other = owned(&two, "other", TTL);
    assert_eq!(block_on(two.append(&other, append(0, "r1"))), Ok(Seq(1)));
    // The lease is data: whoever has the token may use it from wherever.
    assert_eq!(block_on(two.append(&lease, append(1, "r2"))), Ok(Seq(2)));
    assert_eq!(history(&one, &lease), stored(&lease, &["r1", "r2"]));
}

/// Opening fails like this, and the folder's content stays as it is.
fn refused(dir: &Path) -> StoreError {
    let content = || {
        let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|file| (fs::read(&file).unwrap(), file)).collect::<Vec<_>>()
    };
    let before = content();
    let Err(error) = SqliteStore::open(dir) else { panic!("it was opened") };
    assert!(content() == before, "something was overwritten");
    error
}

fn corrupt(dir: &Path, why: &str) -> StoreError {
    let place = dir.canonicalize().unwrap().join("wharf.db").display().to_string();
    StoreError::Corrupt { place, why: why.into() }
}

// covers M3
#[test]
fn file_that_is_no_database_is_refused_and_kept() {
    for bytes in [b"x".to_vec(), vec![b'x'; 511], b"not a database at all ".repeat(1000)] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("wharf.db"), bytes).unwrap();
        fs::set_permissions(dir.path().join("wharf.db"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(refused(dir.path()), corrupt(dir.path(), "it is not a SQLite database"));
    }
}

// covers M3
#[test]
fn database_of_another_program_is_refused_and_kept() {
    for sql in
        ["CREATE TABLE theirs (x)", "CREATE TABLE theirs (x); PRAGMA user_version = 1", "PRAGMA user_version = 3"]
    {
        let dir = TempDir::new().unwrap();
        raw(dir.path()).execute_batch(sql).unwrap();
        assert_eq!(refused(dir.path()), corrupt(dir.path(), "it is a database, but not one of Wharf"));
    }
}

// covers M3
#[test]
fn truncated_database_is_refused_and_kept() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    block_on(store.append(&owned(&store, "s", TTL), append(0, "r1"))).unwrap();
    drop(store);
    let file = dir.path().join("wharf.db");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(refused(dir.path()), corrupt(dir.path(), "database disk image is malformed"));
}

#[test]
fn database_of_a_newer_version_is_refused_and_kept() {
    let dir = TempDir::new().unwrap();
    drop(SqliteStore::open(dir.path()).unwrap());
    raw(dir.path()).execute_batch("PRAGMA user_version = 4").unwrap();
    let place = dir.path().canonicalize().unwrap().join("wharf.db").display().to_string();
    assert_eq!(refused(dir.path()), StoreError::Newer { place, found: 4, known: 3 });
}

#[test]
fn nothing_is_written_once_a_newer_version_took_the_database_over() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let lease = owned(&store, "s", TTL);
    raw(dir.path()).execute_batch("PRAGMA user_version = 4").unwrap();
    let place = store.path().display().to_string();
    assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Err(StoreError::Newer { place, found: 4, known: 3 }));
    assert_eq!(history(&store, &lease), vec![]);
}

#[test]
fn place_that_cannot_hold_a_store_is_named() {
    let room = TempDir::new().unwrap();
    let io = |dir: &Path, why: &str| StoreError::Io {
        what: format!("making the store in {}", dir.display()),
        why: why.into(),
        transient: false,
    };
    let file = room.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(SqliteStore::open(&file).err(), Some(io(&file, "File exists (os error 17)")));
    let folder = room.path().join("folder");
    fs::create_dir_all(folder.join("wharf.db")).unwrap();
    assert_eq!(SqliteStore::open(&folder).err(), Some(io(&folder, "wharf.db is not a regular file")));
    let link = room.path().join("link");
    fs::create_dir(&link).unwrap();
    std::os::unix::fs::symlink(&file, link.join("wharf.db")).unwrap();
    assert_eq!(SqliteStore::open(&link).err(), Some(io(&link, "wharf.db is not a regular file")));
    // Nobody may write here, not even root.
    let nowhere = Path::new("/proc/wharf");
    assert_eq!(SqliteStore::open(nowhere).err(), Some(io(nowhere, "No such file or directory (os error 2)")));
}

// covers N6
#[test]
fn clock_that_was_set_back_holds_a_session_for_one_lease_at_most() {
    let fixture = OnDisk::new();
    let lease = owned(fixture.store(), "s", TTL);
    *fixture.now.lock().unwrap() -= Duration::from_secs(86_400);
    let busy = |left| Err(StoreError::Busy { session: "s".into(), owner: "a".into(), left });
    let other = || block_on(fixture.store().acquire(&lease.key, &owner("b"), TTL, Acquire::IfFree));
    assert_eq!(other(), busy(TTL));
    fixture.advance(TTL / 2);
    assert_eq!(other(), busy(TTL / 2));
    // The owner notices nothing.
    assert_eq!(block_on(fixture.store().append(&lease, append(0, "r1"))), Ok(Seq(1)));
    fixture.advance(TTL);
    assert_eq!(other().map(|lease| (lease.owner, lease.head)), Ok((owner("b"), Seq(1))));
    assert_eq!(
        block_on(fixture.store().append(&lease, append(1, "x"))),
        Err(StoreError::Fenced { session: "s".into() })
    );
}

// covers N6
#[test]
fn clock_that_jumps_ahead_costs_the_lease_and_never_two_owners() {
    let clock = Arc::new(Mutex::new(Duration::from_secs(1_000)));
    let dir = TempDir::new().unwrap();
    let theirs = Arc::clone(&clock);
    let options = SqliteOptions { clock: Arc::new(move || *theirs.lock().unwrap()), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(dir.path(), options).unwrap();
    let first = owned(&store, "s", TTL);
    *clock.lock().unwrap() += Duration::from_secs(86_400);
    let second = block_on(store.acquire(&first.key, &owner("b"), TTL, Acquire::IfFree)).unwrap();
    *clock.lock().unwrap() -= Duration::from_secs(86_400);
    let fenced = Err(StoreError::Fenced { session: "s".into() });
    assert_eq!(block_on(store.append(&first, append(0, "x"))), fenced);
    assert_eq!(block_on(store.append(&second, append(0, "r1"))), Ok(Seq(1)));
    assert_eq!(
        block_on(store.renew(&Lease { owner: owner("a"), ..second.clone() })),
        Err(StoreError::Fenced { session: "s".into() })
    );
    assert_eq!(history(&store, &second), stored(&second, &["r1"]));
    assert_eq!(block_on(store.inbox(&JournalKey::local("s"))), Ok(vec![]));
}

#[test]
fn database_is_opened_through_the_vfs_that_is_asked_for() {
    let dir = TempDir::new().unwrap();
    let through =
        |vfs: &str| SqliteStore::open_with(dir.path(), SqliteOptions { vfs: Some(vfs.into()), ..frozen_clock() });
    // Without locks of the system's: it refuses the log, which is shared memory, and so shows that it was asked.
    let error = through("unix-none").err();
    assert!(
        matches!(&error, Some(StoreError::Io { why, transient: false, .. }) if why.contains("write-ahead log")),
        "{error:?}"
    );
    assert!(matches!(through("nobody's").err(), Some(StoreError::Io { .. })));
    let store = through("unix").unwrap();
    let lease = owned(&store, "s", TTL);
    assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
    assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
}
