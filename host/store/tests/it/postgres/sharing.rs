//! Several hosts on one database, and content of any kind.

use std::time::Instant;

use wharf_core::BlobDigest;
use wharf_store::{InboxItem, InboxPut};

use super::*;

fn item(id: &str, target: &str) -> InboxItem {
    InboxItem {
        id: id.into(),
        target: target.into(),
        kind: "decision".into(),
        who: "ann\0".into(),
        at_ms: 3,
        digest: "d".into(),
        body: "{\"a\":\"\0\"}".into(),
    }
}

// covers N4, N6, M2
#[test]
fn hosts_that_take_a_session_from_each_other_lose_and_double_nothing() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let stores: Vec<PostgresStore> = (0..3).map(|_| open(&address)).collect();
    let key = JournalKey::local("s");
    // Each appends as long as it may, then takes the session back.
    let reported: Vec<Vec<(u64, String)>> = std::thread::scope(|scope| {
        let hosts: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(host, store)| {
                let key = &key;
                scope.spawn(move || {
                    let mut reported = Vec::new();
                    for round in 0..8 {
                        let taken =
                            block_on(store.acquire(key, &owner(&format!("{host}.{round}")), TTL, Acquire::TakeOver));
                        let lease = taken.unwrap();
                        let mut head = lease.head;
                        for number in 0..20 {
                            let id = format!("{host}.{round}.{number}");
                            match block_on(store.append(&lease, append(head.0, &[&id]))) {
                                Ok(next) => {
                                    assert_eq!(next, head.next());
                                    head = next;
                                    reported.push((head.0, id));
                                }
                                Err(StoreError::Fenced { .. }) => break,
                                // Another one appended between our taking over and our first append.
                                Err(StoreError::Stale { .. }) => break,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                    reported
                })
            })
            .collect();
        hosts.into_iter().map(|host| host.join().unwrap()).collect()
    });
    let mut expected: Vec<(u64, String)> = reported.into_iter().flatten().collect();
    expected.sort();
    let there: Vec<(u64, String)> = (1..).zip(ids(&stores[0], "s")).collect();
    assert_eq!(there, expected, "what was reported is there, in order, and nothing else");
}

#[test]
fn appends_of_many_sessions_come_to_their_own_sessions() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let store = open(&address);
    let leases: Vec<Lease> = (0..60).map(|number| owned(&store, &format!("s{number}"))).collect();
    for round in 0..5 {
        // Every third one is refused, and harms none of the others.
        let appends = leases.iter().enumerate().map(|(number, lease)| {
            let expected = if number % 3 == 0 { 77 } else { round * 2 };
            let (first, second) = (format!("{number}.{round}.a"), format!("{number}.{round}.b"));
            store.append(lease, append(expected, &[&first, &second]))
        });
        let heads = block_on(futures::future::join_all(appends));
        for (number, head) in heads.into_iter().enumerate() {
            let session = format!("s{number}");
            let stale = StoreError::Stale { session, expected: Seq(77), found: Seq(0) };
            assert_eq!(head, if number % 3 == 0 { Err(stale) } else { Ok(Seq(round * 2 + 2)) });
        }
    }
    for number in 0..60 {
        let rounds = if number % 3 == 0 { 0 } else { 5 };
        let expected: Vec<String> =
            (0..rounds).flat_map(|round| ["a", "b"].map(|part| format!("{number}.{round}.{part}"))).collect();
        assert_eq!(ids(&store, &format!("s{number}")), expected);
    }
    let commits: u32 =
        cluster.sql(cluster.name(&address), "SELECT count(DISTINCT xmin::text) FROM wharf.record").parse().unwrap();
    assert!(commits < 200, "200 appends shared commits: {commits}");
}

#[test]
fn content_of_any_kind_comes_back_as_it_was() {
    let Some(cluster) = Cluster::shared() else { return };
    let store = open(&cluster.database());
    let lease = owned(&store, "s");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(bytes.contains(&0) && String::from_utf8(bytes.clone()).is_err());
    let digest = BlobDigest::new("sha256:1");
    let mut odd = record("r1");
    odd.body = "a NUL \0, a quote ', an ü and \u{10ffff}".to_owned();
    let whole = Append {
        records: vec![odd.clone()],
        blobs: vec![(digest.clone(), bytes.clone()), (BlobDigest::new("sha256:0"), Vec::new())],
        snapshot: Some("\0".into()),
        ..Append::default()
    };
    assert_eq!(block_on(store.append(&lease, whole)), Ok(Seq(1)));
    let loaded = block_on(store.history(&lease.key, Seq(0), 9)).unwrap();
    assert_eq!(loaded[0].record, odd);
    assert_eq!(block_on(store.load(&lease.key, Seq(0))).unwrap().snapshot, Some((Seq(1), "\0".to_owned())));
    assert_eq!(block_on(store.blob(&lease.key, &digest)), Ok(Some(bytes)));
    assert_eq!(block_on(store.blob(&lease.key, &BlobDigest::new("sha256:0"))), Ok(Some(Vec::new())));
    let item = item("i\0", "call\0with");
    assert_eq!(block_on(store.put_inbox(&lease.key, item.clone())), Ok(InboxPut::Accepted));
    assert_eq!(block_on(store.put_inbox(&lease.key, item.clone())), Ok(InboxPut::Repeated));
    assert_eq!(block_on(store.inbox(&lease.key)), Ok(vec![item]));
    // A name is text for the server. It is refused before anything is sent, with what is wrong.
    let error = block_on(store.acquire(&JournalKey::local("a\0b"), &owner("a"), TTL, Acquire::IfFree)).unwrap_err();
    assert!(error.to_string().contains("may hold no NUL"), "{error}");
}

// covers M8, M9
#[test]
fn an_item_of_another_host_wakes_who_waits_also_after_the_listening_connection_was_lost() {
    let Some(cluster) = Cluster::shared() else { return };
    let address = cluster.database();
    let (ours, theirs) = (open(&address), open(&address));
    let lease = owned(&ours, "s");
    for number in 0..6_usize {
        if number % 2 == 1 {
            cluster.cut(cluster.name(&address));
        }
        let wait = ours.inbox_grows(&lease.key, number);
        let put = item(&format!("i{number}"), &format!("t{number}"));
        let start = Instant::now();
        // A connection that was cut may be found out only by this write, which nobody repeats for us.
        while !matches!(
            block_on(theirs.put_inbox(&lease.key, put.clone())),
            Ok(InboxPut::Accepted | InboxPut::Repeated)
        ) {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
        let wait = runtime().block_on(async { tokio::time::timeout(Duration::from_secs(20), wait).await });
        wait.expect("it wakes").unwrap();
    }
}
