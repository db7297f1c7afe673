//! What the store for many machines does: appends a second beside PostgreSQL's own measure of single-row inserts, how soon an
//! item in an inbox wakes its owner on another host, and how soon a session of a dead host has another owner. On a server
//! of its own on this machine, which client and server share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use wharf::core::{OrgId, RecordId, Seq};
use wharf::store::{
    Acquire, Append, Claim, InboxItem, JournalKey, NewRecord, Open, Owner, PostgresOptions, PostgresStore, Store,
};
use wharf_testpg::Cluster;

use crate::measure::Times;
use crate::row;

const CHECK_ONLY: bool = cfg!(debug_assertions);

/// How long each side of a comparison runs, and how often in turn.
const SECONDS: u64 = if CHECK_ONLY { 1 } else { 4 };
const TURNS: usize = if CHECK_ONLY { 1 } else { 3 };

/// How long a lease lasts here whose owner dies. Sixty seconds would only be waited for.
const SHORT_LEASE: Duration = Duration::from_secs(1);

pub(crate) fn run(runtime: &Runtime) -> Result<()> {
    let Some(cluster) = Cluster::start() else {
        println!("postgres: left out, its server programs are not installed");
        return Ok(());
    };
    let address = cluster.database();
    let database = cluster.name(&address).to_owned();
    let version = cluster.sql(&database, "SHOW server_version");
    println!("PostgreSQL {version}, fsync on, synchronous_commit on, through a socket on this machine:");
    let open = || runtime.block_on(PostgresStore::open(&address, PostgresOptions::default()));
    let stores: Vec<Arc<PostgresStore>> =
        (0..4).map(|_| open().map(Arc::new)).collect::<std::result::Result<_, _>>()?;

    cluster.sql(&database, "CREATE TABLE single (id bigserial PRIMARY KEY, body bytea NOT NULL)");
    let script = tempfile::Builder::new().suffix(".sql").tempfile()?;
    let insert = format!("INSERT INTO single (body) VALUES ('{}');\n", "x".repeat(220));
    std::fs::write(script.path(), insert)?;
    std::fs::set_permissions(script.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    let script = script.path().display().to_string();
    for (sessions, hosts) in [(1, 1), (10, 1), (100, 1), (100, 2), (100, 4)] {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for turn in 0..TURNS {
            let (clients, seconds) = (sessions.to_string(), SECONDS.to_string());
            let args = ["-n", "-M", "prepared", "-c", &clients, "-j", "2", "-T", &seconds, "-f", &script];
            let said = cluster.program("pgbench", &database, &args);
            theirs.push(tps(&said).context("pgbench says no tps")?);
            ours.push(appends(runtime, &stores[..hosts], sessions, &format!("{sessions}-{hosts}-{turn}"))?);
        }
        let (theirs, ours) = (median(theirs), median(ours));
        let what = format!("appends a second, {sessions} sessions, {hosts} host{}", if hosts == 1 { "" } else { "s" });
        println!("{what:<58} {ours:>10.0}   pgbench's inserts {theirs:.0}: {:.2} ×", ours / theirs);
    }
    wakes(runtime, &stores)?;
    takes_over(runtime, &stores)
}

fn tps(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn owner(token: &str) -> Owner {
    Owner { token: token.to_owned(), label: "bench".to_owned() }
}

fn record(id: String) -> NewRecord {
    NewRecord {
        id: RecordId::new(id),
        kind: "call-settled".into(),
        version: 1,
        at_ms: 0,
        body: format!("{{\"output\":\"{}\"}}", "x".repeat(200)),
    }
}

/// Appends of one record each, one after the other in each session, for the time of a turn.
fn appends(runtime: &Runtime, stores: &[Arc<PostgresStore>], sessions: usize, name: &str) -> Result<f64> {
    let mut leases = Vec::new();
    for at in 0..sessions {
        let store = &stores[at % stores.len()];
        let key = JournalKey::local(format!("{name}-{at}"));
        leases.push((
            store.clone(),
            runtime.block_on(store.acquire(&key, &owner("o"), Duration::from_secs(60), Acquire::IfFree))?,
        ));
    }
    let start = Instant::now();
    let until = start + Duration::from_secs(SECONDS);
    let tasks: Vec<_> = leases
        .into_iter()
        .map(|(store, lease)| {
            runtime.spawn(async move {
                let mut head = 0;
                while Instant::now() < until {
                    let records = vec![record(format!("{}-{head}", lease.key.session))];
                    store.append(&lease, Append { expected: Seq(head), records, ..Append::default() }).await?;
                    head += 1;
                }
                anyhow::Ok(head)
            })
        })
        .collect();
    let mut all = 0;
    for task in runtime.block_on(futures::future::try_join_all(tasks))? {
        all += task?;
    }
    Ok(all as f64 / start.elapsed().as_secs_f64())
}

/// From putting an item on one host to waking who waits on another.
fn wakes(runtime: &Runtime, stores: &[Arc<PostgresStore>]) -> Result<()> {
    let key = JournalKey::local("wakes");
    let mut times = Vec::new();
    for n in 0..if CHECK_ONLY { 5 } else { 200_usize } {
        let wait = stores[0].inbox_grows(&key, n);
        // It is looked at once when somebody begins to wait.
        std::thread::sleep(Duration::from_millis(20));
        let item = InboxItem {
            id: format!("i{n}").into(),
            target: format!("t{n}"),
            kind: "cancel".into(),
            who: "bench".into(),
            at_ms: 0,
            digest: String::new(),
            body: "{}".into(),
        };
        let start = Instant::now();
        runtime.block_on(async {
            let (put, woken) = futures::future::join(stores[1].put_inbox(&key, item), wait).await;
            put.and(woken)
        })?;
        times.push(start.elapsed());
    }
    row("an item put on one host wakes its owner on another", &Times::of(times));
    Ok(())
}

/// From the end of a dead host's lease to another one's claim, and from a release to it.
fn takes_over(runtime: &Runtime, stores: &[Arc<PostgresStore>]) -> Result<()> {
    let claim =
        Claim { org: OrgId::local(), harnesses: vec!["bench".into()], skip: Vec::new(), ttl: Duration::from_secs(60) };
    let (mut dead, mut released) = (Vec::new(), Vec::new());
    for n in 0..if CHECK_ONLY { 1 } else { 10 } {
        for (releases, times) in [(false, &mut dead), (true, &mut released)] {
            let key = JournalKey::local(format!("dies-{n}-{releases}"));
            let (store, other) = (stores[0].clone(), stores[1].clone());
            let took = runtime.block_on(async {
                let ttl = if releases { Duration::from_secs(60) } else { SHORT_LEASE };
                let lease = store.acquire(&key, &owner("a"), ttl, Acquire::IfFree).await?;
                let open = Some(Open::For("bench".into()));
                let append = Append { open, records: vec![record(format!("d{n}{releases}"))], ..Append::default() };
                store.append(&lease, append).await?;
                let appended = Instant::now();
                let worker = async {
                    // As a worker does.
                    loop {
                        let arrives = other.work_arrives(&claim.org);
                        if other.claim(&claim, &owner(&format!("w{n}{releases}"))).await?.is_some() {
                            return anyhow::Ok(Instant::now());
                        }
                        let look = tokio::time::sleep(wharf::limits::WORKER_LOOK_EVERY);
                        futures::future::select(arrives, Box::pin(look)).await;
                    }
                };
                let leaves = async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    if releases {
                        store.release(&lease).await?;
                    }
                    anyhow::Ok(Instant::now())
                };
                let (claimed, left) = futures::future::try_join(worker, leaves).await?;
                anyhow::Ok(claimed.saturating_duration_since(if releases { left } else { appended + SHORT_LEASE }))
            })?;
            times.push(took);
        }
    }
    row("a released session has another owner after", &Times::of(released));
    row("a dead host's session, after the end of its lease", &Times::of(dead));
    Ok(())
}
