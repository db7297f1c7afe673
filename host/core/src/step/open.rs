//! What opening a journal does to its calls once nothing is uncertain any more (G1 to G12, G18, L1, L15).

use super::{Effect, Machine};
use crate::checkpoint::{CallState, Checkpoint};
use crate::error::Error;
use crate::ids::CallId;
use crate::policy::{Admission, CallPolicy, ReplayClass};
use crate::record::{Record, Settlement};
use crate::tool::error_output;

impl Machine {
    /// Mends the calls of the open turn and launches those that wait, in order. Nothing to do without an open turn.
    pub(super) fn opened(&mut self, policies: &[(CallId, CallPolicy)]) -> Result<Vec<Effect>, Error> {
        let Some(turn) = self.session.open_turn() else { return Ok(Vec::new()) };
        turn.checkpoint.check_damage()?;
        let mut records = finish_transcript(&turn.checkpoint)?;
        self.fold(&records)?;
        let narrowed = narrow(&self.turn()?.checkpoint, policies)?;
        self.fold(&narrowed)?;
        let recovered = self.turn()?.checkpoint.recover()?;
        self.fold(&recovered)?;
        records.extend(narrowed);
        records.extend(recovered);
        for (id, policy) in policies {
            self.adopt(id, policy);
            let queued = self.turn()?.checkpoint.call(id).is_some_and(|p| p.state == CallState::Queued);
            if let (true, Admission::Refuse(refusal)) = (queued, &policy.admission) {
                let settled = Record::CallSettled {
                    id: id.clone(),
                    output: error_output(&refusal.message),
                    how: Settlement::Failed,
                };
                self.fold(std::slice::from_ref(&settled))?;
                records.push(settled);
            }
        }
        if self.turn()?.paused.is_none() {
            self.enqueue_waiting_sync_calls()?;
        }
        let launches = self.schedule(&mut records)?;
        let mut effects = Vec::new();
        if !records.is_empty() {
            effects.push(Effect::Append(records));
        }
        effects.extend(launches.into_iter().map(Effect::Run));
        Ok(effects)
    }
}

/// A transcript message that was begun and not committed is finished (G18): its summary is there, or its response was
/// accepted and the summary can be made now.
fn finish_transcript(checkpoint: &Checkpoint) -> Result<Vec<Record>, Error> {
    let Some(message_id) = checkpoint.transcript_message_id() else { return Ok(Vec::new()) };
    if checkpoint.response_in_flight() {
        return Ok(Vec::new()); // `recover` reports it
    }
    let commit = Record::TranscriptCommitted { message_id: message_id.to_owned() };
    let (summaries, responses) = (checkpoint.host_responses().len() as u64, checkpoint.completed_responses());
    if summaries == responses {
        return Ok(vec![commit]);
    }
    if summaries + 1 == responses {
        let summary = serde_json::json!({ "response_id": checkpoint.latest_response_id().map(|id| id.as_str()) });
        return Ok(vec![Record::SummaryStaged { summary }, commit]);
    }
    Err(Error::store(format!(
        "transcript message {message_id:?} does not fit: {summaries} summaries for {responses} responses"
    )))
}

/// A narrower replay class replaces the stored one before recovery; any other change is a conflict (L15).
fn narrow(checkpoint: &Checkpoint, policies: &[(CallId, CallPolicy)]) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for (id, policy) in policies {
        let Some(pending) = checkpoint.call(id) else { continue };
        let open = matches!(pending.state, CallState::Queued | CallState::Running);
        if !open || pending.rejected || pending.replay == policy.replay || matches!(policy.admission, Admission::Refuse(_)) {
            continue;
        }
        if policy.replay != ReplayClass::Never {
            return Err(Error::conflict(format!(
                "call {:?} of tool {:?} was registered with replay class {}, and policy now says {}",
                id.as_str(),
                pending.call.name.as_str(),
                pending.replay,
                policy.replay
            ))
            .hint("put the harness back as it was, or abandon the turn: wharf session reconcile SESSION --abandon"));
        }
        records.push(Record::ReplayNarrowed { id: id.clone() });
    }
    Ok(records)
}
