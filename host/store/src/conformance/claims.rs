//! What workers rely on: who gets a session that nobody has. A store that keeps who may go on passes [`claims`] too.

use wharf_core::{OrgId, SessionId};

use super::{Fixture, TICK, TTL, item, key, owner, records, take};
use crate::{Acquire, Append, Claim, DeletionMark, InboxPut, Lease, Open, Store};
use wharf_core::{Fence, Seq};

/// Runs every statement about claims, each with a fresh store. Needs no particular executor.
///
/// # Panics
///
/// With the difference, if the store does not keep one.
pub async fn claims<F: Fixture>(make: impl Fn() -> F) {
    open_session_goes_to_one_worker_of_its_harness(&mut make()).await;
    session_that_waits_for_an_answer_is_claimed_once_one_came(&mut make()).await;
    session_of_a_dead_owner_is_claimed_when_its_lease_ended(&mut make()).await;
    session_that_waited_longest_comes_first(&mut make()).await;
    deleted_session_is_not_claimed(&mut make()).await;
}

fn of(harness: &str) -> Claim {
    Claim { org: OrgId::local(), harnesses: vec!["x".into(), harness.into()], skip: Vec::new(), ttl: TTL }
}

fn opened(expected: Seq, id: &str, open: Open) -> Append {
    Append { open: Some(open), ..records(expected, &[id]) }
}

async fn claimed(store: &dyn Store, claim: &Claim, token: &str) -> Option<Lease> {
    match store.claim(claim, &owner(token)).await {
        Ok(lease) => lease,
        Err(error) => panic!("a claim succeeds, with or without a session, but: {error}"),
    }
}

/// The session's name, if one was claimed.
async fn name(store: &dyn Store, claim: &Claim, token: &str) -> Option<String> {
    claimed(store, claim, token).await.map(|lease| lease.key.session.to_string())
}

/// Only an open session that nobody has is claimed, only for its harness, only if it is wanted, and only once.
pub async fn open_session_goes_to_one_worker_of_its_harness(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let lease = take(store, &key, "a").await;
    assert_eq!(claimed(store, &of("h"), "w").await, None, "nothing was said of it");
    assert_eq!(store.append(&lease, opened(Seq(0), "r1", Open::For("h".into()))).await, Ok(Seq(1)));
    assert_eq!(claimed(store, &of("h"), "w").await, None, "its owner lives");
    assert_eq!(store.release(&lease).await, Ok(()));
    fixture.reopen();
    let store = fixture.store();
    let skipping = Claim { skip: vec![SessionId::new("z"), key.session.clone()], ..of("h") };
    let elsewhere = Claim { org: OrgId::new("other"), ..of("h") };
    let nothing = Claim { harnesses: Vec::new(), ..of("h") };
    for claim in [of("other"), skipping, elsewhere, nothing] {
        assert_eq!(claimed(store, &claim, "w").await, None, "{claim:?}");
    }
    let lease = claimed(store, &of("h"), "w").await;
    let expected = Lease {
        key: key.clone(),
        owner: owner("w"),
        fence: Fence(lease.as_ref().map_or(0, |l| l.fence.0)),
        head: Seq(1),
        ttl: TTL,
    };
    assert_eq!(lease, Some(expected.clone()));
    assert!(expected.fence > Fence(1), "the fence grows with each change of the owner");
    assert_eq!(claimed(store, &of("h"), "v").await, None, "it is claimed already");
    assert_eq!(store.acquire(&key, &owner("w"), TTL, Acquire::IfFree).await, Ok(expected.clone()), "it is ours");
    // What is not said stays as it is.
    assert_eq!(store.append(&expected, records(Seq(1), &["r2"])).await, Ok(Seq(2)));
    assert_eq!(store.release(&expected).await, Ok(()));
    assert_eq!(name(store, &of("h"), "v").await.as_deref(), Some("s"));
}

/// One that waits for an answer is nobody's to claim until an item comes; one that never named a harness never is.
// covers M8
pub async fn session_that_waits_for_an_answer_is_claimed_once_one_came(fixture: &mut impl Fixture) {
    let (store, waits) = (fixture.store(), key("s"));
    let lease = take(store, &waits, "a").await;
    assert_eq!(store.append(&lease, opened(Seq(0), "r1", Open::For("h".into()))).await, Ok(Seq(1)));
    let said = Append { expected: Seq(1), open: Some(Open::No), ..Append::default() };
    assert_eq!(store.append(&lease, said).await, Ok(Seq(1)), "without a record, too");
    assert_eq!(store.release(&lease).await, Ok(()));
    assert_eq!(claimed(store, &of("h"), "w").await, None);
    for session in [&waits, &key("never")] {
        assert_eq!(store.put_inbox(session, item("i1", "t1")).await, Ok(InboxPut::Accepted));
    }
    assert_eq!(name(store, &of("h"), "w").await.as_deref(), Some("s"));
    assert_eq!(claimed(store, &of("h"), "w2").await, None);
}

/// A session whose owner died is claimed when its lease ended, and not before.
pub async fn session_of_a_dead_owner_is_claimed_when_its_lease_ended(fixture: &mut impl Fixture) {
    let store = fixture.store();
    let lease = take(store, &key("s"), "a").await;
    assert_eq!(store.append(&lease, opened(Seq(0), "r1", Open::For("h".into()))).await, Ok(Seq(1)));
    fixture.advance(TTL - TICK);
    assert_eq!(claimed(fixture.store(), &of("h"), "w").await, None);
    fixture.advance(TICK);
    assert_eq!(name(fixture.store(), &of("h"), "w").await.as_deref(), Some("s"));
    let late = fixture.store().append(&lease, records(Seq(1), &["x"])).await;
    assert_eq!(late, super::fenced("s"), "who slept finds out");
}

/// Who waited longest comes first, and who was let go of again comes last.
pub async fn session_that_waited_longest_comes_first(fixture: &mut impl Fixture) {
    for session in ["b", "c", "a"] {
        let lease = take(fixture.store(), &key(session), "o").await;
        assert_eq!(fixture.store().append(&lease, opened(Seq(0), "r1", Open::For("h".into()))).await, Ok(Seq(1)));
        fixture.advance(TICK);
        assert_eq!(fixture.store().release(&lease).await, Ok(()));
    }
    fixture.advance(TICK);
    let Some(first) = claimed(fixture.store(), &of("h"), "w0").await else { panic!("three wait") };
    assert_eq!(fixture.store().release(&first).await, Ok(()));
    let mut order = vec![first.key.session.to_string()];
    for token in ["w1", "w2", "w3", "w4"] {
        order.extend(name(fixture.store(), &of("h"), token).await);
    }
    assert_eq!(order, ["b", "c", "a", "b"]);
}

/// A deleted session is nobody's to claim.
pub async fn deleted_session_is_not_claimed(fixture: &mut impl Fixture) {
    let store = fixture.store();
    let lease = take(store, &key("s"), "a").await;
    assert_eq!(store.append(&lease, opened(Seq(0), "r1", Open::For("h".into()))).await, Ok(Seq(1)));
    assert_eq!(store.delete(&lease, DeletionMark { who: "ann".into(), at_ms: 1 }).await, Ok(()));
    fixture.advance(TTL);
    assert_eq!(claimed(fixture.store(), &of("h"), "w").await, None);
}
