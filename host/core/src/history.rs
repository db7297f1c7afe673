//! The conversation as a model is sent it: a fold of records into neutral items, with wire ids. Used where a provider keeps
//! nothing, and for showing a session's messages (Z9). Knows no protocol.

use std::collections::HashMap;

use serde_json::Value;

use crate::call::Call;
use crate::ids::CallId;
use crate::model::{Item, Role};
use crate::record::{Closed, Record};

/// All items of a session up to now.
#[derive(Debug, Clone, Default)]
pub struct History {
    items: Vec<Item>,
    calls: HashMap<CallId, Call>,
    outputs: HashMap<CallId, String>,
    open_delivery: Vec<CallId>,
    after: Vec<Item>,
    /// Who makes the response in flight; none where the journal does not say.
    maker: Option<String>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// The items, oldest first. Outputs that are not delivered yet are not among them.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Folds one record.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::TurnStarted { input, closes, turn: _ } => {
                for Closed { id, output } in closes {
                    let settled = self.outputs.remove(id);
                    if let (Some(call), Some(output)) = (self.calls.get(id), output.clone().or(settled)) {
                        self.items.push(Item::Output { call: call.clone(), output });
                    }
                }
                self.items.extend(input.iter().cloned());
            }
            Record::ResponseRecorded(facts) => {
                // The outputs of a delivery stand before the answer that accepted it.
                self.close_delivery();
                let maker = self.maker.as_deref().unwrap_or_default(); // the name of nobody, so that nobody gets it back
                self.items.extend(facts.items.iter().filter_map(|raw| item_of(raw, maker)));
            }
            Record::CallAccepted { call, wire_call_id, .. } | Record::CallRejected { call, wire_call_id, .. } => {
                let wire = wire_call_id.clone().unwrap_or_else(|| call.id.clone());
                self.calls.insert(call.id.clone(), call.clone().with_id(wire));
                if let Record::CallRejected { output, .. } = record {
                    self.outputs.insert(call.id.clone(), output.clone());
                }
            }
            Record::CallSettled { id, output, .. } => {
                self.outputs.insert(id.clone(), output.clone());
            }
            Record::DeliveryPrepared { call_ids, after, .. } => {
                self.open_delivery.clone_from(call_ids);
                self.after.clone_from(after);
            }
            Record::DeliveryAcknowledged { .. } => self.close_delivery(),
            Record::FlightSettled { .. } => {
                self.open_delivery.clear();
                self.after.clear();
            }
            Record::ResponseBegun(begun) => {
                self.maker.clone_from(&begun.maker);
                // A request with a delivery has its notice behind the outputs already.
                self.after
                    .extend(begun.notice.iter().map(|text| Item::Message { role: Role::User, text: text.clone() }));
            }
            Record::HarnessBound(_)
            | Record::TurnEnded { .. }
            | Record::CallStarted { .. }
            | Record::CallRequeued { .. }
            | Record::ReplayNarrowed { .. }
            | Record::HoldReleased { .. }
            | Record::CallsOrphaned { .. }
            | Record::ResponseStarted { .. }
            | Record::ResponseCompleted { .. }
            | Record::FlightCleared
            | Record::SummaryStaged { .. }
            | Record::TranscriptCommitted { .. }
            | Record::TranscriptDropped
            | Record::OutcomeStored { .. }
            | Record::Paused { .. }
            | Record::Resumed { .. }
            | Record::Reconciled { .. }
            | Record::InboxConsumed { .. }
            | Record::Parked { .. } => {}
        }
    }

    fn close_delivery(&mut self) {
        for id in std::mem::take(&mut self.open_delivery) {
            if let (Some(call), Some(output)) = (self.calls.get(&id), self.outputs.remove(&id)) {
                self.items.push(Item::Output { call: call.clone(), output });
            }
        }
        self.items.append(&mut self.after);
    }
}

/// A provider's output item in neutral form; what has none is kept verbatim for its maker (O20).
fn item_of(raw: &Value, maker: &str) -> Option<Item> {
    let opaque = || Item::Opaque { maker: maker.to_owned(), raw: raw.clone() };
    match raw.get("type").and_then(Value::as_str)? {
        "function_call" | "custom_tool_call" => Some(call_of(raw).map_or_else(opaque, Item::Call)),
        // Its phase has to go back to its maker; what others read of it is the text.
        "message" if raw.get("phase").is_some_and(|phase| !phase.is_null()) => Some(opaque()),
        "message" => text_of(raw).map(|text| Item::Message { role: Role::Assistant, text }),
        _ => Some(opaque()),
    }
}

/// The call in a provider's item. Whoever accepted it took an `async` that is no boolean for none; a call that is missing
/// here could never be answered.
fn call_of(raw: &Value) -> Option<Call> {
    Call::from_json(raw).ok().or_else(|| {
        let mut plain = raw.as_object()?.clone();
        plain.remove("async").filter(|flag| !flag.is_boolean())?;
        Call::from_json(&Value::Object(plain)).ok()
    })
}

/// The text of a provider's message, refusals included; none if it is another item or says nothing.
pub(crate) fn text_of(raw: &Value) -> Option<String> {
    raw.get("type").and_then(Value::as_str).filter(|kind| *kind == "message")?;
    let parts = raw.get("content").and_then(Value::as_array);
    let texts = parts
        .into_iter()
        .flatten()
        .filter_map(|part| part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str));
    let text: String = texts.collect();
    (!text.is_empty()).then_some(text)
}
