//! The embedded store. Not written yet: opening it is refused.

use std::path::Path;
use std::time::Duration;

use wharf_core::{BlobDigest, OrgId, Seq};

use crate::{
    Acquire, Append, InboxItem, InboxPut, JournalKey, Lease, Loaded, Owner, SessionSummary, Store, StoreError,
    StoreFuture, StoredRecord,
};

/// Journals in one SQLite database.
#[derive(Debug)]
pub enum SqliteStore {}

impl SqliteStore {
    /// Opens `<dir>/wharf.db`, and makes both if they are absent.
    ///
    /// # Errors
    ///
    /// Always, for now.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        let what = format!("opening {}", dir.as_ref().display());
        Err(StoreError::Io { what, why: "the embedded store is not written yet".to_owned(), transient: false })
    }
}

#[rustfmt::skip]
impl Store for SqliteStore {
    fn acquire<'a>(&'a self, _: &'a JournalKey, _: &'a Owner, _: Duration, _: Acquire) -> StoreFuture<'a, Lease> { match *self {} }
    fn load<'a>(&'a self, _: &'a JournalKey, _: Seq) -> StoreFuture<'a, Loaded> { match *self {} }
    fn history<'a>(&'a self, _: &'a JournalKey, _: Seq, _: usize) -> StoreFuture<'a, Vec<StoredRecord>> { match *self {} }
    fn append<'a>(&'a self, _: &'a Lease, _: Append) -> StoreFuture<'a, Seq> { match *self {} }
    fn renew<'a>(&'a self, _: &'a Lease) -> StoreFuture<'a, ()> { match *self {} }
    fn release<'a>(&'a self, _: &'a Lease) -> StoreFuture<'a, ()> { match *self {} }
    fn sessions<'a>(&'a self, _: &'a OrgId, _: usize) -> StoreFuture<'a, Vec<SessionSummary>> { match *self {} }
    fn blob<'a>(&'a self, _: &'a JournalKey, _: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>> { match *self {} }
    fn put_inbox<'a>(&'a self, _: &'a JournalKey, _: InboxItem) -> StoreFuture<'a, InboxPut> { match *self {} }
    fn inbox<'a>(&'a self, _: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>> { match *self {} }
    fn inbox_grows<'a>(&'a self, _: &'a JournalKey, _: usize) -> StoreFuture<'a, ()> { match *self {} }
}
