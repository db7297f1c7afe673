//! The fold of records into a checkpoint. A record that contradicts what came before is a corruption error that names it
//! (B11); a whole journal that folds without one is consistent.

use std::collections::HashSet;

use super::{CallState, Checkpoint, PendingCall};
use crate::error::Error;
use crate::ids::{CallId, ResponseId};
use crate::model::{Delivery, Item};
use crate::policy::ReplayClass;
use crate::record::{FlightFate, Record};

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
            }),
            Record::CallRejected { call, wire_call_id, output, reason: _ } => self.insert(PendingCall {
                call: call.clone(),
                replay: ReplayClass::Never,
                state: CallState::Ready { output: output.clone() },
                rejected: true,
                hold: None,
                idempotency_key: None,
                wire_call_id: wire_call_id.clone(),
            }),
            // A withdrawn call never starts (L58), a held one not before it is let go (L61), and each run of a call has the
            // key of its first (L56).
            Record::CallStarted { id, idempotency_key, .. } => self.change(id, "started", |p, orphan| {
                let may = p.state == CallState::Queued && p.hold.is_none() && !orphan;
                if may && p.idempotency_key == *idempotency_key {
                    p.state = CallState::Running;
                    return true;
                }
                false
            }),
            Record::CallSettled { id, output, how: _ } => self.change(id, "settled", |p, _| match p.state {
                CallState::Queued | CallState::Running => {
                    p.state = CallState::Ready { output: output.clone() };
                    p.hold = None;
                    true
                }
                CallState::Ready { .. } | CallState::Delivered => false,
            }),
            // What must not run again is never queued again (design promise 2, G5).
            Record::CallRequeued { id } => self.change(id, "queued again", |p, orphan| match (&p.state, p.replay) {
                (CallState::Running, ReplayClass::Safe | ReplayClass::Keyed) if !orphan => {
                    p.state = CallState::Queued;
                    true
                }
                (CallState::Queued | CallState::Running | CallState::Ready { .. } | CallState::Delivered, _) => false,
            }),
            Record::HoldReleased { id, .. } => self.change(id, "released from its hold", |p, orphan| {
                p.state == CallState::Queued && !orphan && p.hold.take().is_some()
            }),
            Record::ReplayNarrowed { id } => self.change(id, "narrowed", |p, _| match p.state {
                CallState::Queued | CallState::Running => {
                    p.replay = ReplayClass::Never;
                    true
                }
                CallState::Ready { .. } | CallState::Delivered => false,
            }),
            Record::CallsOrphaned { ids } => self.orphan(ids),
            Record::ResponseBegun(begun) => {
                if self.response_in_flight {
                    return Err(Error::corruption("a response was begun while another one was in flight"));
                }
                if begun.message_id.is_some() && self.transcript_message_id.is_some() {
                    return Err(Error::corruption("a transcript message was begun while another one was open"));
                }
                self.response_in_flight = true;
                if let Some(id) = &begun.message_id {
                    self.transcript_message_id = Some(id.clone());
                }
                Ok(())
            }
            Record::ResponseCompleted { id } => {
                if self.delivery.is_some() {
                    return Err(Error::corruption(format!(
                        "response {:?} was counted while a delivery was open",
                        id.as_str()
                    )));
                }
                self.latest_response_id = Some(id.clone());
                self.completed_responses = self.completed_responses.saturating_add(1);
                Ok(())
            }
            Record::DeliveryPrepared { previous_response_id, call_ids, after } => {
                self.prepared(previous_response_id, call_ids, after)
            }
            Record::DeliveryAcknowledged { receipt } => self.acknowledged(receipt),
            Record::FlightCleared => {
                if !self.response_in_flight {
                    return Err(Error::corruption("a response was settled as accepted, and none was in flight"));
                }
                if self.delivery.is_some() {
                    return Err(Error::corruption(
                        "a response was settled as accepted without a receipt for its delivery",
                    ));
                }
                self.response_in_flight = false;
                Ok(())
            }
            Record::FlightSettled { fate, orphans, .. } => {
                let open = self.response_in_flight || self.delivery.is_some();
                if !open && *fate != FlightFate::Abandoned {
                    return Err(Error::corruption("a response was settled as not accepted, and none was open"));
                }
                self.orphan(orphans)?;
                self.response_in_flight = false;
                self.delivery = None;
                Ok(())
            }
            Record::SummaryStaged { summary } => {
                self.stage_summary(summary.clone()).map_err(as_corruption)?;
                self.host_responses.push(summary.clone());
                Ok(())
            }
            Record::TranscriptCommitted { message_id } => {
                self.commit_transcript(message_id).map_err(as_corruption)?;
                self.transcript_message_id = None;
                Ok(())
            }
            Record::TranscriptDropped => {
                if self.transcript_message_id.take().is_none() {
                    return Err(Error::corruption("a transcript message was dropped, and none was open"));
                }
                Ok(())
            }
            Record::OutcomeStored { outcome } => {
                self.store_outcome(outcome.clone()).map_err(as_corruption)?;
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

    fn prepared(&mut self, previous: &ResponseId, call_ids: &[CallId], after: &[Item]) -> Result<(), Error> {
        if self.response_in_flight || self.delivery.is_some() {
            return Err(Error::corruption(
                "a delivery was prepared while a response was in flight or a delivery was open",
            ));
        }
        if self.latest_response_id.as_ref() != Some(previous) {
            return Err(Error::corruption(format!(
                "a delivery goes on from response {:?}, which is not the latest",
                previous.as_str()
            )));
        }
        let mut input = Vec::with_capacity(call_ids.len());
        let mut seen = HashSet::with_capacity(call_ids.len());
        for id in call_ids {
            let contradiction =
                |what: &str| Error::corruption(format!("a delivery names call {:?}, which {what}", id.as_str()));
            let pending = self.calls.get(id).ok_or_else(|| contradiction("is unknown"))?;
            let CallState::Ready { output } = &pending.state else {
                return Err(contradiction(&format!("is {}", self.situation(pending))));
            };
            if self.is_orphan(id) {
                return Err(contradiction("is an orphan"));
            }
            if !seen.insert(id) {
                return Err(contradiction("stands in it twice"));
            }
            input.push(pending.wire_call().output_item(output));
        }
        self.delivery = Some(Delivery {
            previous_response_id: previous.clone(),
            call_ids: call_ids.to_vec(),
            input,
            after: after.to_vec(),
        });
        Ok(())
    }

    fn acknowledged(&mut self, receipt: &ResponseId) -> Result<(), Error> {
        let Some(delivery) = &self.delivery else {
            return Err(Error::corruption(format!(
                "response {:?} acknowledges a delivery, and none is open",
                receipt.as_str()
            )));
        };
        if delivery.previous_response_id == *receipt {
            return Err(Error::corruption(format!(
                "response {:?} acknowledges the delivery that goes on from it",
                receipt.as_str()
            )));
        }
        let call_ids = delivery.call_ids.clone();
        for id in &call_ids {
            match self.calls.get(id) {
                Some(PendingCall { state: CallState::Ready { .. }, .. }) => {}
                Some(other) => {
                    return Err(Error::corruption(format!(
                        "call {:?} was delivered while {}",
                        id.as_str(),
                        self.situation(other)
                    )));
                }
                None => return Err(Error::corruption(format!("call {:?} was delivered, and is unknown", id.as_str()))),
            }
        }
        for id in &call_ids {
            self.change(id, "delivered", |p, _| {
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

    fn insert(&mut self, pending: PendingCall) -> Result<(), Error> {
        let id = pending.call.id.clone();
        if self.calls.contains_key(&id) {
            return Err(Error::corruption(format!("call {:?} was registered twice", id.as_str())));
        }
        self.positions.insert(id.clone(), self.order.len());
        self.order.push(id.clone());
        self.calls.insert(id.clone(), pending);
        self.derive_live(&id);
        Ok(())
    }

    /// Changes one call. `with` gets the call and whether it is an orphan; it answers false, without a change, if the call's
    /// state does not allow it.
    fn change(
        &mut self,
        id: &CallId,
        what: &str,
        with: impl FnOnce(&mut PendingCall, bool) -> bool,
    ) -> Result<(), Error> {
        let orphan = self.is_orphan(id);
        let Some(pending) = self.calls.get_mut(id) else {
            return Err(Error::corruption(format!("call {:?} was {what}, and is unknown", id.as_str())));
        };
        if with(pending, orphan) {
            self.derive_live(id);
            return Ok(());
        }
        let situation = self.calls.get(id).map_or("unknown", |pending| self.situation(pending));
        Err(Error::corruption(format!("call {:?} was {what} while {situation}", id.as_str())))
    }

    fn orphan(&mut self, ids: &[CallId]) -> Result<(), Error> {
        if let Some(id) = ids.iter().find(|id| !self.calls.contains_key(id)) {
            return Err(Error::corruption(format!("call {:?} became an orphan, and is unknown", id.as_str())));
        }
        for id in ids {
            if self.orphan_set.insert(id.clone()) {
                self.orphans.push(id.clone());
                self.derive_live(id);
            }
        }
        Ok(())
    }
}

/// What a decision would have refused cannot stand in a journal (B11).
fn as_corruption(refused: Error) -> Error {
    Error::corruption(refused.message)
}
