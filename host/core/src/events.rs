//! Events of a session, as people and programs follow it: a fold of records with one set of names (U5), numbered by record
//! (design stage 11). Deltas of text are not here: they are ephemeral.

use serde_json::{Value, json};

use crate::ids::Seq;
use crate::model::Outcome;
use crate::record::{PauseReason, Record, Settlement};

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The record that it comes from; a reader goes on from here.
    pub seq: Seq,
    /// One of the fixed names, for example `call.started`.
    pub name: &'static str,
    /// Its facts.
    pub details: Value,
}

impl Event {
    /// The event that a record gives; most give one, bookkeeping gives none.
    pub fn of(seq: Seq, record: &Record) -> Option<Self> {
        let (name, details) = match record {
            Record::TurnStarted { turn, .. } => ("turn.started", json!({ "turn": turn.as_str() })),
            Record::TurnEnded { turn, status } => match status.as_str() {
                "completed" => ("turn.completed", json!({ "turn": turn.as_str() })),
                reason => ("turn.stopped", json!({ "turn": turn.as_str(), "reason": reason })),
            },
            Record::ResponseBegun(begun) => {
                ("response.started", json!({ "step_index": begun.ordinal.saturating_sub(1) }))
            }
            Record::ResponseRecorded(facts) => (
                "response.completed",
                json!({
                    "response_id": facts.id.as_str(),
                    "status": match &facts.outcome {
                        Outcome::Completed => "completed",
                        Outcome::Incomplete { .. } => "incomplete",
                        Outcome::Failed { .. } => "failed",
                        Outcome::Cancelled => "cancelled",
                    },
                    "finish_reason": facts.finish_reason,
                }),
            ),
            Record::FlightSettled { fate, why, .. } => {
                ("response.dropped", json!({ "fate": fate.as_str(), "why": why }))
            }
            Record::CallRejected { call, reason, .. } => (
                "call.rejected",
                json!({ "call_id": call.id.as_str(), "name": call.name.as_str(), "reason": reason.as_str() }),
            ),
            Record::CallAccepted { call, replay, hold, .. } => (
                "call.accepted",
                json!({
                    "call_id": call.id.as_str(), "name": call.name.as_str(), "async": call.is_async,
                    "replay": replay.as_str(), "hold": hold.as_ref().map(|h| h.as_str()),
                }),
            ),
            Record::CallStarted { id, attempt, .. } => {
                ("call.started", json!({ "call_id": id.as_str(), "attempt": attempt }))
            }
            Record::CallSettled { id, how, .. } => (
                "call.completed",
                json!({ "call_id": id.as_str(), "how": how.as_str(), "is_error": *how != Settlement::Done && *how != Settlement::Outside }),
            ),
            Record::CallRequeued { id } => ("call.requeued", json!({ "call_id": id.as_str() })),
            Record::CallsOrphaned { ids } => {
                ("call.orphaned", json!({ "call_ids": ids.iter().map(|id| id.as_str()).collect::<Vec<_>>() }))
            }
            Record::DeliveryPrepared { previous_response_id, call_ids, .. } => (
                "delivery.prepared",
                json!({
                    "previous_response_id": previous_response_id.as_str(),
                    "call_ids": call_ids.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
                }),
            ),
            Record::DeliveryAcknowledged { receipt } => {
                ("delivery.acknowledged", json!({ "receipt": receipt.as_str() }))
            }
            Record::Paused { reason } => (
                "turn.paused",
                json!({ "reason": match reason {
                    PauseReason::LostResponse { .. } => "lost_response",
                    PauseReason::Held { .. } => "held",
                    PauseReason::Incomplete { .. } => "incomplete",
                    PauseReason::UnknownTools { .. } => "unknown_tools",
                    PauseReason::Shutdown => "shutdown",
                } }),
            ),
            Record::Resumed { why } => ("turn.resumed", json!({ "why": why })),
            Record::Parked { why } => ("turn.parked", json!({ "why": why })),
            Record::HarnessBound(_)
            | Record::ReplayNarrowed { .. }
            | Record::HoldReleased { .. }
            | Record::ResponseStarted { .. }
            | Record::ResponseCompleted { .. }
            | Record::FlightCleared
            | Record::SummaryStaged { .. }
            | Record::TranscriptCommitted { .. }
            | Record::TranscriptDropped
            | Record::OutcomeStored { .. }
            | Record::Reconciled { .. }
            | Record::InboxConsumed { .. } => return None,
        };
        Some(Self { seq, name, details })
    }
}
