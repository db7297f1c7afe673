//! What durability costs: a call beside the bare syncs that it needs, many sessions beside one, the ten thousandth call
//! beside the tenth and beside the usual practice of rewriting a whole document, and opening a long session again.

mod bare;
mod world;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use wharf::core::session::Session;
use wharf::core::{Record, RecordId, Seq, SessionId};
use wharf::records;
use wharf::store::{Acquire, Append, JournalKey, NewRecord, Owner, SqliteOptions, SqliteStore, Store};
use wharf_faultvfs::{FaultVfs, Kind};

use crate::measure::{Times, in_turn, shown};
use crate::{ratio, row};
use bare::{Disk, Document, Log, SLOWER, written};
use world::{Shape, World};

/// A benchmark that is only to be shown to run, in the dev profile, is a twentieth of one.
const SCALE: u64 = if cfg!(debug_assertions) { 20 } else { 1 };

/// Calls whose times are taken beside bare syncs.
const CALLS: u64 = 2_000 / SCALE;

/// Sessions at once, beside one.
const SESSIONS: u64 = 100;

/// Calls of each of them, and of the one.
const CALLS_EACH: u64 = 100 / SCALE;

/// Calls of a long session, and how many at its beginning and at its end are compared. The first ten warm up.
const LONG: u64 = 10_000 / SCALE;
const WINDOW: usize = 1_000 / SCALE as usize;
const WARM_UP: usize = 10;

/// Responses that no turn here comes to.
const UNLIMITED: u64 = u64::MAX;

pub(crate) fn run(runtime: &Runtime) -> Result<()> {
    // Tasks as an embedder has them; everything here is started by the caller's runtime.
    let _inside = runtime.enter();
    let syncs = syncs(runtime)?;
    for disk in [Disk::AsItIs, Disk::Slower] {
        if disk == Disk::Slower {
            println!("as on a disk whose syncs take {} longer:", shown(SLOWER));
        }
        durable_call(runtime, disk, syncs)?;
        at_once(runtime, disk)?;
    }
    for (what, shape) in [("one response", Shape::OneResponse), ("a response each", Shape::EachResponse)] {
        long_session(runtime, what, shape)?;
    }
    Ok(())
}

/// Counts the syncs of a call, with a file system that counts them. Answers with those of the call itself.
fn syncs(runtime: &Runtime) -> Result<u64> {
    let mut counts = [0.0; 2];
    for (count, shape) in counts.iter_mut().zip([Shape::OneResponse, Shape::EachResponse]) {
        let folder = tempfile::tempdir()?;
        let vfs = Arc::new(FaultVfs::register());
        let options = SqliteOptions { vfs: Some(vfs.name().to_owned()), ..SqliteOptions::default() };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open_with(folder.path(), options)?);
        let calls = 100 / SCALE + 1;
        let at_settling = Arc::new(Mutex::new(Vec::new()));
        let (seen, disk) = (at_settling.clone(), vfs.clone());
        runtime.block_on(async {
            let world = World::new(store.clone(), shape, calls).await?;
            let each = move |record: &Record| {
                if matches!(record, Record::CallSettled { .. }) {
                    let syncs = disk.operations().iter().filter(|operation| operation.kind == Kind::Sync).count();
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(syncs);
                }
            };
            world.turn("count", UNLIMITED, each).await
        })?;
        let seen = at_settling.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = seen.first().zip(seen.last()).context("no call settled")?;
        *count = (last - first) as f64 / (seen.len() - 1) as f64;
    }
    println!("{:<58} {:>10.2}", "syncs of a call: start, result", counts[0]);
    println!("{:<58} {:>10.2}", "syncs of a step: request, id, call, result, delivery", counts[1]);
    ensure!(counts[0] > 0.0, "a call without a sync is not durable");
    Ok(counts[0].round() as u64)
}

/// A call beside as many bare syncs of as many bytes, taken in turn.
fn durable_call(runtime: &Runtime, disk: Disk, syncs: u64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store: Arc<dyn Store> = Arc::new(disk.store(folder.path())?);
    // How much a call writes.
    let warm_up = follow(runtime, &store, "warm-up", Shape::OneResponse, 100 / SCALE + 10, || {})?;
    let bytes = mean(&warm_up.bytes) / syncs;
    let mut log = Log::create(&folder.path().join("bare"))?;
    let syncing = Arc::new(Mutex::new(Vec::new()));
    let times = syncing.clone();
    let calls = follow(runtime, &store, "calls", Shape::OneResponse, CALLS, move || {
        let start = Instant::now();
        for _ in 0..syncs {
            log.append_synced(bytes, || disk.delay()).expect("the disk takes it");
        }
        times.lock().unwrap_or_else(PoisonError::into_inner).push(start.elapsed());
    })?;
    let bare = Times::of(std::mem::take(&mut syncing.lock().unwrap_or_else(PoisonError::into_inner)));
    let calls = Times::of(calls.times);
    row(&format!("{syncs} bare writes of {} KiB, each with fdatasync", bytes / 1024), &bare);
    row("durable call: start and result journaled, and the call", &calls);
    ratio("durable call over its bare syncs", &calls, &bare);
    println!("{:<58} {:>10}", "above them", shown(calls.median().saturating_sub(bare.median())));
    Ok(())
}

