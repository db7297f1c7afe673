//! Where a process stops in the middle of a write, for the tests that kill it there (`tests/process`). Between two steps of
//! a write there is nothing that can be seen from outside, so a parent cannot hit such a point by waiting; the process has
//! to say that it is there, and stay. It is the parent that kills: the signal then comes from outside, as in life, and
//! nothing of this process can clean up.
//!
//! Only debug builds read the variable. A program that people run has no such stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use wharf::store::{Fault, FaultAction, FaultPoint, PostgresOptions, SqliteOptions, Stage, Write};

use crate::screen;

/// `append:7:before-sync`: the seventh append of this process, written and not synced.
const VARIABLE: &str = "WHARF_STOP_AT";

/// Options of the embedded store, with the stop that the environment asks for.
pub(crate) fn sqlite_options() -> SqliteOptions {
    SqliteOptions { fault: asked_for(), ..SqliteOptions::default() }
}

/// The same for the store in a database.
pub(crate) fn postgres_options() -> PostgresOptions {
    PostgresOptions { fault: asked_for(), ..PostgresOptions::default() }
}

fn asked_for() -> Option<Fault> {
    static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
    // One count for all stores that the process opens.
    FAULT.get_or_init(|| std::env::var(VARIABLE).ok().as_deref().and_then(fault)).clone()
}

/// None for what names no point.
fn fault(text: &str) -> Option<Fault> {
    let mut parts = text.split(':');
    let write = match parts.next()? {
        "acquire" => Write::Acquire,
        "append" => Write::Append,
        "release" => Write::Release,
        _ => return None,
    };
    let n: u64 = parts.next()?.parse().ok()?;
    let stage = match parts.next()? {
        "before-write" => Stage::BeforeWrite,
        "before-sync" => Stage::AfterWriteBeforeSync,
        "before-answer" => Stage::AfterSyncBeforeAnswer,
        _ => return None,
    };
    let (point, text, seen) = (FaultPoint { write, stage }, text.to_owned(), AtomicU64::new(0));
    Some(Arc::new(move |at| {
        if at == point && seen.fetch_add(1, Ordering::Relaxed) + 1 == n {
            screen::say(&format!("stopped at {text}"));
            loop {
                thread::park();
            }
        }
        FaultAction::Go
    }))
}
