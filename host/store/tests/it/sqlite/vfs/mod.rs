//! Real SQLite on a disk that fails and loses its power: it must agree with the memory store.
//!
//! Scripts are drawn from seeds. Each is run once to count what it asks of the disk, and then again for operations of that
//! count and each way in which one can fail. `WHARF_VFS_SCRIPTS` sets how many scripts a test runs, `WHARF_VFS_SEED` the
//! first one, `WHARF_VFS_FAULTS` how many faults of each script.

mod doubt;
mod model;
mod run;
mod script;

use std::sync::atomic::Ordering;
use std::time::Duration;

use wharf_faultvfs::{Fault, Kind, Operation, Plan, Random};

use self::run::{Figures, run};
use self::script::{Script, draw};
use super::TTL;

/// With so short a lease nothing is tried again (L63), however long it lasts by the store's clock.
const SHORT: Duration = Duration::from_millis(1);

fn setting(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}

/// Some of all the pairs of an operation and a way in which it fails, or all if they are few.
fn plans(operations: &[Operation], ways: &dyn Fn(Kind) -> Vec<(Fault, bool)>, count: usize, seed: u64) -> Vec<Plan> {
    let plans = (1..).zip(operations).flat_map(|(at, operation)| {
        ways(operation.kind).into_iter().map(move |(fault, lasting)| Plan { at, fault, lasting })
    });
    let mut plans: Vec<Plan> = plans.collect();
    let mut random = Random::new(seed);
    while plans.len() > count {
        plans.swap_remove(random.below(plans.len()));
    }
    plans
}

/// Runs scripts with faults, prints what was done, and says how to run one again.
#[allow(clippy::print_stderr, reason = "figures, for people")]
fn lane(
    name: &str,
    scripts: u64,
    faults: u64,
    ways: &dyn Fn(Kind) -> Vec<(Fault, bool)>,
    ttl: &dyn Fn(Plan) -> Duration,
) {
    let figures = Figures::default();
    let (first, scripts) = (setting("WHARF_VFS_SEED", 1), setting("WHARF_VFS_SCRIPTS", scripts));
    let faults = setting("WHARF_VFS_FAULTS", faults);
    for seed in first..first + scripts {
        let script = draw(seed);
        let again = |plan: Option<Plan>, script: &Script, wrong: String| -> ! {
            panic!(
                "with {plan:?}: {wrong}\n{script:?}\nagain: WHARF_VFS_SEED={seed} WHARF_VFS_SCRIPTS=1 \
                 WHARF_VFS_FAULTS={faults} cargo test -p wharf-store --test it {name}"
            )
        };
        let operations = run(&script, None, SHORT, &figures).unwrap_or_else(|wrong| again(None, &script, wrong));
        figures.scripts.fetch_add(1, Ordering::Relaxed);
        figures.operations.fetch_add(operations.len() as u64, Ordering::Relaxed);
        for plan in plans(&operations, ways, usize::try_from(faults).unwrap(), seed) {
            run(&script, Some(plan), ttl(plan), &figures).unwrap_or_else(|wrong| again(Some(plan), &script, wrong));
        }
    }
    eprintln!("{name}: {figures:?}, disagreements: 0");
}

// covers M4, M5, M6, L63, N7
#[test]
fn power_cut_at_any_operation_leaves_what_was_answered() {
    let ways = |_| vec![(Fault::Off, false)];
    lane("power_cut_at_any_operation_leaves_what_was_answered", 6, 40, &ways, &|_| SHORT);
}

// covers M4, M5, L63
#[test]
fn disk_that_fails_at_any_operation_makes_no_answer_untrue() {
    let ways = |kind| match kind {
        Kind::Write => vec![
            (Fault::Error, false),
            (Fault::Short, false),
            (Fault::Full, false),
            (Fault::Short, true),
            (Fault::Full, true),
        ],
        Kind::Truncate | Kind::Sync | Kind::Delete => vec![(Fault::Error, false), (Fault::Error, true)],
    };
    // Half of the faults that pass are met by a store that tries again.
    let ttl = |plan: Plan| if plan.lasting || plan.at.is_multiple_of(2) { SHORT } else { TTL };
    lane("disk_that_fails_at_any_operation_makes_no_answer_untrue", 6, 30, &ways, &ttl);
}
