//! `wharf session gc`: sessions that are older than they are kept, and outputs that no record names.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wharf::core::harness::{parse_duration, write_duration};
use wharf::core::{Error, OrgId};
use wharf::removal::{self, Collected, Order, Why};
use wharf::seams::TokioSeams;

use crate::args::GcArgs;
use crate::exit::{self, Exit};
use crate::open::HarnessFile;
use crate::say::{count, moment, plain, size};
use crate::table::Table;
use crate::{progress, screen};

/// Collects.
///
/// # Errors
/// Faults of the harness file, which says how long sessions are kept; store and corruption errors.
pub(crate) async fn gc(args: GcArgs) -> anyhow::Result<Exit> {
    let keep = keep(&args)?;
    let order = Order { keep, dry_run: args.dry_run, label: format!("wharf session gc, pid {}", std::process::id()) };
    let collected = match crate::store::existing(&args.harness).await? {
        None => Collected::default(),
        Some((store, _)) => {
            let steps = progress::Steps::begin();
            let seams = Arc::new(TokioSeams::current());
            let mut show = |at, all| steps.show(|| format!("session {at} of {all}"));
            let collected = removal::collect(store, seams, &OrgId::local(), &order, &mut show).await?;
            steps.end();
            collected
        }
    };
    if args.json {
        screen::print_json(&as_json(&collected, &order))?;
    } else {
        tell(&collected, &order)?;
    }
    let failed = collected.left.iter().find_map(|left| match &left.why {
        Why::InUse { .. } => None,
        Why::Failed(error) => Some(error.kind),
    });
    Ok(failed.map_or(Exit::Ok, Exit::of))
}

/// How long sessions are kept: the command line's word, else that of the harness file.
fn keep(args: &GcArgs) -> anyhow::Result<Option<Duration>> {
    if let Some(text) = &args.keep {
        let fault =
            |why: String| Error::config(format!("--keep {text:?} is not a duration: it {why}")).hint("--keep 90d");
        return Ok(Some(parse_duration(text).map_err(fault)?));
    }
    // The journals are readable without the harness that made them, which then says nothing.
    let Ok(file) = HarnessFile::find(&args.harness) else { return Ok(None) };
    Ok(file.read()?.retention().map(|retention| retention.keep))
}

fn tell(collected: &Collected, order: &Order) -> anyhow::Result<()> {
    if !collected.deleted.is_empty() {
        let mut table = Table::new(&["SESSION", "LAST RECORD", "RECORDS", "OUTPUTS", "BYTES"]);
        for one in &collected.deleted {
            table.row([
                plain(one.key.session.as_str()),
                moment(one.last_ms),
                one.records.to_string(),
                one.blobs.blobs.to_string(),
                size(one.blobs.bytes),
            ]);
        }
        screen::print(&table.to_string())?;
    }
    let deleted = count(collected.deleted.len() as u64, "session", "sessions");
    match (order.keep.map(write_duration), order.dry_run) {
        (Some(keep), false) => screen::say(&format!("deleted {deleted} without an open turn, older than {keep}")),
        (Some(keep), true) => screen::say(&format!("would delete {deleted} without an open turn, older than {keep}")),
        (None, _) => {
            screen::say("no session is deleted for its age: nothing says how long they are kept");
            screen::hint("write keep = \"90d\" under [sessions] in the harness file, or say --keep 90d");
        }
    }
    let swept = count(collected.swept.blobs, "output", "outputs");
    if order.dry_run {
        screen::say("outputs that no record names are counted only when they are removed");
    } else {
        screen::say(&format!("removed {swept} that no record names, {}", size(collected.swept.bytes)));
    }
    for left in &collected.left {
        let session = plain(left.key.session.as_str());
        match &left.why {
            Why::InUse { owner } => screen::say(&format!("session {session} was left alone: {} has it", plain(owner))),
            Why::Failed(error) => {
                for told in exit::faults(&error.clone().into()) {
                    screen::error(&format!("session {session} was left alone: {}", told.message));
                    screen::hint(&format!("look at it: wharf session verify {session}"));
                }
            }
        }
    }
    Ok(())
}

fn as_json(collected: &Collected, order: &Order) -> Value {
    let deleted = collected.deleted.iter().map(|one| {
        json!({
            "session": one.key.session.as_str(), "last_record": moment(one.last_ms), "records": one.records,
            "outputs": one.blobs.blobs, "bytes": one.blobs.bytes,
        })
    });
    let left = collected.left.iter().map(|left| match &left.why {
        Why::InUse { owner } => json!({ "session": left.key.session.as_str(), "owner": owner, "error": null }),
        Why::Failed(error) => json!({
            "session": left.key.session.as_str(), "owner": null,
            "error": { "kind": error.kind.as_str(), "message": error.message, "hint": error.hint },
        }),
    });
    json!({
        "dry_run": order.dry_run,
        "keep": order.keep.map(write_duration),
        "sessions": collected.sessions,
        "deleted": deleted.collect::<Vec<_>>(),
        "swept": (!order.dry_run).then(|| json!({
            "outputs": collected.swept.blobs, "bytes": collected.swept.bytes,
        })),
        "left": left.collect::<Vec<_>>(),
    })
}
