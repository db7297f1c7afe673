//! The store for many machines, on a server of its own.

mod faults;
mod opening;
mod sharing;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::executor::block_on;
use tokio::runtime::Runtime;
use wharf_core::{RecordId, Seq};
use wharf_store::conformance::{Fixture, claims, suite};
use wharf_store::{
    Acquire, Append, JournalKey, Lease, NewRecord, Owner, PostgresOptions, PostgresStore, Store, StoreError,
};
use wharf_testpg::Cluster;

const TTL: Duration = Duration::from_secs(60);

/// Where the store's own work is done: no test runs inside of it, as an embedder's future may be polled anywhere.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

fn open_with(address: &str, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
    runtime().block_on(PostgresStore::open(address, options))
}

fn open(address: &str) -> PostgresStore {
    open_with(address, PostgresOptions::default()).unwrap()
}

/// A store on a clock that the test moves.
struct OnServer {
    now: Arc<Mutex<Duration>>,
    store: Option<PostgresStore>,
    address: String,
}

impl OnServer {
    fn new(cluster: &Cluster) -> Self {
        let now = Arc::new(Mutex::new(Duration::from_secs(1_700_000_000)));
        let mut fixture = Self { now, store: None, address: cluster.database() };
        fixture.reopen();
        fixture
    }
}

impl Fixture for OnServer {
    fn store(&self) -> &dyn Store {
        self.store.as_ref().unwrap()
    }

    fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
    }

    fn reopen(&mut self) {
        self.store = None;
        let clock = Arc::clone(&self.now);
        let clock = Some(Arc::new(move || *clock.lock().unwrap()) as wharf_store::Clock);
        self.store = Some(open_with(&self.address, PostgresOptions { clock, ..PostgresOptions::default() }).unwrap());
    }
}

// covers M1, M2, M3, M4, M5, M6, M7, M8, M9, N1, N2, N3, N4, N5, N6, N7
#[test]
fn postgres_store_passes_the_suite() {
    let Some(cluster) = Cluster::shared() else { return };
    block_on(suite(|| OnServer::new(&cluster)));
    block_on(claims(|| OnServer::new(&cluster)));
}

fn owner(token: &str) -> Owner {
    Owner { token: token.to_owned(), label: format!("{token} of a test") }
}

fn owned(store: &dyn Store, session: &str) -> Lease {
    block_on(store.acquire(&JournalKey::local(session), &owner("a"), TTL, Acquire::IfFree)).unwrap()
}

fn record(id: &str) -> NewRecord {
    NewRecord { id: RecordId::new(id), kind: "note".into(), version: 1, at_ms: 7, body: format!("{{\"id\":{id:?}}}") }
}

fn append(expected: u64, ids: &[&str]) -> Append {
    Append { expected: Seq(expected), records: ids.iter().map(|id| record(id)).collect(), ..Append::default() }
}

/// The ids of the records that are there.
fn ids(store: &dyn Store, session: &str) -> Vec<String> {
    let records = block_on(store.history(&JournalKey::local(session), Seq(0), usize::MAX)).unwrap();
    records.into_iter().map(|stored| stored.record.id.to_string()).collect()
}
