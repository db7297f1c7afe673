//! What becomes of a request whose fate is uncertain (conformance G13 to G20, L58 to L60). One table, decided here;
//! opening a journal and a stream that broke in a living process go through the same one.
//!
//! | what the journal knows | what was asked | decision |
//! |---|---|---|
//! | delivery prepared, request not begun | – | not sent: rolled back (G14) |
//! | begun, and the transport proves not sent or refused | – | rolled back (G14) |
//! | begun, response id known, driver retrieves | not yet | retrieve (G15) |
//! | … | completed or incomplete | it is the receipt (G20) |
//! | … | failed or cancelled | not accepted: rolled back, calls are orphans (G20, L58) |
//! | … | in progress | wait, within a bound, then as not found (G20) |
//! | begun, whole history, nothing stored continued | nothing, or not found | lost: rolled back, sent again at most `resend_lost` times (G19) |
//! | begun, goes on from a stored response | nothing, or not found | `on_unknown = "resend"`: as lost; else refuse and name the commands (G16) |
//! | lost, and a call of class never was started | – | pause for an operator's answer (L59), unless `after_lost_response = "continue"` |

use crate::call::{Call, Payload};
use crate::checkpoint::{CANCELLED, CallState, Checkpoint};
use crate::error::Error;
use crate::ids::{CallId, ResponseId};
use crate::limits;
use crate::policy::ReplayClass;
use crate::record::{FlightFate, PauseReason, Reconcile, Record, Settlement};
use crate::session::{Session, Turn};

/// What the harness says about uncertain requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UncertaintyRules {
    /// How often a lost request is sent again by itself (G19).
    pub resend_lost: u32,
    /// Whether a lost request that goes on from a stored response is sent again too (G19).
    pub resend_unknown: bool,
    /// Whether a turn goes on by itself after a lost response in which a call of class never was started (L59).
    pub continue_after_lost: bool,
}

impl Default for UncertaintyRules {
    fn default() -> Self {
        Self { resend_lost: 1, resend_unknown: false, continue_after_lost: false }
    }
}

/// What is known beside the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing was asked yet; whether the driver can retrieve.
    Unasked {
        /// It can.
        can_retrieve: bool,
    },
    /// Retrieval brought no answer that settles it: not found, still in progress after the bound, or an error.
    Unsettled,
}

/// What to do about the request in flight.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// Nothing is uncertain.
    Clear,
    /// Ask for this response (G15).
    Retrieve(ResponseId),
    /// Journal this, then go on.
    Settle(Vec<Record>),
    /// Do nothing; an operator has to answer (G16).
    Refuse(Error),
}

/// Decides about the request in flight.
pub fn resolve(session: &Session, rules: UncertaintyRules, evidence: Evidence) -> Resolution {
    let Some(turn) = session.open_turn() else { return Resolution::Clear };
    let Some(flight) = &turn.flight else {
        if turn.checkpoint.delivery().is_some() {
            return Resolution::Settle(settle_flight(
                turn,
                rules,
                FlightFate::NotSent,
                "the delivery was prepared and its request never begun",
            ));
        }
        return Resolution::Clear;
    };
    if let (Some(id), Evidence::Unasked { can_retrieve: true }) = (&flight.id, evidence) {
        return Resolution::Retrieve(id.clone());
    }
    let may_resend = flight.begun.whole_history || rules.resend_unknown;
    if may_resend && turn.lost_in_a_row < rules.resend_lost {
        return Resolution::Settle(settle_flight(turn, rules, FlightFate::Lost, "its response never came to an end"));
    }
    Resolution::Refuse(uncertain(turn))
}

