//! Finished items: their texts, the call in them, and the form in which they are kept. No event is made here.

use serde_json::{Map, Value};
use wharf_core::model::FinishedCall;
use wharf_core::{Call, Payload};

use super::slots::{Kind, Part, PartOf, Slot, text};
use crate::limits;

/// Puts the whole text of a part in the place of what came, and gives what is new for whoever reads along. Text that was
/// shown cannot be taken back: where it differs, nothing new is shown and the whole counts.
pub(super) fn replace(slot: &mut Slot, part: Part, whole: &str) -> String {
    let known = slot.parts.entry(part).or_default();
    let new = whole.strip_prefix(known.as_str()).unwrap_or_default().to_owned();
    *known = whole.to_owned();
    new
}

/// What an item takes in memory, about: its texts and names, and something for each value in it.
pub(super) fn weight(item: &Map<String, Value>) -> usize {
    let mut bytes = limits::VALUE_BYTES;
    let mut open: Vec<&Value> = Vec::new();
    for (name, member) in item {
        bytes = bytes.saturating_add(name.len());
        open.push(member);
    }
    while let Some(value) = open.pop() {
        bytes = bytes.saturating_add(limits::VALUE_BYTES);
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    bytes = bytes.saturating_add(name.len());
                    open.push(member);
                }
            }
            Value::Array(items) => open.extend(items),
            Value::String(text) => bytes = bytes.saturating_add(text.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    bytes
}

/// The texts within a finished message or reasoning item.
pub(super) fn parts_of(item: &Map<String, Value>) -> Vec<(Part, &str)> {
    let list = |name: &str| item.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut parts = Vec::new();
    for (place, part) in (0u64..).zip(list("content")) {
        match part["type"].as_str() {
            Some("output_text") => parts.push((Part { place, of: PartOf::Text }, text(&part["text"]))),
            Some("refusal") => parts.push((Part { place, of: PartOf::Refusal }, text(&part["refusal"]))),
            _ => {}
        }
    }
    for (place, part) in (0u64..).zip(list("summary")) {
        parts.push((Part { place, of: PartOf::Summary }, text(&part["text"])));
    }
    parts.into_iter().filter_map(|(part, said)| Some((part, said?))).collect()
}

/// The call of a slot, with the gaps filled from what was streamed (P8); of a repeat, what the repeat says.
pub(super) fn finished_call(
    slot: &Slot,
    kind: &Kind,
    again: Option<&Map<String, Value>>,
) -> Result<FinishedCall, Missing> {
    let mut slot = slot.clone();
    if let Some(item) = again {
        slot.absorb(item);
    }
    let id = slot.call_id().filter(|id| !id.trim().is_empty()).ok_or(Missing::Id)?;
    let name = slot.name.as_deref().filter(|name| !name.trim().is_empty()).ok_or(Missing::Name)?;
    let mut call = match kind {
        Kind::Custom => Call::custom(id, name, slot.payload.as_str()),
        Kind::Function | Kind::Message | Kind::Reasoning | Kind::Other(_) => {
            Call::function(id, name, slot.payload.as_str())
        }
    };
    call.is_async = slot.is_async.unwrap_or(false);
    Ok(FinishedCall::from(call))
}

/// What a finished call lacks after all gaps were filled (L48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// Its id.
    Id,
    /// The tool's name.
    Name,
}

impl Missing {
    /// The code under which the response fails.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Id => "call_without_id",
            Self::Name => "call_without_name",
        }
    }

    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Id => "call id",
            Self::Name => "name",
        }
    }
}

/// What an item is, for messages.
pub(super) fn kind_word(kind: &Kind) -> &str {
    match kind {
        Kind::Function => "function call",
        Kind::Custom => "custom tool call",
        Kind::Message => "message",
        Kind::Reasoning => "reasoning item",
        Kind::Other(other) => other,
    }
}

/// Equal, or equal but for how the JSON of the arguments is spelt: some servers spell it anew in the terminal list.
pub(super) fn same_call(a: &FinishedCall, b: &FinishedCall) -> bool {
    if a == b {
        return true;
    }
    if a.call.id != b.call.id || a.call.name != b.call.name || a.call.is_async != b.call.is_async {
        return false;
    }
    match (&a.call.payload, &b.call.payload) {
        (Payload::Function { arguments: a }, Payload::Function { arguments: b }) => {
            match (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b)) {
                (Ok(a), Ok(b)) => a == b,
                _ => false,
            }
        }
        _ => false,
    }
}

/// A call's item as it is kept: verbatim, with the members that were streamed apart put in (P8).
pub(super) fn raw_call(slot: &Slot, kind: &Kind, item: &Map<String, Value>) -> Value {
    let mut raw = item.clone();
    let mut fill = |name: &str, value: Option<&str>| {
        if let Some(value) = value
            && raw.get(name).and_then(text) != Some(value)
        {
            raw.insert(name.to_owned(), value.into());
        }
    };
    fill("call_id", slot.call_id());
    fill("name", slot.name.as_deref());
    fill(if *kind == Kind::Custom { "input" } else { "arguments" }, Some(&slot.payload));
    if slot.is_async == Some(true) {
        raw.insert("async".to_owned(), true.into());
    }
    Value::Object(raw)
}

/// The item of a slot as it is kept with the response. Partial calls and partial reasoning are not; a message whose own
/// item never came is put together from its text.
pub(super) fn kept(slot: &Slot, accepted: bool) -> Option<Value> {
    if slot.raw.is_some() || slot.kind != Some(Kind::Message) || !accepted {
        return slot.raw.clone();
    }
    let content: Vec<Value> = slot
        .parts
        .iter()
        .filter_map(|(part, said)| match part.of {
            PartOf::Text => Some(serde_json::json!({"type": "output_text", "text": said, "annotations": []})),
            PartOf::Refusal => Some(serde_json::json!({"type": "refusal", "refusal": said})),
            PartOf::Summary => None,
        })
        .collect();
    (!content.is_empty()).then(|| serde_json::json!({"type": "message", "role": "assistant", "content": content}))
}
