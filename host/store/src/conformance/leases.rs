//! Statements on who may append.

use std::time::Duration;

use wharf_core::{OrgId, Seq};

use super::{Fixture, TICK, TTL, fenced, key, owner, records, stored, take};
use crate::{Acquire, JournalKey, Lease, Store, StoreError};

async fn busy(store: &dyn Store, key: &JournalKey, by: &str, left: Duration) {
    let refused = store.acquire(key, &owner("late"), TTL, Acquire::IfFree).await;
    let (session, owner) = (key.session.to_string(), owner(by).label);
    assert_eq!(refused, Err(StoreError::Busy { session, owner, left }));
}

/// While an owner lives, nobody else gets the session, and is told who has it and for how long.
// covers N2
pub async fn live_owner_keeps_others_out(fixture: &mut impl Fixture) {
    let key = key("s");
    let lease = take(fixture.store(), &key, "a").await;
    busy(fixture.store(), &key, "a", TTL).await;
    fixture.advance(TTL - TICK);
    busy(fixture.store(), &key, "a", TICK).await;
    // Also after the store was opened again: a lease is data.
    fixture.reopen();
    busy(fixture.store(), &key, "a", TICK).await;
    assert_eq!(fixture.store().append(&lease, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
}

/// The live owner's own token gets the same fence and a whole lease again, even by a takeover.
// covers N2
pub async fn live_token_gets_the_same_fence_again(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let first = take(store, &key, "a").await;
    assert_eq!(store.append(&first, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    fixture.advance(TTL - TICK);
    let again = Lease { head: Seq(1), ..first.clone() };
    assert_eq!(store.acquire(&key, &owner("a"), TTL, Acquire::IfFree).await, Ok(again.clone()));
    busy(store, &key, "a", TTL).await;
    assert_eq!(store.acquire(&key, &owner("a"), TTL, Acquire::TakeOver).await, Ok(again));
    assert_eq!(store.renew(&first).await, Ok(()));
}

/// When the lease has passed anyone gets the session, with a higher fence and all its records.
// covers N2, N6, M2
pub async fn expired_lease_is_free_and_the_fence_grows(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let first = take(store, &key, "a").await;
    assert_eq!(store.append(&first, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    fixture.advance(TTL);
    let second = take(store, &key, "b").await;
    assert!(second.fence > first.fence, "{} is not above {}", second.fence, first.fence);
    let expected = Lease { key: key.clone(), owner: owner("b"), fence: second.fence, head: Seq(1), ttl: TTL };
    assert_eq!(second, expected);
    assert_eq!(store.append(&first, records(Seq(1), &["x"])).await, fenced("s"));
    assert_eq!(store.append(&second, records(Seq(1), &["r2"])).await, Ok(Seq(2)));
    let mut all = stored(Seq(0), first.fence, &["r1"]);
    all.extend(stored(Seq(1), second.fence, &["r2"]));
    assert_eq!(store.history(&key, Seq(0), 10).await, Ok(all));
}

/// A takeover does not wait; the old owner finds out at its next append, in the store itself.
// covers M2, N3, N4
pub async fn takeover_fences_the_old_owner_at_once(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let first = take(store, &key, "a").await;
    assert_eq!(store.append(&first, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    let second = store.acquire(&key, &owner("b"), TTL, Acquire::TakeOver).await;
    let fence = match &second {
        Ok(lease) => lease.fence,
        Err(_) => first.fence,
    };
    assert!(fence > first.fence, "{second:?} has no higher fence than {}", first.fence);
    let expected = Lease { key: key.clone(), owner: owner("b"), fence, head: Seq(1), ttl: TTL };
    assert_eq!(second, Ok(expected.clone()));
    assert_eq!(store.append(&first, records(Seq(1), &["x"])).await, fenced("s"));
    assert_eq!(store.append(&expected, records(Seq(1), &["r2"])).await, Ok(Seq(2)));
    // The old fence is not the new owner's either, nor the new fence the old owner's.
    let old_fence = Lease { fence: first.fence, ..expected.clone() };
    assert_eq!(store.append(&old_fence, records(Seq(2), &["x"])).await, fenced("s"));
    let old_owner = Lease { owner: owner("a"), ..expected };
    assert_eq!(store.append(&old_owner, records(Seq(2), &["x"])).await, fenced("s"));
}

/// Whoever is not the owner can neither renew nor append nor release, and changes nothing by trying.
// covers N3
pub async fn others_cannot_renew_append_or_release(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    let other = Lease { owner: owner("b"), ..lease.clone() };
    let absent = Lease { key: super::key("absent"), ..lease.clone() };
    fixture.advance(TTL - TICK);
    for (lease, session) in [(&other, "s"), (&absent, "absent")] {
        assert_eq!(store.renew(lease).await, fenced(session));
        assert_eq!(store.append(lease, records(Seq(0), &["x"])).await, fenced(session));
        assert_eq!(store.release(lease).await, fenced(session));
    }
    busy(store, &key, "a", TICK).await;
    assert_eq!(store.load(&key, Seq(0)).await, Ok(crate::Loaded::default()));
    assert_eq!(store.append(&lease, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
}

/// An owner whose lease has passed is none, even if nobody else came.
// covers N3, N4
pub async fn nothing_works_after_expiry(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    fixture.advance(TTL);
    assert_eq!(store.renew(&lease).await, fenced("s"));
    assert_eq!(store.append(&lease, records(Seq(0), &["x"])).await, fenced("s"));
    assert_eq!(store.release(&lease).await, fenced("s"));
    assert_eq!(store.load(&key, Seq(0)).await, Ok(crate::Loaded::default()));
    let again = take(store, &key, "a").await;
    assert!(again.fence > lease.fence, "an expired owner that comes back is a new one");
    assert_eq!(store.append(&again, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
}

/// A renewal and an append each give the lease its whole time again.
// covers N4, N6
pub async fn renewing_and_appending_make_the_lease_whole_again(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    fixture.advance(TTL - TICK);
    assert_eq!(store.renew(&lease).await, Ok(()));
    busy(store, &key, "a", TTL).await;
    fixture.advance(TTL - TICK);
    assert_eq!(store.append(&lease, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    busy(store, &key, "a", TTL).await;
    // A refused append does not.
    fixture.advance(TICK);
    assert!(store.append(&lease, records(Seq(0), &["x"])).await.is_err());
    busy(store, &key, "a", TTL - TICK).await;
}

/// Releasing ends ownership and nothing else.
// covers N5
pub async fn release_frees_at_once_and_keeps_everything(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let first = take(store, &key, "a").await;
    assert_eq!(store.append(&first, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    let before = store.load(&key, Seq(0)).await;
    assert_eq!(store.release(&first).await, Ok(()));
    assert_eq!(store.load(&key, Seq(0)).await, before);
    assert_eq!(
        store.sessions(&OrgId::local(), 10).await.map(|lines| lines.into_iter().map(|line| line.owner).collect()),
        Ok(vec![None])
    );
    assert_eq!(store.release(&first).await, fenced("s"));
    assert_eq!(store.append(&first, records(Seq(1), &["x"])).await, fenced("s"));
    let second = take(store, &key, "b").await;
    assert!(second.fence > first.fence, "the fence was forgotten");
    assert_eq!(store.append(&second, records(Seq(1), &["r2"])).await, Ok(Seq(2)));
}

/// However a session changes hands, no fence comes twice, also when the store was opened again.
// covers N6
pub async fn fence_never_repeats(fixture: &mut impl Fixture) {
    let key = key("s");
    let mut fences = Vec::new();
    for round in 0..4 {
        let released = take(fixture.store(), &key, &format!("a{round}")).await;
        fences.push(released.fence);
        assert_eq!(fixture.store().release(&released).await, Ok(()));
        fixture.reopen();
        fences.push(take(fixture.store(), &key, &format!("b{round}")).await.fence);
        let over = fixture.store().acquire(&key, &owner(&format!("c{round}")), TTL, Acquire::TakeOver).await;
        fences.extend(over.map(|lease| lease.fence));
        fixture.reopen();
        fixture.advance(TTL);
    }
    assert_eq!(fences.len(), 12);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}
