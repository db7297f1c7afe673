//! Neutral items as this protocol's input items (O2, O18, O20).

use serde_json::{Value, json};
use wharf_core::model::{Item, Role};
use wharf_core::{Call, Payload};

/// Who asks: opaque items go back only to the model that made them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'r> {
    /// `provider/model`.
    pub(super) maker: &'r str,
    /// Whether async calls may be marked as such.
    pub(super) async_calls: bool,
}

impl Reader<'_> {
    /// The wire form, in order.
    pub(super) fn items(self, items: &[Item]) -> Vec<Value> {
        items.iter().filter_map(|item| self.item(item)).collect()
    }

    fn item(self, item: &Item) -> Option<Value> {
        match item {
            Item::Message { role, text } => Some(message(*role, text)),
            Item::Call(call) => Some(self.call(call)),
            Item::Output { call, output } => Some(call.output_item(output)),
            Item::Opaque { maker, raw } if maker == self.maker => Some(raw.clone()),
            Item::Opaque { raw, .. } => self.neutral(raw),
        }
    }

    fn call(self, call: &Call) -> Value {
        let (id, name) = (call.id.as_str(), call.name.as_str());
        let mut item = match &call.payload {
            // The server parses them; nothing at all stands for no arguments (A19).
            Payload::Function { arguments } if arguments.trim().is_empty() => {
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"})
            }
            Payload::Function { arguments } => {
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
            }
            Payload::Custom { input } => {
                json!({"type": "custom_tool_call", "call_id": id, "name": name, "input": input})
            }
        };
        if call.is_async && self.async_calls {
            item["async"] = true.into();
        }
        item
    }

    /// What another model may read of an item that is not its own: text and calls, without ids and marks of the maker.
    /// Reasoning and everything unknown is left out.
    fn neutral(self, raw: &Value) -> Option<Value> {
        match raw["type"].as_str()? {
            "message" => {
                let role = match raw["role"].as_str() {
                    Some("user") => Role::User,
                    Some("assistant") | None => Role::Assistant, // some servers leave it out of their own messages
                    Some(_) => Role::System,
                };
                let parts = raw["content"].as_array()?.iter();
                let text: String =
                    parts.filter_map(|part| part["text"].as_str().or(part["refusal"].as_str())).collect();
                (!text.is_empty()).then(|| message(role, &text))
            }
            // Not readable as a call: then there is nothing that another model could make of it.
            "function_call" | "custom_tool_call" => Some(self.call(&Call::from_json(raw).ok()?)),
            "function_call_output" | "custom_tool_call_output" => Some(raw.clone()),
            _ => None,
        }
    }
}

fn message(role: Role, text: &str) -> Value {
    json!({"type": "message", "role": role.as_str(), "content": text})
}
