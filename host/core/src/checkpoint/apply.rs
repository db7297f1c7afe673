//! The fold of records into a checkpoint. A record that contradicts what came before is a corruption error that names it
//! (B11); a whole journal that folds without one is consistent.

use super::{CallState, Checkpoint, PendingCall};
use crate::error::Error;
use crate::ids::CallId;
use crate::model::Delivery;
use crate::policy::ReplayClass;
use crate::record::Record;

impl Checkpoint {
    /// Folds one record. Records that are about the session and not about the turn's calls change nothing here.
    ///
    /// # Errors
    /// A corruption error if the record does not fit the state. The state is then unchanged.
    pub fn apply(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::CallAccepted { call, wire_call_id, replay, hold, idempotency_key } => self.insert(PendingCall {
                call: call.clone(),
                replay: *replay,
                state: CallState::Queued,
                rejected: false,
                hold: hold.clone(),
                idempotency_key: idempotency_key.clone(),
                wire_call_id: wire_call_id.clone(),
                attempts: 0,
            }),
            Record::CallRejected { call, wire_call_id, output, reason: _ } => self.insert(PendingCall {
                call: call.clone(),
                replay: ReplayClass::Never,
                state: CallState::Ready { output: output.clone() },
                rejected: true,
                hold: None,
                idempotency_key: None,
                wire_call_id: wire_call_id.clone(),
                attempts: 0,
            }),
            Record::CallStarted { id, attempt, .. } => {
                let attempt = *attempt;
                self.change(id, "started", |p| match p.state {
                    CallState::Queued => {
                        p.state = CallState::Running;
                        p.attempts = attempt;
                        p.hold = None;
                        true
                    }
                    CallState::Running | CallState::Ready { .. } | CallState::Delivered => false,
                })
            }
            Record::CallSettled { id, output, how: _ } => self.change(id, "settled", |p| match p.state {
                CallState::Queued | CallState::Running => {
                    p.state = CallState::Ready { output: output.clone() };
                    p.hold = None;
                    true
                }
                CallState::Ready { .. } | CallState::Delivered => false,
            }),
            Record::CallRequeued { id } => self.change(id, "queued again", |p| match p.state {
                CallState::Running => {
                    p.state = CallState::Queued;
                    true
                }
                CallState::Queued | CallState::Ready { .. } | CallState::Delivered => false,
            }),
            Record::HoldReleased { id, .. } => self.change(id, "released from its hold", |p| {
                p.state == CallState::Queued && p.hold.take().is_some()
            }),
            Record::ReplayNarrowed { id } => self.change(id, "narrowed", |p| {
                p.replay = ReplayClass::Never;
                true
            }),
            Record::CallsOrphaned { ids } => self.orphan(ids),
            Record::ResponseBegun(begun) => {
                if self.response_in_flight {
                    return Err(Error::corruption("a response was begun while another one was in flight"));
                }
                self.response_in_flight = true;
                if let Some(id) = &begun.message_id {
                    self.transcript_message_id = Some(id.clone());
                }
                Ok(())
            }
            Record::ResponseCompleted { id } => {
                self.latest_response_id = Some(id.clone());
                self.completed_responses = self.completed_responses.saturating_add(1);
                Ok(())
            }
            Record::DeliveryPrepared { previous_response_id, call_ids, after } => {
                if self.delivery.is_some() {
                    return Err(Error::corruption("a delivery was prepared while another one was open"));
                }
                let mut input = Vec::with_capacity(call_ids.len());
                for id in call_ids {
                    let Some(pending) = self.calls.get(id) else {
                        return Err(Error::corruption(format!("a delivery names call {:?}, which is unknown", id.as_str())));
                    };
                    let CallState::Ready { output } = &pending.state else {
                        return Err(Error::corruption(format!(
                            "a delivery names call {:?}, which is {}",
                            id.as_str(),
                            pending.state.as_str()
                        )));
                    };
                    input.push(pending.wire_call().output_item(output));
                }
                self.delivery = Some(Delivery {
                    previous_response_id: previous_response_id.clone(),
                    call_ids: call_ids.clone(),
                    input,
                    after: after.clone(),
                });
                Ok(())
            }
            Record::DeliveryAcknowledged { receipt } => {
                let Some(delivery) = self.delivery.clone() else {
                    return Err(Error::corruption(format!(
                        "response {:?} acknowledges a delivery, and none is open",
                        receipt.as_str()
                    )));
                };
                for id in &delivery.call_ids {
                    self.change(id, "delivered", |p| {
                        p.state = CallState::Delivered;
                        true
                    })?;
                }
                self.delivery = None;
                if self.latest_response_id.as_ref() != Some(receipt) {
                    self.completed_responses = self.completed_responses.saturating_add(1);
                }
                self.latest_response_id = Some(receipt.clone());
                Ok(())
            }
            Record::FlightCleared => {
                self.response_in_flight = false;
                Ok(())
            }
            Record::FlightSettled { orphans, .. } => {
                self.response_in_flight = false;
                self.delivery = None;
                self.transcript_message_id = None;
                self.orphan(orphans)
            }
            Record::SummaryStaged { summary } => {
                self.host_responses.push(summary.clone());
                Ok(())
            }
            Record::TranscriptCommitted { .. } | Record::TranscriptDropped => {
                self.transcript_message_id = None;
                Ok(())
            }
            Record::OutcomeStored { outcome } => {
                self.host_outcome = Some(outcome.clone());
                Ok(())
            }
            Record::HarnessBound(_)
            | Record::TurnStarted { .. }
            | Record::TurnEnded { .. }
            | Record::ResponseStarted { .. }
            | Record::ResponseRecorded(_)
            | Record::Paused { .. }
            | Record::Resumed { .. }
            | Record::Reconciled { .. }
            | Record::InboxConsumed { .. }
            | Record::Parked { .. } => Ok(()),
        }
    }

    fn insert(&mut self, pending: PendingCall) -> Result<(), Error> {
        let id = pending.call.id.clone();
        if self.calls.contains_key(&id) {
            return Err(Error::corruption(format!("call {:?} was registered twice", id.as_str())));
        }
        self.positions.insert(id.clone(), self.order.len());
        self.live.insert(self.order.len());
        self.order.push(id.clone());
        self.calls.insert(id, pending);
        Ok(())
    }

    /// Changes one call. `with` answers false, without a change, if the call's state does not allow it.
    fn change(&mut self, id: &CallId, what: &str, with: impl FnOnce(&mut PendingCall) -> bool) -> Result<(), Error> {
        let Some(pending) = self.calls.get_mut(id) else {
            return Err(Error::corruption(format!("call {:?} was {what}, and is unknown", id.as_str())));
        };
        let state = pending.state.as_str();
        if !with(pending) {
            return Err(Error::corruption(format!("call {:?} was {what} while {state}", id.as_str())));
        }
        if pending.state == CallState::Delivered
            && let Some(at) = self.positions.get(id)
        {
            self.live.remove(at);
        }
        Ok(())
    }

    fn orphan(&mut self, ids: &[CallId]) -> Result<(), Error> {
        if let Some(id) = ids.iter().find(|id| !self.calls.contains_key(id)) {
            return Err(Error::corruption(format!("call {:?} became an orphan, and is unknown", id.as_str())));
        }
        for id in ids {
            if !self.orphans.contains(id) {
                self.orphans.push(id.clone());
            }
        }
        Ok(())
    }
}
