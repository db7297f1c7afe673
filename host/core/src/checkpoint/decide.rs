//! The decisions (conformance C to F and H to J): what may happen to a call, a delivery or a response. None changes the
//! state.

use serde_json::Value;

use super::{CallState, Checkpoint, PendingCall};
use crate::call::Call;
use crate::error::Error;
use crate::ids::{CallId, ResponseId};
use crate::limits;
use crate::model::Item;
use crate::policy::{Hold, RefusalReason, ReplayClass};
use crate::record::{Record, Settlement};
use crate::tool::error_output;

/// What a cancelled call gives (H1).
pub const CANCELLED: &str = r#"{"error":"cancelled"}"#;

/// A call that is new to the checkpoint, with what policy and the host add to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// The call under the host's key.
    pub call: Call,
    /// What policy says.
    pub replay: ReplayClass,
    /// What it waits for, if it has to.
    pub hold: Option<Hold>,
    /// For a keyed call.
    pub idempotency_key: Option<String>,
    /// The provider's id where it differs.
    pub wire_call_id: Option<CallId>,
}

impl Registration {
    /// A call that waits for nothing, under the provider's own id.
    pub fn new(call: Call, replay: ReplayClass) -> Self {
        Self { call, replay, hold: None, idempotency_key: None, wire_call_id: None }
    }
}

impl Checkpoint {
    /// Registers a call. `None` if an equal one is there already (C3).
    ///
    /// # Errors
    /// A provider error for an invalid call, before anything else (C1); a config error if the id is used by another
    /// payload, variant, async flag or replay class (C4 to C8).
    pub fn register(&self, new: &Registration) -> Result<Option<Record>, Error> {
        new.call.check_bounds()?;
        new.call.validate()?;
        if self.known(&new.call, Some(new.replay))? {
            return Ok(None);
        }
        Ok(Some(Record::CallAccepted {
            call: new.call.clone(),
            wire_call_id: new.wire_call_id.clone(),
            replay: new.replay,
            hold: new.hold.clone(),
            idempotency_key: new.idempotency_key.clone(),
        }))
    }

    /// Records a call that is refused: registered and settled with an error output at once, never executed (L8, L46, L47,
    /// L50). `None` if an equal one is there already.
    ///
    /// # Errors
    /// A provider error for a call without id or name (L48); a config error as for [`Checkpoint::register`].
    pub fn reject(
        &self,
        call: &Call,
        wire_call_id: Option<CallId>,
        reason: RefusalReason,
        message: &str,
    ) -> Result<Option<Record>, Error> {
        call.check_bounds()?;
        if call.id.is_blank() || call.name.is_blank() {
            call.validate()?;
        }
        // A refusal has no replay class: an equal call that was accepted before stays what it is (L49).
        if self.known(call, None)? {
            return Ok(None);
        }
        let message = &message[..message.floor_char_boundary(limits::OUTPUT_HEAD_BYTES)];
        Ok(Some(Record::CallRejected { call: call.clone(), wire_call_id, reason, output: error_output(message) }))
    }

    fn known(&self, call: &Call, replay: Option<ReplayClass>) -> Result<bool, Error> {
        let Some(there) = self.calls.get(&call.id) else { return Ok(false) };
        let id = call.id.as_str();
        let differs = |what: &str| {
            Err(Error::config(format!("call id {id:?} is used twice with different {what}"))
                .hint("the provider has to give each call of a response an id of its own"))
        };
        if std::mem::discriminant(&there.call.payload) != std::mem::discriminant(&call.payload) {
            return differs("kinds of tool");
        }
        if there.call.name != call.name || there.call.text() != call.text() {
            return differs("payloads");
        }
        if there.call.is_async != call.is_async {
            return differs("async flags");
        }
        if replay.is_some_and(|replay| there.replay != replay) && !there.rejected {
            return differs("replay classes");
        }
        Ok(true)
    }

    /// Starts a queued call (D2). `attempt` is 1 for its first run.
    ///
    /// # Errors
    /// A config error for an unknown id (D1), for a call that is not queued (D3), and for one that is held (L61) or
    /// withdrawn (B14).
    pub fn start(&self, id: &CallId, attempt: u32, approval: Option<String>) -> Result<Record, Error> {
        let pending = self.known_call(id)?;
        match pending.state {
            CallState::Queued if pending.hold.is_none() && !self.is_orphan(id) => Ok(Record::CallStarted {
                id: id.clone(),
                attempt,
                idempotency_key: pending.idempotency_key.clone(),
                approval,
            }),
            CallState::Queued | CallState::Running | CallState::Ready { .. } | CallState::Delivered => Err(
                Error::config(format!("call {:?} cannot be started: it is {}", id.as_str(), self.situation(pending))),
            ),
        }
    }

