//! Whether a journal keeps what every journal promises: each invariant is looked at, record by record, and what breaks one is
//! named with the record's number. Reads alone: no lease, no harness, and nothing is changed (M1).
//!
//! What is checked stands in [`Invariant`]; how, in `promises` and `audit`, which know no store. This part only reads, and
//! goes on behind what cannot be read.

mod audit;
mod promises;
#[cfg(test)]
mod tests;

use wharf_core::{Error, Record, Seq};
use wharf_store::{JournalKey, Store, StoreError, StoredRecord};

use crate::limits;
use audit::{Audit, Output};

/// What holds in every sound journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// The store can read what it keeps.
    Readable,
    /// Positions run from 1 without a gap, up to where the journal says that it ends.
    Position,
    /// No two records have one id.
    RecordId,
    /// Fences never go back (N4).
    Fence,
    /// Each record has a form that is known (B11).
    Form,
    /// The output that a record names is there and is the one that was named.
    Output,
    /// A call is registered once in its session (B13).
    CallOnce,
    /// A call starts after its acceptance, and never after a refusal (design promise 1).
    AcceptedFirst,
    /// A call that must not run again is started at most once (design promise 2).
    NeverTwice,
    /// Each run of a keyed call has the key of its acceptance, and no other call has that key (L56).
    OneKey,
    /// An approval is used once, by the start of a call that was held for it (X16, L67).
    ApprovalOnce,
    /// A call is settled once (E3).
    SettledOnce,
    /// A call gets at most one output (design promise 6).
    OneOutput,
    /// An item of the inbox is consumed once (M8).
    InboxOnce,
    /// Each record fits the state that those before it fold into (B11).
    Fold,
    /// The calls of a turn agree with each other and are valid (G2, G11).
    Checkpoint,
    /// A snapshot says what the records up to it say.
    Snapshot,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Readable,
        Self::Position,
        Self::RecordId,
        Self::Fence,
        Self::Form,
        Self::Output,
        Self::CallOnce,
        Self::AcceptedFirst,
        Self::NeverTwice,
        Self::OneKey,
        Self::ApprovalOnce,
        Self::SettledOnce,
        Self::OneOutput,
        Self::InboxOnce,
        Self::Fold,
        Self::Checkpoint,
        Self::Snapshot,
    ];

    /// A word for it that programs can go by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Readable => "readable",
            Self::Position => "position",
            Self::RecordId => "record-id",
            Self::Fence => "fence",
            Self::Form => "form",
            Self::Output => "output",
            Self::CallOnce => "call-once",
            Self::AcceptedFirst => "accepted-first",
            Self::NeverTwice => "never-twice",
            Self::OneKey => "one-key",
            Self::ApprovalOnce => "approval-once",
            Self::SettledOnce => "settled-once",
            Self::OneOutput => "one-output",
            Self::InboxOnce => "inbox-once",
            Self::Fold => "fold",
            Self::Checkpoint => "checkpoint",
            Self::Snapshot => "snapshot",
        }
    }

    /// What to do where it is broken.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Output => {
                "only this output is harmed, and the session can go on without it; a backup of the store may have it"
            }
            Self::Readable
            | Self::Position
            | Self::RecordId
            | Self::Fence
            | Self::Form
            | Self::Fold
            | Self::Checkpoint
            | Self::Snapshot => "nothing was changed: keep a copy of the store, then put a backup in its place",
            Self::CallOnce
            | Self::AcceptedFirst
            | Self::NeverTwice
            | Self::OneKey
            | Self::ApprovalOnce
            | Self::SettledOnce
            | Self::OneOutput
            | Self::InboxOnce => {
                "nothing was changed: look at what these calls did outside, and keep a copy of the store"
            }
        }
    }
}

/// One place where a journal breaks an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The record's position; where none is there, the one that it should have.
    pub seq: Seq,
    /// The record's kind, if it can be read.
    pub kind: Option<String>,
    /// What is broken.
    pub invariant: Invariant,
    /// What is wrong: lower case, no full stop.
    pub what: String,
    /// What to do about this one, where that is more than [`Invariant::hint`] says.
    pub advice: Option<String>,
}

impl Breach {
    /// What to do about it.
    pub fn hint(&self) -> &str {
        self.advice.as_deref().unwrap_or_else(|| self.invariant.hint())
    }

