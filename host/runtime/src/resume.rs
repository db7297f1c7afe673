//! Whether a session may go on under the harness that is now in force (X14, L52).

use wharf_core::record::HarnessFacts;
use wharf_core::session::Session;
use wharf_core::{CallState, Error};

/// Compares the journaled harness with the current one. Only a wider authority with open calls stands in the way.
pub(crate) fn compare(session: &Session, now: &HarnessFacts, accept_wider: bool) -> Result<(), Error> {
    let (Some(before), Some(turn)) = (session.harness(), session.open_turn()) else { return Ok(()) };
    let same = before.authority == now.authority && before.component == now.component;
    let open_calls = turn
        .checkpoint
        .live_calls()
        .any(|p| matches!(p.state, CallState::Queued | CallState::Running) && !turn.checkpoint.is_orphan(&p.call.id));
    if same || accept_wider || !open_calls || is_within(before, now) {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "the harness {:?} grants more than, or other components than, the one under which this turn's open calls were made",
        now.name
    ))
    .hint("put the harness back, or accept the change: wharf session resume SESSION --accept-wider"))
}

fn is_within(before: &HarnessFacts, now: &HarnessFacts) -> bool {
    before.component == now.component && before.authority_value == now.authority_value
}
