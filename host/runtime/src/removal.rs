//! Deleting sessions as a whole, at an operator's word or because they are older than a setting, and collecting the outputs
//! that no record names (design promise 5 and section 8).
//!
//! A session is removed by one write of its store, so a crash anywhere leaves it whole or gone. Nothing is removed of which it
//! is not certain that it may be: a session with an owner or an open turn stays, and so does all of one whose records cannot
//! be read, as they may name what seems to be named by none.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use wharf_core::session::Session;
use wharf_core::{BlobDigest, Error, OrgId, Record, Seq};
use wharf_store::{Acquire, DeletionMark, JournalKey, Lease, Owner, Store, StoreError, Swept};

use crate::limits;
use crate::seams::Seams;

/// Who stands in the mark of a session that was deleted because of its age.
pub const RETENTION: &str = "retention";

/// Deletes a session: records, outputs, inbox, all of it. What stays is a mark that says who did it and when, and its name is
/// not used again. With [`Acquire::TakeOver`] it is taken from a process that has it, which stops at its next step.
///
/// # Errors
/// A config error if there is no such session; a store error where another process has it, or it was deleted before.
pub async fn delete(
    store: Arc<dyn Store>,
    seams: Arc<dyn Seams>,
    key: &JournalKey,
    who: &str,
    how: Acquire,
) -> Result<(), Error> {
    match store.history(key, Seq(0), 1).await {
        Ok(records) if records.is_empty() => {
            return Err(Error::config(format!("there is no session {:?}", key.session.as_str())));
        }
        // What cannot be read can be deleted.
        Ok(_) | Err(StoreError::Corrupt { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let held = match Held::take(store, seams, key, who, how).await {
        Err(error @ StoreError::Busy { .. }) => {
            return Err(Error::from(error).hint(
                "wait, or stop that process, or take the session from it: wharf session delete SESSION --take-over",
            ));
        }
        held => held?,
    };
    Ok(held.delete(who).await?)
}

/// What is to be collected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Order {
    /// Sessions without an open turn whose last record is older than this are deleted; none without it.
    pub keep: Option<Duration>,
    /// Only say which sessions would be deleted. Outputs that no record names are not counted then: only removing them tells.
    pub dry_run: bool,
    /// Who has the leases meanwhile: a word for people.
    pub label: String,
}

/// What was collected, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// How many sessions were looked at.
    pub sessions: u64,
    /// Sessions that were deleted because of their age.
    pub deleted: Vec<Removed>,
    /// What was removed of sessions that stay: outputs that no record names.
    pub swept: Swept,
    /// Sessions that were left alone, whatever their age.
    pub left: Vec<Left>,
}

/// A session that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Which.
    pub key: JournalKey,
    /// When its last record was appended, in milliseconds since 1970.
    pub last_ms: u64,
    /// How many records it had.
    pub records: u64,
    /// The outputs that its records named.
    pub blobs: Swept,
}

/// A session that was left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub key: JournalKey,
    /// Why.
    pub why: Why,
}

/// Why a session was left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// A process has it.
    InUse {
        /// Who, for people.
        owner: String,
    },
    /// It cannot be read, or the store failed.
    Failed(Error),
}

