//! What all rounds came to.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::check::{Breach, Kind};
use crate::plan::{KINDS, NAMES, Plan};
use crate::round::Round;

#[derive(Default)]
pub(crate) struct Figures(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    rounds: usize,
    took: Duration,
    processes: usize,
    runs: usize,
    repeats: usize,
    answers: usize,
    /// By kind of point: of the first process, and of later ones.
    first: [usize; KINDS],
    nested: [usize; KINDS],
    /// Points that were not reached.
    passed: [usize; KINDS],
    broken: Vec<Kind>,
    failures: Vec<String>,
}

impl Figures {
    pub(crate) fn add(&self, round: &Round) {
        let mut counts = self.counts();
        counts.rounds += 1;
        counts.took += round.took;
        counts.processes += round.processes;
        counts.runs += round.runs;
        counts.repeats += round.repeats;
        counts.answers += round.answers;
        let Counts { first, nested, passed, .. } = &mut *counts;
        for (all, of_round) in [(first, &round.first), (nested, &round.nested), (passed, &round.passed)] {
            for kind in of_round {
                all[*kind] += 1;
            }
        }
    }

    pub(crate) fn fail(&self, seed: u64, n: u64, plan: &Plan, breach: &Breach) {
        let mut counts = self.counts();
        counts.rounds += 1;
        counts.broken.push(breach.kind);
        counts.failures.push(format!(
            "round {n} of seed {seed} failed. Again: WHARF_CRASH_SEED={seed} WHARF_CRASH_ROUND={n} cargo test -p wharf-cli \
             --test process\n{plan:?}\n{breach}"
        ));
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.counts().failures.clone()
    }

    /// Points at which nothing ever happened.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let counts = self.counts();
        (0..KINDS).filter(|kind| counts.first[*kind] == 0).map(|kind| NAMES[kind]).collect()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let all = |of: &[usize; KINDS]| of.iter().sum::<usize>();
        let broken = |kind: Kind| counts.broken.iter().filter(|broken| **broken == kind).count();
        writeln!(f, "\n{:<30} {:>6} {:>6} {:>6}", "point", "first", "nested", "passed")?;
        for (kind, name) in NAMES.iter().enumerate() {
            let (first, nested, passed) = (counts.first[kind], counts.nested[kind], counts.passed[kind]);
            writeln!(f, "{name:<30} {first:>6} {nested:>6} {passed:>6}")?;
        }
        let (first, nested, passed) = (all(&counts.first), all(&counts.nested), all(&counts.passed));
        writeln!(f, "{:<30} {first:>6} {nested:>6} {passed:>6}\n", "all")?;
        let mean = counts.took.as_millis() / u128::try_from(counts.rounds.max(1)).unwrap_or(1);
        let lines = [
            ("rounds", counts.rounds),
            ("processes of turns", counts.processes),
            ("answers of an operator", counts.answers),
            ("runs of tools", counts.runs),
            ("of these repeats", counts.repeats),
            ("mean time of a round, ms", usize::try_from(mean).unwrap_or(0)),
            ("never effects more than once", broken(Kind::NeverTwice)),
            ("results lost", broken(Kind::ResultLost)),
            ("turns stuck", broken(Kind::Stuck)),
            ("outputs sent twice", broken(Kind::SentTwice)),
            ("other faults", broken(Kind::Other)),
        ];
        for (name, count) in lines {
            writeln!(f, "{name:<30} {count:>6}")?;
        }
        Ok(())
    }
}
