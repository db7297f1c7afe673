//! Statements on records, snapshots, blobs and what reading shows.

use futures::future::join;
use wharf_core::{BlobDigest, OrgId, RecordId, Seq};

use super::{Fixture, TICK, TTL, fenced, item, key, owner, record, records, stale, stored, take};
use crate::limits::{BLOB_BYTES_MAX, INBOX_BYTES_MAX, RECORD_BYTES_MAX};
use crate::{Acquire, Append, InboxPut, JournalKey, Lease, Loaded, NewRecord, SessionSummary, Store, StoreError};

async fn history(store: &dyn Store, key: &JournalKey) -> Result<Vec<crate::StoredRecord>, StoreError> {
    store.history(key, Seq(0), usize::MAX).await
}

/// A session that nobody wrote to reads as the default, and reading does not make it.
// covers M3, N2
pub async fn absent_journal_is_empty(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    assert_eq!(store.load(&key, Seq(0)).await, Ok(Loaded::default()));
    assert_eq!(store.load(&key, Seq(7)).await, Ok(Loaded::default()));
    assert_eq!(history(store, &key).await, Ok(vec![]));
    assert_eq!(store.inbox(&key).await, Ok(vec![]));
    assert_eq!(store.blob(&key, &BlobDigest::new("sha256:00")).await, Ok(None));
    assert_eq!(store.sessions(&OrgId::local(), 10).await, Ok(vec![]));
    let lease = take(store, &key, "a").await;
    let expected = Lease { key: key.clone(), owner: owner("a"), fence: lease.fence, head: Seq(0), ttl: TTL };
    assert_eq!(lease, expected);
    assert_eq!(store.load(&key, Seq(0)).await, Ok(Loaded::default()));
}

/// An append that knows another head is refused and changes nothing.
// covers N4
pub async fn stale_sequence_is_refused(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    assert_eq!(store.append(&lease, records(Seq(0), &["r1", "r2"])).await, Ok(Seq(2)));
    assert_eq!(store.append(&lease, records(Seq(0), &["x"])).await, stale("s", 0, 2));
    assert_eq!(store.append(&lease, records(Seq(1), &["x"])).await, stale("s", 1, 2));
    assert_eq!(store.append(&lease, records(Seq(3), &["x"])).await, stale("s", 3, 2));
    assert_eq!(store.append(&lease, records(Seq(u64::MAX), &["x"])).await, stale("s", u64::MAX, 2));
    // The very same append again is stale too: the caller was told that it is there.
    assert_eq!(store.append(&lease, records(Seq(0), &["r1", "r2"])).await, stale("s", 0, 2));
    assert_eq!(history(store, &key).await, Ok(stored(Seq(0), lease.fence, &["r1", "r2"])));
    assert_eq!(store.append(&lease, records(Seq(2), &["r3"])).await, Ok(Seq(3)));
}

/// Two appends that know the same head: one is there, the other is stale.
// covers N4
pub async fn one_of_two_appends_at_once_wins(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    let both =
        join(store.append(&lease, records(Seq(0), &["r1"])), store.append(&lease, records(Seq(0), &["r2"]))).await;
    let winner = match both {
        (Ok(Seq(1)), second) => {
            assert_eq!(second, stale("s", 0, 1));
            "r1"
        }
        (first, second) => {
            assert_eq!((first, second), (stale("s", 0, 1), Ok(Seq(1))));
            "r2"
        }
    };
    assert_eq!(history(store, &key).await, Ok(stored(Seq(0), lease.fence, &[winner])));
}

