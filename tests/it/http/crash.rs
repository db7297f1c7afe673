//! A turn whose process dies between any two records, over HTTP: whoever goes on finishes it, each call of the accepted
//! responses gets one output on the wire, and no call of class never runs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use wharf::core::record::{PauseReason, Reconcile};
use wharf::core::{BlobDigest, ErrorKind, OrgId, Seq};
use wharf::store::{
    Acquire, Append, DeletionMark, InboxItem, InboxPut, JournalKey, Lease, Loaded, Owner, SessionSummary, Store,
    StoreFuture, StoredRecord, Swept,
};
use wharf::{TurnResult, TurnStatus};
use wharf_simulate::script::Retrieved;
use wharf_simulate::{Answer, Expect, RequestEntry, Script, Server};

use super::kit::*;

const CALLS: [&str; 4] = ["call_slow", "call_fast", "call_pay", "call_note"];

/// Where a process dies.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// Its n-th append, counted from 1, never reaches the disk.
    Before(usize),
    /// Its n-th append is durable, and it never learns of it.
    Behind(usize),
}

#[tokio::test]
async fn a_turn_cut_between_any_two_records_is_finished_with_one_output_for_each_call() {
    // covers L34, L10, G4, G5, G13, G14, G15, G18, M5, M6, B13
    let mut cuts = 0;
    for at in 1.. {
        let mut cut_off = false;
        for cut in [Cut::Before(at), Cut::Behind(at)] {
            cut_off |= dies_at(&[cut]).await;
        }
        if !cut_off {
            break;
        }
        cuts = at;
    }
    // Turn, request, id, four calls, their results, acceptance, transcript: fewer appends would mean that little was cut.
    assert!(cuts >= 20, "only {cuts} appends were cut");
}

#[tokio::test]
async fn a_turn_whose_next_process_dies_as_well_is_finished_too() {
    // covers L34, G4, G5, G7, G13, G17
    for at in 1.. {
        let again = 1 + at % 7;
        let then = if at % 2 == 0 { Cut::Before(again) } else { Cut::Behind(again) };
        if !dies_at(&[Cut::Behind(at), then]).await {
            break;
        }
    }
}

/// Runs a turn whose processes die like this one after the other, and then one that does not; whether the first one died.
async fn dies_at(cuts: &[Cut]) -> bool {
    let server = serve(script()).await;
    let world = World::new();
    for tool in ["fast", "pay", "note"] {
        world.release(tool);
    }
    let mut died = Vec::new();
    for cut in cuts {
        died.push(dying_process(&world, &server, *cut).await);
        if died.last() == Some(&false) {
            break;
        }
        // What a dead process had open is broken at the provider, too, before the next one looks.
        for order in 1..=server.requests().len() {
            server.wait_for_end(order as u64).await.unwrap();
        }
    }
    world.release("slow");
    if died.last() == Some(&true) {
        let result = finish(&world, &server, cuts).await;
        assert_eq!(result.status, TurnStatus::Completed, "{cuts:?}");
    }
    check(&world, &server, cuts).await;
    died[0]
}

/// Whole histories are answered with calls, everything else with text; a stream that its reader leaves is completed all
/// the same.
fn script() -> Script {
    let mut script = Script::new("crash").first_match();
    for _ in 0..4 {
        let calls = Answer::new()
            .text("I look.")
            .async_function_call("call_slow", "slow", "{}")
            .async_custom_call("call_fast", "fast", "x")
            .async_function_call("call_pay", "pay", "{}")
            .function_call("call_note", "note", "{}")
            .if_broken(Retrieved::Completed);
        script = script.step(calls.expect(Expect::new().no_previous()));
    }
    for _ in 0..8 {
        let more = Answer::new().text("I see.").if_broken(Retrieved::Completed);
        script = script.step(more.expect(Expect::new().latest()));
    }
    script
}

/// Runs the turn, or goes on with it, until the cut; whether it came.
async fn dying_process(world: &World, server: &Server, cut: Cut) -> bool {
    let store = Arc::new(DyingStore::new(world.open_store(), cut));
    let mut died = store.died.subscribe();
    let is_open = world.journal().await.fold.turn().is_some();
    let process = world.process(Setup::on(server).store(store)).await;
    let work = async {
        // The one that goes on may find a question for an operator: that is for the next process.
        let options = process.after_a_crash();
        if is_open { process.resume(options).await } else { process.turn(options).await }
    };
    let slow = async {
        world.seen.wait_for_start("acknowledged by").await;
        world.release("slow");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = work => {
            let asks = |status: &TurnStatus| matches!(status, TurnStatus::Paused(PauseReason::LostResponse { .. }));
            let asked = match &result {
                Ok(result) => asks(&result.status),
                Err(error) => error.hint.as_deref().is_some_and(|hint| hint.contains("reconcile")),
            };
            assert!(asked || matches!(&result, Ok(result) if result.is_success()), "{cut:?}: {result:?}");
            asked
        }
        _ = died.wait_for(|died| *died) => true,
        () = slow => unreachable!("it waits for ever"),
    }
}

/// Goes on until the turn is over. An operator looks into the provider's log where one is asked.
async fn finish(world: &World, server: &Server, cuts: &[Cut]) -> TurnResult {
    let mut command = None;
    for _ in 0..6 {
        let process = world.process(Setup::on(server)).await;
        let no_turn = world.journal().await.fold.turn().is_none();
        let options = process.after_a_crash();
        let result = match command.take() {
            Some(command) => process.reconcile(command, options).await,
            None if no_turn => process.turn(options).await,
            None => process.resume(options).await,
        };
        match result {
            Ok(TurnResult { status: TurnStatus::Paused(PauseReason::LostResponse { .. }), .. }) => {
                command = Some(Reconcile::Resend);
            }
            Ok(result) => return result,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Store, "{cuts:?}: {error}");
                command = Some(operator(server, &world.journal().await));
            }
        }
    }
    panic!("{cuts:?}: the turn does not come to its end; its journal is {:#?}", world.journal().await.lines());
}

