//! Words for putting faults between the steps of a write, so that a simulation can stop the machine at each of them.
//!
//! It knows no store: one that can be stopped so asks its hook at each point.

use std::sync::Arc;

use crate::StoreError;

/// Decides at each point of each write what happens there. It is called with the store locked and must not use it.
pub type Fault = Arc<dyn Fn(FaultPoint) -> FaultAction + Send + Sync>;

/// Where a write stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultPoint {
    /// Which write.
    pub write: Write,
    /// How far it is.
    pub stage: Stage,
}

/// The kinds of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// [`crate::Store::acquire`].
    Acquire,
    /// [`crate::Store::append`].
    Append,
    /// [`crate::Store::renew`].
    Renew,
    /// [`crate::Store::release`].
    Release,
    /// [`crate::Store::put_inbox`].
    PutInbox,
    /// [`crate::Store::delete`].
    Delete,
    /// [`crate::Store::sweep`].
    Sweep,
    /// [`crate::Store::claim`].
    Claim,
}

impl Write {
    /// For messages.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn doing(self) -> &'static str {
        match self {
            Self::Acquire => "acquiring the session",
            Self::Append => "appending to the journal",
            Self::Renew => "renewing the lease",
            Self::Release => "releasing the session",
            Self::PutInbox => "putting an item into the inbox",
            Self::Delete => "deleting the session",
            Self::Sweep => "collecting blobs",
            Self::Claim => "claiming a session",
        }
    }
}

/// The points of a write at which it can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Nothing is changed yet.
    BeforeWrite,
    /// Written but not synced: a crash loses it.
    AfterWriteBeforeSync,
    /// Durable, but the caller does not know it yet.
    AfterSyncBeforeAnswer,
}

/// What happens at a [`FaultPoint`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultAction {
    /// Nothing special.
    Go,
    /// The write ends with this error. Not yet synced, it is undone; synced, it stays.
    Fail(StoreError),
    /// The machine stops here: this and every later operation fails until [`crate::MemoryStore::crash`] restarts it.
    Crash,
    /// The machine stops with part of the write on the disk. Records, and whatever else one transaction writes, are never
    /// torn: of the transaction that the stop meets nothing counts. But an append of large blobs writes these in transactions
    /// of their own before that of its records, and what such a one wrote stays. So at [`Stage::AfterWriteBeforeSync`] of an
    /// append the memory store keeps all blobs but the last, and a part of the last; and the embedded store keeps the pieces
    /// of the transaction at which it was asked, unless that is the one of the records. Everywhere else it is
    /// [`FaultAction::Crash`].
    Tear,
}