/// What one session's calls took and wrote, from result to result.
#[derive(Debug, Default)]
struct Followed {
    times: Vec<Duration>,
    bytes: Vec<u64>,
}

/// Runs a turn of so many calls. `between` is done after each call and counts for nothing.
fn follow(
    runtime: &Runtime,
    store: &Arc<dyn Store>,
    session: &str,
    shape: Shape,
    calls: u64,
    mut between: impl FnMut() + Send + 'static,
) -> Result<Followed> {
    let followed = Arc::new(Mutex::new(Followed::default()));
    let ours = followed.clone();
    let mut last: Option<(Instant, u64)> = None;
    let each = move |record: &Record| {
        if !matches!(record, Record::CallSettled { .. }) {
            return;
        }
        let (now, bytes) = (Instant::now(), written());
        if let Some((start, before)) = last {
            let mut followed = ours.lock().unwrap_or_else(PoisonError::into_inner);
            followed.times.push(now - start);
            followed.bytes.push(bytes.saturating_sub(before));
        }
        between();
        last = Some((Instant::now(), written()));
    };
    // The turn stays open at the limit, which is an error; whether it came that far, the count of calls says.
    let responses = if shape == Shape::OneResponse { 1 } else { calls };
    let ended = runtime.block_on(async {
        let world = World::new(store.clone(), shape, calls).await?;
        anyhow::Ok(world.turn(session, responses, each).await)
    })?;
    let followed = std::mem::take(&mut *followed.lock().unwrap_or_else(PoisonError::into_inner));
    ensure!(followed.times.len() as u64 == calls - 1, "not all of {calls} calls were seen: {ended:?}");
    Ok(followed)
}

/// Records a second of one session and of many at once, through the whole library and through the store alone.
fn at_once(runtime: &Runtime, disk: Disk) -> Result<()> {
    let mut whole = [0.0; 2];
    let mut alone = [0.0; 2];
    for (n, sessions) in [1, SESSIONS].into_iter().enumerate() {
        let folder = tempfile::tempdir()?;
        let sqlite = Arc::new(disk.store(folder.path())?);
        let store: Arc<dyn Store> = sqlite.clone();
        let worlds = (0..sessions).map(|_| World::new(store.clone(), Shape::OneResponse, CALLS_EACH));
        let worlds = runtime.block_on(futures::future::try_join_all(worlds))?;
        let before = sqlite.stats();
        let start = Instant::now();
        let turns: Vec<_> = worlds
            .into_iter()
            .enumerate()
            .map(|(at, world)| {
                runtime.spawn(async move { world.turn(&format!("session-{at}"), UNLIMITED, |_| {}).await })
            })
            .collect();
        for turn in runtime.block_on(futures::future::try_join_all(turns))? {
            turn?;
        }
        let took = start.elapsed();
        let commits = sqlite.stats().commits - before.commits;
        let mut records = 0;
        for at in 0..sessions {
            let key = JournalKey::local(format!("session-{at}"));
            records += runtime.block_on(store.load(&key, Seq(u64::MAX >> 1)))?.head.0;
        }
        whole[n] = records as f64 / took.as_secs_f64();
        let what = format!("records a second, {sessions} session{} at once", if sessions == 1 { "" } else { "s" });
        println!("{what:<58} {:>10.0}   {:.1} records a sync", whole[n], records as f64 / commits as f64);
        alone[n] = store_alone(runtime, disk, sessions)?;
        println!("{:<58} {:>10.0}", "  of the store alone, one record an append", alone[n]);
    }
    println!("{:<58} {:>8.1} ×", format!("{SESSIONS} sessions over one"), whole[1] / whole[0]);
    println!("{:<58} {:>8.1} ×", "  of the store alone", alone[1] / alone[0]);
    Ok(())
}

