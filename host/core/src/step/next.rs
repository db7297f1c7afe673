//! What a turn does next, given what is known (L30, L41 to L44, L51, L59, L61, L62, L66).

use super::Machine;
use crate::checkpoint::CallState;
use crate::error::Error;
use crate::ids::CallId;
use crate::record::PauseReason;
use crate::session::Ending;

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Everything is delivered; the turn may complete.
    Finished,
    /// Prepare a delivery and send it.
    Deliver,
    /// Ask the model, with nothing to deliver: for the first time, or again after a lost response.
    Ask,
    /// Nothing can be done before a job ends.
    WaitForJob,
    /// A request is uncertain; resolve it first.
    Resolve,
    /// At rest until somebody acts (L62).
    Rest(PauseReason),
}

impl Machine {
    /// Decides what the turn does next.
    ///
    /// # Errors
    /// A config error if no turn is open; a store error for a sync call that has neither job nor hold (L30), and where
    /// nothing is left to do although the turn may not complete.
    pub fn next(&self) -> Result<Next, Error> {
        if let Some(first) = self.poisoned() {
            return Err(first.clone());
        }
        let turn = self.turn()?;
        let checkpoint = &turn.checkpoint;
        if turn.flight.is_some() || checkpoint.delivery().is_some() {
            return Ok(Next::Resolve);
        }
        let rest = |reason: PauseReason| if self.has_jobs() { Next::WaitForJob } else { Next::Rest(reason) };
        if let Some(reason) = &turn.paused {
            return Ok(rest(reason.clone()));
        }
        if self.stopping {
            return Ok(rest(PauseReason::Shutdown));
        }
        if turn.unknown_tools > self.settings.unknown_tools_max {
            return Ok(rest(PauseReason::UnknownTools { count: turn.unknown_tools }));
        }
        // The model has the word although nothing is to be delivered: it has to be told of a lost answer (L59), or its last
        // one was superseded or cut (L18, L66).
        let goes_on = !turn.untold.is_empty() || turn.ending() != Ending::Whole;
        if !goes_on && checkpoint.completed_responses() > 0 && checkpoint.may_complete() {
            return Ok(Next::Finished);
        }
        let mut held: Vec<CallId> = Vec::new();
        let mut held_sync = false;
        let mut waits = false;
        for pending in checkpoint.live_calls() {
            let id = &pending.call.id;
            let orphan = checkpoint.is_orphan(id);
            match pending.state {
                CallState::Running if self.jobs.has(id) => {
                    waits |= !pending.call.is_async || (orphan && turn.untold.contains(id));
                }
                CallState::Queued if orphan => {}
                CallState::Queued if pending.hold.is_some() => {
                    held.push(id.clone());
                    held_sync |= !pending.call.is_async;
                }
                CallState::Queued if self.jobs.has(id) => waits |= !pending.call.is_async,
                CallState::Queued if turn.withheld && !pending.call.is_async => {}
                CallState::Queued | CallState::Running => {
                    return Err(Error::store(format!("call {:?} has neither a job nor a hold", id.as_str())));
                }
                CallState::Ready { .. } | CallState::Delivered => {}
            }
        }
        if waits {
            return Ok(Next::WaitForJob);
        }
        if held_sync {
            return Ok(rest(PauseReason::Held { calls: held }));
        }
        if checkpoint.deliverable().next().is_some() {
            return Ok(Next::Deliver);
        }
        if checkpoint.completed_responses() == 0 {
            return Ok(Next::Ask);
        }
        if self.has_jobs() {
            return Ok(Next::WaitForJob); // before asking again (L41)
        }
        if goes_on {
            return Ok(Next::Ask);
        }
        if !held.is_empty() {
            return Ok(Next::Rest(PauseReason::Held { calls: held }));
        }
        Err(Error::store("the turn has nothing left to do and may not complete"))
    }
}
