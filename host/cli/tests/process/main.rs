//! The built program as real processes: killed with SIGKILL at named points and at any moment, told to stop, robbed of its
//! session, and started again until its turn ends. Then what its tools left on disk, what its journal says and what the
//! provider received are laid side by side. See `just crash`.
//!
//! `WHARF_CRASH_ROUNDS` says how many rounds (48), `WHARF_CRASH_SEED` which ones, `WHARF_CRASH_ROUND` picks a single one of
//! them; every choice of a round follows from seed and number, its timing does not.

#![allow(clippy::print_stderr, reason = "figures are what it is run for")]

mod books;
mod check;
mod figures;
mod journals;
mod plan;
mod program;
mod round;
mod script;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use figures::Figures;
use journals::{Chaos, Journals};
use plan::Plan;

/// Rounds of the short lane: each point comes up twice, in half a minute.
const ROUNDS: u64 = 2 * plan::CYCLE as u64;

/// From here on every point has to have been hit.
const LONG: u64 = 200;

/// Rounds at once. Each is mostly a process that starts, and one waits for the disk while the other computes.
const WORKERS: usize = 2;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("it is a number"))
}

// covers L57, G4, G5, G12, N4, M2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_survives_its_processes_with_one_output_for_each_call_and_no_second_effect() {
    lane(&Journals::in_folders(), number("WHARF_CRASH_ROUNDS").unwrap_or(ROUNDS)).await;
}

/// `WHARF_CRASH_CHAOS=restarts` or `cuts`: what happens to the server meanwhile.
// covers L57, L63, G4, G5, G12, N4, M2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_journal_is_in_a_database_survives_its_processes_as_well() {
    let chaos = Chaos::parse(&std::env::var("WHARF_CRASH_CHAOS").unwrap_or_default());
    let Some(journals) = tokio::task::block_in_place(|| Journals::in_databases(chaos)) else { return };
    lane(&journals, number("WHARF_CRASH_ROUNDS").unwrap_or(plan::CYCLE as u64)).await;
}

async fn lane(journals: &Journals, rounds: u64) {
    let seed = number("WHARF_CRASH_SEED").unwrap_or(1);
    let (first, rounds) = match number("WHARF_CRASH_ROUND") {
        Some(one) => (one, 1),
        None => (0, rounds),
    };
    program::warm().await;
    // How long a process takes that nothing happens to, for those that are killed at any moment.
    let calm = round::run(&Plan::calm(), journals)
        .await
        .unwrap_or_else(|breach| panic!("nothing happened, and yet {breach}"))
        .first_took;

    let (next, figures) = (Arc::new(AtomicU64::new(first)), Arc::new(Figures::default()));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (next, figures, journals) = (next.clone(), figures.clone(), journals.clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= first + rounds {
                        return;
                    }
                    let plan = Plan::of(seed, n, calm);
                    let (ours, journals) = (plan.clone(), journals.clone());
                    // A task of its own, so that a panic is told with its round.
                    match tokio::spawn(async move { round::run(&ours, &journals).await }).await {
                        Ok(Ok(round)) => figures.add(&round),
                        Ok(Err(breach)) => figures.fail(seed, n, &plan, &breach),
                        Err(panic) => figures.fail(seed, n, &plan, &panic.to_string().into()),
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
    eprintln!("{figures}");
    assert!(figures.failures().is_empty(), "{}", figures.failures().join("\n\n"));
    if rounds >= LONG {
        let mut missed = figures.missed();
        // Between a write and its sync a database is on its own: no process of ours can be stopped there.
        missed.retain(|name| !(journals.are_in_databases() && *name == "journal: not synced"));
        assert_eq!(missed, Vec::<&str>::new(), "points at which nothing was ever killed");
    }
}
