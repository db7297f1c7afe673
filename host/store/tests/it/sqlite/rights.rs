//! A folder or a database that may not be written to.
//!
//! Rights do not bind root, as which tests often run, so all of this happens in a process of a user that they bind: this test
//! program starts itself. What no user can take away from a running store are the rights to files that it has open; a file
//! system that turns read-only under it fails like a disk that fails, which the tests with a faulty disk try.

use std::env;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::{Error, Seq};
use wharf_store::{Acquire, JournalKey, Lease, SqliteStore, Store as _, StoreError};

use super::{TTL, append, history, owned, owner, stored};

const DIR: &str = "WHARF_STORE_TEST_DIR";

/// The user "nobody" of most systems; it need not exist.
const NOBODY: u32 = 65_534;

fn as_one_whom_rights_bind(role: &str) {
    let dir = TempDir::new().unwrap();
    let exe = env::current_exe().unwrap();
    let mut command = if fs::metadata(dir.path()).unwrap().uid() == 0 {
        // Where it was built others may not come to it.
        let copy = dir.path().join("test");
        // By another process: a program that somebody has open for writing cannot be started, and whatever this process starts
        // meanwhile has open what it has.
        assert!(Command::new("cp").arg(exe).arg(&copy).status().unwrap().success());
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let mut command = Command::new(copy);
        command.uid(NOBODY).gid(NOBODY);
        command
    } else {
        Command::new(exe)
    };
    let role = format!("sqlite::rights::{role}");
    let output =
        command.args(["--exact", &role, "--ignored"]).env(DIR, dir.path()).current_dir(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env::var(DIR).unwrap()).join(name);
    fs::create_dir(&dir).unwrap();
    dir
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn refused(what: String, why: &str) -> Option<StoreError> {
    Some(StoreError::Io { what, why: why.into(), transient: false })
}

const READ_ONLY: &str = "attempt to write a readonly database (the folder and the database files must be writable)";

#[test]
#[ignore = "the other process of the test below"]
fn opens_where_it_may_not_write() {
    let empty = folder("empty");
    set(&empty, 0o500);
    let denied = "Permission denied (os error 13)";
    for dir in [empty.clone(), empty.join("deeper")] {
        let error = SqliteStore::open(&dir).err();
        assert_eq!(error, refused(format!("making the store in {}", dir.display()), denied));
        let hint = "see that the store's folder and files are there and may be written to; then resume the session";
        assert_eq!(error.map(|error| Error::from(error).hint), Some(Some(hint.into())));
    }
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);

    // A database that was closed, in a folder in which no log can be made.
    let (dir, lease) = closed("closed");
    set(&dir, 0o500);
    let opening = |dir: &Path| format!("opening the store in {}", dir.join("wharf.db").display());
    assert_eq!(SqliteStore::open(&dir).err(), refused(opening(&dir), READ_ONLY));
    set(&dir, 0o700);
    let store = SqliteStore::open(&dir).unwrap();
    assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
    assert_eq!(block_on(store.append(&lease, append(1, "r2"))), Ok(Seq(2)));
    drop(store);

    // One that may not be read either.
    set(&dir.join("wharf.db"), 0o000);
    let why = format!(
        "unable to open database file: {} (is it a regular file in a folder that we may write to?)",
        dir.join("wharf.db").display()
    );
    assert_eq!(SqliteStore::open(&dir).err(), refused(opening(&dir), &why));
    set(&dir.join("wharf.db"), 0o600);
    assert_eq!(history(&SqliteStore::open(&dir).unwrap(), &lease), stored(&lease, &["r1", "r2"]));
}

#[test]
#[ignore = "the other process of the test below"]
fn reads_what_it_may_not_write() {
    let (dir, lease) = closed("read-only");
    let file = dir.join("wharf.db");
    set(&file, 0o400);
    let store = SqliteStore::open(&dir).unwrap();
    assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
    let in_place = |what: &str| format!("{what} in {}", file.display());
    assert_eq!(
        block_on(store.append(&lease, append(1, "x"))).err(),
        refused(in_place("appending to the journal"), READ_ONLY)
    );
    let other = block_on(store.acquire(&JournalKey::local("t"), &owner("a"), TTL, Acquire::IfFree));
    assert_eq!(other.err(), refused(in_place("acquiring the session"), READ_ONLY));
    assert_eq!(history(&store, &lease), stored(&lease, &["r1"]));
    assert_eq!(store.stats().retries, 0, "no time heals that");
    drop(store);
    // The log's files were made with the rights that the database had.
    for entry in fs::read_dir(&dir).unwrap() {
        set(&entry.unwrap().path(), 0o600);
    }
    let store = SqliteStore::open(&dir).unwrap();
    assert_eq!(block_on(store.append(&lease, append(1, "r2"))), Ok(Seq(2)));
}

#[test]
#[ignore = "the other process of the test below"]
fn goes_on_when_rights_are_taken_from_it() {
    let dir = folder("running");
    let store = SqliteStore::open(&dir).unwrap();
    let lease = owned(&store, "s", TTL);
    assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
    set(&dir, 0o500);
    set(&dir.join("wharf.db"), 0o400);
    assert_eq!(block_on(store.append(&lease, append(1, "r2"))), Ok(Seq(2)));
    drop(store);
    set(&dir, 0o700);
    set(&dir.join("wharf.db"), 0o600);
    assert_eq!(history(&SqliteStore::open(&dir).unwrap(), &lease), stored(&lease, &["r1", "r2"]));
}

/// A store with a record that nobody has open.
fn closed(name: &str) -> (PathBuf, Lease) {
    let dir = folder(name);
    let store = SqliteStore::open(&dir).unwrap();
    let lease = owned(&store, "s", TTL);
    assert_eq!(block_on(store.append(&lease, append(0, "r1"))), Ok(Seq(1)));
    (dir, lease)
}

// covers M3
#[test]
fn place_that_may_not_be_written_to_is_refused_with_what_to_do_and_kept() {
    as_one_whom_rights_bind("opens_where_it_may_not_write");
}

// covers M1
#[test]
fn database_that_may_not_be_written_to_is_read_and_not_written() {
    as_one_whom_rights_bind("reads_what_it_may_not_write");
}

// covers M4
#[test]
fn rights_taken_away_lose_nothing_of_a_running_store() {
    as_one_whom_rights_bind("goes_on_when_rights_are_taken_from_it");
}