/// The records that settle the request in flight as not accepted: rolled back, its calls orphans (L58), and a pause where an
/// operator has to answer for a call of class never that was started (L59).
pub fn settle_flight(turn: &Turn, rules: UncertaintyRules, fate: FlightFate, why: &str) -> Vec<Record> {
    let orphans = if turn.flight.is_some() { turn.scope_calls() } else { Vec::new() };
    let started_never: Vec<CallId> = orphans
        .iter()
        .filter(|id| turn.attempts(id) > 0)
        .filter(|id| turn.checkpoint.call(id).is_some_and(|p| p.replay == ReplayClass::Never))
        .cloned()
        .collect();
    let why = why[..why.floor_char_boundary(limits::REASON_BYTES_MAX)].to_owned();
    let mut records = vec![Record::FlightSettled { fate, why, orphans }];
    // The message that the answer would have been is dropped; one that stands from an earlier answer has its summary and is
    // kept (G18).
    let message = turn.flight.as_ref().and_then(|flight| flight.begun.message_id.as_deref());
    if message.is_some() && message == turn.checkpoint.transcript_message_id() {
        records.push(Record::TranscriptDropped);
    }
    let pauses = match fate {
        FlightFate::Lost | FlightFate::NotAccepted => !rules.continue_after_lost && !started_never.is_empty(),
        FlightFate::NotSent | FlightFate::Refused | FlightFate::Resend | FlightFate::Abandoned => false,
    };
    if pauses {
        records.push(Record::Paused { reason: PauseReason::LostResponse { calls: started_never } });
    }
    records
}

/// What an operator's answer does (G17).
///
/// # Errors
/// A store error if there is nothing to answer, or the answer does not fit what is open.
pub fn reconcile(session: &Session, command: &Reconcile, who: &str) -> Result<Vec<Record>, Error> {
    let Some(turn) = session.open_turn() else {
        return Err(Error::store("no turn is open, so there is nothing to reconcile")
            .hint("`wharf session show SESSION` shows what is stored"));
    };
    let rules = UncertaintyRules { continue_after_lost: true, ..UncertaintyRules::default() };
    let in_flight = turn.flight.is_some();
    let waits = matches!(turn.paused, Some(PauseReason::LostResponse { .. }));
    let mut records = vec![Record::Reconciled { command: command.clone(), who: who.to_owned() }];
    match command {
        Reconcile::Receipt(id) => {
            if !in_flight {
                return Err(Error::store("no request is in flight that a receipt could be for"));
            }
            records.extend(accept(&turn.checkpoint, id)?);
            records.push(Record::FlightCleared);
            // The transcript message is kept: its summary comes with the next opening (G18).
        }
        Reconcile::Resend => {
            if in_flight {
                records.extend(settle_flight(turn, rules, FlightFate::Resend, "an operator said: send again"));
            } else if !waits {
                return Err(Error::store("no request is in flight and nothing waits for an answer"));
            }
            if waits {
                records.push(Record::Resumed { why: "an operator said: send again".to_owned() });
            }
        }
        Reconcile::Abandon => records.extend(abandon(turn)),
    }
    Ok(records)
}

/// What an operator's receipt does where the response was read: its calls and its completion follow, as if they came by a
/// stream (G15, G17, G20).
///
/// # Errors
/// A store error if no request is in flight, or if that response cannot be the answer to it.
pub fn receipt_read(session: &Session, id: &ResponseId, who: &str) -> Result<Vec<Record>, Error> {
    let flight = session.open_turn().and_then(|turn| turn.flight.as_ref());
    let Some(flight) = flight else {
        return Err(Error::store("no request is in flight that a receipt could be for"));
    };
    if session.latest_response_id() == Some(id) {
        return Err(Error::store(format!(
            "response {:?} was accepted before; it is not the answer to the request in flight",
            id.as_str()
        )));
    }
    let mut records = vec![Record::Reconciled { command: Reconcile::Receipt(id.clone()), who: who.to_owned() }];
    match &flight.id {
        None => records.push(Record::ResponseStarted { id: id.clone() }),
        Some(known) if known == id => {}
        Some(known) => {
            return Err(Error::store(format!(
                "the request in flight was answered by response {:?}, not by {:?}",
                known.as_str(),
                id.as_str()
            )));
        }
    }
    Ok(records)
}

