//! What the corpus has to have: every word of every list that records take one from, and every set of members. The lists are
//! matched whole, so a kind or a word that is added does not compile before it stands here, and is missing from the corpus
//! before a journal has it.

use serde_json::Value;
use wharf_core::Record;
use wharf_core::model::{Item, Outcome, Role};
use wharf_core::policy::{Hold, RefusalReason, ReplayClass};
use wharf_core::record::{FlightFate, PauseReason, Reconcile, Settlement};

/// A journal with a record that is nested deeper than one is written today.
pub(crate) const DEEPER_THAN_WRITTEN_TODAY: &str = "1-first-deep";

macro_rules! words {
    ($($list:ident: $type:ty { $($pattern:pat => $word:literal,)* })*) => {
        $(fn $list(value: &$type) -> (&'static str, &'static str) {
            (stringify!($list), match value { $($pattern => $word,)* })
        })*

        /// Each list's name with each of its words.
        pub(crate) fn all_words() -> Vec<(&'static str, &'static str)> {
            vec![$($((stringify!($list), $word),)*)*]
        }
    };
}

words! {
    kind: Record {
        Record::HarnessBound(_) => "harness.bound",
        Record::TurnStarted { .. } => "turn.started",
        Record::TurnEnded { .. } => "turn.ended",
        Record::CallAccepted { .. } => "call.accepted",
        Record::CallRejected { .. } => "call.rejected",
        Record::CallStarted { .. } => "call.started",
        Record::CallSettled { .. } => "call.settled",
        Record::CallRequeued { .. } => "call.requeued",
        Record::ReplayNarrowed { .. } => "call.narrowed",
        Record::HoldReleased { .. } => "call.released",
        Record::CallsOrphaned { .. } => "call.orphaned",
        Record::ResponseBegun(_) => "response.begun",
        Record::ResponseStarted { .. } => "response.started",
        Record::ResponseCompleted { .. } => "response.completed",
        Record::DeliveryPrepared { .. } => "delivery.prepared",
        Record::DeliveryAcknowledged { .. } => "delivery.acknowledged",
        Record::ResponseRecorded(_) => "response.recorded",
        Record::FlightCleared => "flight.cleared",
        Record::FlightSettled { .. } => "flight.settled",
        Record::SummaryStaged { .. } => "summary.staged",
        Record::TranscriptCommitted { .. } => "transcript.committed",
        Record::TranscriptDropped => "transcript.dropped",
        Record::OutcomeStored { .. } => "outcome.stored",
        Record::Paused { .. } => "turn.paused",
        Record::Resumed { .. } => "turn.resumed",
        Record::Reconciled { .. } => "turn.reconciled",
        Record::InboxConsumed { .. } => "inbox.consumed",
        Record::Parked { .. } => "turn.parked",
    }
    replay: ReplayClass {
        ReplayClass::Never => "never",
        ReplayClass::Safe => "safe",
        ReplayClass::Keyed => "keyed",
    }
    hold: Option<Hold> {
        None => "none",
        Some(Hold::Approval) => "approval",
        Some(Hold::Output) => "output",
    }
    refusal: RefusalReason {
        RefusalReason::Policy => "policy",
        RefusalReason::NotAsync => "not_async",
        RefusalReason::UnknownTool => "unknown_tool",
        RefusalReason::MalformedArguments => "malformed_arguments",
        RefusalReason::InvalidInput => "invalid_input",
    }
    settlement: Settlement {
        Settlement::Done => "done",
        Settlement::Failed => "failed",
        Settlement::Cancelled => "cancelled",
        Settlement::Crashed => "crashed",
        Settlement::Interrupted => "interrupted",
        Settlement::Outside => "outside",
        Settlement::Declined => "declined",
    }
    fate: FlightFate {
        FlightFate::NotSent => "not_sent",
        FlightFate::Refused => "refused",
        FlightFate::NotAccepted => "not_accepted",
        FlightFate::Lost => "lost",
        FlightFate::Resend => "resend",
        FlightFate::Abandoned => "abandoned",
    }
    pause: PauseReason {
        PauseReason::LostResponse { .. } => "lost_response",
        PauseReason::Held { .. } => "held",
        PauseReason::Incomplete { .. } => "incomplete",
        PauseReason::UnknownTools { .. } => "unknown_tools",
        PauseReason::Shutdown => "shutdown",
    }
    command: Reconcile {
        Reconcile::Receipt(_) => "receipt",
        Reconcile::Resend => "resend",
        Reconcile::Abandon => "abandon",
    }
    outcome: Outcome {
        Outcome::Completed => "completed",
        Outcome::Incomplete { .. } => "incomplete",
        Outcome::Failed { .. } => "failed",
        Outcome::Cancelled => "cancelled",
    }
    item: Item {
        Item::Message { role: Role::System, .. } => "system message",
        Item::Message { role: Role::User, .. } => "user message",
        Item::Message { role: Role::Assistant, .. } => "assistant message",
        Item::Call(_) => "call",
        Item::Output { .. } => "output",
        Item::Opaque { .. } => "opaque",
    }
}

/// The words that a record says, its kind first.
pub(crate) fn words(record: &Record) -> Vec<(&'static str, &'static str)> {
    let mut words = vec![kind(record)];
    match record {
        Record::CallAccepted { replay: class, hold: waits, .. } => words.extend([replay(class), hold(waits)]),
        Record::CallRejected { reason, .. } => words.push(refusal(reason)),
        Record::CallSettled { how, .. } => words.push(settlement(how)),
        Record::FlightSettled { fate: why, .. } => words.push(fate(why)),
        Record::Paused { reason } => words.push(pause(reason)),
        Record::Reconciled { command: said, .. } => words.push(command(said)),
        Record::ResponseRecorded(facts) => words.push(outcome(&facts.outcome)),
        Record::TurnStarted { input, .. } => words.extend(input.iter().map(item)),
        Record::DeliveryPrepared { after, .. } => words.extend(after.iter().map(item)),
        _ => {}
    }
    words
}

/// Members whose value is somebody else's JSON, as that of each member `raw` is.
const FOREIGN: [(&str, &str); 4] = [
    ("harness.bound", "authority_value"),
    ("summary.staged", "summary"),
    ("outcome.stored", "outcome"),
    ("response.recorded", "items"),
];

/// The forms of a record's objects: kind and version, where the object stands, and the names of its members. Foreign JSON
/// is not looked into.
pub(crate) fn forms(kind: &str, version: u16, body: &Value) -> Vec<String> {
    let mut forms = Vec::new();
    let record = format!("{kind} version {version}");
    note(&record, body, &mut forms, &|name| FOREIGN.contains(&(kind, name)));
    forms
}

fn note(place: &str, value: &Value, forms: &mut Vec<String>, is_foreign: &dyn Fn(&str) -> bool) {
    match value {
        Value::Object(members) => {
            forms.push(format!("{place} {{ {} }}", members.keys().map(String::as_str).collect::<Vec<_>>().join(", ")));
            for (name, value) in members.iter().filter(|(name, _)| !is_foreign(name)) {
                note(&format!("{place}, {name}"), value, forms, &|name| name == "raw");
            }
        }
        Value::Array(items) => items.iter().for_each(|item| note(place, item, forms, is_foreign)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
