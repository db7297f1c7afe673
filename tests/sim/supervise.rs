//! Starts one process after the other until all turns are over, lets replaced ones go on undead, and answers what an operator
//! has to answer. Its end is the end of a world.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use futures::future::{Either, select};
use wharf::seams::{Seams, Task};
use wharf_core::inbox::Command;
use wharf_core::record::Reconcile;
use wharf_store::Acquire;

use crate::check::check;
use crate::outside::{Event, Owner};
use crate::plan::{Fault, InboxWay, OwnerWay};
use crate::process::{Opening, taken, told, work};
use crate::script::Script;
use crate::world::{Exit, PAUSE, Signal, World};

/// Processes of one world. Each fault costs at most a few.
const PROCESSES_MAX: usize = 80;

/// Longest time that a user waits for calls that hang, before they cancel. Past every wait of the host.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a replaced owner may take until it found out.
const FINDS_OUT: Duration = Duration::from_secs(400);

/// One run, as data.
#[derive(Debug, Clone)]
pub struct Case {
    pub script: Script,
    pub plan: Vec<Fault>,
    /// Chooses the order of tasks and whatever else is left open; without it the first one goes on.
    pub seed: Option<u64>,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub breaches: Vec<String>,
    /// What went wrong, and how many writes there had been by then.
    pub occurred: Vec<(Fault, usize)>,
    /// The journal has a snapshot by the end.
    pub snapshot: bool,
    pub writes: usize,
    pub wakings: usize,
    pub moments: usize,
    pub requests: usize,
    pub events: Vec<Event>,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "script={}", self.script)?;
        if !self.plan.is_empty() {
            let plan: Vec<String> = self.plan.iter().map(Fault::to_string).collect();
            write!(f, " plan={}", plan.join("+"))?;
        }
        if let Some(seed) = self.seed {
            write!(f, " order={seed}")?;
        }
        Ok(())
    }
}

impl Case {
    /// A turn with one answer.
    pub fn empty() -> Self {
        Self {
            script: Script { keeps: true, retrieves: true, turns: 1, says: Vec::new(), responses: Vec::new() },
            plan: Vec::new(),
            seed: None,
        }
    }

    /// Reads `script=…`, `plan=…` or `order=…`.
    pub fn read(&mut self, part: &str) -> Result<(), String> {
        match part.split_once('=') {
            Some(("script", script)) => self.script = script.parse()?,
            Some(("plan", plan)) => self.plan = plan.split('+').map(str::parse).collect::<Result<_, _>>()?,
            Some(("order", seed)) => self.seed = Some(seed.parse().map_err(|_| "it takes a number".to_owned())?),
            _ => return Err("it is none of script=, plan=, order=, seed=, seeds=, scripts=, nested=".to_owned()),
        }
        Ok(())
    }

    /// Runs it and judges it.
    pub fn run(&self) -> Run {
        let (sender, signals) = mpsc::unbounded();
        let world = World::new(self.script.clone(), self.plan.clone(), self.seed, sender);
        let done = catch_unwind(AssertUnwindSafe(|| world.sim().run(supervise(world.clone(), signals))));
        if let Err(panic) = done {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            world.lock().seen.events.push(Event::Stuck(said.unwrap_or_else(|| "it panicked".to_owned())));
        }
        world.drop_tasks();
        let (inside, snapshot) = (world.verify(), world.has_snapshot());
        let state = world.lock();
        Run {
            breaches: check(&state.seen).into_iter().chain(inside).collect(),
            occurred: state.occurred.clone(),
            snapshot,
            writes: state.writes,
            wakings: state.wakings,
            moments: state.moments,
            requests: state.requests,
            events: state.seen.events.clone(),
        }
    }
}

