//! A server that crashes, connections that are cut, answers that are lost (L63).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use wharf_testpg::Proxy;

use super::*;

/// Appends one record after the other until told to stop, and answers how many there have to be.
fn append_until(store: &PostgresStore, lease: &Lease, over: &AtomicBool) -> u64 {
    let mut head = 0;
    while !over.load(Ordering::SeqCst) {
        let id = format!("r{}", head + 1);
        assert_eq!(block_on(store.append(lease, append(head, &[&id]))), Ok(Seq(head + 1)), "of {id}");
        head += 1;
    }
    head
}

fn expected(count: u64) -> Vec<String> {
    (1..=count).map(|number| format!("r{number}")).collect()
}

// covers L63, M4
#[test]
fn a_server_that_crashes_in_the_middle_of_appends_loses_and_doubles_none() {
    let Some(cluster) = Cluster::start() else { return };
    let store = open(&cluster.database());
    let lease = owned(&store, "s");
    let over = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let appending = scope.spawn(|| append_until(&store, &lease, &over));
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(300));
            cluster.crash();
            cluster.restart();
        }
        std::thread::sleep(Duration::from_millis(300));
        over.store(true, Ordering::SeqCst);
        appending.join().unwrap()
    });
    assert!(count > 10, "{count}");
    assert_eq!(ids(&store, "s"), expected(count));
}

// covers L63
#[test]
fn connections_that_are_cut_cost_time_and_no_append() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let store = open(&address);
    let lease = owned(&store, "s");
    let over = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let appending = scope.spawn(|| append_until(&store, &lease, &over));
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(50));
            cluster.cut(cluster.name(&address));
        }
        over.store(true, Ordering::SeqCst);
        appending.join().unwrap()
    });
    assert!(count > 10, "{count}");
    assert_eq!(ids(&store, "s"), expected(count));
}

// covers L63
#[test]
fn a_write_whose_answer_was_lost_is_found_and_not_done_twice() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let proxy = Proxy::to(cluster.port());
    let store = open(&format!("postgres://wharf@127.0.0.1:{}/{}", proxy.port(), cluster.name(&address)));
    let lease = owned(&store, "s");
    assert_eq!(block_on(store.append(&lease, append(0, &["r1"]))), Ok(Seq(1)));
    proxy.lose_next_answer();
    assert_eq!(block_on(store.append(&lease, append(1, &["r2", "r3"]))), Ok(Seq(3)));
    assert!(proxy.lost() > 0, "an answer was lost");
    assert_eq!(ids(&store, "s"), ["r1", "r2", "r3"]);
    let lost = proxy.lost();
    // A consumed item without a record, and a deletion, are found too.
    let item = wharf_store::InboxItem {
        id: "i".into(),
        target: "t".into(),
        kind: "k".into(),
        who: "w".into(),
        at_ms: 0,
        digest: String::new(),
        body: String::new(),
    };
    block_on(store.put_inbox(&lease.key, item)).unwrap();
    proxy.lose_next_answer();
    let consuming = Append { expected: Seq(3), consumed: vec!["i".into()], ..Append::default() };
    assert_eq!(block_on(store.append(&lease, consuming)), Ok(Seq(3)));
    proxy.lose_next_answer();
    let mark = wharf_store::DeletionMark { who: "ann".into(), at_ms: 9 };
    assert_eq!(block_on(store.delete(&lease, mark)), Ok(()));
    assert!(proxy.lost() >= lost + 2);
}

// covers L63
#[test]
fn a_server_that_stays_away_is_waited_for_as_long_as_the_lease_allows() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let proxy = Proxy::to(cluster.port());
    let store = open(&format!("postgres://wharf@127.0.0.1:{}/{}", proxy.port(), cluster.name(&address)));
    let ttl = Duration::from_secs(3);
    let key = JournalKey::local("s");
    let lease = block_on(store.acquire(&key, &owner("a"), ttl, Acquire::IfFree)).unwrap();
    proxy.refuse(true);
    let start = Instant::now();
    let error = block_on(store.append(&lease, append(0, &["r1"]))).unwrap_err();
    assert!(matches!(&error, StoreError::Io { transient: true, .. } | StoreError::Unknown { .. }), "{error}");
    assert!(start.elapsed() >= Duration::from_secs(1), "it was tried for a while");
    // What no lease bounds waits for a server that comes back.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            proxy.refuse(false);
        });
        assert_eq!(block_on(store.load(&key, Seq(0))).unwrap().head, Seq(0));
    });
    proxy.refuse(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            proxy.refuse(false);
        });
        assert_eq!(block_on(store.acquire(&key, &owner("b"), ttl, Acquire::TakeOver)).unwrap().owner, owner("b"));
    });
}
