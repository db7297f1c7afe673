//! The disk under SQLite does what the lanes over it rely on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use tempfile::TempDir;
use wharf_faultvfs::{Fault, FaultVfs, Image, Kind, Plan};

fn open(dir: &Path, vfs: &FaultVfs) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    Connection::open_with_flags_and_vfs(dir.join("t.db"), flags, vfs.name()).unwrap()
}

/// A database with one table and a log, and one row that is on the disk.
fn prepared(dir: &Path, vfs: &FaultVfs) -> Connection {
    let conn = open(dir, vfs);
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    conn.execute_batch("CREATE TABLE t (text TEXT)").unwrap();
    put(&conn, "first").unwrap();
    conn
}

fn put(conn: &Connection, text: &str) -> rusqlite::Result<()> {
    conn.execute("INSERT INTO t VALUES (?1)", [text]).map(|_| ())
}

fn rows(conn: &Connection) -> Vec<String> {
    let mut select = conn.prepare("SELECT text FROM t ORDER BY rowid").unwrap();
    select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// What a database holds after a power cut.
fn after(vfs: &FaultVfs, image: Image) -> Vec<String> {
    let dir = TempDir::new().unwrap();
    vfs.image(image, dir.path()).unwrap();
    rows(&Connection::open(dir.path().join("t.db")).unwrap())
}

/// The extended code of an error.
fn code(result: rusqlite::Result<()>) -> i32 {
    match result {
        Err(rusqlite::Error::SqliteFailure(error, _)) => error.extended_code,
        other => panic!("{other:?}"),
    }
}

/// The number of the next operation of this kind, if the next row is put as the last one was.
fn next(vfs: &FaultVfs, conn: &Connection, kind: Kind) -> usize {
    let before = vfs.count();
    put(conn, "to count").unwrap();
    let operations = vfs.operations();
    let steps = operations[before..].iter().position(|operation| operation.kind == kind).unwrap();
    vfs.count() + steps + 1
}

#[test]
fn connections_share_data_and_locks_through_it() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    let one = prepared(dir.path(), &vfs);
    let other = open(dir.path(), &vfs);
    one.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = other.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    put(&one, "second").unwrap();
    assert_eq!(rows(&other), ["first"]);
    one.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&other), ["first", "second"]);
    assert_eq!(vfs.failures(), 0);
}

#[test]
fn each_registration_is_a_disk_of_its_own() {
    let (here, there) = (FaultVfs::register(), FaultVfs::register());
    assert_ne!(here.name(), there.name());
    let dir = TempDir::new().unwrap();
    drop(prepared(dir.path(), &here));
    assert_eq!(there.count(), 0);
}

#[test]
fn only_what_was_synced_is_certain() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    let conn = prepared(dir.path(), &vfs);
    assert!(!vfs.is_at_risk());
    conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    put(&conn, "second").unwrap();
    assert!(vfs.is_at_risk());
    assert_eq!(after(&vfs, Image::Synced), ["first"]);
    assert_eq!(after(&vfs, Image::Written), ["first", "second"]);
    conn.execute_batch("PRAGMA synchronous = FULL").unwrap();
    put(&conn, "third").unwrap();
    assert_eq!(after(&vfs, Image::Synced), ["first", "second", "third"]);
}

#[test]
fn what_is_not_synced_reaches_the_disk_in_part_and_in_any_order() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    let conn = prepared(dir.path(), &vfs);
    conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    for number in 0..4 {
        put(&conn, &format!("{number}")).unwrap();
    }
    let files = |image: Image| {
        let dir = TempDir::new().unwrap();
        vfs.image(image, dir.path()).unwrap();
        std::fs::read(dir.path().join("t.db-wal")).unwrap()
    };
    let lengths: Vec<usize> = (0..40).map(|seed| after(&vfs, Image::Torn(seed)).len()).collect();
    assert!((1..=5).all(|length| length == 5 || lengths.contains(&length)), "{lengths:?}");
    assert!((0..40).any(|seed| files(Image::Scattered(seed)) != files(Image::Scattered(seed + 1))));
    assert_eq!(files(Image::Scattered(7)), files(Image::Scattered(7)), "a seed is one image");
    // A log with holes is cut off by SQLite, so whatever it holds is a beginning.
    let all = ["first", "0", "1", "2", "3"];
    for seed in 0..40 {
        let there = after(&vfs, Image::Scattered(seed));
        assert_eq!(there, all[..there.len()], "{seed}");
    }
}

