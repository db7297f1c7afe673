//! One journal in memory and what each write does to it.
//!
//! It knows no images, no faults and nobody who waits: every change is refused before it alters anything, or made whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use wharf_core::{BlobDigest, Fence, Seq};

use crate::limits::INBOX_ITEMS_MAX;
use crate::{
    Acquire, Append, Claim, DeletionMark, InboxItem, InboxPut, JournalKey, Lease, Open, Owner, StoreError,
    StoredRecord, Swept,
};

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Journal {
    pub(super) fence: Fence,
    pub(super) held: Option<(Owner, Duration)>,
    pub(super) records: Vec<StoredRecord>,
    pub(super) snapshot: Option<(Seq, String)>,
    pub(super) blobs: BTreeMap<BlobDigest, Arc<Vec<u8>>>,
    // Bytes of blobs that a torn append began and nobody can read: what the next append of them completes.
    begun: BTreeMap<BlobDigest, usize>,
    // Each item with whether it is consumed: a consumed one still is the first on its target.
    inbox: Vec<(InboxItem, bool)>,
    // The harness that was named last, and whether the session is open for it now.
    open_for: Option<String>,
    is_open: bool,
    waiting_since: Duration,
    deleted: Option<DeletionMark>,
}

impl Journal {
    pub(super) fn alive(&self, key: &JournalKey) -> Result<&Self, StoreError> {
        self.deleted.as_ref().map_or(Ok(self), |mark| Err(mark.refusal(key)))
    }

    pub(super) fn head(&self) -> Seq {
        self.records.last().map_or(Seq(0), |last| last.seq)
    }

    pub(super) fn owner(&self, now: Duration) -> Option<(&Owner, Duration)> {
        let (owner, until) = self.held.as_ref()?;
        until.checked_sub(now).filter(|left| !left.is_zero()).map(|left| (owner, left))
    }

    pub(super) fn take(
        &mut self,
        key: &JournalKey,
        owner: &Owner,
        ttl: Duration,
        how: Acquire,
        now: Duration,
    ) -> Result<Lease, StoreError> {
        match (self.owner(now), how) {
            (Some((live, _)), _) if live.token == owner.token => {}
            (Some((live, left)), Acquire::IfFree) => {
                let (session, owner) = (key.session.to_string(), live.label.clone());
                return Err(StoreError::Busy { session, owner, left });
            }
            (Some(_), Acquire::TakeOver) | (None, _) => self.fence = Fence(self.fence.0 + 1),
        }
        self.held = Some((owner.clone(), now.saturating_add(ttl)));
        Ok(Lease { key: key.clone(), owner: owner.clone(), fence: self.fence, head: self.head(), ttl })
    }

    /// Since when a worker could have had it; `None` if none may.
    pub(super) fn waits(&self, claim: &Claim, now: Duration) -> Option<Duration> {
        let ours = self.open_for.as_ref().is_some_and(|harness| claim.harnesses.contains(harness));
        let until = self.held.as_ref().map_or(Duration::ZERO, |(_, until)| *until);
        (self.is_open && ours && self.owner(now).is_none()).then(|| self.waiting_since.max(until))
    }

    pub(super) fn release(&mut self, lease: &Lease, now: Duration) -> Result<(), StoreError> {
        self.check(lease, now)?;
        self.held = None;
        self.waiting_since = now;
        Ok(())
    }

    pub(super) fn check(&self, lease: &Lease, now: Duration) -> Result<(), StoreError> {
        match self.owner(now) {
            Some((live, _)) if live.token == lease.owner.token && self.fence == lease.fence => Ok(()),
            _ => Err(StoreError::Fenced { session: lease.key.session.to_string() }),
        }
    }

    fn expect_head(&self, lease: &Lease, expected: Seq) -> Result<(), StoreError> {
        let (session, found) = (lease.key.session.to_string(), self.head());
        if expected == found { Ok(()) } else { Err(StoreError::Stale { session, expected, found }) }
    }

