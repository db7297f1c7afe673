//! Whether a session may go on under the harness that is now in force (X14, L52).

use serde_json::Value;
use wharf_core::authority::{Authority, AuthorityChange};
use wharf_core::record::HarnessFacts;
use wharf_core::session::Session;
use wharf_core::{CallState, Error};

use crate::limits;

/// Compares the journaled harness with the current one. Only an authority that is wider, or that cannot be compared, stands
/// in the way of calls that are open; the conversation never does.
///
/// # Errors
/// A conflict error that names what is wider.
pub(crate) fn compare(session: &Session, now: &HarnessFacts, accept_wider: bool) -> Result<(), Error> {
    let (Some(before), Some(turn)) = (session.harness(), session.open_turn()) else { return Ok(()) };
    let open_calls = turn
        .checkpoint
        .live_calls()
        .any(|p| matches!(p.state, CallState::Queued | CallState::Running) && !turn.checkpoint.is_orphan(&p.call.id));
    if accept_wider || !open_calls {
        return Ok(());
    }
    let mut wider = wider(before, now);
    if wider.is_empty() {
        return Ok(());
    }
    let more = wider.len().saturating_sub(limits::DIFFERENCES_SHOWN_MAX);
    wider.truncate(limits::DIFFERENCES_SHOWN_MAX);
    if more > 0 {
        wider.push(format!("and {more} more"));
    }
    Err(Error::conflict(format!(
        "harness {:?} allows more than when the open calls of this turn were made: {}",
        now.name,
        wider.join("; ")
    ))
    .hint(
        "put the harness back, or accept the change: wharf session resume SESSION --accept-wider (a `wharf session \
         reconcile` takes --accept-wider too)",
    ))
}

/// What the current harness allows beyond the journaled one, line by line; empty if it is equal or narrower.
fn wider(before: &HarnessFacts, now: &HarnessFacts) -> Vec<String> {
    if before.authority == now.authority && before.component == now.component {
        return Vec::new();
    }
    let (Value::Object(was), Value::Object(is)) = (&before.authority_value, &now.authority_value) else {
        return vec!["its authority is another and cannot be compared".to_owned()];
    };
    let mut lines = Vec::new();
    for (name, value) in is {
        match was.get(name) {
            None => lines.push(format!("capability {name:?} is new")),
            Some(old) if old == value => {}
            Some(old) => match (Authority::from_json(old), Authority::from_json(value)) {
                (Ok(old), Ok(new)) => match new.compared_with(&old) {
                    AuthorityChange::Equal | AuthorityChange::Narrower(_) => {}
                    AuthorityChange::Wider(more) => {
                        lines.extend(more.into_iter().map(|line| format!("capability {name:?}: {line}")));
                    }
                },
                (Err(_), _) | (_, Err(_)) => {
                    lines.push(format!("the authority of capability {name:?} is another and cannot be compared"));
                }
            },
        }
    }
    if lines.is_empty() && was == is {
        // The digests differ and what they are made of does not: somebody else's facts.
        lines.push("its components or its authority are others, and nothing says how they differ".to_owned());
    }
    lines
}