/// An append is there as a whole or not at all: one part that is refused takes the others with it.
// covers M5
pub async fn refused_append_leaves_nothing(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    assert_eq!(store.append(&lease, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    assert_eq!(store.put_inbox(&key, item("i1", "t1")).await, Ok(InboxPut::Accepted));
    let digest = BlobDigest::new("sha256:01");
    let append = |consumed: &[&str], body: String| Append {
        expected: Seq(1),
        records: vec![record("r2"), NewRecord { body, ..record("r3") }],
        blobs: vec![(digest.clone(), b"content".to_vec())],
        consumed: consumed.iter().map(|id| (*id).into()).collect(),
        snapshot: Some("{}".to_owned()),
        open: Some(crate::Open::For("h".to_owned())),
    };
    let unknown = store.append(&lease, append(&["i1", "i2"], "{}".to_owned())).await;
    assert_eq!(unknown, Err(StoreError::not_waiting(&"i2".into())));
    let twice = store.append(&lease, append(&["i1", "i1"], "{}".to_owned())).await;
    assert_eq!(twice, Err(StoreError::not_waiting(&"i1".into())));
    let size = RECORD_BYTES_MAX + 1;
    let large = store.append(&lease, append(&["i1"], "x".repeat(size))).await;
    let what = "record r3".to_owned();
    assert_eq!(large, Err(StoreError::TooLarge { what, size, limit: RECORD_BYTES_MAX }));
    for opened in 0..2 {
        let store = fixture.store();
        let loaded = Loaded { snapshot: None, records: stored(Seq(0), lease.fence, &["r1"]), head: Seq(1) };
        assert_eq!(store.load(&key, Seq(0)).await, Ok(loaded), "opened {opened} times again");
        assert_eq!(store.blob(&key, &digest).await, Ok(None));
        assert_eq!(store.inbox(&key).await, Ok(vec![item("i1", "t1")]));
        fixture.reopen();
    }
    assert_eq!(fixture.store().append(&lease, append(&["i1"], "{}".to_owned())).await, Ok(Seq(3)));
}

/// What was reported as appended is what anyone loads, before and after the store is opened again.
// covers M4, M6
pub async fn appended_records_are_loaded_by_anyone(fixture: &mut impl Fixture) {
    let key = key("s");
    let lease = take(fixture.store(), &key, "a").await;
    assert_eq!(fixture.store().append(&lease, records(Seq(0), &["r1", "r2"])).await, Ok(Seq(2)));
    fixture.reopen();
    assert_eq!(fixture.store().append(&lease, records(Seq(2), &["r3"])).await, Ok(Seq(3)));
    fixture.reopen();
    let (store, ids) = (fixture.store(), ["r1", "r2", "r3"]);
    let all = stored(Seq(0), lease.fence, &ids);
    let loaded = |from: usize| Loaded { snapshot: None, records: all[from..].to_vec(), head: Seq(3) };
    assert_eq!(store.load(&key, Seq(0)).await, Ok(loaded(0)));
    assert_eq!(store.load(&key, Seq(1)).await, Ok(loaded(1)));
    assert_eq!(store.load(&key, Seq(3)).await, Ok(loaded(3)));
    assert_eq!(store.load(&key, Seq(9)).await, Ok(loaded(3)));
    assert_eq!(store.history(&key, Seq(1), 1).await, Ok(all[1..2].to_vec()));
    assert_eq!(store.history(&key, Seq(1), 0).await, Ok(vec![]));
}

/// Reading needs no lease, while another has it too, and leaves everything as it was.
// covers M1
pub async fn reading_changes_nothing(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    assert_eq!(store.append(&lease, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    fixture.advance(TTL - TICK);
    let before = (store.load(&key, Seq(0)).await, store.sessions(&OrgId::local(), 10).await);
    let summary = SessionSummary {
        key: key.clone(),
        head: Seq(1),
        updated_ms: record("r1").at_ms,
        owner: Some((owner("a"), TICK)),
    };
    assert_eq!(before.1, Ok(vec![summary]));
    assert_eq!(history(store, &key).await, Ok(stored(Seq(0), lease.fence, &["r1"])));
    assert_eq!(store.inbox(&key).await, Ok(vec![]));
    assert_eq!((store.load(&key, Seq(0)).await, store.sessions(&OrgId::local(), 10).await), before);
    fixture.advance(TICK);
    assert_eq!(store.renew(&lease).await, fenced("s"), "reading renewed the lease");
}

/// A session that came to its end and was let go goes on under a new owner after the store was opened again.
// covers M7, N5
pub async fn finished_session_goes_on_after_reopening(fixture: &mut impl Fixture) {
    let key = key("s");
    let first = take(fixture.store(), &key, "a").await;
    assert_eq!(fixture.store().append(&first, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    assert_eq!(fixture.store().release(&first).await, Ok(()));
    fixture.reopen();
    let second = take(fixture.store(), &key, "b").await;
    let expected = Lease { key: key.clone(), owner: owner("b"), fence: second.fence, head: Seq(1), ttl: TTL };
    assert_eq!(second, expected);
    assert_eq!(fixture.store().append(&second, records(Seq(1), &["r2"])).await, Ok(Seq(2)));
    let mut all = stored(Seq(0), first.fence, &["r1"]);
    all.extend(stored(Seq(1), second.fence, &["r2"]));
    assert_eq!(history(fixture.store(), &key).await, Ok(all));
}

/// The newest snapshot bounds what has to be read, and hides no record.
// covers N4, M6
pub async fn snapshot_bounds_loading_and_hides_nothing(fixture: &mut impl Fixture) {
    let key = key("s");
    let lease = take(fixture.store(), &key, "a").await;
    let with =
        |expected, ids: &[&str], text: &str| Append { snapshot: Some(text.to_owned()), ..records(expected, ids) };
    assert_eq!(fixture.store().append(&lease, with(Seq(0), &["r1", "r2"], "at 2")).await, Ok(Seq(2)));
    assert_eq!(fixture.store().append(&lease, records(Seq(2), &["r3"])).await, Ok(Seq(3)));
    let all = stored(Seq(0), lease.fence, &["r1", "r2", "r3"]);
    let loaded = Loaded { snapshot: Some((Seq(2), "at 2".to_owned())), records: all[2..].to_vec(), head: Seq(3) };
    assert_eq!(fixture.store().load(&key, Seq(0)).await, Ok(loaded));
    // Replaced by one without new records.
    assert_eq!(fixture.store().append(&lease, with(Seq(3), &[], "at 3")).await, Ok(Seq(3)));
    fixture.reopen();
    let loaded = Loaded { snapshot: Some((Seq(3), "at 3".to_owned())), records: vec![], head: Seq(3) };
    assert_eq!(fixture.store().load(&key, Seq(0)).await, Ok(loaded));
    let later = Loaded { snapshot: None, records: all[1..].to_vec(), head: Seq(3) };
    assert_eq!(fixture.store().load(&key, Seq(1)).await, Ok(later));
    assert_eq!(history(fixture.store(), &key).await, Ok(all));
}

/// A blob is there with the record that names it, whatever its size up to the cap, and a missing one is no error.
// covers M6
pub async fn blobs_are_kept_with_their_journal(fixture: &mut impl Fixture) {
    let key = key("s");
    let lease = take(fixture.store(), &key, "a").await;
    let small = (BlobDigest::new("sha256:01"), b"\x00\xffsmall".to_vec());
    let empty = (BlobDigest::new("sha256:02"), Vec::new());
    let large = (BlobDigest::new("sha256:03"), (0..BLOB_BYTES_MAX).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let with = |expected, ids: &[&str], blobs: &[&(BlobDigest, Vec<u8>)]| Append {
        blobs: blobs.iter().map(|blob| (*blob).clone()).collect(),
        ..records(expected, ids)
    };
    let store = fixture.store();
    assert_eq!(store.append(&lease, with(Seq(0), &["r1"], &[&small, &empty, &large])).await, Ok(Seq(1)));
    assert_eq!(store.append(&lease, with(Seq(1), &["r2"], &[&small, &small])).await, Ok(Seq(2)));
    fixture.reopen();
    let store = fixture.store();
    for (digest, bytes) in [small, empty, large] {
        let found = store.blob(&key, &digest).await;
        assert!(found == Ok(Some(bytes)), "blob {digest} is not what was put");
    }
    assert_eq!(store.blob(&key, &BlobDigest::new("sha256:04")).await, Ok(None));
    assert_eq!(history(store, &key).await, Ok(stored(Seq(0), lease.fence, &["r1", "r2"])));
}

/// Sessions and organisations are apart in everything: records, leases, blobs, inboxes, lists.
// covers N1, N6
pub async fn keys_do_not_see_each_other(fixture: &mut impl Fixture) {
    let store = fixture.store();
    let other_org = OrgId::new("acme");
    let keys = [key("s"), key("s2"), JournalKey { org: other_org.clone(), session: "s".into() }];
    let digest = BlobDigest::new("sha256:01");
    let mut leases = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let id = format!("r{number}");
        let lease = take(store, key, &format!("owner-{number}")).await;
        let append = Append { blobs: vec![(digest.clone(), id.clone().into_bytes())], ..records(Seq(0), &[&id]) };
        assert_eq!(store.append(&lease, append).await, Ok(Seq(1)));
        assert_eq!(store.put_inbox(key, item(&format!("i{number}"), "t")).await, Ok(InboxPut::Accepted));
        leases.push(lease);
    }
    for (number, key) in keys.iter().enumerate() {
        let id = format!("r{number}");
        assert_eq!(history(store, key).await, Ok(stored(Seq(0), leases[number].fence, &[&id])));
        assert_eq!(store.blob(key, &digest).await, Ok(Some(id.into_bytes())));
        assert_eq!(store.inbox(key).await, Ok(vec![item(&format!("i{number}"), "t")]));
    }
    let line = |number: usize| SessionSummary {
        key: keys[number].clone(),
        head: Seq(1),
        updated_ms: record("r").at_ms,
        owner: Some((owner(&format!("owner-{number}")), TTL)),
    };
    assert_eq!(store.sessions(&OrgId::local(), 10).await, Ok(vec![line(0), line(1)]));
    assert_eq!(store.sessions(&other_org, 10).await, Ok(vec![line(2)]));
    // A lease of one key is none of another.
    let stolen = Lease { key: keys[1].clone(), ..leases[0].clone() };
    assert_eq!(store.append(&stolen, records(Seq(1), &["x"])).await, fenced("s2"));
    let foreign = Lease { key: keys[2].clone(), ..leases[0].clone() };
    assert_eq!(store.append(&foreign, records(Seq(1), &["x"])).await, fenced("s"));
    let taken_over = store.acquire(&keys[0], &owner("b"), TTL, Acquire::TakeOver).await;
    assert!(taken_over.is_ok());
    assert_eq!(store.renew(&leases[2]).await, Ok(()), "the other organisation's lease is untouched");
}

/// Each size is tried at its cap and one past it.
// covers N6
pub async fn oversize_is_refused_one_past_the_cap(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    let body = |expected, size| Append {
        records: vec![NewRecord { body: "x".repeat(size), ..record("r") }],
        ..records(expected, &[])
    };
    let snapshot = |expected, size| Append { snapshot: Some("x".repeat(size)), ..records(expected, &[]) };
    let blob = |expected, size| Append {
        blobs: vec![(BlobDigest::new("sha256:01"), vec![0; size])],
        ..records(expected, &[])
    };
    let too_large = |what: &str, limit| Err(StoreError::TooLarge { what: what.to_owned(), size: limit + 1, limit });
    assert_eq!(store.append(&lease, body(Seq(0), RECORD_BYTES_MAX + 1)).await, too_large("record r", RECORD_BYTES_MAX));
    assert_eq!(store.append(&lease, body(Seq(0), RECORD_BYTES_MAX)).await, Ok(Seq(1)));
    let refused = store.append(&lease, snapshot(Seq(1), RECORD_BYTES_MAX + 1)).await;
    assert_eq!(refused, too_large("the snapshot", RECORD_BYTES_MAX));
    assert_eq!(store.append(&lease, snapshot(Seq(1), RECORD_BYTES_MAX)).await, Ok(Seq(1)));
    let refused = store.append(&lease, blob(Seq(1), BLOB_BYTES_MAX + 1)).await;
    assert_eq!(refused, too_large("blob sha256:01", BLOB_BYTES_MAX));
    assert_eq!(store.append(&lease, blob(Seq(1), BLOB_BYTES_MAX)).await, Ok(Seq(1)));
    let sized = |size: usize| {
        let mut item = item("i", "t");
        let rest = [item.id.as_str(), &item.target, &item.kind, &item.who, &item.digest]
            .iter()
            .map(|word| word.len())
            .sum::<usize>();
        item.body = "x".repeat(size - rest);
        item
    };
    let refused = store.put_inbox(&key, sized(INBOX_BYTES_MAX + 1)).await;
    assert_eq!(refused.map(|_| Seq(0)), too_large("inbox item i", INBOX_BYTES_MAX));
    assert_eq!(store.put_inbox(&key, sized(INBOX_BYTES_MAX)).await, Ok(InboxPut::Accepted));
}

/// The list of sessions is by the time of the last record, with the live owner of each, and not longer than asked for.
// covers M1
pub async fn sessions_come_newest_first(fixture: &mut impl Fixture) {
    let store = fixture.store();
    for (session, at_ms) in [("b", 200), ("a", 200), ("c", 300)] {
        let lease = take(store, &key(session), session).await;
        let records = vec![NewRecord { at_ms, id: RecordId::new(session), ..record(session) }];
        assert_eq!(store.append(&lease, Append { records, ..Append::default() }).await, Ok(Seq(1)));
        if session != "c" {
            assert_eq!(store.release(&lease).await, Ok(()));
        }
    }
    let line = |session: &str, updated_ms, owner| SessionSummary { key: key(session), head: Seq(1), updated_ms, owner };
    let lines = vec![line("c", 300, Some((owner("c"), TTL))), line("a", 200, None), line("b", 200, None)];
    assert_eq!(store.sessions(&OrgId::local(), 10).await, Ok(lines.clone()));
    assert_eq!(store.sessions(&OrgId::local(), 2).await, Ok(lines[..2].to_vec()));
    fixture.advance(TTL);
    let lines = vec![line("c", 300, None), line("a", 200, None), line("b", 200, None)];
    assert_eq!(store.sessions(&OrgId::local(), 3).await, Ok(lines));
}
