//! Records as short lines, so that a test compares a whole journal at a glance; and a timeline on which store, executor and
//! requester write down who came when.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use wharf_core::record::{PauseReason, Reconcile, Record};
use wharf_core::{Call, CallId};

/// What happened, in order. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Timeline(Arc<Mutex<Vec<String>>>);

impl Timeline {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line.
    pub fn push(&self, line: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All lines so far, which are then forgotten.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One line for each record.
pub fn lines<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
    records.into_iter().map(line).collect()
}

/// A record as a line. Ids of turns and messages, texts of summaries and of people are left out.
pub fn line(record: &Record) -> String {
    match record {
        Record::HarnessBound(facts) => {
            format!("harness {} {} {} {}", facts.name, facts.component, facts.authority, facts.conversation)
        }
        Record::TurnStarted { .. } => "turn started".to_owned(),
        Record::TurnEnded { status, .. } => format!("turn ended {status}"),
        Record::CallAccepted { call, wire_call_id, replay, hold, idempotency_key } => {
            let mut line = format!("accepted {} {replay}", made(call, wire_call_id.as_ref()));
            if let Some(hold) = hold {
                add(&mut line, format_args!(" held for {}", hold.as_str()));
            }
            if let Some(key) = idempotency_key {
                add(&mut line, format_args!(" key {key}"));
            }
            line
        }
        Record::CallRejected { call, wire_call_id, reason, output } => {
            format!("rejected {} {}: {output}", made(call, wire_call_id.as_ref()), reason.as_str())
        }
        Record::CallStarted { id, attempt, idempotency_key, approval } => {
            let mut line = format!("started {id} #{attempt}");
            if let Some(key) = idempotency_key {
                add(&mut line, format_args!(" key {key}"));
            }
            if let Some(approval) = approval {
                add(&mut line, format_args!(" approval {approval}"));
            }
            line
        }
        Record::CallSettled { id, output, how } => format!("settled {id} {}: {output}", how.as_str()),
        Record::CallRequeued { id } => format!("requeued {id}"),
        Record::ReplayNarrowed { id } => format!("narrowed {id}"),
        Record::HoldReleased { id, approval } => format!("released {id} by {approval}"),
        Record::CallsOrphaned { ids } => format!("orphaned {}", list(ids)),
        Record::ResponseBegun(begun) => {
            let mut line = format!("begun {}", begun.ordinal);
            if let Some(id) = &begun.continues {
                add(&mut line, format_args!(" on {id}"));
            }
            if begun.whole_history {
                line.push_str(" whole");
            }
            if begun.message_id.is_some() {
                line.push_str(" message");
            }
            if !begun.told.is_empty() {
                add(&mut line, format_args!(" tells {}", list(&begun.told)));
            }
            line
        }
        Record::ResponseStarted { id } => format!("response {id}"),
        Record::ResponseCompleted { id } => format!("completed {id}"),
        Record::DeliveryPrepared { previous_response_id, call_ids, after } => {
            let mut line = format!("delivery {} on {previous_response_id}", list(call_ids));
            if !after.is_empty() {
                add(&mut line, format_args!(" and {} more", after.len()));
            }
            line
        }
        Record::DeliveryAcknowledged { receipt } => format!("acknowledged by {receipt}"),
        Record::ResponseRecorded(facts) => {
            format!("recorded {} {}", facts.id, facts.finish_reason.as_deref().unwrap_or("-"))
        }
        Record::FlightCleared => "flight cleared".to_owned(),
        Record::FlightSettled { fate, orphans, why: _ } => match orphans.is_empty() {
            true => format!("flight {}", fate.as_str()),
            false => format!("flight {} orphans {}", fate.as_str(), list(orphans)),
        },
        Record::SummaryStaged { .. } => "summary".to_owned(),
        Record::TranscriptCommitted { .. } => "committed".to_owned(),
        Record::TranscriptDropped => "transcript dropped".to_owned(),
        Record::OutcomeStored { outcome } => format!("outcome {outcome}"),
        Record::Paused { reason } => format!("paused {}", pause(reason)),
        Record::Resumed { .. } => "resumed".to_owned(),
        Record::Reconciled { command, who } => match command {
            Reconcile::Receipt(id) => format!("{who}: receipt {id}"),
            Reconcile::Resend => format!("{who}: resend"),
            Reconcile::Abandon => format!("{who}: abandon"),
        },
        Record::InboxConsumed { kind, target, .. } => format!("inbox {kind} {target}"),
        Record::Parked { why } => format!("parked: {why}"),
    }
}

fn made(call: &Call, wire: Option<&CallId>) -> String {
    let way = if call.is_async { "async" } else { "sync" };
    match wire {
        Some(wire) => format!("{} (wire {wire}) {} {way}", call.id, call.name),
        None => format!("{} {} {way}", call.id, call.name),
    }
}

fn pause(reason: &PauseReason) -> String {
    match reason {
        PauseReason::LostResponse { calls } => format!("lost response {}", list(calls)),
        PauseReason::Held { calls } => format!("held {}", list(calls)),
        PauseReason::Incomplete { reason } => format!("incomplete {reason}"),
        PauseReason::UnknownTools { count } => format!("unknown tools {count}"),
        PauseReason::Shutdown => "shutdown".to_owned(),
    }
}

fn list(ids: &[CallId]) -> String {
    ids.iter().map(CallId::as_str).collect::<Vec<_>>().join(" ")
}

fn add(line: &mut String, part: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    line.write_fmt(part).unwrap_or_default();
}
