//! What opening a journal does to its calls once nothing is uncertain any more (G1 to G12, G18, L1, L15).

use super::{Effect, Machine};
use crate::checkpoint::{CallState, Checkpoint, INTERRUPTED};
use crate::error::Error;
use crate::ids::CallId;
use crate::policy::{Admission, CallPolicy, ReplayClass};
use crate::record::{Record, Settlement};
use crate::session::Turn;
use crate::tool::error_output;

impl Machine {
    /// Mends the calls of the open turn and launches those that wait, in order. Nothing to do without an open turn. All is
    /// decided before anything changes (G3).
    pub(super) fn opened(&mut self, policies: &[(CallId, CallPolicy)]) -> Result<Vec<Effect>, Error> {
        let Some(turn) = self.session.open_turn() else {
            self.opening = false;
            return Ok(Vec::new());
        };
        turn.checkpoint.check_damage()?;
        let mut mended = turn.checkpoint.clone();
        let mut records = Vec::new();
        let mut mend = |checkpoint: &mut Checkpoint, found: Vec<Record>| -> Result<(), Error> {
            found.iter().try_for_each(|record| checkpoint.apply(record))?;
            records.extend(found);
            Ok(())
        };
        let found = finish_transcript(&mended)?;
        mend(&mut mended, found)?;
        let found = narrow(&mended, policies)?;
        mend(&mut mended, found)?;
        let found = mended.recover()?;
        mend(&mut mended, found)?;
        let found = interrupted(turn, &mended);
        mend(&mut mended, found)?;
        let found = withdraw(turn, &mended, policies);
        mend(&mut mended, found)?;
        self.fold(&records)?;
        self.opening = false;
        for (id, policy) in policies {
            self.classify(id, policy);
        }
        self.enqueue_waiting()?;
        let launches = self.schedule(&mut records)?;
        let mut effects = Vec::new();
        if !records.is_empty() {
            effects.push(Effect::Append(records));
        }
        effects.extend(launches.into_iter().map(Effect::Run));
        Ok(effects)
    }

    /// Damage on disk is found before anything is settled (G1); in a process that lives on there is nothing to find.
    pub(super) fn check_damage_on_opening(&self) -> Result<(), Error> {
        match self.session.open_turn() {
            Some(turn) if self.opening => turn.checkpoint.check_damage(),
            Some(_) | None => Ok(()),
        }
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

/// A narrower replay class replaces the stored one before recovery; any other change is a conflict (L15). A refusal is the
/// narrowest there is. Orphans are not run again whatever policy says.
fn narrow(checkpoint: &Checkpoint, policies: &[(CallId, CallPolicy)]) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for (id, policy) in policies {
        let Some(pending) = checkpoint.call(id) else { continue };
        let open = matches!(pending.state, CallState::Queued | CallState::Running) && !checkpoint.is_orphan(id);
        let now = match policy.admission {
            Admission::Refuse(_) => ReplayClass::Never,
            Admission::Start | Admission::Hold(_) => policy.replay,
        };
        if !open || pending.replay == now {
            continue;
        }
        if now != ReplayClass::Never {
            return Err(Error::conflict(format!(
                "call {:?} of tool {:?} was registered with replay class {}, and policy now says {now}",
                id.as_str(),
                pending.call.name.as_str(),
                pending.replay,
            ))
            .hint("put the harness back as it was, or abandon the turn: wharf session reconcile SESSION --abandon"));
        }
        records.push(Record::ReplayNarrowed { id: id.clone() });
    }
    Ok(records)
}

/// Calls that ran, were queued to run again, and may not by now: an opening queued them, a crash came before their next
/// start, and policy narrowed their class since. They are interrupted calls like those of G5 (design promise 2).
fn interrupted(turn: &Turn, checkpoint: &Checkpoint) -> Vec<Record> {
    checkpoint
        .live_calls()
        .filter(|p| p.state == CallState::Queued && p.replay == ReplayClass::Never)
        .filter(|p| turn.attempts(&p.call.id) > 0)
        .map(|p| Record::CallSettled {
            id: p.call.id.clone(),
            output: error_output(INTERRUPTED),
            how: Settlement::Interrupted,
        })
        .collect()
}

/// Calls that wait and that policy does not let start any more are settled with the reason, as a refused call is.
fn withdraw(turn: &Turn, checkpoint: &Checkpoint, policies: &[(CallId, CallPolicy)]) -> Vec<Record> {
    let mut records = Vec::new();
    for (id, policy) in policies {
        let Some(pending) = checkpoint.call(id) else { continue };
        if pending.state != CallState::Queued || checkpoint.is_orphan(id) {
            continue;
        }
        let message = match &policy.admission {
            Admission::Refuse(refusal) => refusal.message.clone(),
            // It was accepted to run at once, and somebody is to be asked now.
            Admission::Hold(hold)
                if pending.hold.is_none() && turn.attempts(id) == 0 && turn.approval_of(id).is_none() =>
            {
                format!("the rules changed before this call ran: it needs an {} now; call it again", hold.as_str())
            }
            Admission::Start | Admission::Hold(_) => continue,
        };
        records.push(Record::CallSettled { id: id.clone(), output: error_output(&message), how: Settlement::Failed });
    }
    records
}
