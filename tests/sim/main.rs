//! Turns under every fault of docs/fault-model.md, in virtual time: the real coordinator and core over the memory store, a
//! scripted provider and tools that go as a script says. `just sim` runs it whole, `cargo test -p wharf-sim` in short.

#![allow(unreachable_pub, reason = "one binary: what a module offers, it offers to the others")]
#![allow(clippy::print_stdout, reason = "figures and replays are what it is run for")]

mod chance;
mod check;
mod doubt;
mod lanes;
mod outside;
mod plan;
mod process;
mod provider;
mod script;
mod supervise;
mod tools;
mod world;

use std::sync::Once;

use lanes::Extent;
use supervise::Case;

/// What `just sim` passes on: nothing for the whole lane; `seeds=N`, `scripts=N` and `nested=N` for another extent of it (each
/// N-th second fault; all with 1, none with 0); `seed=N` or `script=… plan=… order=…`
/// for one case, told event by event.
const ARGUMENTS: &str = "WHARF_SIM";

/// Tools crash on purpose; that is not worth a message each.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&tools::CRASH) {
                loud(panic);
            }
        }));
    });
}

fn hold(extent: Extent) {
    quiet();
    let figures = lanes::run(extent);
    println!("{figures}");
    assert!(figures.failures().is_empty(), "{}", figures.failures());
    assert_eq!(figures.missing(), Vec::<String>::new(), "these ways never occurred, so nothing is known of them");
}

#[test]
fn the_promises_hold_under_every_fault_of_a_script_and_of_a_few_seeds() {
    // covers G4, G5, G12, G14, G15, G16, G17, G19, G20, L10, L11, L12, L33, L57, L58, L59, L60, L63, M2, M5, N4
    hold(Extent { scripts: 1, nested_every: None, seeds: 250 });
}

#[test]
#[ignore = "takes minutes: `just sim` runs it, or what WHARF_SIM says"]
fn the_whole_lane() {
    let said = std::env::var(ARGUMENTS).unwrap_or_default();
    let mut extent = Extent { scripts: lanes::SCRIPTS.len(), nested_every: Some(6), seeds: 20_000 };
    let mut case: Option<Case> = None;
    for part in said.split_whitespace() {
        match part.split_once('=') {
            Some(("seeds", seeds)) => extent.seeds = seeds.parse().expect("seeds= takes a number"),
            Some(("seed", seed)) => case = Some(lanes::random(seed.parse().expect("seed= takes a number"))),
            Some(("scripts", scripts)) => extent.scripts = scripts.parse().expect("scripts= takes a number"),
            Some(("nested", every)) => extent.nested_every = every.parse().ok().filter(|every| *every > 0),
            _ => case.get_or_insert_with(Case::empty).read(part).unwrap_or_else(|fault| panic!("{part:?}: {fault}")),
        }
    }
    let Some(case) = case else { return hold(extent) };
    quiet();
    let run = case.run();
    for event in &run.events {
        println!("{event}");
    }
    println!("{case}\n{} writes, {} wakings, {} moments of tools", run.writes, run.wakings, run.moments);
    assert!(run.breaches.is_empty(), "{}", run.breaches.join("\n"));
}
