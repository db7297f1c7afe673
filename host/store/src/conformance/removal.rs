//! Statements on what removes: an operator's deletion of a session, and the collection of blobs.

use std::collections::BTreeSet;

use futures::{FutureExt as _, poll};
use wharf_core::{BlobDigest, OrgId, Seq};

use super::{Fixture, TICK, TTL, fenced, item, key, owner, records, stale, stored, take};
use crate::{Acquire, Append, DeletionMark, InboxPut, JournalKey, Lease, Loaded, Store, StoreError, Swept};

fn mark() -> DeletionMark {
    DeletionMark { who: "ann".to_owned(), at_ms: 1_700_000_000_002 }
}

fn deleted<T>(session: &str) -> Result<T, StoreError> {
    Err(StoreError::Deleted { session: session.to_owned(), who: mark().who, at_ms: mark().at_ms })
}

fn blob(digest: &str, bytes: &[u8]) -> (BlobDigest, Vec<u8>) {
    (BlobDigest::new(digest), bytes.to_vec())
}

/// A session with one of everything, and its owner.
async fn full(store: &dyn Store, key: &JournalKey) -> Lease {
    let lease = take(store, key, "a").await;
    for id in ["i1", "i2"] {
        assert_eq!(store.put_inbox(key, item(id, id)).await, Ok(InboxPut::Accepted));
    }
    let append = Append {
        blobs: vec![blob("sha256:01", b"content")],
        consumed: vec!["i1".into()],
        snapshot: Some("{}".to_owned()),
        ..records(Seq(0), &["r1", "r2"])
    };
    assert_eq!(store.append(&lease, append).await, Ok(Seq(2)));
    lease
}

/// Everything of a deleted session is gone at once and for ever, its name is not used again, and whoever asks is told who
/// deleted it; others, of another organisation too, keep all that they have.
// covers N1, N3
pub async fn deleted_session_is_gone_and_says_so(fixture: &mut impl Fixture) {
    let (key, other) = (key("s"), JournalKey { org: OrgId::new("acme"), session: "s".into() });
    let store = fixture.store();
    let (lease, kept) = (full(store, &key).await, full(store, &other).await);
    assert_eq!(store.delete(&lease, mark()).await, Ok(()));
    for reopened in [false, true] {
        let store = fixture.store();
        for how in [Acquire::IfFree, Acquire::TakeOver] {
            assert_eq!(store.acquire(&key, &owner("b"), TTL, how).await, deleted("s"));
            assert_eq!(store.acquire(&key, &owner("a"), TTL, how).await, deleted("s"));
        }
        assert_eq!(store.load(&key, Seq(0)).await, deleted("s"));
        assert_eq!(store.load(&key, Seq(2)).await, deleted("s"));
        assert_eq!(store.history(&key, Seq(0), 10).await, deleted("s"));
        assert_eq!(store.append(&lease, records(Seq(2), &["r3"])).await, deleted("s"));
        assert_eq!(store.append(&lease, records(Seq(0), &["r3"])).await, deleted("s"));
        assert_eq!(store.renew(&lease).await, deleted("s"));
        assert_eq!(store.release(&lease).await, deleted("s"));
        assert_eq!(store.delete(&lease, mark()).await, deleted("s"));
        assert_eq!(store.sweep(&lease, &BTreeSet::new()).await, deleted("s"));
        assert_eq!(store.blob(&key, &BlobDigest::new("sha256:01")).await, deleted("s"));
        assert_eq!(store.put_inbox(&key, item("i3", "t3")).await, deleted("s"));
        assert_eq!(store.inbox(&key).await, deleted("s"));
        assert_eq!(store.inbox_grows(&key, 0).await, deleted("s"));
        assert_eq!(store.sessions(&OrgId::local(), 10).await, Ok(vec![]), "reopened: {reopened}");
        fixture.reopen();
    }
    let store = fixture.store();
    assert_eq!(store.history(&other, Seq(0), 10).await, Ok(stored(Seq(0), kept.fence, &["r1", "r2"])));
    assert_eq!(store.blob(&other, &BlobDigest::new("sha256:01")).await, Ok(Some(b"content".to_vec())));
    assert_eq!(store.inbox(&other).await, Ok(vec![item("i2", "i2")]));
    assert_eq!(store.append(&kept, records(Seq(2), &["r3"])).await, Ok(Seq(3)));
}

/// Only the live owner deletes: whoever lost the session, or whose lease has passed, is refused and nothing is gone.
// covers N3, N4
pub async fn others_cannot_delete_or_sweep(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let first = full(store, &key).await;
    let second = store.acquire(&key, &owner("b"), TTL, Acquire::TakeOver).await;
    let Ok(second) = second else { panic!("a takeover succeeds, but: {second:?}") };
    let absent = Lease { key: super::key("absent"), ..second.clone() };
    let refuse = async |lease: &Lease, session: &str| {
        assert_eq!(store.delete(lease, mark()).await, fenced(session));
        assert_eq!(store.sweep(&Lease { head: Seq(2), ..lease.clone() }, &BTreeSet::new()).await, fenced(session));
    };
    refuse(&first, "s").await;
    refuse(&Lease { fence: first.fence, ..second.clone() }, "s").await;
    refuse(&absent, "absent").await;
    fixture.advance(TTL);
    refuse(&second, "s").await;
    let loaded = Loaded { snapshot: Some((Seq(2), "{}".to_owned())), records: vec![], head: Seq(2) };
    assert_eq!(store.load(&key, Seq(0)).await, Ok(loaded));
    assert_eq!(store.inbox(&key).await, Ok(vec![item("i2", "i2")]));
    assert_eq!(store.blob(&key, &BlobDigest::new("sha256:01")).await, Ok(Some(b"content".to_vec())));
}

