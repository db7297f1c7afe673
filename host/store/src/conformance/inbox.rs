//! Statements on the inbox: decisions of others, which only the owner turns into records.

use futures::{FutureExt as _, poll};
use wharf_core::Seq;

use super::{Fixture, TTL, fenced, item, key, record, records, stored, take};
use crate::limits::INBOX_ITEMS_MAX;
use crate::{Acquire, Append, InboxItem, InboxPut, Loaded, StoreError};

/// Anyone puts items, before the session exists, while another owns it and when nobody does; records and lease stay as
/// they are.
// covers M8
pub async fn inbox_needs_no_lease_and_changes_no_state(fixture: &mut impl Fixture) {
    let key = key("s");
    assert_eq!(fixture.store().put_inbox(&key, item("i1", "t1")).await, Ok(InboxPut::Accepted));
    assert_eq!(fixture.store().sessions(&key.org, 10).await, Ok(vec![]));
    assert_eq!(fixture.store().load(&key, Seq(0)).await, Ok(Loaded::default()));
    let lease = take(fixture.store(), &key, "a").await;
    let before = fixture.store().sessions(&key.org, 10).await;
    assert_eq!(fixture.store().put_inbox(&key, item("i2", "t2")).await, Ok(InboxPut::Accepted));
    assert_eq!(fixture.store().sessions(&key.org, 10).await, before);
    assert_eq!(fixture.store().append(&lease, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    fixture.advance(TTL);
    assert_eq!(fixture.store().put_inbox(&key, item("i0", "t0")).await, Ok(InboxPut::Accepted));
    fixture.reopen();
    let items = vec![item("i1", "t1"), item("i2", "t2"), item("i0", "t0")];
    assert_eq!(fixture.store().inbox(&key).await, Ok(items), "whole, in the order in which they came");
    assert_eq!(fixture.store().renew(&lease).await, fenced("s"), "putting an item renewed the lease");
}

/// The first item on a target wins, also after it was consumed; the same item again is no second one.
// covers M8
pub async fn first_item_on_a_target_wins_for_ever(fixture: &mut impl Fixture) {
    let key = key("s");
    let store = fixture.store();
    assert_eq!(store.put_inbox(&key, item("i1", "t1")).await, Ok(InboxPut::Accepted));
    assert_eq!(store.put_inbox(&key, item("i1", "t1")).await, Ok(InboxPut::Repeated));
    assert_eq!(store.put_inbox(&key, item("i2", "t1")).await, Ok(InboxPut::TooLate));
    // An id is used once, whatever else it comes with.
    assert_eq!(store.put_inbox(&key, item("i1", "t2")).await, Ok(InboxPut::TooLate));
    let reworded = InboxItem { body: "{}".to_owned(), ..item("i1", "t1") };
    assert_eq!(store.put_inbox(&key, reworded).await, Ok(InboxPut::TooLate));
    assert_eq!(store.inbox(&key).await, Ok(vec![item("i1", "t1")]));
    let lease = take(store, &key, "a").await;
    let append = Append { consumed: vec!["i1".into()], ..records(Seq(0), &["r1"]) };
    assert_eq!(store.append(&lease, append).await, Ok(Seq(1)));
    fixture.reopen();
    let store = fixture.store();
    assert_eq!(store.inbox(&key).await, Ok(vec![]));
    assert_eq!(store.put_inbox(&key, item("i1", "t1")).await, Ok(InboxPut::Repeated));
    assert_eq!(store.put_inbox(&key, item("i2", "t1")).await, Ok(InboxPut::TooLate));
    assert_eq!(store.inbox(&key).await, Ok(vec![]));
    assert_eq!(store.put_inbox(&key, item("i2", "t2")).await, Ok(InboxPut::Accepted));
}

/// An item stops waiting in the same transaction in which its record begins to be: only by the owner, once, whole.
// covers M8
pub async fn item_is_consumed_with_its_record_or_not_at_all(fixture: &mut impl Fixture) {
    let key = key("s");
    let store = fixture.store();
    for (id, target) in [("i1", "t1"), ("i2", "t2")] {
        assert_eq!(store.put_inbox(&key, item(id, target)).await, Ok(InboxPut::Accepted));
    }
    let old = take(store, &key, "a").await;
    let new = store.acquire(&key, &super::owner("b"), TTL, Acquire::TakeOver).await;
    let consume =
        |expected, id: &str, record: &str| Append { consumed: vec![id.into()], ..records(expected, &[record]) };
    assert_eq!(store.append(&old, consume(Seq(0), "i1", "x")).await, fenced("s"));
    assert_eq!(store.inbox(&key).await, Ok(vec![item("i1", "t1"), item("i2", "t2")]));
    let Ok(new) = new else { panic!("a takeover succeeds, but: {new:?}") };
    assert_eq!(store.append(&new, consume(Seq(0), "i1", "r1")).await, Ok(Seq(1)));
    let again = store.append(&new, consume(Seq(1), "i1", "r2")).await;
    assert_eq!(again, Err(StoreError::not_waiting(&"i1".into())));
    fixture.reopen();
    let store = fixture.store();
    assert_eq!(store.inbox(&key).await, Ok(vec![item("i2", "t2")]));
    assert_eq!(store.history(&key, Seq(0), 10).await, Ok(stored(Seq(0), new.fence, &["r1"])));
    // A record is not needed for it.
    let append = Append { expected: Seq(1), consumed: vec!["i2".into()], ..Append::default() };
    assert_eq!(store.append(&new, append).await, Ok(Seq(1)));
    assert_eq!(store.inbox(&key).await, Ok(vec![]));
}

/// An inbox holds so many items and no more, and takes others when some are consumed.
// covers M8
pub async fn full_inbox_refuses(fixture: &mut impl Fixture) {
    let (store, key) = (fixture.store(), key("s"));
    let numbered = |number: usize| item(&format!("i{number}"), &format!("t{number}"));
    let puts =
        futures::future::join_all((0..INBOX_ITEMS_MAX).map(|number| store.put_inbox(&key, numbered(number)))).await;
    assert_eq!(puts, vec![Ok(InboxPut::Accepted); INBOX_ITEMS_MAX]);
    assert_eq!(store.put_inbox(&key, numbered(INBOX_ITEMS_MAX)).await, Err(StoreError::inbox_full()));
    assert_eq!(store.inbox(&key).await, Ok((0..INBOX_ITEMS_MAX).map(numbered).collect()));
    let lease = take(store, &key, "a").await;
    let append = Append { records: vec![record("r1")], consumed: vec!["i0".into()], ..Append::default() };
    assert_eq!(store.append(&lease, append).await, Ok(Seq(1)));
    assert_eq!(store.put_inbox(&key, numbered(INBOX_ITEMS_MAX)).await, Ok(InboxPut::Accepted));
    assert_eq!(store.put_inbox(&key, numbered(INBOX_ITEMS_MAX + 1)).await, Err(StoreError::inbox_full()));
}

/// Whoever waits for more items than are seen is woken by the next one, not by anything else, and at once if they are
/// there already.
// covers M9
pub async fn growing_inbox_wakes_who_waits(fixture: &mut impl Fixture) {
    let (store, key, other) = (fixture.store(), key("s"), key("other"));
    let mut first = store.inbox_grows(&key, 0);
    assert!(poll!(&mut first).is_pending());
    assert_eq!(store.put_inbox(&other, item("i0", "t0")).await, Ok(InboxPut::Accepted));
    let lease = take(store, &key, "a").await;
    assert_eq!(store.append(&lease, records(Seq(0), &["r1"])).await, Ok(Seq(1)));
    assert_eq!(store.inbox_grows(&other, 0).await, Ok(()));
    assert!(poll!(&mut first).is_pending(), "woken by something else");
    assert_eq!(store.put_inbox(&key, item("i1", "t1")).await, Ok(InboxPut::Accepted));
    assert_eq!(first.await, Ok(()));
    assert_eq!(store.inbox_grows(&key, 0).await, Ok(()));
    let mut second = store.inbox_grows(&key, 1);
    assert!(poll!(&mut second).is_pending());
    // One that is dropped leaves the others waiting.
    assert_eq!(store.inbox_grows(&key, 1).now_or_never(), None);
    assert_eq!(store.put_inbox(&key, item("i2", "t2")).await, Ok(InboxPut::Accepted));
    assert_eq!(second.await, Ok(()));
}