/// Whether a call of a response that was read again is stored already: then what was stored stays as it is, the class that
/// it was registered with, its text and its async flag too. Providers spell arguments anew and leave members out (G15, C3).
///
/// # Errors
/// A provider error if it is another call than the one that streamed under this id (L49).
pub fn is_stored(turn: &Turn, call: &Call) -> Result<bool, Error> {
    let Some(key) = turn.scope.key(&call.id) else { return Ok(false) };
    let Some(stored) = turn.checkpoint.call(key) else { return Ok(false) };
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let same_text = match (&stored.call.payload, &call.payload) {
        (Payload::Custom { input }, Payload::Custom { input: again }) => input == again,
        (Payload::Function { .. }, Payload::Function { .. }) => {
            let (text, again) = (stored.call.effective_text(), call.effective_text());
            text == again || stored.rejected || json(text).is_some_and(|value| json(again) == Some(value))
        }
        (Payload::Custom { .. }, Payload::Function { .. }) | (Payload::Function { .. }, Payload::Custom { .. }) => {
            false
        }
    };
    if same_text && stored.call.name == call.name {
        return Ok(true);
    }
    Err(Error::provider(format!("call {:?} is another one now than when it streamed", call.id.as_str()))
        .hint(RECONCILE_HINT))
}

/// The record by which a response counts: as the receipt of the open delivery, or by itself (L19).
///
/// # Errors
/// As [`Checkpoint::acknowledge`] and [`Checkpoint::response_completed`].
pub fn accept(checkpoint: &Checkpoint, id: &ResponseId) -> Result<Option<Record>, Error> {
    if checkpoint.delivery().is_some() { checkpoint.acknowledge(id) } else { checkpoint.response_completed(id) }
}

/// Ends a turn without another request (L60): running calls are cancelled, what is undelivered becomes an orphan, the
/// outcome says so.
fn abandon(turn: &Turn) -> Vec<Record> {
    let checkpoint = &turn.checkpoint;
    let mut records: Vec<Record> = checkpoint
        .live_calls()
        .filter(|p| p.state == CallState::Running)
        .map(|p| Record::CallSettled {
            id: p.call.id.clone(),
            output: CANCELLED.to_owned(),
            how: Settlement::Cancelled,
        })
        .collect();
    let undelivered: Vec<CallId> = checkpoint.live_calls().map(|p| p.call.id.clone()).collect();
    records.push(Record::FlightSettled {
        fate: FlightFate::Abandoned,
        why: "an operator abandoned the turn".to_owned(),
        orphans: undelivered,
    });
    if checkpoint.transcript_message_id().is_some() {
        records.push(Record::TranscriptDropped);
    }
    records.push(Record::OutcomeStored { outcome: serde_json::json!({ "status": "abandoned" }) });
    records.push(Record::TurnEnded { turn: turn.id.clone(), status: "abandoned".to_owned() });
    records
}

/// How an operator answers for an uncertain request. Each command in it can be pasted, once the session's name is in.
pub(crate) const RECONCILE_HINT: &str = "answer with `wharf session reconcile SESSION --resend` to send it again, with \
    `--receipt RESPONSE_ID` if that response took it, or with `--abandon` to end the turn";

fn uncertain(turn: &Turn) -> Error {
    let what = match turn.checkpoint.delivery() {
        Some(delivery) => format!(
            "the delivery of {} on response {:?}",
            delivery.call_ids.iter().map(|id| format!("{:?}", id.as_str())).collect::<Vec<_>>().join(", "),
            delivery.previous_response_id.as_str()
        ),
        None => "the last request".to_owned(),
    };
    Error::store(format!("it is not known whether the provider accepted {what}")).hint(RECONCILE_HINT)
}