/// Whether the last request came to the provider; a whole history is sent again, since its calls were not all seen.
fn operator(server: &Server, journal: &Journal) -> Reconcile {
    let accepted = journal.fold.latest_response_id().map(|id| id.as_str());
    let requests = posts(server);
    let continues = requests.last().filter(|request| previous(request).is_some());
    match continues.and_then(|request| request.response_id.as_deref()) {
        Some(id) if Some(id) != accepted => Reconcile::Receipt(id.into()),
        Some(_) | None => Reconcile::Resend,
    }
}

fn posts(server: &Server) -> Vec<RequestEntry> {
    server.requests().into_iter().filter(|request| request.method == "POST").collect()
}

fn previous(request: &RequestEntry) -> Option<&str> {
    request.json()?.get("previous_response_id")?.as_str()
}

async fn check(world: &World, server: &Server, cuts: &[Cut]) {
    assert_eq!(server.violations(), [], "{cuts:?}");
    let journal = world.journal().await;
    let latest = journal.fold.latest_response_id().unwrap().as_str();
    assert_eq!(journal.rest(), over(latest), "{cuts:?}");
    for call in journal.calls().as_array().unwrap() {
        assert!(call[0] == "orphan" || call[2] == "delivered", "{cuts:?}: {call}");
    }

    // Along the chain of accepted responses each call has one output.
    let requests = posts(server);
    let mut outputs: BTreeMap<String, usize> = CALLS.iter().map(|id| ((*id).to_owned(), 0)).collect();
    let mut at = Some(latest);
    while let Some(id) = at {
        let request = requests.iter().find(|request| request.response_id.as_deref() == Some(id)).unwrap();
        for item in request.json().unwrap()["input"].as_array().unwrap() {
            if item["output"] != Value::Null {
                *outputs.entry(item["call_id"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        at = previous(request);
    }
    assert!(outputs.len() == CALLS.len() && outputs.values().all(|count| *count == 1), "{cuts:?}: {outputs:?}");

    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for run in world.runs.all() {
        *runs.entry(run).or_default() += 1;
    }
    for (run, count) in &runs {
        let may_run_again = run.starts_with("slow") || run.starts_with("fast");
        assert!(*count == 1 || may_run_again, "{cuts:?}: {run} ran {count} times");
    }
}

/// A store whose process dies at one of its appends.
struct DyingStore {
    store: Arc<dyn Store>,
    cut: Cut,
    appends: AtomicUsize,
    died: watch::Sender<bool>,
}

impl DyingStore {
    fn new(store: Arc<dyn Store>, cut: Cut) -> Self {
        Self { store, cut, appends: AtomicUsize::new(0), died: watch::Sender::new(false) }
    }

    async fn die(&self) -> ! {
        self.died.send_replace(true);
        std::future::pending().await
    }
}

impl Store for DyingStore {
    fn append<'a>(&'a self, lease: &'a Lease, append: Append) -> StoreFuture<'a, Seq> {
        Box::pin(async move {
            let n = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
            if matches!(self.cut, Cut::Before(at) if at == n) {
                self.die().await;
            }
            let head = self.store.append(lease, append).await;
            if matches!(self.cut, Cut::Behind(at) if at == n) {
                self.die().await;
            }
            head
        })
    }

    fn acquire<'a>(
        &'a self,
        key: &'a JournalKey,
        owner: &'a Owner,
        ttl: Duration,
        how: Acquire,
    ) -> StoreFuture<'a, Lease> {
        self.store.acquire(key, owner, ttl, how)
    }

    fn load<'a>(&'a self, key: &'a JournalKey, after: Seq) -> StoreFuture<'a, Loaded> {
        self.store.load(key, after)
    }

    fn history<'a>(&'a self, key: &'a JournalKey, after: Seq, limit: usize) -> StoreFuture<'a, Vec<StoredRecord>> {
        self.store.history(key, after, limit)
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.store.renew(lease)
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        self.store.release(lease)
    }

    fn delete<'a>(&'a self, lease: &'a Lease, mark: DeletionMark) -> StoreFuture<'a, ()> {
        self.store.delete(lease, mark)
    }

    fn sweep<'a>(&'a self, lease: &'a Lease, named: &'a BTreeSet<BlobDigest>) -> StoreFuture<'a, Swept> {
        self.store.sweep(lease, named)
    }

    fn sessions<'a>(&'a self, org: &'a OrgId, limit: usize) -> StoreFuture<'a, Vec<SessionSummary>> {
        self.store.sessions(org, limit)
    }

    fn blob<'a>(&'a self, key: &'a JournalKey, digest: &'a BlobDigest) -> StoreFuture<'a, Option<Vec<u8>>> {
        self.store.blob(key, digest)
    }

    fn put_inbox<'a>(&'a self, key: &'a JournalKey, item: InboxItem) -> StoreFuture<'a, InboxPut> {
        self.store.put_inbox(key, item)
    }

    fn inbox<'a>(&'a self, key: &'a JournalKey) -> StoreFuture<'a, Vec<InboxItem>> {
        self.store.inbox(key)
    }

    fn inbox_grows<'a>(&'a self, key: &'a JournalKey, seen: usize) -> StoreFuture<'a, ()> {
        self.store.inbox_grows(key, seen)
    }
}