    fn keep(&mut self, digest: &BlobDigest, bytes: &[u8]) {
        self.begun.remove(digest);
        self.blobs.entry(digest.clone()).or_insert_with(|| Arc::new(bytes.to_vec()));
    }

    /// What a torn append leaves: each blob but the last, and half of that.
    pub(super) fn keep_in_part(&mut self, blobs: &[(BlobDigest, Vec<u8>)]) {
        let Some(((last, bytes), whole)) = blobs.split_last() else { return };
        whole.iter().for_each(|(digest, bytes)| self.keep(digest, bytes));
        if !self.blobs.contains_key(last) {
            self.begun.insert(last.clone(), bytes.len() / 2);
        }
    }

    pub(super) fn append(&mut self, lease: &Lease, append: &Append, now: Duration) -> Result<Seq, StoreError> {
        self.check(lease, now)?;
        self.expect_head(lease, append.expected)?;
        for (at, id) in append.consumed.iter().enumerate() {
            let waits = self.waiting().any(|item| item.id == *id);
            if !waits || append.consumed.iter().take(at).any(|earlier| earlier == id) {
                return Err(StoreError::not_waiting(id));
            }
        }
        for (digest, bytes) in &append.blobs {
            self.keep(digest, bytes);
        }
        for record in &append.records {
            self.records.push(StoredRecord { seq: self.head().next(), fence: lease.fence, record: record.clone() });
        }
        if let Some(text) = &append.snapshot {
            self.snapshot = Some((self.head(), text.clone()));
        }
        for (item, consumed) in &mut self.inbox {
            *consumed |= append.consumed.contains(&item.id);
        }
        match &append.open {
            Some(Open::For(harness)) => (self.is_open, self.open_for) = (true, Some(harness.clone())),
            Some(Open::No) => self.is_open = false,
            None => {}
        }
        self.held = Some((lease.owner.clone(), now.saturating_add(lease.ttl)));
        Ok(self.head())
    }

    pub(super) fn delete(&mut self, lease: &Lease, mark: &DeletionMark, now: Duration) -> Result<(), StoreError> {
        self.check(lease, now)?;
        *self = Self { deleted: Some(mark.clone()), ..Self::default() };
        Ok(())
    }

    pub(super) fn sweep(
        &mut self,
        lease: &Lease,
        named: &BTreeSet<BlobDigest>,
        now: Duration,
    ) -> Result<Swept, StoreError> {
        self.check(lease, now)?;
        self.expect_head(lease, lease.head)?;
        let whole = self.blobs.extract_if(.., |digest, _| !named.contains(digest)).map(|(_, bytes)| bytes.len());
        let begun = self.begun.extract_if(.., |digest, _| !named.contains(digest)).map(|(_, size)| size);
        let swept = Swept::of(whole.chain(begun));
        self.held = Some((lease.owner.clone(), now.saturating_add(lease.ttl)));
        Ok(swept)
    }

    pub(super) fn put(&mut self, item: &InboxItem, now: Duration) -> Result<InboxPut, StoreError> {
        if self.inbox.iter().any(|(there, _)| there == item) {
            return Ok(InboxPut::Repeated);
        }
        if self.inbox.iter().any(|(there, _)| there.id == item.id || there.target == item.target) {
            return Ok(InboxPut::TooLate);
        }
        if self.waiting().count() >= INBOX_ITEMS_MAX {
            return Err(StoreError::inbox_full());
        }
        self.inbox.push((item.clone(), false));
        if !self.is_open && self.open_for.is_some() {
            (self.is_open, self.waiting_since) = (true, now);
        }
        Ok(InboxPut::Accepted)
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &InboxItem> {
        self.inbox.iter().filter(|(_, consumed)| !consumed).map(|(item, _)| item)
    }

    pub(super) fn after(&self, after: Seq) -> impl Iterator<Item = &StoredRecord> {
        // Positions have no gaps, so the first record after `after` stands at that index.
        self.records.iter().skip(usize::try_from(after.0).unwrap_or(usize::MAX))
    }
}
