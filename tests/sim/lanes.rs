//! Which cases are run: every fault at every point of a list of scripts, with every second crash inside of the recovery, and
//! random scripts under random faults. And the figures of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::chance::Chance;
use crate::plan::{Fault, InboxWay, OwnerWay, RequestWay, RetrievalWay, StreamWay, WriteWay};
use crate::script::Script;
use crate::supervise::{Case, Run};

/// Scripts whose every point is tried. Together they have every letter of a script.
pub const SCRIPTS: &[&str] = &[
    "CR1:an-o,sk-fW_W",
    "H-1:an-l,ss-oW_W",
    "C-2:ak-o,an-oW_W_as-lW_W",
    "HR2:snpo,anxoW_W_sndoF_akpoX_W",
    "CR1:an-cL,as-oL,sn-oLW_anplS_sk-oC_W",
    "H-2:an-h,sk-rW_W_an-mF_an-lF_W",
    "C-1:an-oF_as-oW_ak-lW_W",
    "HR1:an-l,ak-l,as-lW_an-oW_W",
    "C-1ug:an-oW_sn-bW_ak-b,an-lW_W",
    "C-1v:an-l,ss-oW_ak-oW_W",
    "HR2v:an-oF_as-oW_W_sn-oW_W",
    "CR1i:sn-o,ss-oW_sk-f,snpoW_as-o,sn-lW_W",
    "H-1isg:an-o,as-oW_sn-b,sk-bW_W",
];

/// Ways of a second fault, inside of the recovery from a first one.
const NESTED: &[WriteWay] =
    &[WriteWay::CrashBefore, WriteWay::CrashUnsynced, WriteWay::CrashSynced, WriteWay::LostAnswer];

/// Counted like a way: what follows a snapshot is a recovery of its own.
const SNAPSHOT: &str = "a snapshot is there";

/// Orders in which two owners go on, each tried.
const OWNER_ORDERS: u64 = 4;

/// Failures that are shown whole; more are only counted.
const SHOWN_MAX: usize = 12;

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Scripts of the list.
    pub scripts: usize,
    /// Every so many-th write of a recovery gets a second fault; none without.
    pub nested_every: Option<usize>,
    pub seeds: u64,
}

/// What came of a lane.
#[derive(Debug, Default)]
pub struct Figures {
    scripts: u64,
    seeds: u64,
    runs: u64,
    crash_points: u64,
    nested: u64,
    breaches: BTreeMap<&'static str, u64>,
    occurred: BTreeMap<String, u64>,
    failures: Vec<String>,
}

/// Lines of the figures that stand for a kind of breach each.
const KINDS: &[(&str, &[&str])] = &[
    ("`never` effects started more than once", &["never:"]),
    ("results lost", &["result lost", "output lost", "result:"]),
    ("turns stuck", &["stuck:"]),
    ("outputs sent twice", &["output twice:"]),
    ("other promises broken", &[""]),
];

impl Figures {
    fn count(&mut self, case: &Case, run: &Run) {
        self.runs += 1;
        for (fault, _) in &run.occurred {
            *self.occurred.entry(fault.name()).or_default() += 1;
        }
        if run.snapshot {
            *self.occurred.entry(SNAPSHOT.to_owned()).or_default() += 1;
        }
        for breach in &run.breaches {
            let kind = KINDS.iter().find(|(_, begins)| begins.iter().any(|begin| breach.starts_with(begin)));
            *self.breaches.entry(kind.map_or("", |(kind, _)| kind)).or_default() += 1;
        }
        if !run.breaches.is_empty() {
            self.failures.push(format!("just sim '{case}'\n    {}", run.breaches.join("\n    ")));
        }
    }

    /// Ways that never occurred: a lane that is empty proves nothing.
    pub fn missing(&self) -> Vec<String> {
        let all = Fault::all_names().into_iter().chain([SNAPSHOT.to_owned()]);
        all.filter(|name| !self.occurred.contains_key(name)).collect()
    }

