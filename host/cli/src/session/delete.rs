//! `wharf session delete`: sessions as a whole, after asking.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;

use serde_json::json;
use wharf::core::Error;
use wharf::removal;
use wharf::seams::TokioSeams;
use wharf::store::{Acquire, JournalKey};

use super::verify::readable_session;
use crate::args::DeleteArgs;
use crate::exit::{self, Exit};
use crate::say::{count, plain, shell};
use crate::turn::who;
use crate::{open, screen};

/// Deletes sessions. All of them have to be there before the first is deleted.
///
/// # Errors
/// Store and corruption errors; a config error for a session that is not there, and where nobody can be asked.
pub(crate) async fn delete(args: DeleteArgs) -> anyhow::Result<Exit> {
    let Some((store, flag)) = crate::store::existing(&args.harness).await? else {
        return Err(open::no_session(args.sessions.first().map_or("", String::as_str), None).into());
    };
    let mut keys: Vec<JournalKey> = Vec::with_capacity(args.sessions.len());
    for session in &args.sessions {
        let key = readable_session(&*store, session).await?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if !args.yes && !ask(&keys)? {
        screen::say("nothing was deleted");
        return Ok(Exit::Cancelled);
    }
    let how = if args.take_over { Acquire::TakeOver } else { Acquire::IfFree };
    let seams = Arc::new(TokioSeams::current());
    let (mut deleted, mut failed) = (Vec::new(), Vec::new());
    for key in keys {
        let named = format!("{}{flag}", shell(key.session.as_str()));
        match removal::delete(store.clone(), seams.clone(), &key, &who(), how).await {
            Ok(()) => deleted.push(key),
            Err(error) => {
                let hint = error.hint.as_ref().map(|hint| hint.replace("SESSION", &named));
                failed.push((key, Error { hint, ..error }));
            }
        }
    }
    if args.json {
        screen::print_json(&json!({
            "deleted": deleted.iter().map(|key| key.session.as_str()).collect::<Vec<_>>(),
            "failed": failed.iter().map(|(key, error)| json!({
                "session": key.session.as_str(), "kind": error.kind.as_str(), "message": error.message, "hint": error.hint,
            })).collect::<Vec<_>>(),
        }))?;
    } else {
        for key in &deleted {
            screen::say(&format!("session {} was deleted", plain(key.session.as_str())));
        }
        for (_, error) in &failed {
            for told in exit::faults(&error.clone().into()) {
                screen::error(&told.message);
                if let Some(hint) = told.hint {
                    screen::hint(&hint);
                }
            }
        }
    }
    Ok(failed.first().map_or(Exit::Ok, |(_, error)| Exit::of(error.kind)))
}

/// Asks on the terminal. A script has to say it beforehand.
fn ask(keys: &[JournalKey]) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Error::config("a deletion cannot be undone, and there is nobody to ask")
            .hint("say --yes if it is meant")
            .into());
    }
    let names: Vec<String> = keys.iter().map(|key| plain(key.session.as_str())).collect();
    let sessions = count(keys.len() as u64, "session", "sessions");
    let mut out = anstream::stderr().lock();
    write!(out, "delete {sessions} with all records and outputs, for good: {}? [y/N] ", names.join(", "))?;
    out.flush()?;
    drop(out);
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
