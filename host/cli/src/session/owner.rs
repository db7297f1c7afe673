//! Telling the process that has a session what to do: through the session's inbox, or by taking the session from it.

use std::sync::Arc;

use serde_json::json;
use wharf::core::inbox::Command;
use wharf::core::record::Reconcile;
use wharf::core::{Error, OrgId};
use wharf::inbox::{Told, take_over, tell};
use wharf::limits::COMMAND_WAIT;
use wharf::seams::TokioSeams;
use wharf::store::{JournalKey, Store};

use crate::args::{CancelArgs, TakeoverArgs};
use crate::exit::Exit;
use crate::open;
use crate::say::{plain, shell};
use crate::turn::who;
use crate::{limits, screen};

/// `wharf session cancel`.
///
/// # Errors
/// Store and corruption errors; a config error for a session that is not there.
pub(crate) async fn cancel(args: CancelArgs) -> anyhow::Result<Exit> {
    let Some((store, flag)) = crate::store::existing(&args.harness).await? else {
        return Err(open::no_session(&args.session, None).into());
    };
    let key = open::existing_session(&*store, &args.session).await?;
    let told = tell_owner(store, &key, &Command::Cancel).await?;
    if args.json {
        screen::print_json(&as_json(&args.session, &told))?;
        return Ok(exit(&told));
    }
    if explain(&args.session, &told) {
        let name = format!("{}{flag}", shell(&args.session));
        screen::say(&format!(
            "session {}: the calls of its turn are cancelled; the turn is kept",
            plain(&args.session)
        ));
        screen::hint(&format!("go on with it: wharf session resume {name}"));
        screen::hint(&format!("or end it: wharf session reconcile {name} --abandon"));
    }
    Ok(exit(&told))
}

/// Leaves an operator's answer for the process that has the session, if there is one. `None` if nobody has it: then the
/// answer is given by opening it.
///
/// # Errors
/// Store and corruption errors.
pub(crate) async fn answer(
    store: Arc<dyn Store>,
    key: &JournalKey,
    answer: &Reconcile,
    as_json_object: bool,
) -> anyhow::Result<Option<Exit>> {
    let told = tell_owner(store, key, &Command::Reconcile(answer.clone())).await?;
    let session = key.session.as_str();
    if told == Told::Free {
        return Ok(None);
    }
    if as_json_object {
        screen::print_json(&as_json(session, &told))?;
    } else if explain(session, &told) {
        screen::say(&format!("session {}: the answer was taken", plain(session)));
    }
    Ok(Some(exit(&told)))
}

/// `wharf session takeover`.
///
/// # Errors
/// Store and corruption errors; a config error for a session that is not there.
pub(crate) async fn takeover(args: TakeoverArgs) -> anyhow::Result<Exit> {
    let Some((store, flag)) = crate::store::existing(&args.harness).await? else {
        return Err(open::no_session(&args.session, None).into());
    };
    let key = open::existing_session(&*store, &args.session).await?;
    let former = owner(&*store, &key).await?;
    take_over(store, Arc::new(TokioSeams::current()), &key, &who()).await?;
    if args.json {
        screen::print_json(&json!({ "session": args.session, "former_owner": former }))?;
        return Ok(Exit::Ok);
    }
    let session = plain(&args.session);
    match former {
        Some(owner) => screen::say(&format!(
            "session {session} was taken from {}, which finds out at its next step; it is free now",
            plain(&owner)
        )),
        None => screen::say(&format!("nobody had session {session}; it is free")),
    }
    screen::hint(&format!("go on with it: wharf session resume {}{flag}", shell(&args.session)));
    Ok(Exit::Ok)
}

async fn tell_owner(store: Arc<dyn Store>, key: &JournalKey, command: &Command) -> Result<Told, Error> {
    tell(store, Arc::new(TokioSeams::current()), key, command, &who(), COMMAND_WAIT).await
}

async fn owner(store: &dyn Store, key: &JournalKey) -> Result<Option<String>, Error> {
    let sessions = store.sessions(&OrgId::local(), limits::SESSIONS_MAX).await?;
    Ok(sessions.into_iter().find(|one| one.key == *key).and_then(|one| Some(one.owner?.0.label)))
}

/// Says what became of a command. True if it was done.
fn explain(session: &str, told: &Told) -> bool {
    let session = plain(session);
    match told {
        Told::Done | Told::Free => return true,
        Told::Taken { owner } => {
            screen::say(&format!("{} has session {session} and did it", plain(owner)));
            return true;
        }
        Told::Refused { owner, why } => {
            screen::error(&format!("{} has session {session} and did not do it: {}", plain(owner), plain(why)));
        }
        Told::Waiting { owner } => {
            screen::error(&format!(
                "it is in the inbox of session {session}, and {} did not read it within {} s",
                plain(owner),
                COMMAND_WAIT.as_secs()
            ));
            screen::hint(&format!("take the session from it: wharf session takeover {}", shell(&session)));
        }
    }
    false
}

fn exit(told: &Told) -> Exit {
    match told {
        Told::Done | Told::Free | Told::Taken { .. } => Exit::Ok,
        Told::Refused { .. } | Told::Waiting { .. } => Exit::Store,
    }
}

fn as_json(session: &str, told: &Told) -> serde_json::Value {
    let (outcome, owner, why) = match told {
        Told::Done | Told::Free => ("done", None, None),
        Told::Taken { owner } => ("done", Some(owner), None),
        Told::Refused { owner, why } => ("refused", Some(owner), Some(why)),
        Told::Waiting { owner } => ("waiting", Some(owner), None),
    };
    json!({ "session": session, "outcome": outcome, "owner": owner, "why": why })
}
