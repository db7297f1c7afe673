//! Journals, leases and inboxes behind one small trait.
//!
//! A store keeps records in order and refuses what a stale owner sends (design promise 4). It never looks into a record:
//! what they mean is decided in `wharf-core`. Every store passes [`conformance`]'s suite (N7).

pub mod conformance;
mod error;
mod fault;
pub mod limits;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sums;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use wharf_core::{BlobDigest, Fence, InboxId, OrgId, RecordId, Seq, SessionId};

pub use error::StoreError;
pub use fault::{Fault, FaultAction, FaultPoint, Stage, Write};
pub use memory::{Clock, MemoryStore};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresHealth, PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStats, SqliteStore};

/// What a store answers with.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Names one journal: one lease and one sequence each (N1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JournalKey {
    /// Whose it is. Keys of different organisations do not see each other.
    pub org: OrgId,
    /// Which conversation.
    pub session: SessionId,
}

impl JournalKey {
    /// The key of a session of the organisation `local`.
    pub fn local(session: impl Into<SessionId>) -> Self {
        Self { org: OrgId::local(), session: session.into() }
    }
}

/// Who holds a lease: a token that is fresh for each acquisition, and a word for people that says where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Fresh for each acquisition (N6).
    pub token: String,
    /// For messages, for example `host-1 pid 4711`. Decides nothing.
    pub label: String,
}

/// Whether a live owner stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquire {
    /// Another live owner is an error (N2).
    IfFree,
    /// Another owner is replaced, live or not; it finds out at its next append (M2).
    TakeOver,
}

/// The right to append to one journal, until `left` has passed since it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which journal.
    pub key: JournalKey,
    /// Whose.
    pub owner: Owner,
    /// Grows with each change of the owner.
    pub fence: Fence,
    /// The last record's position when the lease was granted.
    pub head: Seq,
    /// How long it lasts unless renewed.
    pub ttl: Duration,
}

/// A record to be appended. The store does not look into the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// Fresh for each record.
    pub id: RecordId,
    /// What kind of record it is.
    pub kind: String,
    /// Version of that kind's form.
    pub version: u16,
    /// When, in milliseconds since 1970 by the host's wall clock; decides nothing.
    pub at_ms: u64,
    /// JSON text.
    pub body: String,
}

/// A record as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its position.
    pub seq: Seq,
    /// The fence under which it was appended.
    pub fence: Fence,
    /// The record.
    pub record: NewRecord,
}

/// What one append makes durable, all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Append {
    /// The head that the caller knows; another one in the store is [`StoreError::Stale`] (N4).
    pub expected: Seq,
    /// New records, in order.
    pub records: Vec<NewRecord>,
    /// Blobs that the records name; durable before them.
    pub blobs: Vec<(BlobDigest, Vec<u8>)>,
    /// Inbox items that the records stand for; marked as consumed in the same transaction (M8).
    pub consumed: Vec<InboxId>,
    /// A snapshot of the fold at the new head, replacing an older one. Bounds what has to be read.
    pub snapshot: Option<String>,
    /// Who may go on with the session once nobody has it; `None` leaves that as it is.
    pub open: Option<Open>,
}

/// Who may go on with a session that nobody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Open {
    /// Nobody, until an inbox item comes: nothing is left to do, or it waits for an answer. An item opens it for the harness
    /// that was named last, if one ever was.
    No,
    /// A worker that runs the harness of this name.
    For(String),
}

impl Append {
    /// Refuses what is over its cap (N6). Every store calls this before it changes anything.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] for the first part that is over.
    pub fn check_bounds(&self) -> Result<(), StoreError> {
        for record in &self.records {
            check_size(|| format!("record {}", record.id), record.body.len(), limits::RECORD_BYTES_MAX)?;
        }
        for (digest, bytes) in &self.blobs {
            check_size(|| format!("blob {digest}"), bytes.len(), limits::BLOB_BYTES_MAX)?;
        }
        let snapshot = self.snapshot.as_ref().map_or(0, String::len);
        check_size(|| "the snapshot".to_owned(), snapshot, limits::RECORD_BYTES_MAX)
    }
}