#[test]
fn operation_fails_once_or_from_then_on_with_its_own_code() {
    for (fault, kind, expected) in [
        (Fault::Error, Kind::Write, ffi::SQLITE_IOERR_WRITE),
        (Fault::Short, Kind::Write, ffi::SQLITE_IOERR_WRITE),
        (Fault::Full, Kind::Write, ffi::SQLITE_FULL),
        (Fault::Error, Kind::Sync, ffi::SQLITE_IOERR_FSYNC),
    ] {
        for lasting in [false, true] {
            let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
            let conn = prepared(dir.path(), &vfs);
            let at = next(&vfs, &conn, kind);
            vfs.plan(Some(Plan { at, fault, lasting }));
            assert_eq!(code(put(&conn, "fails")), expected, "{fault:?} of {kind:?}");
            assert_eq!(put(&conn, "then").is_err(), lasting, "{fault:?} of {kind:?}");
            vfs.plan(None);
            put(&conn, "sound").unwrap();
            let then: &[&str] = if lasting { &["sound"] } else { &["then", "sound"] };
            assert_eq!(rows(&conn), [&["first", "to count"], then].concat());
            assert_eq!(after(&vfs, Image::Synced), rows(&conn), "{fault:?} of {kind:?}");
        }
    }
}

#[test]
fn failed_sync_is_not_made_good_by_a_later_one() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    let conn = prepared(dir.path(), &vfs);
    conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    put(&conn, "second").unwrap();
    conn.execute_batch("PRAGMA synchronous = FULL").unwrap();
    let at = next(&vfs, &conn, Kind::Sync);
    // The counting has synced all so far; what comes now is written without a sync, and the next sync fails.
    conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let written = vfs.count();
    put(&conn, "forgotten").unwrap();
    let at = at + vfs.count() - written;
    conn.execute_batch("PRAGMA synchronous = FULL").unwrap();
    vfs.plan(Some(Plan { at, fault: Fault::Error, lasting: false }));
    assert_eq!(code(put(&conn, "fails")), ffi::SQLITE_IOERR_FSYNC);
    put(&conn, "told as done").unwrap();
    assert_eq!(rows(&conn), ["first", "second", "to count", "forgotten", "told as done"]);
    assert_eq!(after(&vfs, Image::Synced), ["first", "second", "to count"]);
}

#[test]
fn power_goes_at_one_operation_and_nothing_works_after_it() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    let conn = prepared(dir.path(), &vfs);
    let at = next(&vfs, &conn, Kind::Sync);
    vfs.plan(Some(Plan { at, fault: Fault::Off, lasting: false }));
    assert_eq!(code(put(&conn, "second")), ffi::SQLITE_IOERR_FSYNC);
    assert!(put(&conn, "third").is_err());
    assert!(conn.query_row("SELECT count(*) FROM t", [], |_| Ok(())).is_err());
    let before = std::fs::read(dir.path().join("t.db-wal")).unwrap();
    drop(conn);
    assert_eq!(std::fs::read(dir.path().join("t.db-wal")).unwrap(), before, "closing writes nothing either");
    assert_eq!(vfs.count(), at);
    assert_eq!(after(&vfs, Image::Synced), ["first", "to count"]);
    assert_eq!(after(&vfs, Image::Written), ["first", "to count", "second"]);
}

#[test]
fn deleted_file_may_be_back_until_the_folder_is_synced() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    drop(prepared(dir.path(), &vfs)); // the last one takes the log away
    assert!(!dir.path().join("t.db-wal").exists());
    let files = |image: Image| {
        let dir = TempDir::new().unwrap();
        vfs.image(image, dir.path()).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(files(Image::Synced), ["t.db", "t.db-wal"]);
    assert_eq!(files(Image::Written), ["t.db"]);
}

#[test]
fn file_that_was_cut_is_there_whole_or_cut() {
    let (dir, vfs) = (TempDir::new().unwrap(), FaultVfs::register());
    let conn = prepared(dir.path(), &vfs);
    let long = "x".repeat(9_000);
    let texts: Vec<String> = (0..6).map(|number| format!("{number}{long}")).collect();
    texts.iter().for_each(|text| put(&conn, text).unwrap());
    // The log is copied into the database, which is synced, and then cut, which is not.
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    assert!(vfs.operations().last().is_some_and(|last| last.kind == Kind::Truncate), "it ends with the cut");
    let all: Vec<String> = std::iter::once("first".to_owned()).chain(texts).collect();
    for seed in 0..60 {
        assert_eq!(after(&vfs, Image::Scattered(seed)), all, "seed {seed}");
    }
}
