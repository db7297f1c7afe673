//! The statements that every store keeps, as functions to run against any of them (N7).
//!
//! It knows a store by its trait alone, and time only as far as the [`Fixture`] moves it. A store that passes keeps what the
//! rest of the host relies on: records in order, one owner at a time, all of an append or nothing, an inbox that never
//! needs the owner's right.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! use wharf_store::conformance::{Fixture, suite};
//! use wharf_store::{MemoryStore, Store};
//!
//! struct Mine {
//!     now: Arc<Mutex<Duration>>,
//!     store: MemoryStore,
//! }
//!
//! impl Fixture for Mine {
//!     fn store(&self) -> &dyn Store {
//!         &self.store
//!     }
//!     fn advance(&self, by: Duration) {
//!         *self.now.lock().unwrap() += by;
//!     }
//!     fn reopen(&mut self) {
//!         self.store.crash();
//!     }
//! }
//!
//! futures::executor::block_on(suite(|| {
//!     let now = Arc::new(Mutex::new(Duration::ZERO));
//!     let clock = Arc::clone(&now);
//!     Mine { store: MemoryStore::with_clock(Arc::new(move || *clock.lock().unwrap())), now }
//! }));
//! ```

mod claims;
mod inbox;
mod journal;
mod leases;
mod removal;

use std::time::Duration;

use wharf_core::{Fence, InboxId, RecordId, Seq};

pub use claims::*;
pub use inbox::*;
pub use journal::*;
pub use leases::*;
pub use removal::*;

use crate::{Acquire, Append, InboxItem, JournalKey, Lease, NewRecord, Owner, Store, StoreError, StoredRecord};

/// A store under test: empty when made, with a clock that the suite moves.
pub trait Fixture {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// Moves the clock by which the store judges leases. It stands still otherwise.
    fn advance(&self, by: Duration);

    /// Ends the process that has the store open, as far as the store can tell, and opens it again: what was reported as
    /// done is there, what was kept in memory is not.
    fn reopen(&mut self);
}

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Runs every statement, each with a fresh store. Needs no particular executor.
        ///
        /// # Panics
        ///
        /// With the difference, if the store does not keep one. Run that function by itself to look closer.
        pub async fn suite<F: Fixture>(make: impl Fn() -> F) {
            $(
                tracing::debug!(statement = stringify!($name), "trying");
                $name(&mut make()).await;
            )*
        }
    };
}

statements![
    absent_journal_is_empty,
    live_owner_keeps_others_out,
    live_token_gets_the_same_fence_again,
    expired_lease_is_free_and_the_fence_grows,
    takeover_fences_the_old_owner_at_once,
    others_cannot_renew_append_or_release,
    nothing_works_after_expiry,
    renewing_and_appending_make_the_lease_whole_again,
    release_frees_at_once_and_keeps_everything,
    fence_never_repeats,
    stale_sequence_is_refused,
    one_of_two_appends_at_once_wins,
    refused_append_leaves_nothing,
    appended_records_are_loaded_by_anyone,
    reading_changes_nothing,
    finished_session_goes_on_after_reopening,
    snapshot_bounds_loading_and_hides_nothing,
    blobs_are_kept_with_their_journal,
    keys_do_not_see_each_other,
    oversize_is_refused_one_past_the_cap,
    sessions_come_newest_first,
    inbox_needs_no_lease_and_changes_no_state,
    first_item_on_a_target_wins_for_ever,
    item_is_consumed_with_its_record_or_not_at_all,
    full_inbox_refuses,
    growing_inbox_wakes_who_waits,
    deleted_session_is_gone_and_says_so,
    others_cannot_delete_or_sweep,
    empty_session_is_deleted_too,
    deletion_ends_the_wait_for_an_inbox,
    sweep_removes_what_is_not_named,
    sweep_with_another_head_is_refused,
];

const TTL: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(1);

fn key(session: &str) -> JournalKey {
    JournalKey::local(session)
}

fn owner(token: &str) -> Owner {
    Owner { token: token.to_owned(), label: format!("{token} of the suite") }
}

fn record(id: &str) -> NewRecord {
    NewRecord {
        id: RecordId::new(id),
        kind: "note".to_owned(),
        version: 3,
        at_ms: 1_700_000_000_000,
        body: format!(r#"{{"text":"of {id}, with a quote ' and \u0000 and ü"}}"#),
    }
}

fn records(expected: Seq, ids: &[&str]) -> Append {
    Append { expected, records: ids.iter().map(|id| record(id)).collect(), ..Append::default() }
}

/// As [`records`] would stand in the journal if appended under this fence.
fn stored(expected: Seq, fence: Fence, ids: &[&str]) -> Vec<StoredRecord> {
    let seqs = std::iter::successors(Some(expected.next()), |seq| Some(seq.next()));
    ids.iter().zip(seqs).map(|(id, seq)| StoredRecord { seq, fence, record: record(id) }).collect()
}

fn item(id: &str, target: &str) -> InboxItem {
    InboxItem {
        id: InboxId::new(id),
        target: target.to_owned(),
        kind: "decision".to_owned(),
        who: "the suite".to_owned(),
        at_ms: 1_700_000_000_001,
        digest: "sha256:1234".to_owned(),
        body: format!(r#"{{"item":{id:?}}}"#),
    }
}

fn fenced<T>(session: &str) -> Result<T, StoreError> {
    Err(StoreError::Fenced { session: session.to_owned() })
}

fn stale<T>(session: &str, expected: u64, found: u64) -> Result<T, StoreError> {
    Err(StoreError::Stale { session: session.to_owned(), expected: Seq(expected), found: Seq(found) })
}

async fn take(store: &dyn Store, key: &JournalKey, token: &str) -> Lease {
    #[expect(clippy::expect_used, reason = "a suite reports by panicking")]
    store.acquire(key, &owner(token), TTL, Acquire::IfFree).await.expect("a free session is acquired")
}
