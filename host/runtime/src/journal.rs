//! One session's journal as its owner sees it: records in, durable when the call returns. Retries inside the lease, finds
//! out by reading back what became of an append whose answer was lost, and stops before the lease ends (L63).

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use wharf_core::record::PauseReason;
use wharf_core::session::Session;
use wharf_core::{Error, InboxId, Record, RecordId, Seq};
use wharf_store::limits::RECORD_BYTES_MAX;
use wharf_store::{
    Acquire, Append, InboxItem, JournalKey, Lease, Loaded, NewRecord, Open, Owner, Store, StoreError, StoreFuture,
    StoredRecord,
};

use crate::limits;
use crate::seams::Seams;

/// The journal of a session, with the right to append.
pub(crate) struct Journal {
    store: Arc<dyn Store>,
    seams: Arc<dyn Seams>,
    lease: Lease,
    head: Seq,
    /// Bytes of records since the last snapshot, and that one's own.
    since_snapshot: usize,
    snapshot: usize,
    /// When the lease was last known to be whole, by our own clock, taken before the store was asked.
    renewed: Duration,
    /// What the store was told of who may go on once we let go; none before we told it anything.
    open: Option<Open>,
    /// A worker claimed the session, and so it counted as open.
    claimed: bool,
    /// Whatever the fold says, nobody goes on by themselves.
    hands_off: bool,
}

impl Journal {
    /// Takes the lease. Read before anything is appended: see [`Journal::read`].
    pub(crate) async fn acquire(
        store: Arc<dyn Store>,
        seams: Arc<dyn Seams>,
        key: &JournalKey,
        label: &str,
        how: Acquire,
    ) -> Result<Self, StoreError> {
        let owner = Owner { token: seams.fresh(), label: label.to_owned() };
        Self::acquire_as(store, seams, key, &owner, how).await
    }

    async fn acquire_as(
        store: Arc<dyn Store>,
        seams: Arc<dyn Seams>,
        key: &JournalKey,
        owner: &Owner,
        how: Acquire,
    ) -> Result<Self, StoreError> {
        let renewed = seams.now();
        let lease = store.acquire(key, owner, limits::LEASE_TTL, how).await?;
        Ok(Self {
            store,
            seams,
            lease,
            head: Seq(0),
            since_snapshot: 0,
            snapshot: 0,
            renewed,
            open: None,
            claimed: false,
            hands_off: false,
        })
    }