/// Goes through all sessions of an organisation: deletes those that are older than [`Order::keep`], by the wall clock of
/// `seams`, and removes of the others what no record names. What fails for one session stands in the answer and does not end
/// the rest. `progress` hears the number of sessions that were looked at, and of all.
///
/// # Errors
/// A store that cannot list its sessions.
pub async fn collect(
    store: Arc<dyn Store>,
    seams: Arc<dyn Seams>,
    org: &OrgId,
    order: &Order,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Collected, Error> {
    let sessions = store.sessions(org, limits::SESSIONS_AT_ONCE_MAX).await?;
    let all = sessions.len() as u64;
    let mut collected = Collected::default();
    for one in sessions {
        collected.sessions += 1;
        progress(collected.sessions, all);
        let found = match one.owner {
            Some((owner, _)) => Ok(Done::Left(Why::InUse { owner: owner.label })),
            None if order.dry_run => look(store.clone(), &*seams, &one.key, order).await,
            None => clear(store.clone(), seams.clone(), &one.key, order).await,
        };
        match found {
            Ok(Done::Deleted(removed)) => collected.deleted.push(removed),
            Ok(Done::Kept(swept)) => {
                collected.swept.blobs += swept.blobs;
                collected.swept.bytes += swept.bytes;
            }
            Ok(Done::Gone) => {}
            Ok(Done::Left(why)) => collected.left.push(Left { key: one.key, why }),
            Err(error) => collected.left.push(Left { key: one.key, why: Why::Failed(error) }),
        }
    }
    Ok(collected)
}

/// What became of one session.
enum Done {
    Deleted(Removed),
    Kept(Swept),
    /// Somebody else deleted it meanwhile.
    Gone,
    Left(Why),
}

/// What would become of a session. Takes no lease and changes nothing.
async fn look(store: Arc<dyn Store>, seams: &dyn Seams, key: &JournalKey, order: &Order) -> Result<Done, Error> {
    let survey = match survey(&*store, key, None).await {
        Err(Trouble::Store(StoreError::Deleted { .. })) => return Ok(Done::Gone),
        survey => survey?,
    };
    if survey.is_due(seams.wall_ms(), order.keep) {
        return Ok(Done::Deleted(survey.removed(&*store, key).await?));
    }
    Ok(Done::Kept(Swept::default()))
}

/// Deletes a session, or sweeps it. Judged under its lease, so that nothing comes in between.
async fn clear(store: Arc<dyn Store>, seams: Arc<dyn Seams>, key: &JournalKey, order: &Order) -> Result<Done, Error> {
    let mut held = match Held::take(store.clone(), seams.clone(), key, &order.label, Acquire::IfFree).await {
        Err(StoreError::Busy { owner, .. }) => return Ok(Done::Left(Why::InUse { owner })),
        Err(StoreError::Deleted { .. }) => return Ok(Done::Gone),
        held => held?,
    };
    let survey = match survey(&*store, key, Some(&mut held)).await {
        Ok(survey) => survey,
        Err(trouble) => {
            held.release_quietly().await;
            return Err(trouble.into());
        }
    };
    if survey.is_due(seams.wall_ms(), order.keep) {
        let removed = match survey.removed(&*store, key).await {
            Ok(removed) => removed,
            Err(error) => {
                held.release_quietly().await;
                return Err(error.into());
            }
        };
        held.delete(RETENTION).await?;
        return Ok(Done::Deleted(removed));
    }
    let swept = store.sweep(&held.lease, &survey.named).await;
    held.release_quietly().await;
    Ok(Done::Kept(swept?))
}

/// What all records of a session say of its removal.
#[derive(Default)]
struct Survey {
    records: u64,
    last_ms: u64,
    is_open: bool,
    named: BTreeSet<BlobDigest>,
}

impl Survey {
    /// True if nothing is going on in it and its last record is older than this. Without records nobody can tell its age.
    fn is_due(&self, now_ms: u64, keep: Option<Duration>) -> bool {
        let age = Duration::from_millis(now_ms.saturating_sub(self.last_ms)); // a clock that was set back makes nothing old
        self.records > 0 && !self.is_open && keep.is_some_and(|keep| age > keep)
    }

    async fn removed(&self, store: &dyn Store, key: &JournalKey) -> Result<Removed, StoreError> {
        let mut sizes = Vec::with_capacity(self.named.len());
        for digest in &self.named {
            match store.blob(key, digest).await {
                Ok(bytes) => sizes.extend(bytes.map(|bytes| bytes.len())),
                Err(StoreError::Corrupt { .. }) => sizes.push(0), // it is there, and nobody knows how much of it
                Err(error) => return Err(error),
            }
        }
        Ok(Removed { key: key.clone(), last_ms: self.last_ms, records: self.records, blobs: Swept::of(sizes) })
    }
}

/// Reads all records. One that is not understood is an error: it may name an output, or open a turn.
async fn survey(store: &dyn Store, key: &JournalKey, mut held: Option<&mut Held>) -> Result<Survey, Trouble> {
    let mut survey = Survey::default();
    let mut fold = Session::default();
    let mut after = Seq(0);
    loop {
        if let Some(held) = &mut held {
            held.renew_if_due().await?;
        }
        let page = store.history(key, after, limits::RECORDS_PAGE).await?;
        let Some(last) = page.last() else { break };
        (after, survey.last_ms) = (last.seq, last.record.at_ms);
        survey.records += page.len() as u64;
        for stored in page {
            let record = &stored.record;
            survey.named.extend(Record::named_blob(&record.kind, &record.body));
            // What an output says changes nothing here, so it is not read.
            Record::decode(&record.kind, record.version, &record.body, |_| None)
                .and_then(|record| fold.apply(&record))
                .map_err(|error| Error { message: format!("record {}: {}", stored.seq, error.message), ..error })?;
        }
    }
    // Only loading tells whether there should be more. Of a session that nobody holds there may be more by now.
    let head = store.load(key, after).await?.head;
    if held.is_some() && head != after {
        return Err(Error::corruption(format!("its records end at {after}, and it should have {head}")).into());
    }
    survey.is_open = fold.open_turn().is_some();
    Ok(survey)
}

/// Why a session could not be read.
enum Trouble {
    Store(StoreError),
    Other(Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Store(error) => error.into(),
            Trouble::Other(error) => error,
        }
    }
}

/// A lease, held while a session is looked through.
struct Held {
    store: Arc<dyn Store>,
    seams: Arc<dyn Seams>,
    lease: Lease,
    renewed: Duration,
}

impl Held {
    async fn take(
        store: Arc<dyn Store>,
        seams: Arc<dyn Seams>,
        key: &JournalKey,
        label: &str,
        how: Acquire,
    ) -> Result<Self, StoreError> {
        let owner = Owner { token: seams.fresh(), label: label.to_owned() };
        let renewed = seams.now();
        let lease = store.acquire(key, &owner, limits::LEASE_TTL, how).await?;
        Ok(Self { store, seams, lease, renewed })
    }

    async fn renew_if_due(&mut self) -> Result<(), StoreError> {
        let now = self.seams.now();
        if now.saturating_sub(self.renewed) >= limits::RENEW_EVERY {
            self.store.renew(&self.lease).await?;
            self.renewed = now;
        }
        Ok(())
    }

    /// Deletes the session, and gives the lease up where that fails.
    async fn delete(self, who: &str) -> Result<(), StoreError> {
        let mark = DeletionMark { who: who.to_owned(), at_ms: self.seams.wall_ms() };
        match self.store.delete(&self.lease, mark.clone()).await {
            Ok(()) => Ok(()),
            Err(StoreError::Unknown { .. }) if self.is_marked(&mark).await => Ok(()),
            Err(error) => {
                self.release_quietly().await;
                Err(error)
            }
        }
    }

    /// Whether a deletion whose answer was lost has happened (L63).
    async fn is_marked(&self, mark: &DeletionMark) -> bool {
        let found = self.store.history(&self.lease.key, Seq(0), 1).await;
        found.is_err_and(|error| error == mark.refusal(&self.lease.key))
    }

    /// A lease that stays ends by itself.
    async fn release_quietly(&self) {
        if let Err(error) = self.store.release(&self.lease).await {
            tracing::debug!(%error, "a lease was not released");
        }
    }
}
