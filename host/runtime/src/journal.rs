//! One session's journal as its owner sees it: records in, durable when the call returns. Retries inside the lease, finds
//! out by reading back what became of an append whose answer was lost, and stops before the lease ends (L63).

use std::sync::Arc;
use std::time::Duration;

use wharf_core::{Error, Record, RecordId, Seq};
use wharf_store::{Acquire, Append, JournalKey, Lease, NewRecord, Owner, Store, StoreError, StoredRecord};

use crate::limits;
use crate::seams::Seams;

/// The journal of a session, with the right to append.
pub(crate) struct Journal {
    store: Arc<dyn Store>,
    seams: Arc<dyn Seams>,
    lease: Lease,
    head: Seq,
    /// When the lease was last known to be whole, by our own clock, taken before the store was asked.
    renewed: Duration,
}

impl Journal {
    /// Takes the lease and reads everything.
    pub(crate) async fn open(
        store: Arc<dyn Store>, seams: Arc<dyn Seams>, key: &JournalKey, label: &str, how: Acquire,
    ) -> Result<(Self, Vec<Record>), Error> {
        let owner = Owner { token: seams.fresh(), label: label.to_owned() };
        let renewed = seams.now();
        let lease = store.acquire(key, &owner, limits::LEASE_TTL, how).await?;
        let mut journal = Self { store, seams, lease, head: Seq(0), renewed };
        match journal.read().await {
            Ok(records) => Ok((journal, records)),
            Err(error) => {
                journal.release_quietly().await;
                Err(error)
            }
        }
    }

    async fn read(&mut self) -> Result<Vec<Record>, Error> {
        let loaded = self.store.load(&self.lease.key, Seq(0)).await?;
        let records = decode(&*self.store, &self.lease.key, &loaded.records).await?;
        self.head = loaded.head;
        Ok(records)
    }

    /// Makes records durable, and answers the position of the last one.
    pub(crate) async fn append(&mut self, records: &[Record]) -> Result<Seq, Error> {
        let at_ms = self.seams.wall_ms();
        let mut append = Append { expected: self.head, ..Append::default() };
        for record in records {
            let encoded = record.encode();
            append.blobs.extend(encoded.blob);
            append.records.push(NewRecord {
                id: RecordId::new(self.seams.fresh()),
                kind: encoded.kind.to_owned(),
                version: encoded.version,
                at_ms,
                body: encoded.body,
            });
        }
        let asked = self.seams.now();
        let mut wait = limits::RETRY_FIRST;
        loop {
            self.check_alive()?;
            match self.store.append(&self.lease, append.clone()).await {
                Ok(head) => {
                    self.head = head;
                    self.renewed = asked;
                    return Ok(head);
                }
                Err(error @ (StoreError::Unknown { .. } | StoreError::Stale { .. })) => {
                    if self.is_there(&append).await? {
                        self.renewed = asked;
                        return Ok(self.head);
                    }
                    if matches!(error, StoreError::Stale { .. }) {
                        return Err(error.into());
                    }
                    tracing::warn!(%error, "an append has to be tried again");
                }
                Err(error @ StoreError::Io { transient: true, .. }) if self.may_wait(wait) => {
                    tracing::warn!(%error, "an append has to be tried again");
                }
                Err(error) => return Err(error.into()),
            }
            self.seams.sleep(wait).await;
            wait = (wait * 2).min(limits::RETRY_MAX);
        }
    }

    /// Whether an append whose answer was lost is there: the records behind our head are ours, by their ids.
    async fn is_there(&mut self, append: &Append) -> Result<bool, Error> {
        let loaded = match self.store.load(&self.lease.key, self.head).await {
            Ok(loaded) => loaded,
            Err(StoreError::Io { .. } | StoreError::Unknown { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let ours = loaded.records.len() == append.records.len()
            && loaded
                .records
                .iter()
                .zip(&append.records)
                .all(|(stored, new)| stored.record.id == new.id && stored.fence == self.lease.fence);
        if ours {
            self.head = loaded.head;
        }
        Ok(ours)
    }

    /// Time until the next renewal is due.
    pub(crate) fn renew_in(&self) -> Duration {
        (self.renewed + limits::RENEW_EVERY).saturating_sub(self.seams.now())
    }

    /// Makes the lease whole again.
    pub(crate) async fn renew(&mut self) -> Result<(), Error> {
        let mut wait = limits::RETRY_FIRST;
        loop {
            self.check_alive()?;
            let asked = self.seams.now();
            match self.store.renew(&self.lease).await {
                Ok(()) => {
                    self.renewed = asked;
                    return Ok(());
                }
                Err(error @ (StoreError::Io { transient: true, .. } | StoreError::Unknown { .. })) if self.may_wait(wait) => {
                    tracing::warn!(%error, "a renewal has to be tried again");
                }
                Err(error) => return Err(error.into()),
            }
            self.seams.sleep(wait).await;
            wait = (wait * 2).min(limits::RETRY_MAX);
        }
    }

    /// The owner stops by its own clock before the lease ends by the store's.
    fn check_alive(&self) -> Result<(), Error> {
        if self.seams.now() >= self.stop_at() {
            return Err(Error::store(format!(
                "the lease of session {:?} could not be renewed in time, so this process stopped acting",
                self.lease.key.session.as_str()
            ))
            .hint("mend the store, then resume the session"));
        }
        Ok(())
    }

    fn may_wait(&self, wait: Duration) -> bool {
        self.seams.now() + wait < self.stop_at()
    }

    /// When a third of the lease is left.
    fn stop_at(&self) -> Duration {
        self.renewed + self.lease.ttl * 2 / 3
    }

    /// Gives the lease up.
    pub(crate) async fn release(&mut self) -> Result<(), Error> {
        Ok(self.store.release(&self.lease).await?)
    }

    /// Gives the lease up where another error is already on its way; a lease that stays ends by itself.
    pub(crate) async fn release_quietly(&mut self) {
        if let Err(error) = self.store.release(&self.lease).await {
            tracing::debug!(%error, "a lease was not released");
        }
    }
}

/// Reads stored records. A blob that cannot be had harms its own output alone.
pub(crate) async fn decode(store: &dyn Store, key: &JournalKey, stored: &[StoredRecord]) -> Result<Vec<Record>, Error> {
    let mut records = Vec::with_capacity(stored.len());
    for StoredRecord { seq, record, .. } in stored {
        let blob = match Record::named_blob(&record.kind, &record.body) {
            Some(digest) => match store.blob(key, &digest).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    tracing::warn!(%seq, %error, "an output cannot be read");
                    None
                }
            },
            None => None,
        };
        let record = Record::decode(&record.kind, record.version, &record.body, |_| blob).map_err(|e| {
            let session = key.session.as_str();
            Error { message: format!("record {seq} of session {session:?}: {}", e.message), ..e }
        })?;
        records.push(record);
    }
    Ok(records)
}