    /// Where a call is, in more words than its state has.
    pub(super) fn situation(&self, pending: &PendingCall) -> &'static str {
        match pending.state {
            CallState::Queued if self.is_orphan(&pending.call.id) => "withdrawn",
            CallState::Queued if pending.hold.is_some() => "held",
            CallState::Queued | CallState::Running | CallState::Ready { .. } | CallState::Delivered => {
                pending.state.as_str()
            }
        }
    }

    /// Settles a call with its output. `None` if it has a result already: the first one wins (E3, E4). An output over
    /// [`limits::BLOB_BYTES_MAX`] fails the call; its beginning is kept, and marked as that (design section 8).
    ///
    /// # Errors
    /// A config error for an unknown id (E1).
    pub fn settle(&self, id: &CallId, output: &str, how: Settlement) -> Result<Option<Record>, Error> {
        match self.known_call(id)?.state {
            CallState::Queued | CallState::Running => {
                let (output, how) = bounded(output, how);
                Ok(Some(Record::CallSettled { id: id.clone(), output, how }))
            }
            CallState::Ready { .. } | CallState::Delivered => Ok(None),
        }
    }

    /// Counts an accepted response that carried no delivery. `None` if it is the latest already (F4); only that repeat is
    /// recognised (F6).
    ///
    /// # Errors
    /// A config error for an empty id (F1) and while a delivery is open (F2).
    pub fn response_completed(&self, id: &ResponseId) -> Result<Option<Record>, Error> {
        if id.is_blank() {
            return Err(Error::config("a completed response has no id"));
        }
        if self.delivery.is_some() {
            return Err(Error::config(
                "a response cannot be counted while a delivery is open: it has to be acknowledged",
            ));
        }
        if self.latest_response_id.as_ref() == Some(id) {
            return Ok(None);
        }
        Ok(Some(Record::ResponseCompleted { id: id.clone() }))
    }

    /// Cancels what is queued or running (H1); everything else stays (H2, H3). Orphans that are withdrawn stay withdrawn.
    pub fn cancel(&self) -> Vec<Record> {
        self.live_calls()
            .filter(|p| match p.state {
                CallState::Queued | CallState::Running => true,
                CallState::Ready { .. } | CallState::Delivered => false,
            })
            .map(|p| Record::CallSettled {
                id: p.call.id.clone(),
                output: CANCELLED.to_owned(),
                how: Settlement::Cancelled,
            })
            .collect()
    }

    /// What a shutdown does to calls that run once their time is over: those that may run again are queued to do so (G4, G12),
    /// the others are cancelled (H1). An orphan is not run again. What waits stays as it is.
    pub fn cut_off(&self) -> Vec<Record> {
        self.live_calls()
            .filter(|p| p.state == CallState::Running)
            .map(|p| match (p.replay, self.is_orphan(&p.call.id)) {
                (ReplayClass::Safe | ReplayClass::Keyed, false) => Record::CallRequeued { id: p.call.id.clone() },
                (ReplayClass::Never, _) | (ReplayClass::Safe | ReplayClass::Keyed, true) => Record::CallSettled {
                    id: p.call.id.clone(),
                    output: CANCELLED.to_owned(),
                    how: Settlement::Cancelled,
                },
            })
            .collect()
    }

    /// Puts every ready call that is not an orphan into one delivery, in call order (I5, I6). `None` if there is none (I3).
    /// `after` stands behind the outputs (I10).
    ///
    /// # Errors
    /// A store error while a response is in flight (I1), while a delivery is open (I2), and if no response is known that it
    /// could go on from (I4).
    pub fn prepare_delivery(&self, after: Vec<Item>) -> Result<Option<Record>, Error> {
        if self.response_in_flight {
            return Err(Error::store("a delivery cannot be prepared while a response is in flight"));
        }
        if self.delivery.is_some() {
            return Err(Error::store("a delivery cannot be prepared while another one is open"));
        }
        let call_ids: Vec<CallId> = self.deliverable().map(|p| p.call.id.clone()).collect();
        if call_ids.is_empty() {
            return Ok(None);
        }
        let Some(previous_response_id) = self.latest_response_id.clone() else {
            return Err(Error::store("a call is ready but no response is known that its output could go on from"));
        };
        Ok(Some(Record::DeliveryPrepared { previous_response_id, call_ids, after }))
    }

    /// Acknowledges the open delivery by the id of the response that accepted it. `None` if nothing is open and the receipt
    /// is the latest id (J3).
    ///
    /// # Errors
    /// A config error for an empty receipt (J1), a store error for the delivery's own previous id (J2) and for any other
    /// receipt without an open delivery (J4), a corruption error if the delivery names an unknown call (J8).
    pub fn acknowledge(&self, receipt: &ResponseId) -> Result<Option<Record>, Error> {
        if receipt.is_blank() {
            return Err(Error::config("a receipt has no response id"));
        }
        let Some(delivery) = &self.delivery else {
            if self.latest_response_id.as_ref() == Some(receipt) {
                return Ok(None);
            }
            return Err(Error::store(format!(
                "response {:?} acknowledges a delivery, and none is open",
                receipt.as_str()
            )));
        };
        if *receipt == delivery.previous_response_id {
            return Err(Error::store(format!(
                "response {:?} is the one that the delivery goes on from; it cannot be its receipt",
                receipt.as_str()
            )));
        }
        if let Some(unknown) = delivery.call_ids.iter().find(|id| !self.calls.contains_key(id)) {
            return Err(Error::corruption(format!(
                "the open delivery names call {:?}, which is unknown",
                unknown.as_str()
            )));
        }
        Ok(Some(Record::DeliveryAcknowledged { receipt: receipt.clone() }))
    }

    /// Stages the summary of the response that was just accepted.
    ///
    /// # Errors
    /// A store error while in flight, without a transcript message, and if the summaries would not match the responses
    /// (L38).
    pub fn stage_summary(&self, summary: Value) -> Result<Record, Error> {
        if self.response_in_flight {
            return Err(Error::store("a response summary cannot be staged while a response is in flight"));
        }
        if self.transcript_message_id.is_none() {
            return Err(Error::store("a response summary cannot be staged without a transcript message"));
        }
        if self.host_responses.len() as u64 + 1 != self.completed_responses {
            return Err(Error::store(format!(
                "there are {} response summaries for {} responses; one more does not fit",
                self.host_responses.len(),
                self.completed_responses
            )));
        }
        Ok(Record::SummaryStaged { summary })
    }

    /// Commits the transcript message.
    ///
    /// # Errors
    /// A store error while in flight, and for any id but the one that was begun (L39).
    pub fn commit_transcript(&self, message_id: &str) -> Result<Record, Error> {
        if self.response_in_flight {
            return Err(Error::store("a transcript message cannot be committed while a response is in flight"));
        }
        if self.transcript_message_id.as_deref() != Some(message_id) {
            return Err(Error::store(format!("transcript message {message_id:?} is not the one that was begun")));
        }
        Ok(Record::TranscriptCommitted { message_id: message_id.to_owned() })
    }

    /// Stores the turn's outcome.
    ///
    /// # Errors
    /// A store error while the checkpoint may not complete (L40).
    pub fn store_outcome(&self, outcome: Value) -> Result<Record, Error> {
        if !self.may_complete() {
            return Err(Error::store("an outcome cannot be stored while calls, deliveries or responses are open"));
        }
        Ok(Record::OutcomeStored { outcome })
    }

    fn known_call(&self, id: &CallId) -> Result<&PendingCall, Error> {
        self.calls.get(id).ok_or_else(|| Error::config(format!("call {:?} is unknown", id.as_str())))
    }
}

/// An output as it can be stored.
fn bounded(output: &str, how: Settlement) -> (String, Settlement) {
    if output.len() <= limits::BLOB_BYTES_MAX {
        return (output.to_owned(), how);
    }
    let head = &output[..output.floor_char_boundary(limits::OUTPUT_HEAD_BYTES)];
    let message = format!(
        "the output of this call has {} bytes, over the limit of {}; its first {} bytes are: {head}",
        output.len(),
        limits::BLOB_BYTES_MAX,
        head.len(),
    );
    (error_output(&message), Settlement::Failed)
}