    /// The cases that failed, with the command that runs each again.
    pub fn failures(&self) -> String {
        let shown: Vec<&str> = self.failures.iter().take(SHOWN_MAX).map(String::as_str).collect();
        match self.failures.len() {
            0 => String::new(),
            all => format!("{all} cases failed, among them:\n{}", shown.join("\n")),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, count: u64| writeln!(f, "{what:<42} {count:>9}");
        line("scripts, every point of each", self.scripts)?;
        line("seeds", self.seeds)?;
        line("runs", self.runs)?;
        line("points tried", self.crash_points)?;
        line("nested: a second fault in the recovery", self.nested)?;
        for (kind, _) in KINDS {
            line(kind, self.breaches.get(kind).copied().unwrap_or(0))?;
        }
        writeln!(f, "how often each way occurred:")?;
        for (name, count) in &self.occurred {
            writeln!(f, "  {name:<40} {count:>9}")?;
        }
        Ok(())
    }
}

/// One piece of work for a thread.
enum Task {
    Point { script: Script, plan: Vec<Fault>, seed: Option<u64> },
    Seed(u64),
}

/// The random case of a seed.
pub fn random(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let script = Script::random(&mut chance);
    let mut case = Case { script, plan: Vec::new(), seed: Some(seed) };
    let calm = case.run();
    // More than a calm run has: faults make it longer.
    let (writes, wakings) = (calm.writes * 3 / 2, calm.wakings * 3 / 2);
    case.plan = (0..chance.below(5)).map(|_| Fault::random(&mut chance, writes, wakings)).collect();
    case
}

/// Runs a lane on all cores. The order of its cases has no influence on what any of them does.
pub fn run(extent: Extent) -> Figures {
    let mut figures = Figures { seeds: extent.seeds, ..Figures::default() };
    let mut tasks = Vec::new();
    for script in SCRIPTS.iter().take(extent.scripts) {
        let script: Script = script.parse().expect("a script of ours is one");
        let case = Case { script: script.clone(), plan: Vec::new(), seed: None };
        let calm = case.run();
        figures.scripts += 1;
        figures.count(&case, &calm);
        let points = points(&script, &calm);
        figures.crash_points += points.len() as u64;
        for plan in points {
            // Two owners at once: who of them goes first matters.
            let orders = if matches!(plan[..], [Fault::Owner { .. }]) { OWNER_ORDERS } else { 0 };
            for seed in std::iter::once(None).chain((0..orders).map(Some)) {
                tasks.push(Task::Point { script: script.clone(), plan: plan.clone(), seed });
            }
        }
    }
    tasks.extend((0..extent.seeds).map(Task::Seed));
    let next = AtomicUsize::new(0);
    let all = Mutex::new(figures);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(at) else { break };
                    work(at, task, extent, &all);
                }
            });
        }
    });
    all.into_inner().expect("no thread panicked")
}

fn work(at: usize, task: &Task, extent: Extent, figures: &Mutex<Figures>) {
    let count = |case: &Case, run: &Run| figures.lock().expect("no thread panicked").count(case, run);
    let (script, plan, seed) = match task {
        Task::Seed(seed) => {
            let case = random(*seed);
            return count(&case, &case.run());
        }
        Task::Point { script, plan, seed } => (script, plan, *seed),
    };
    let case = Case { script: script.clone(), plan: plan.clone(), seed };
    let run = case.run();
    count(&case, &run);
    let (Some((_, writes)), Some(every)) = (run.occurred.last(), extent.nested_every) else { return };
    // Each point begins at another one, so that all of them have their turn.
    for second in (writes + 1 + at % every..=run.writes).step_by(every) {
        for &way in NESTED {
            let mut case = case.clone();
            case.plan.push(Fault::Write { n: second, way });
            count(&case, &case.run());
            figures.lock().expect("no thread panicked").nested += 1;
        }
    }
}

/// Every point of a script, with every way.
fn points(script: &Script, calm: &Run) -> Vec<Vec<Fault>> {
    let mut points = Vec::new();
    for n in 1..=calm.writes {
        points.extend(WriteWay::ALL.iter().map(|&way| Fault::Write { n, way }));
    }
    for waking in 1..=calm.wakings {
        points.extend([Fault::Kill { waking }, Fault::Cancel { waking }, Fault::Stop { waking }]);
        points.extend([15, 45, 70].map(|seconds| Fault::Jump { waking, seconds }));
        points.extend(OwnerWay::ALL.iter().map(|&way| Fault::Owner { waking, way }));
        points.extend(InboxWay::ALL.iter().map(|&way| Fault::Inbox { waking, way }));
    }
    points.extend((1..=calm.moments).map(|moment| Fault::KillInTool { moment }));
    for request in 1..=calm.requests {
        points.extend(RequestWay::ALL.iter().map(|&way| Fault::Request { request, way }));
        for events in 0..=script.response(request).calls.len() + 1 {
            points.extend(StreamWay::ALL.iter().map(|&way| Fault::Stream { request, events, way }));
        }
    }
    let mut plans: Vec<Vec<Fault>> = points.into_iter().map(|fault| vec![fault]).collect();
    for request in (1..=calm.requests).filter(|_| script.retrieves) {
        let lost = Fault::Stream { request, events: 1, way: StreamWay::Ends };
        plans.extend(RetrievalWay::ALL.iter().map(|&way| vec![lost, Fault::Retrieval { n: 1, way }]));
    }
    for waking in 1..=calm.wakings {
        let between = |&way| vec![Fault::Kill { waking }, Fault::Between { process: 1, way }];
        plans.extend(InboxWay::ALL.iter().map(between));
        plans.push(vec![Fault::Kill { waking }, Fault::Narrower { process: 1 }]);
    }
    plans
}