fn check_size(what: impl FnOnce() -> String, size: usize, limit: usize) -> Result<(), StoreError> {
    if size > limit { Err(StoreError::TooLarge { what: what(), size, limit }) } else { Ok(()) }
}

/// What a journal holds from some position on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loaded {
    /// The newest snapshot and the position up to which it folds, if asked from the start and there is one.
    pub snapshot: Option<(Seq, String)>,
    /// The records after the snapshot, or after the position asked for.
    pub records: Vec<StoredRecord>,
    /// The last record's position.
    pub head: Seq,
}

/// Something that anyone with the right left for a session (M8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxItem {
    /// Unique; putting it twice is putting it once.
    pub id: InboxId,
    /// What it is about, for example a call id. The first item on a target wins.
    pub target: String,
    /// What it is: `decision`, `output`, `cancel`, `reconcile`.
    pub kind: String,
    /// Who left it.
    pub who: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Digest of what it decides on, so that it does not fit something else.
    pub digest: String,
    /// JSON text.
    pub body: String,
}

impl InboxItem {
    /// Refuses what is over its cap. Every store calls this before it changes anything.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`].
    pub fn check_bounds(&self) -> Result<(), StoreError> {
        let words = [self.id.as_str(), &self.target, &self.kind, &self.who, &self.digest, &self.body];
        let size = words.iter().map(|word| word.len()).sum();
        check_size(|| format!("inbox item {}", self.id), size, limits::INBOX_BYTES_MAX)
    }
}

/// What became of an item that was put into an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxPut {
    /// It waits there.
    Accepted,
    /// The same item was there already.
    Repeated,
    /// Another item on the same target came first; this one was not kept.
    TooLate,
}

/// One line of a list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// Which.
    pub key: JournalKey,
    /// Its last record's position.
    pub head: Seq,
    /// When its last record was appended, in milliseconds since 1970.
    pub updated_ms: u64,
    /// Who owns it now, if anybody does, and for how long yet.
    pub owner: Option<(Owner, Duration)>,
}

/// What stays of a session that an operator deleted, so that it is known that there was one and its name is not used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletionMark {
    /// Who deleted it.
    pub who: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl DeletionMark {
    /// What everybody is told who asks for the session that bears this mark.
    pub fn refusal(&self, key: &JournalKey) -> StoreError {
        StoreError::Deleted { session: key.session.to_string(), who: self.who.clone(), at_ms: self.at_ms }
    }
}

/// What a worker asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose sessions.
    pub org: OrgId,
    /// The harnesses that the worker runs, at most [`limits::CLAIM_NAMES_MAX`].
    pub harnesses: Vec<String>,
    /// Sessions that it does not want now, at most as many.
    pub skip: Vec<SessionId>,
    /// How long the lease lasts unless renewed.
    pub ttl: Duration,
}

impl Claim {
    /// Refuses what is over its cap. Every store calls this first.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`].
    pub fn check_bounds(&self) -> Result<(), StoreError> {
        let names = self.harnesses.len().max(self.skip.len());
        match names > limits::CLAIM_NAMES_MAX {
            true => Err(StoreError::Io {
                what: "claiming a session".to_owned(),
                why: format!("{names} names are more than {}", limits::CLAIM_NAMES_MAX),
                transient: false,
            }),
            false => Ok(()),
        }
    }
}

/// What a sweep removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// So many blobs, whole ones and such as an append left over that did not come to its end.
    pub blobs: u64,
    /// So many bytes of them.
    pub bytes: u64,
}

impl Swept {
    /// What the removal of blobs of these sizes, in bytes, comes to.
    pub fn of(sizes: impl IntoIterator<Item = usize>) -> Self {
        sizes
            .into_iter()
            .fold(Self::default(), |all, size| Self { blobs: all.blobs + 1, bytes: all.bytes + size as u64 })
    }
}