async fn supervise(world: World, mut signals: mpsc::UnboundedReceiver<Signal>) {
    let mut processes: BTreeMap<Owner, Task> = BTreeMap::new();
    let mut opening = Opening { how: Acquire::IfFree, reconcile: None, answers_itself: false };
    let mut last = String::new();
    for round in 0..PROCESSES_MAX {
        if round > 0 {
            let waits = last.contains("in use") || last.contains("crashed");
            let rest = if waits { 20_000 } else { 1_000 };
            world.sim().sleep(Duration::from_millis(rest)).await;
        }
        let between = |fault: &Fault| matches!(fault, Fault::Between { process, .. } if *process == round);
        if let Some(Fault::Between { way, .. }) = world.take(between) {
            let teller = world.new_owner(true);
            let task = world.start(teller, Box::pin(told(world.clone(), command(&world, way))));
            processes.insert(teller, task);
            world.sim().sleep(Duration::from_secs(1)).await;
        }
        if world.take(|fault| matches!(fault, Fault::Narrower { process } if *process == round)).is_some() {
            world.lock().narrow = true;
            world.saw(Event::Narrowed);
        }
        let owner = world.new_owner(false);
        let body = Box::pin(work(world.clone(), owner, opening));
        processes.insert(owner, world.start(owner, body));
        let exit = until_exit(&world, &mut signals, &mut processes, owner).await;
        last = format!("{exit:?}");
        opening = Opening {
            how: if world.sim().random(2) == 0 { Acquire::TakeOver } else { Acquire::IfFree },
            reconcile: None,
            answers_itself: world.sim().random(2) == 1,
        };
        match exit {
            Exit::Done => return undead(&world, &mut signals, &mut processes).await,
            Exit::NeedsAnswer => opening.reconcile = Some(answer(&world)),
            Exit::Lost => {
                let abandons = world.sim().random(8) == 7;
                opening.reconcile = Some(if abandons { Reconcile::Abandon } else { Reconcile::Resend });
            }
            Exit::Killed => {
                if world.lock().is_down() {
                    world.restart_store();
                }
            }
            Exit::Stopped(_) | Exit::Told => {}
        }
    }
    world.saw(Event::Stuck(format!("{PROCESSES_MAX} processes came to no end, the last one: {last}")));
}

/// Waits until this process is gone, or another one should come.
async fn until_exit(
    world: &World,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
    processes: &mut BTreeMap<Owner, Task>,
    owner: Owner,
) -> Exit {
    loop {
        let signal = match select(signals.next(), world.sim().sleep(PATIENCE)).await {
            Either::Left((signal, _)) => signal,
            Either::Right(_) => {
                let handle = world.lock().handles.get(&owner).cloned();
                if let Some(handle) = handle {
                    world.saw(Event::Cancelled);
                    handle.cancel();
                }
                continue;
            }
        };
        match signal {
            Some(Signal::Exit(gone, exit)) => {
                processes.remove(&gone);
                if gone == owner {
                    return exit;
                }
                if exit == Exit::Killed && world.lock().is_down() {
                    world.restart_store();
                }
            }
            Some(Signal::Second(way)) => {
                match way {
                    OwnerWay::TakeOver => {}
                    OwnerWay::Expiry => world.sim().sleep(PAUSE - Duration::from_secs(5)).await,
                    OwnerWay::Taken => {
                        let taker = world.new_owner(true);
                        processes.insert(taker, world.start(taker, Box::pin(taken(world.clone()))));
                        continue; // the owner has to find out
                    }
                }
                return Exit::Stopped("another process comes".to_owned());
            }
            Some(Signal::Inbox(way)) => {
                let teller = world.new_owner(true);
                let task = world.start(teller, Box::pin(told(world.clone(), command(world, way))));
                processes.insert(teller, task);
            }
            None => return Exit::Stopped("nobody is left".to_owned()),
        }
    }
}

fn command(world: &World, way: InboxWay) -> Command {
    match way {
        InboxWay::Cancel => {
            world.saw(Event::Cancelled);
            Command::Cancel
        }
        InboxWay::Resend => Command::Reconcile(Reconcile::Resend),
        InboxWay::Abandon => Command::Reconcile(Reconcile::Abandon),
        InboxWay::Receipt => {
            let made = world.last_made().map_or_else(|| "r0".into(), |(id, _)| id);
            Command::Reconcile(Reconcile::Receipt(made))
        }
    }
}

/// What an operator answers who looked into the provider's books: the receipt if there is one and it can be read.
fn answer(world: &World) -> Reconcile {
    if world.sim().random(8) == 7 {
        return Reconcile::Receipt("r0".into()); // a slip: nothing of it may be taken
    }
    match world.last_made() {
        Some((id, true)) if world.lock().book.tells(&id) && world.script().retrieves && world.sim().random(4) < 3 => {
            Reconcile::Receipt(id)
        }
        _ if world.sim().random(8) == 7 => Reconcile::Abandon,
        _ => Reconcile::Resend,
    }
}

/// Whoever was replaced has to find out.
async fn undead(world: &World, signals: &mut mpsc::UnboundedReceiver<Signal>, processes: &mut BTreeMap<Owner, Task>) {
    let give_up = world.sim().now() + FINDS_OUT;
    while !processes.is_empty() {
        let left = give_up.saturating_sub(world.sim().now());
        match select(signals.next(), world.sim().sleep(left)).await {
            Either::Left((Some(Signal::Exit(gone, _)), _)) => drop(processes.remove(&gone)),
            Either::Left((Some(_), _)) => {}
            Either::Left((None, _)) | Either::Right(_) => {
                let left: Vec<&Owner> = processes.keys().collect();
                world.saw(Event::Stuck(format!("{left:?} never found out that they were replaced")));
                return;
            }
        }
    }
}
