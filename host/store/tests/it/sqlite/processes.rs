//! Several real processes on one database: this test program starts itself.

#![allow(clippy::print_stdout, reason = "the other process tells this one how far it is")]

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::Seq;
use wharf_store::{Acquire, InboxItem, InboxPut, JournalKey, SqliteStore, Store as _, StoreError};

use super::{TTL, append, history, owned, owner};

const DIR: &str = "WHARF_STORE_TEST_DIR";
const NAME: &str = "WHARF_STORE_TEST_NAME";
const ROUNDS: u64 = 40;

fn start(role: &str, dir: &TempDir, name: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("sqlite::processes::{role}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIR, dir.path())
        .env(NAME, name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn store() -> (SqliteStore, String) {
    (SqliteStore::open(env::var(DIR).unwrap()).unwrap(), env::var(NAME).unwrap())
}

#[test]
#[ignore = "the other process of the test below"]
fn appends_to_its_own_and_a_shared_session() {
    let (store, name) = store();
    let own = owned(&store, &name, TTL);
    let shared = JournalKey::local("shared");
    for round in 0..ROUNDS {
        assert_eq!(block_on(store.append(&own, append(round, &format!("{name}-{round}")))), Ok(Seq(round + 1)));
        loop {
            match block_on(store.acquire(&shared, &owner(&format!("{name}-{round}")), TTL, Acquire::IfFree)) {
                Ok(lease) => {
                    block_on(store.append(&lease, append(lease.head.0, &format!("{name}-{round}")))).unwrap();
                    block_on(store.release(&lease)).unwrap();
                    break;
                }
                Err(StoreError::Busy { .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

// covers M1, N1, N4
#[test]
fn several_processes_share_a_database_without_losing_a_record() {
    let dir = TempDir::new().unwrap();
    let names = ["p0", "p1", "p2"];
    // Opened by all at once, while there is no database yet.
    let children: Vec<Child> =
        names.iter().map(|name| start("appends_to_its_own_and_a_shared_session", &dir, name)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let store = SqliteStore::open(dir.path()).unwrap();
    let ids = |session: &str| {
        let records = block_on(store.history(&JournalKey::local(session), Seq(0), usize::MAX)).unwrap();
        assert!(records.is_sorted_by(|a, b| a.seq.next() == b.seq), "a gap in {session}");
        let fences: Vec<_> = records.iter().map(|record| record.fence).collect();
        (records.into_iter().map(|record| record.record.id.to_string()).collect::<Vec<_>>(), fences)
    };
    let expected = |name: &str| (0..ROUNDS).map(|round| format!("{name}-{round}")).collect::<Vec<_>>();
    for name in names {
        assert_eq!(ids(name).0, expected(name));
    }
    let (shared, fences) = ids("shared");
    for name in names {
        let own: Vec<_> = shared.iter().filter(|id| id.starts_with(name)).cloned().collect();
        assert_eq!(own, expected(name));
    }
    assert_eq!(shared.len(), names.len() * expected("p0").len());
    assert!(fences.is_sorted_by(|a, b| a < b), "each change of the owner raised the fence");
    let sound: String = super::raw(dir.path()).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
#[ignore = "the other process of the test below"]
fn appends_until_it_is_killed() {
    let (store, name) = store();
    let lease = owned(&store, &name, TTL);
    for round in 0.. {
        block_on(store.append(&lease, append(round, &format!("r{round}")))).unwrap();
        println!("\ndone {round}");
        std::io::stdout().flush().unwrap();
    }
}

// covers M2, M5, M6
#[test]
fn killed_process_leaves_all_that_it_reported_and_its_lease() {
    let dir = TempDir::new().unwrap();
    let mut child = start("appends_until_it_is_killed", &dir, "s");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut reported = lines.by_ref().filter(|line| line.starts_with("done ")).take(25).count();
    child.kill().unwrap();
    child.wait().unwrap();
    reported += lines.filter(|line| line.starts_with("done ")).count();

    let store = SqliteStore::open(dir.path()).unwrap();
    let key = JournalKey::local("s");
    let busy = block_on(store.acquire(&key, &owner("b"), TTL, Acquire::IfFree));
    assert!(matches!(busy, Err(StoreError::Busy { .. })), "{busy:?}");
    let lease = block_on(store.acquire(&key, &owner("b"), TTL, Acquire::TakeOver)).unwrap();
    let records = history(&store, &lease);
    // One more may have been durable before it could be reported, never one less.
    assert!([reported, reported + 1].contains(&records.len()), "{reported} reported, {} there", records.len());
    let ids: Vec<_> = records.iter().map(|record| record.record.id.to_string()).collect();
    assert_eq!(ids, (0..records.len()).map(|round| format!("r{round}")).collect::<Vec<_>>());
    assert_eq!(lease.head, Seq(records.len() as u64));
    assert_eq!(block_on(store.append(&lease, append(lease.head.0, "next"))), Ok(lease.head.next()));
}

fn cancel() -> InboxItem {
    InboxItem {
        id: "i1".into(),
        target: "turn".into(),
        kind: "cancel".into(),
        who: "another process".into(),
        at_ms: 1,
        digest: String::new(),
        body: "{}".into(),
    }
}

#[test]
#[ignore = "the other process of the test below"]
fn leaves_an_item_when_told() {
    let (store, name) = store();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).unwrap();
    assert_eq!(block_on(store.put_inbox(&JournalKey::local(name), cancel())), Ok(InboxPut::Accepted));
}

// covers M8, M9
#[test]
fn owner_is_woken_by_an_item_of_another_process() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let lease = owned(&store, "s", Duration::from_secs(60));
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "sqlite::processes::leaves_an_item_when_told", "--ignored", "--nocapture"])
        .env(DIR, dir.path())
        .env(NAME, "s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    let woken = store.inbox_grows(&lease.key, 0);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(block_on(woken), Ok(()));
    assert_eq!(block_on(store.inbox(&lease.key)), Ok(vec![cancel()]));
    assert!(child.wait().unwrap().success());
}
