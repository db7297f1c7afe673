//! The embedded store.

mod corpus;
mod damage;
mod faults;
mod model;
mod opening;
mod processes;
mod removal;
mod rights;
mod vfs;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use tempfile::TempDir;
use wharf_core::{RecordId, Seq};
use wharf_store::conformance::{Fixture, claims, suite};
use wharf_store::{
    Acquire, Append, Fault, JournalKey, Lease, NewRecord, Owner, SqliteOptions, SqliteStore, Store, StoredRecord,
};

const TTL: Duration = Duration::from_secs(60);

/// A store on a clock that the test moves.
struct OnDisk {
    now: Arc<Mutex<Duration>>,
    store: Option<SqliteStore>,
    dir: TempDir,
}

impl OnDisk {
    fn new() -> Self {
        let now = Arc::new(Mutex::new(Duration::from_secs(1_700_000_000)));
        let mut fixture = Self { now, store: None, dir: TempDir::new().unwrap() };
        fixture.reopen();
        fixture
    }

    fn options(&self) -> SqliteOptions {
        let clock = Arc::clone(&self.now);
        SqliteOptions { clock: Arc::new(move || *clock.lock().unwrap()), ..SqliteOptions::default() }
    }
}

impl Fixture for OnDisk {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().unwrap()
    }

    fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(SqliteStore::open_with(self.dir.path(), self.options()).unwrap());
    }
}

// covers M1, M2, M3, M4, M5, M6, M7, M8, M9, N1, N2, N3, N4, N5, N6, N7
#[test]
fn embedded_store_passes_the_suite() {
    block_on(suite(OnDisk::new));
    block_on(claims(OnDisk::new));
}

fn frozen_clock() -> SqliteOptions {
    SqliteOptions { clock: Arc::new(|| Duration::from_secs(1_700_000_000)), ..SqliteOptions::default() }
}

fn with_fault(dir: &Path, fault: Fault) -> SqliteStore {
    SqliteStore::open_with(dir, SqliteOptions { fault: Some(fault), ..frozen_clock() }).unwrap()
}

fn owner(token: &str) -> Owner {
    Owner { token: token.into(), label: token.into() }
}

fn owned(store: &dyn Store, session: &str, ttl: Duration) -> Lease {
    block_on(store.acquire(&JournalKey::local(session), &owner("a"), ttl, Acquire::IfFree)).unwrap()
}

fn record(id: &str) -> NewRecord {
    NewRecord { id: RecordId::new(id), kind: "note".into(), version: 1, at_ms: 5, body: format!("{{\"id\":{id:?}}}") }
}

fn append(expected: u64, id: &str) -> Append {
    Append { expected: Seq(expected), records: vec![record(id)], ..Append::default() }
}

fn stored(lease: &Lease, ids: &[&str]) -> Vec<StoredRecord> {
    let seqs = 1_u64..;
    ids.iter()
        .zip(seqs)
        .map(|(id, seq)| StoredRecord { seq: Seq(seq), fence: lease.fence, record: record(id) })
        .collect()
}

fn history(store: &dyn Store, lease: &Lease) -> Vec<StoredRecord> {
    block_on(store.history(&lease.key, Seq(0), usize::MAX)).unwrap()
}

/// The database by itself, to damage it or to look behind the store's back.
fn raw(dir: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(dir.join("wharf.db")).unwrap()
}