/// A session of which nothing was written yet, and one that is empty but for its owner, are deleted like any other.
// covers N3
pub async fn empty_session_is_deleted_too(fixture: &mut impl Fixture) {
    let key = key("s");
    let lease = take(fixture.store(), &key, "a").await;
    assert_eq!(fixture.store().delete(&lease, mark()).await, Ok(()));
    fixture.reopen();
    assert_eq!(fixture.store().load(&key, Seq(0)).await, deleted("s"));
}

/// Whoever waits for an inbox when its session is deleted waits no longer.
// covers M9
pub async fn deletion_ends_the_wait_for_an_inbox(fixture: &mut impl Fixture) {
    let (store, key, other) = (fixture.store(), key("s"), key("other"));
    let lease = take(store, &key, "a").await;
    let (mut waits, mut elsewhere) = (store.inbox_grows(&key, 0), store.inbox_grows(&other, 0));
    assert!(poll!(&mut waits).is_pending());
    assert!(poll!(&mut elsewhere).is_pending());
    assert_eq!(store.delete(&lease, mark()).await, Ok(()));
    assert_eq!(waits.await, deleted("s"));
    assert_eq!((&mut elsewhere).now_or_never(), None, "woken by another session's end");
    assert_eq!(store.put_inbox(&other, item("i1", "t1")).await, Ok(InboxPut::Accepted));
    assert_eq!(elsewhere.await, Ok(()));
}

/// A sweep removes the blobs that are not named, of this session alone, says how much that was, and renews the lease.
// covers N1, N4
pub async fn sweep_removes_what_is_not_named(fixture: &mut impl Fixture) {
    let key = key("s");
    let other = full(fixture.store(), &super::key("other")).await;
    let lease = full(fixture.store(), &key).await;
    let blobs = vec![blob("sha256:02", b"second"), blob("sha256:03", b""), blob("sha256:04", &[7; 70_000])];
    assert_eq!(fixture.store().append(&lease, Append { blobs, ..records(Seq(2), &["r3"]) }).await, Ok(Seq(3)));
    let lease = Lease { head: Seq(3), ..lease };
    let named: BTreeSet<_> = ["sha256:02", "sha256:99"].map(BlobDigest::new).into();
    fixture.advance(TTL - TICK);
    let store = fixture.store();
    assert_eq!(store.sweep(&lease, &named).await, Ok(Swept { blobs: 3, bytes: 70_007 }));
    assert_eq!(store.sweep(&lease, &named).await, Ok(Swept::default()));
    fixture.advance(TTL - TICK);
    assert_eq!(store.renew(&lease).await, Ok(()), "a sweep renews the lease");
    fixture.reopen();
    let store = fixture.store();
    for (digest, there) in [("01", None), ("02", Some(b"second".to_vec())), ("03", None), ("04", None)] {
        assert_eq!(store.blob(&key, &BlobDigest::new(format!("sha256:{digest}"))).await, Ok(there), "{digest}");
    }
    assert_eq!(store.history(&key, Seq(0), 10).await, Ok(stored(Seq(0), lease.fence, &["r1", "r2", "r3"])));
    assert_eq!(store.inbox(&key).await, Ok(vec![item("i2", "i2")]));
    assert_eq!(store.blob(&other.key, &BlobDigest::new("sha256:01")).await, Ok(Some(b"content".to_vec())));
    // What was collected is put again like any other.
    let again = Append { blobs: vec![blob("sha256:01", b"content")], ..records(Seq(3), &["r4"]) };
    assert_eq!(store.append(&lease, again).await, Ok(Seq(4)));
    assert_eq!(store.blob(&key, &BlobDigest::new("sha256:01")).await, Ok(Some(b"content".to_vec())));
}

/// A record that came after the caller read the names may name a blob, so a sweep that knows another head is refused.
// covers N4
pub async fn sweep_with_another_head_is_refused(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = full(store, &key).await;
    let with = |head| Lease { head: Seq(head), ..lease.clone() };
    assert_eq!(store.sweep(&lease, &BTreeSet::new()).await, stale("s", 0, 2));
    assert_eq!(store.sweep(&with(3), &BTreeSet::new()).await, stale("s", 3, 2));
    assert_eq!(store.blob(&key, &BlobDigest::new("sha256:01")).await, Ok(Some(b"content".to_vec())));
    assert_eq!(store.sweep(&with(2), &BTreeSet::new()).await, Ok(Swept { blobs: 1, bytes: 7 }));
}
