//! What can go wrong in a store, typed.

use std::time::Duration;

use wharf_core::{Error, ErrorKind, InboxId, Seq};

use crate::limits::INBOX_ITEMS_MAX;

/// A store's refusal or failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another live owner has the session.
    #[error("session {session:?} is in use by {owner} for at least {} s more", left.as_secs())]
    Busy {
        /// Which session.
        session: String,
        /// Who has it.
        owner: String,
        /// Until its lease ends.
        left: Duration,
    },
    /// The lease is not the caller's any more: it expired, or somebody took over (N3).
    #[error("fenced: the lease of session {session:?} is no longer ours")]
    Fenced {
        /// Which session.
        session: String,
    },
    /// The session was deleted, and with it all that it held. Its name is not used again.
    #[error("session {session:?} was deleted by {who}")]
    Deleted {
        /// Which session.
        session: String,
        /// Who deleted it.
        who: String,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The journal has another head than the caller expected (N4).
    #[error("stale: expected the journal of session {session:?} to end at record {expected}, it ends at {found}")]
    Stale {
        /// Which session.
        session: String,
        /// What the caller knew.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// What is stored cannot be read.
    #[error("{place} is damaged: {why}")]
    Corrupt {
        /// Which file, table or record.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// What is stored was written by a newer version.
    #[error("{place} has form {found}; this version reads up to {known}")]
    Newer {
        /// Which file.
        place: String,
        /// The form found.
        found: u64,
        /// The newest form that this version reads.
        known: u64,
    },
    /// Something is over its cap.
    #[error("{what} has {size} bytes, over the limit of {limit}")]
    TooLarge {
        /// What.
        what: String,
        /// Its size in bytes.
        size: usize,
        /// The cap.
        limit: usize,
    },
    /// The store failed before anything was changed.
    #[error("{what} failed: {why}")]
    Io {
        /// The operation.
        what: String,
        /// What the system said.
        why: String,
        /// True if the same operation may work later (busy, no space); false for a missing file or wrong rights.
        transient: bool,
    },
    /// The store failed and the change may or may not be there (L63).
    #[error("{what} failed and may or may not have happened: {why}")]
    Unknown {
        /// The operation.
        what: String,
        /// What the system said.
        why: String,
    },
}

impl StoreError {
    /// An append names an inbox item that is not there, or is consumed already. Every store refuses it.
    pub fn not_waiting(id: &InboxId) -> Self {
        Self::Io {
            what: format!("consuming inbox item {id}"),
            why: "no such item waits in this inbox".to_owned(),
            transient: false,
        }
    }

    /// An inbox holds as many items as it may.
    pub fn inbox_full() -> Self {
        Self::Io {
            what: "putting an item into the inbox".to_owned(),
            why: format!("{INBOX_ITEMS_MAX} items wait in it already"),
            transient: true,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let hint = match &error {
            StoreError::Busy { .. } => Some(
                "wait, or stop that process, or take the session from it: wharf session resume SESSION --take-over"
                    .to_owned(),
            ),
            StoreError::Fenced { .. } => {
                Some("another process owns the session now; look at it with `wharf session show`".to_owned())
            }
            StoreError::Deleted { .. } => {
                Some("the name of a deleted session cannot be used again; use another one".to_owned())
            }
            StoreError::Newer { .. } => Some("use the newer wharf that wrote it".to_owned()),
            StoreError::Io { transient: true, .. } => Some(
                "make room on the disk, or wait until the store can be reached and nothing holds it up any more; then resume the session".to_owned(),
            ),
            StoreError::Io { transient: false, .. } => Some(
                "see that the store's folder and files are there and may be written to; then resume the session"
                    .to_owned(),
            ),
            StoreError::Unknown { .. } => Some("see that the disk works, then resume the session".to_owned()),
            StoreError::Stale { .. } | StoreError::Corrupt { .. } | StoreError::TooLarge { .. } => None,
        };
        let kind = match &error {
            StoreError::Corrupt { .. } => ErrorKind::Corruption,
            StoreError::Busy { .. }
            | StoreError::Fenced { .. }
            | StoreError::Deleted { .. }
            | StoreError::Stale { .. }
            | StoreError::Newer { .. }
            | StoreError::TooLarge { .. }
            | StoreError::Io { .. }
            | StoreError::Unknown { .. } => ErrorKind::Store,
        };
        Error { kind, message: error.to_string(), hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_that_somebody_can_mend_says_how() {
        let told = |error: StoreError| {
            let Error { kind, message, hint } = error.into();
            (kind, message, hint.unwrap_or_default())
        };
        let is = |kind, message: &str, hint: &str| (kind, message.to_owned(), hint.to_owned());
        let io = |transient| StoreError::Io { what: "appending".to_owned(), why: "said so".to_owned(), transient };
        assert_eq!(
            told(io(true)),
            is(
                ErrorKind::Store,
                "appending failed: said so",
                "make room on the disk, or wait until the store can be reached and nothing holds it up any more; then resume the session"
            )
        );
        assert_eq!(
            told(io(false)),
            is(
                ErrorKind::Store,
                "appending failed: said so",
                "see that the store's folder and files are there and may be written to; then resume the session"
            )
        );
        assert_eq!(
            told(StoreError::Unknown { what: "appending".to_owned(), why: "said so".to_owned() }),
            is(
                ErrorKind::Store,
                "appending failed and may or may not have happened: said so",
                "see that the disk works, then resume the session"
            )
        );
        assert_eq!(
            told(StoreError::Deleted { session: "s".to_owned(), who: "ann".to_owned(), at_ms: 9 }),
            is(
                ErrorKind::Store,
                "session \"s\" was deleted by ann",
                "the name of a deleted session cannot be used again; use another one"
            )
        );
        assert_eq!(
            told(StoreError::Corrupt { place: "wharf.db".to_owned(), why: "torn".to_owned() }),
            is(ErrorKind::Corruption, "wharf.db is damaged: torn", "")
        );
    }
}