    /// As an error of a session, with its hint.
    pub fn to_error(&self, key: &JournalKey) -> Error {
        let kind = self.kind.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
        let (seq, session) = (self.seq, key.session.as_str());
        Error::corruption(format!("record {seq}{kind} of session {session:?}: {}", self.what)).hint(self.hint())
    }
}

/// What was found in one journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// How many records were read.
    pub records: u64,
    /// How many outputs in blobs were read.
    pub blobs: u64,
    /// What is broken, in the order of the records; at most [`limits::BREACHES_MAX`]. What depends on a record that is broken
    /// is not checked behind it, as everything would look broken then.
    pub breaches: Vec<Breach>,
    /// False if records at the end were not looked at: there were too many breaches, or nothing could be read any more.
    pub to_the_end: bool,
}

impl Findings {
    /// The first breach, if any.
    pub fn first(&self) -> Option<&Breach> {
        self.breaches.first()
    }
}

/// Checks one journal. `progress` hears of each page of records: the position reached.
///
/// # Errors
/// Where nothing can be said of the journal: a store that fails or is of a newer version, a record of a newer version, a
/// session that was deleted. What is wrong with the journal itself is among the findings.
pub async fn verify(
    store: &dyn Store,
    key: &JournalKey,
    progress: &mut (dyn FnMut(Seq) + Send),
) -> Result<Findings, Error> {
    let mut audit = Audit::new(read_snapshot(store, key).await?);
    let mut after = Seq(0);
    let mut limit = limits::RECORDS_PAGE;
    let mut unreadable = 0;
    while !audit.is_full() {
        match next(store, key, after, limit).await {
            Ok(Next::Records(page)) => {
                if unreadable > 0 {
                    (unreadable, limit) = (0, limits::RECORDS_PAGE);
                }
                for stored in page {
                    let output = read_output(store, key, &stored).await?;
                    // A store that repeats itself must not keep us for ever.
                    after = after.next().max(stored.seq);
                    audit.record(&stored, output)?;
                }
                progress(after);
            }
            Ok(Next::End(head)) => return Ok(audit.end(after, head)),
            // One by one, to find out which it is.
            Err(StoreError::Corrupt { .. }) if limit > 1 => limit = 1,
            Err(StoreError::Corrupt { why, place: _ }) => {
                if unreadable == 0 {
                    audit.unreadable(after.next(), format!("it cannot be read: {why}"));
                }
                unreadable += 1;
                if unreadable > limits::UNREADABLE_IN_A_ROW_MAX {
                    break;
                }
                after = after.next();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(audit.cut_short())
}

/// The newest snapshot. Where something behind it cannot be read there is none to be had, and that is told anyway.
async fn read_snapshot(store: &dyn Store, key: &JournalKey) -> Result<Option<(Seq, String)>, StoreError> {
    match store.load(key, Seq(0)).await {
        Ok(loaded) => Ok(loaded.snapshot),
        Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

enum Next {
    Records(Vec<StoredRecord>),
    /// There are no more, and the journal says that it ends here.
    End(Seq),
}

async fn next(store: &dyn Store, key: &JournalKey, after: Seq, limit: usize) -> Result<Next, StoreError> {
    let page = store.history(key, after, limit).await?;
    if !page.is_empty() {
        return Ok(Next::Records(page));
    }
    // Whether there should be more, only loading tells; meanwhile an owner may have added some.
    let loaded = store.load(key, after).await?;
    Ok(if loaded.records.is_empty() { Next::End(loaded.head) } else { Next::Records(loaded.records) })
}

/// The output that a record names. A store that cannot say now is an error: nobody may take it for damage.
async fn read_output(store: &dyn Store, key: &JournalKey, stored: &StoredRecord) -> Result<Output, StoreError> {
    let Some(digest) = Record::named_blob(&stored.record.kind, &stored.record.body) else { return Ok(Output::Inline) };
    match store.blob(key, &digest).await {
        Ok(Some(bytes)) => Ok(Output::Blob(digest, bytes)),
        Ok(None) => Ok(Output::Broken(format!("the output {digest} that it names is missing"))),
        Err(StoreError::Corrupt { place, why }) => Ok(Output::Broken(format!("{place} is damaged: {why}"))),
        Err(error) => Err(error),
    }
}