/// Appends of one small record each, one after the other in each session.
fn store_alone(runtime: &Runtime, disk: Disk, sessions: u64) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(disk.store(folder.path())?);
    let owner = Owner { token: "bench".into(), label: "bench".into() };
    let mut leases = Vec::new();
    for at in 0..sessions {
        let key = JournalKey::local(format!("session-{at}"));
        leases.push(runtime.block_on(store.acquire(&key, &owner, Duration::from_secs(60), Acquire::IfFree))?);
    }
    let appends = 10 * CALLS_EACH;
    let start = Instant::now();
    let tasks: Vec<_> = leases
        .into_iter()
        .map(|lease| {
            let store = store.clone();
            runtime.spawn(async move {
                for n in 0..appends {
                    let record = NewRecord {
                        id: RecordId::new(format!("{}-{n}", lease.key.session)),
                        kind: "call-settled".into(),
                        version: 1,
                        at_ms: 0,
                        body: format!("{{\"output\":\"{}\"}}", "x".repeat(200)),
                    };
                    store
                        .append(&lease, Append { expected: Seq(n), records: vec![record], ..Append::default() })
                        .await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in runtime.block_on(futures::future::try_join_all(tasks))? {
        task?;
    }
    Ok((sessions * appends) as f64 / start.elapsed().as_secs_f64())
}

/// The first calls of a long session beside its last ones; then the usual practice on the same content; then opening it.
fn long_session(runtime: &Runtime, what: &str, shape: Shape) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path())?);
    let calls = follow(runtime, &store, "long", shape, LONG, || {})?;
    let early = WARM_UP..WARM_UP + WINDOW;
    let late = calls.times.len() - WINDOW..calls.times.len();
    let (begin, end) = (Times::of(calls.times[early.clone()].to_vec()), Times::of(calls.times[late.clone()].to_vec()));
    println!("{LONG} calls in one turn, {what}:");
    row(&format!("  a step at call {WARM_UP} and after"), &begin);
    row(&format!("  a step up to call {LONG}"), &end);
    ratio("  the late ones over the early ones", &end, &begin);
    // What the database's age costs, not the session's.
    let fresh = follow(runtime, &store, "fresh", shape, (WARM_UP + WINDOW) as u64 + 1, || {})?;
    let fresh = Times::of(fresh.times[WARM_UP..].to_vec());
    row(&format!("  a step at call {WARM_UP} and after of the next session there"), &fresh);
    ratio("  the late ones over those", &end, &fresh);
    let (first, last) = (&calls.bytes[early], &calls.bytes[late]);
    bytes_row("  bytes written a step, early: mean, median", first);
    bytes_row("  bytes written a step, late: mean, median", last);
    println!("{:<58} {:>8.2} ×", "  the late ones over the early ones, means", mean(last) as f64 / mean(first) as f64);
    println!("{:<58} {:>8.2} ×", "  medians", median(last) as f64 / median(first) as f64);
    usual_practice(runtime, &*store, folder.path())?;

    // Another process: nothing of the first one's is at hand.
    drop(store);
    let mut times = Vec::new();
    for _ in 0..if SCALE == 1 { 5 } else { 1 } {
        let copy = tempfile::tempdir()?;
        for file in std::fs::read_dir(folder.path())? {
            let file = file?;
            std::fs::copy(file.path(), copy.path().join(file.file_name()))?;
        }
        let start = Instant::now();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(copy.path())?);
        let opened = start.elapsed();
        let world = runtime.block_on(World::new(store, shape, 0))?;
        times.push(opened + runtime.block_on(world.recover("long", UNLIMITED))?);
    }
    row("  open the store and the session, up to its next request", &Times::of(times));
    Ok(())
}

/// The whole state as one JSON document, written anew and synced with its folder, as it is after few and after all calls.
fn usual_practice(runtime: &Runtime, store: &dyn Store, folder: &Path) -> Result<()> {
    let key = JournalKey::local(SessionId::from("long"));
    let all = runtime.block_on(records(store, &key))?;
    let tenth = all
        .iter()
        .enumerate()
        .filter(|(_, record)| matches!(record, Record::CallSettled { .. }))
        .nth(WARM_UP)
        .map_or(all.len(), |(at, _)| at + 1);
    let checkpoint = |records: &[Record]| -> Result<serde_json::Value> {
        let session = Session::fold(records)?;
        Ok(session.turn().context("there is a turn")?.checkpoint.to_json())
    };
    let (small, large) = (checkpoint(&all[..tenth])?, checkpoint(&all)?);
    let document = Document::at(folder.join("checkpoint.json"));
    let mut sizes = [0; 2];
    let samples = if SCALE == 1 { 40 } else { 2 };
    let [size_small, size_large] = &mut sizes;
    let [early, late] = in_turn(
        samples,
        1,
        [&mut || *size_small = document.rewrite(&small).expect("the disk takes it"), &mut || {
            *size_large = document.rewrite(&large).expect("the disk takes it");
        }],
    );
    row(&format!("  usual practice: rewrite {} KiB of JSON, call {WARM_UP}", sizes[0] / 1024), &early);
    row(&format!("  usual practice: rewrite {} KiB of JSON, call {LONG}", sizes[1] / 1024), &late);
    ratio("  usual practice, late over early", &late, &early);
    Ok(())
}

fn mean(bytes: &[u64]) -> u64 {
    bytes.iter().sum::<u64>() / (bytes.len() as u64).max(1)
}

fn median(bytes: &[u64]) -> u64 {
    let mut bytes = bytes.to_vec();
    bytes.sort_unstable();
    bytes.get(bytes.len() / 2).copied().unwrap_or_default().max(1)
}

fn bytes_row(what: &str, bytes: &[u64]) {
    println!("{what:<58} {:>10}   {:>10}", mean(bytes), median(bytes));
}
