//! `wharf session verify`: whether journals keep what they promise.

use serde_json::{Value, json};
use wharf::core::{Error, OrgId};
use wharf::store::{JournalKey, Store, StoreError};
use wharf::verify::{Breach, Findings, verify as check};

use crate::args::VerifyArgs;
use crate::exit::{self, Exit};
use crate::open;
use crate::say::{count, plain};
use crate::table::Table;
use crate::{progress, screen};

/// One session with what was found.
struct Checked {
    key: JournalKey,
    found: Result<Findings, Error>,
}

/// Checks one session, or all.
///
/// # Errors
/// Store and corruption errors; a config error for a session that is not there.
pub(crate) async fn verify(args: VerifyArgs) -> anyhow::Result<Exit> {
    let Some((store, _)) = crate::store::existing(&args.harness).await? else {
        return match &args.session {
            Some(session) => Err(open::no_session(session, None).into()),
            None => tell(&[], &args),
        };
    };
    let keys = match &args.session {
        Some(session) => vec![readable_session(&*store, session).await?],
        None => sessions(&*store).await?,
    };
    let steps = progress::Steps::begin();
    let mut checked = Vec::with_capacity(keys.len());
    for key in keys {
        let name = plain(key.session.as_str());
        let found = check(&*store, &key, &mut |seq| steps.show(|| format!("session {name}: record {seq}"))).await;
        checked.push(Checked { key, found });
    }
    steps.end();
    tell(&checked, &args)
}

/// A session that has to be there. One that cannot be read is: that is for the check to tell.
pub(super) async fn readable_session(store: &dyn Store, session: &str) -> Result<JournalKey, Error> {
    let key = open::session_key(session)?;
    match store.history(&key, wharf::core::Seq(0), 1).await {
        Err(StoreError::Corrupt { .. }) => Ok(key),
        Ok(_) | Err(_) => open::existing_session(store, session).await,
    }
}

/// Every session of the store, in the order of their names.
async fn sessions(store: &dyn Store) -> Result<Vec<JournalKey>, Error> {
    let sessions = store.sessions(&OrgId::local(), wharf::limits::SESSIONS_AT_ONCE_MAX).await?;
    let mut keys: Vec<JournalKey> = sessions.into_iter().map(|one| one.key).collect();
    keys.sort();
    Ok(keys)
}

fn tell(checked: &[Checked], args: &VerifyArgs) -> anyhow::Result<Exit> {
    if args.json {
        let sound = checked.iter().all(|one| one.found.as_ref().is_ok_and(|found| found.first().is_none()));
        let sessions: Vec<Value> = checked.iter().map(as_json).collect();
        screen::print_json(&json!({ "sound": sound, "sessions": sessions }))?;
        return Ok(exit_of(checked));
    }
    if checked.is_empty() {
        screen::say("no sessions yet; `wharf run` makes them");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["SESSION", "RECORDS", "OUTPUTS", "STATE"]);
    for Checked { key, found } in checked {
        let name = plain(key.session.as_str());
        match found {
            Ok(found) => table.row([name, found.records.to_string(), found.blobs.to_string(), state(found)]),
            Err(_) => table.row([name, "?".to_owned(), "?".to_owned(), "not checked".to_owned()]),
        }
    }
    screen::print(&table.to_string())?;
    for one in checked {
        explain(one, args.all);
    }
    Ok(exit_of(checked))
}

fn state(found: &Findings) -> String {
    match found.first() {
        None => "sound".to_owned(),
        Some(first) => format!("broken at record {}", first.seq),
    }
}

/// Names the first breach, or all.
fn explain(one: &Checked, all: bool) {
    let found = match &one.found {
        Ok(found) => found,
        Err(error) => return fault(error),
    };
    let listed = if all { found.breaches.len() } else { 1 };
    for breach in found.breaches.iter().take(listed) {
        fault(&breach.to_error(&one.key));
    }
    let more = found.breaches.len().saturating_sub(listed);
    if more > 0 {
        screen::say(&format!("and {} behind it; --all lists them", count(more as u64, "breach", "breaches")));
    }
    if !found.to_the_end {
        screen::say("what stands behind that was not looked at");
    }
}

fn fault(error: &Error) {
    for told in exit::faults(&error.clone().into()) {
        screen::error(&told.message);
        if let Some(hint) = told.hint {
            screen::hint(&hint);
        }
    }
}

/// Damage counts before a store that could not say.
fn exit_of(checked: &[Checked]) -> Exit {
    if checked.iter().any(|one| one.found.as_ref().is_ok_and(|found| found.first().is_some())) {
        return Exit::Corruption;
    }
    checked.iter().find_map(|one| one.found.as_ref().err()).map_or(Exit::Ok, |error| Exit::of(error.kind))
}

fn as_json(one: &Checked) -> Value {
    let session = one.key.session.as_str();
    match &one.found {
        Ok(found) => json!({
            "session": session, "sound": found.first().is_none(), "records": found.records, "outputs": found.blobs,
            "to_the_end": found.to_the_end, "breaches": found.breaches.iter().map(breach_json).collect::<Vec<_>>(),
        }),
        Err(error) => json!({
            "session": session, "sound": null,
            "error": { "kind": error.kind.as_str(), "message": error.message, "hint": error.hint },
        }),
    }
}

fn breach_json(breach: &Breach) -> Value {
    json!({
        "record": breach.seq.0, "kind": breach.kind, "invariant": breach.invariant.as_str(), "what": breach.what,
        "hint": breach.hint(),
    })
}