    /// Takes the lease and reads everything. `claimed` is under whose name the session was claimed, if it was.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        seams: Arc<dyn Seams>,
        key: &JournalKey,
        label: &str,
        claimed: Option<Owner>,
        how: Acquire,
    ) -> Result<(Self, Result<Session, Error>), Error> {
        let mut journal = match &claimed {
            Some(owner) => Self::acquire_as(store, seams, key, owner, how).await?,
            None => Self::acquire(store, seams, key, label, how).await?,
        };
        journal.claimed = claimed.is_some();
        let session = journal.read().await;
        Ok((journal, session))
    }

    /// The fold of what is there.
    pub(crate) async fn read(&mut self) -> Result<Session, Error> {
        let folded = fold(&*self.store, &self.lease.key).await?;
        self.head = folded.head;
        self.since_snapshot = folded.since_snapshot;
        self.snapshot = folded.snapshot;
        Ok(folded.session)
    }

    /// Makes records durable, and answers the position of the last one. `after` is the fold with these records in it: now and
    /// then a snapshot of it goes with them.
    pub(crate) async fn append(&mut self, records: &[Record], after: &Session) -> Result<Seq, Error> {
        let at_ms = self.seams.wall_ms();
        let mut append = Append { expected: self.head, ..Append::default() };
        for record in records {
            // Marked as consumed in the same transaction (M8).
            if let Record::InboxConsumed { id, .. } = record {
                append.consumed.push(InboxId::new(id));
            }
            let encoded = record.encode()?;
            self.since_snapshot += encoded.body.len();
            append.blobs.extend(encoded.blob);
            append.records.push(NewRecord {
                id: RecordId::new(self.seams.fresh()),
                kind: encoded.kind.to_owned(),
                version: encoded.version,
                at_ms,
                body: encoded.body,
            });
        }
        append.snapshot = self.snapshot(after);
        let open = self.who_may_go_on(after);
        // An item that is consumed now may have opened the session behind our back.
        if open != self.open || !append.consumed.is_empty() {
            append.open.clone_from(&open);
            self.open = open;
        }
        let first_asked = self.seams.now();
        let mut wait = limits::RETRY_FIRST;
        loop {
            let asked = self.seams.now();
            let store = self.store.clone();
            let lease = self.lease.clone();
            let error = match self.in_time(store.append(&lease, append.clone())).await? {
                Ok(head) => {
                    self.head = head;
                    self.renewed = asked;
                    return Ok(head);
                }
                Err(error @ (StoreError::Unknown { .. } | StoreError::Stale { .. })) => {
                    let stale = matches!(error, StoreError::Stale { .. });
                    match self.find(&append).await? {
                        Found::Ours => {
                            self.renewed = first_asked;
                            return Ok(self.head);
                        }
                        Found::NotOurs if stale => return Err(error.into()),
                        Found::NotOurs | Found::Unreadable => error,
                    }
                }
                Err(error @ StoreError::Io { transient: true, .. }) => error,
                Err(error) => return Err(error.into()),
            };
            wait = self.pause(wait, error).await?;
        }
    }

    /// A snapshot, if it is time for one. One that is too large is not kept, and not tried again soon.
    fn snapshot(&mut self, after: &Session) -> Option<String> {
        let due = limits::SNAPSHOT_AFTER_BYTES.max(self.snapshot.saturating_mul(limits::SNAPSHOT_AFTER_SIZES));
        if self.since_snapshot < due {
            return None;
        }
        let text = after.to_snapshot().inspect_err(|error| tracing::debug!(%error, "no snapshot is written")).ok()?;
        self.since_snapshot = 0;
        self.snapshot = text.len();
        (text.len() <= RECORD_BYTES_MAX).then_some(text)
    }

    /// Looks for an append whose answer was lost: the records behind our head are ours, by sequence, fence and record id.
    async fn find(&mut self, append: &Append) -> Result<Found, Error> {
        let store = self.store.clone();
        let lease = self.lease.clone();
        let loaded = match self.in_time(store.load(&lease.key, append.expected)).await? {
            Ok(loaded) => loaded,
            Err(StoreError::Io { transient: true, .. } | StoreError::Unknown { .. }) => return Ok(Found::Unreadable),
            Err(error) => return Err(error.into()),
        };
        let is_ours =
            |(stored, new): (&StoredRecord, &NewRecord)| stored.record.id == new.id && stored.fence == self.lease.fence;
        if loaded.records.len() != append.records.len() || !loaded.records.iter().zip(&append.records).all(is_ours) {
            return Ok(Found::NotOurs);
        }
        self.head = loaded.head;
        Ok(Found::Ours)
    }

    /// What waits in the session's inbox.
    pub(crate) async fn inbox(&self) -> Result<Vec<InboxItem>, Error> {
        Ok(self.in_time(self.store.inbox(&self.lease.key)).await??)
    }

    /// Ready once more than this many items wait there.
    pub(crate) fn inbox_grows(&self, seen: usize) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (store, key) = (self.store.clone(), self.lease.key.clone());
        async move { store.inbox_grows(&key, seen).await }
    }

    /// Time until the next renewal is due.
    pub(crate) fn renew_in(&self) -> Duration {
        (self.renewed + limits::RENEW_EVERY).saturating_sub(self.seams.now())
    }

    /// Makes the lease whole again.
    pub(crate) async fn renew(&mut self) -> Result<(), Error> {
        let mut wait = limits::RETRY_FIRST;
        loop {
            let asked = self.seams.now();
            let store = self.store.clone();
            let lease = self.lease.clone();
            let error = match self.in_time(store.renew(&lease)).await? {
                Ok(()) => {
                    self.renewed = asked;
                    return Ok(());
                }
                Err(error @ (StoreError::Io { transient: true, .. } | StoreError::Unknown { .. })) => error,
                Err(error) => return Err(error.into()),
            };
            wait = self.pause(wait, error).await?;
        }
    }

    /// Waits for the store, but not beyond the moment at which this owner has to stop by its own clock: when a third of the
    /// lease is left, or, for what is first asked later than that, when it ends.
    async fn in_time<T>(&self, work: StoreFuture<'_, T>) -> Result<Result<T, StoreError>, Error> {
        let now = self.seams.now();
        let end = self.renewed + self.lease.ttl;
        let until = if now < self.last_try() { self.last_try() } else { end };
        if now >= end {
            return Err(self.too_late());
        }
        match select(work, self.seams.sleep(until - now)).await {
            Either::Left((answer, _)) => Ok(answer),
            Either::Right(((), _)) => Err(self.too_late()),
        }
    }

    /// Waits before the next try, and answers how long to wait after that. The error, if a third of the lease is all that
    /// would be left then.
    async fn pause(&self, wait: Duration, error: StoreError) -> Result<Duration, Error> {
        if self.seams.now() + wait >= self.last_try() {
            return Err(error.into());
        }
        tracing::warn!(%error, "a write to the journal has to be tried again");
        self.seams.sleep(wait).await;
        Ok((wait * 2).min(limits::RETRY_MAX))
    }

    /// When a third of the lease is left.
    fn last_try(&self) -> Duration {
        self.renewed + self.lease.ttl * 2 / 3
    }

    fn too_late(&self) -> Error {
        Error::store(format!(
            "the lease of session {:?} could not be renewed in time, so this process stopped acting",
            self.lease.key.session.as_str()
        ))
        .hint("mend the store, then resume the session")
    }

    /// From now on nobody goes on with the session by themselves: a person stopped it, or has to act.
    pub(crate) fn hands_off(&mut self) {
        self.hands_off = true;
    }

    /// What the store should know. None for a session that was never bound to a harness.
    fn who_may_go_on(&self, session: &Session) -> Option<Open> {
        let harness = session.harness()?;
        let goes_on = session.open_turn().is_some_and(|turn| match turn.paused {
            None | Some(PauseReason::Shutdown) => true,
            Some(
                PauseReason::LostResponse { .. }
                | PauseReason::Held { .. }
                | PauseReason::Incomplete { .. }
                | PauseReason::UnknownTools { .. },
            ) => false,
        });
        Some(if goes_on && !self.hands_off { Open::For(harness.name.clone()) } else { Open::No })
    }

    /// Tells the store who may go on, where no record did: before the lease is given up. That it cannot be told costs a
    /// worker a look, so a failure is none of the caller's.
    pub(crate) async fn tell_who_may_go_on(&mut self, session: &Session) {
        let open = self.who_may_go_on(session);
        if open.is_none() || open == self.open || (self.open.is_none() && !self.claimed) {
            return;
        }
        let append = Append { expected: self.head, open, ..Append::default() };
        match self.in_time(self.store.append(&self.lease, append)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "who may go on was not told"),
            Err(error) => tracing::debug!(%error, "who may go on was not told"),
        }
    }

    /// Gives the lease up. What was done is durable by then, so a store that fails now changes nothing; a lease that stays
    /// ends by itself.
    pub(crate) async fn release_quietly(&mut self) {
        match select(self.store.release(&self.lease), self.seams.sleep(limits::RELEASE_WAIT)).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(error), _)) => tracing::debug!(%error, "a lease was not released"),
            Either::Right(((), _)) => tracing::debug!("a lease was not released in time"),
        }
    }
}