/// Journals with leases, fences and inboxes.
///
/// The methods take `&self` and may be called from many tasks. A future that is dropped may or may not have had its
/// effect, as after a crash. Of a session that was [deleted](Store::delete) everything but [`Store::sessions`] says
/// [`StoreError::Deleted`].
pub trait Store: Send + Sync + 'static {
    /// Takes the right to append. An absent journal is made, empty. The live owner's own token succeeds again with the same
    /// fence (N2). After expiry anyone may acquire; each change of the owner raises the fence (N6).
    fn acquire<'a>(
        &'a self,
        key: &'a JournalKey,
        owner: &'a Owner,
        ttl: Duration,
        how: Acquire,
    ) -> StoreFuture<'a, Lease>;

    /// Reads without a lease and changes nothing (M1). With `after` 0 it starts from the newest snapshot. An absent journal
    /// is empty (M3).
    fn load<'a>(&'a self, key: &'a JournalKey, after: Seq) -> StoreFuture<'a, Loaded>;

    /// Reads at most `limit` records after the given position, whether or not a snapshot folds them: for showing and
    /// exporting what happened.
    fn history<'a>(&'a self, key: &'a JournalKey, after: Seq, limit: usize) -> StoreFuture<'a, Vec<StoredRecord>>;

    /// Appends, durable before it returns (M4), renews the lease, and returns the new head. A stale sequence or fence is
    /// refused here, in the store itself (N4).
    fn append<'a>(&'a self, lease: &'a Lease, append: Append) -> StoreFuture<'a, Seq>;

    /// Makes the lease last for its whole time again. Fails after expiry, and for anyone but the owner (N3, N4).
    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()>;

    /// Ends ownership and keeps everything (N5).
    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()>;

    /// Removes all that the session holds - records, snapshot, blobs whole or left over, inbox, lease - and leaves the mark
    /// (design promise 5). Durable before it returns; after a crash the session is whole or gone. Only the owner may (N3),
    /// and there is nothing to release afterwards.
    fn delete<'a>(&'a self, lease: &'a Lease, mark: DeletionMark) -> StoreFuture<'a, ()>;

    /// Removes this session's blobs that `named` does not hold, and what appends that did not come to their end left over.
    /// The caller read `named` from all the records, as a store does not look into one. Fenced like an append, and renews
    /// the lease like one: [`Lease::head`] says up to where the caller read, and another head is [`StoreError::Stale`],
    /// because a record that came since may name what `named` does not.
    fn sweep<'a>(&'a self, lease: &'a Lease, named: &'a BTreeSet<BlobDigest>) -> StoreFuture<'a, Swept>;

    /// The newest sessions of an organisation, at most `limit`. Deleted ones are not among them.
    fn sessions<'a>(&'a self, org: &'a OrgId, limit: usize) -> StoreFuture<'a, Vec<SessionSummary>>;

    /// Reads a blob; `None` if it is missing.
    fn blob<'a>(&'a self, key: &'a JournalKey, digest: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>>;

    /// Leaves an item. Needs no lease and changes no state (M8).
    fn put_inbox<'a>(&'a self, key: &'a JournalKey, item: InboxItem) -> StoreFuture<'a, InboxPut>;

    /// Items that are not consumed yet, oldest first.
    fn inbox<'a>(&'a self, key: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>>;

    /// Waits until more than `seen` items are in the inbox, at once if they are; [`limits::INBOX_WAKE_MAX`] after an item
    /// was put, or the session deleted, by whatever process, this has resolved (M9). Dropping the future ends the wait.
    fn inbox_grows<'a>(&'a self, key: &'a JournalKey, seen: usize) -> StoreFuture<'a, ()>;

    /// Takes the lease of the session that has waited longest of those that are [open](Append::open) for one of these
    /// harnesses and that no live owner has; `None` if there is none. A session waits since it was released, since its lease
    /// ended, or since the item came that opened it. Of several that claim at once no two get the same one. A store that does
    /// not keep who may go on never has one.
    fn claim<'a>(&'a self, claim: &'a Claim, owner: &'a Owner) -> StoreFuture<'a, Option<Lease>> {
        let _ = owner;
        Box::pin(std::future::ready(claim.check_bounds().map(|()| None)))
    }

    /// Resolves when there may be something to [claim](Store::claim) that was not there when this was called. It need not
    /// know of everything, so ask again now and then.
    fn work_arrives<'a>(&'a self, org: &'a OrgId) -> StoreFuture<'a, ()> {
        let _ = org;
        Box::pin(std::future::pending())
    }
}
