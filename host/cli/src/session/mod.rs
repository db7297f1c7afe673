//! `wharf session …`: what is stored, and going on with it. Looking takes no lease.

mod delete;
mod gc;
mod owner;
mod show;
mod verify;

use std::path::Path;

use serde_json::json;
use wharf::core::harness::Harness;
use wharf::core::record::Reconcile;
use wharf::core::session::Session as Fold;
use wharf::core::{Error, OrgId, ResponseId, Seq};
use wharf::store::{SessionSummary, Store};

use crate::args::{ExportArgs, HarnessArg, ReconcileArgs, ResumeArgs, SessionListArgs};
use crate::exit::Exit;
use crate::open::{self, HarnessFile};
use crate::say::{moment, plain};
use crate::story::entries;
use crate::table::Table;
use crate::turn::{self, Beginning};
use crate::{files, limits, screen};

pub(crate) use delete::delete;
pub(crate) use gc::gc;
pub(crate) use owner::{cancel, takeover};
pub(crate) use show::show;
pub(crate) use verify::verify;

/// `wharf session list`.
///
/// # Errors
/// Store and corruption errors.
pub(crate) async fn list(args: SessionListArgs) -> anyhow::Result<Exit> {
    let mut rows = Vec::new();
    if let Some((store, _)) = crate::store::existing(&args.harness).await? {
        let sessions = store.sessions(&OrgId::local(), limits::SESSIONS_MAX).await?;
        for one in sessions.into_iter().filter(|one| one.head != Seq(0)) {
            let state = state_of(&*store, &one).await?;
            rows.push((one, state));
        }
    }
    if args.json {
        let sessions: Vec<_> = rows
            .iter()
            .map(|(one, state)| {
                json!({
                    "session": one.key.session.as_str(),
                    "state": state,
                    "records": one.head.0,
                    "updated": moment(one.updated_ms),
                    "owner": one.owner.as_ref().map(|(owner, left)| json!({
                        "label": owner.label, "seconds_left": left.as_secs(),
                    })),
                })
            })
            .collect();
        screen::print_json(&json!({ "sessions": sessions }))?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        screen::say("no sessions yet; `wharf run` makes them");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["SESSION", "STATE", "RECORDS", "UPDATED", "IN USE BY"]);
    for (one, state) in &rows {
        table.row([
            plain(one.key.session.as_str()),
            (*state).to_owned(),
            one.head.to_string(),
            moment(one.updated_ms),
            owner_text(one).unwrap_or_default(),
        ]);
    }
    screen::print(&table.to_string())?;
    Ok(Exit::Ok)
}

/// The state that a session's last record tells, so that a list does not read whole journals.
async fn state_of(store: &dyn Store, one: &SessionSummary) -> Result<&'static str, Error> {
    let last = store.history(&one.key, Seq(one.head.0.saturating_sub(1)), 1).await?;
    Ok(match last.last().map(|stored| stored.record.kind.as_str()) {
        Some("turn.ended") => "done",
        Some("turn.paused" | "turn.parked") => "waits",
        Some(_) | None => "open",
    })
}

fn owner_text(one: &SessionSummary) -> Option<String> {
    one.owner.as_ref().map(|(owner, left)| format!("{} for {} s", plain(&owner.label), left.as_secs()))
}

/// `wharf session resume`.
///
/// # Errors
/// As [`turn::run`].
pub(crate) async fn resume(args: ResumeArgs) -> anyhow::Result<Exit> {
    let (file, _) = with_store(&args.harness, &args.session)?;
    let beginning = Beginning::Resume { accept_wider: args.accept_wider };
    turn::run(&file, args.turn, Some(&args.session), beginning).await
}

/// `wharf session reconcile`.
///
/// # Errors
/// As [`turn::run`].
pub(crate) async fn reconcile(args: ReconcileArgs) -> anyhow::Result<Exit> {
    let (file, harness) = with_store(&args.harness, &args.session)?;
    let answer = match (&args.receipt, args.resend) {
        (Some(id), _) if id.trim().is_empty() => {
            return Err(Error::config("the response id of --receipt is empty").into());
        }
        (Some(id), _) => Reconcile::Receipt(ResponseId::new(id)),
        (None, true) => Reconcile::Resend,
        (None, false) => Reconcile::Abandon,
    };
    // A process that has the session is told; else the answer is given by opening it.
    if !args.turn.take_over {
        let store = file.store(&harness).await?;
        let key = open::existing_session(&*store, &args.session).await?;
        if let Some(exit) = owner::answer(store, &key, &answer, args.turn.json).await? {
            return Ok(exit);
        }
    }
    turn::run(&file, args.turn, Some(&args.session), Beginning::Reconcile { answer, accept_wider: args.accept_wider })
        .await
}

/// A harness whose sessions are there: a command that goes on with one must not make a store.
fn with_store(arg: &HarnessArg, session: &str) -> anyhow::Result<(HarnessFile, Harness)> {
    let file = HarnessFile::find(arg)?;
    // A harness that cannot be read is the first thing to tell.
    let harness = file.read()?;
    if !file.place(Some(&harness))?.is_there() {
        return Err(no_store(session, &file.base()).into());
    }
    Ok((file, harness))
}

fn no_store(session: &str, base: &Path) -> Error {
    Error::config(format!("there is no session {session:?}: there are none in {}", base.join(".wharf").display()))
        .hint("sessions are kept in .wharf beside the harness file; name that file with -H")
}

/// `wharf session export`.
///
/// # Errors
/// Store and corruption errors; a config error for a session that is not there.
pub(crate) async fn export(args: ExportArgs) -> anyhow::Result<Exit> {
    let Some((store, _)) = crate::store::existing(&args.harness).await? else {
        return Err(open::no_session(&args.session, None).into());
    };
    let key = open::existing_session(&*store, &args.session).await?;
    let entries = entries(&*store, &key).await?;
    let fold = Fold::fold(entries.iter().map(|entry| &entry.record))?;
    let Some(turn) = fold.turn() else {
        return Err(Error::config(format!("session {:?} never had a turn", args.session)).into());
    };
    let document = turn.checkpoint.to_json();
    let Some(path) = &args.output else {
        screen::print_json(&document)?;
        return Ok(Exit::Ok);
    };
    files::replace_whole(path, &format!("{document:#}\n")).map_err(|error| {
        Error::config(format!("{} cannot be written: {error}", path.display()))
            .hint("name a file in a folder that is there")
    })?;
    Ok(Exit::Ok)
}