/// What reading back an append showed.
enum Found {
    /// It is there.
    Ours,
    /// It is not there, or somebody else's records are.
    NotOurs,
    /// The store cannot say now.
    Unreadable,
}

/// A journal as it was read.
pub(crate) struct Folded {
    pub(crate) session: Session,
    /// The last record's position.
    pub(crate) head: Seq,
    /// Bytes of records behind the snapshot that was read.
    since_snapshot: usize,
    /// Bytes of that snapshot.
    snapshot: usize,
}

/// Folds a journal from its newest snapshot on, or from its first record where there is none that this version reads.
pub(crate) async fn fold(store: &dyn Store, key: &JournalKey) -> Result<Folded, Error> {
    let loaded = store.load(key, Seq(0)).await?;
    let Some((seq, text)) = &loaded.snapshot else { return fold_on(store, key, Session::default(), loaded).await };
    match Session::from_snapshot(text) {
        Ok(session) => fold_on(store, key, session, loaded).await,
        Err(error) => {
            tracing::debug!(%seq, %error, "a snapshot is passed over for the records");
            let records = store.history(key, Seq(0), usize::MAX).await?;
            let whole = Loaded { snapshot: None, head: records.last().map_or(Seq(0), |last| last.seq), records };
            fold_on(store, key, Session::default(), whole).await
        }
    }
}

async fn fold_on(store: &dyn Store, key: &JournalKey, before: Session, loaded: Loaded) -> Result<Folded, Error> {
    let (after, snapshot) = loaded.snapshot.as_ref().map_or((Seq(0), 0), |(seq, text)| (*seq, text.len()));
    let records = decode(store, key, &loaded.records).await?;
    Ok(Folded {
        session: before.fold_on(after, &records)?,
        head: loaded.head,
        since_snapshot: loaded.records.iter().map(|stored| stored.record.body.len()).sum(),
        snapshot,
    })
}

/// All records behind a position, read without a lease and piece by piece.
pub(crate) async fn records_after(
    store: &dyn Store,
    key: &JournalKey,
    mut after: Seq,
    mut each: impl FnMut(Seq, Record),
) -> Result<(), Error> {
    loop {
        let page = store.history(key, after, limits::RECORDS_PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        let first = after;
        after = last.seq;
        for (seq, record) in (first.0 + 1..).zip(decode(store, key, &page).await?) {
            each(Seq(seq), record);
        }
    }
}

/// Reads stored records. A blob that is missing or damaged harms its own output alone; one that the store cannot read now
/// is an error, since nobody may take it for a missing one.
pub(crate) async fn decode(store: &dyn Store, key: &JournalKey, stored: &[StoredRecord]) -> Result<Vec<Record>, Error> {
    let mut records = Vec::with_capacity(stored.len());
    for StoredRecord { seq, record, .. } in stored {
        let blob = match Record::named_blob(&record.kind, &record.body) {
            Some(digest) => match store.blob(key, &digest).await {
                Ok(bytes) => bytes,
                Err(error @ StoreError::Corrupt { .. }) => {
                    tracing::warn!(%seq, %error, "an output cannot be read");
                    None
                }
                Err(error) => return Err(error.into()),
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
