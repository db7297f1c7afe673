//! The lawful pairing of calls and outputs: every output names an open call, every awaited call has its output.
//! It must never know steps, streams or HTTP; it judges values.

use serde_json::Value;

use crate::script::CallMode;

/// The two kinds of calls that an application answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// `function_call`, answered by `function_call_output`.
    Function,
    /// `custom_tool_call`, answered by `custom_tool_call_output`.
    Custom,
}

impl CallKind {
    fn words(self) -> &'static str {
        match self {
            Self::Function => "function call",
            Self::Custom => "custom tool call",
        }
    }

    fn output_type(self) -> &'static str {
        match self {
            Self::Function => "function_call_output",
            Self::Custom => "custom_tool_call_output",
        }
    }
}

/// A call that was made and has no output yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MadeCall {
    pub(crate) id: String,
    pub(crate) kind: CallKind,
    pub(crate) mode: CallMode,
}

/// How a request breaks the pairing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingError {
    /// An output names a call that nobody made.
    #[error("No tool call found for {} output with call_id {call_id}.", kind.words())]
    NeverMade {
        /// The call that the output names.
        call_id: String,
        /// The kind of the output.
        kind: CallKind,
    },
    /// An output names a call that has its output already.
    #[error("Duplicate tool output found for call_id {call_id}.")]
    Repeated {
        /// The call.
        call_id: String,
    },
    /// An output is of the other kind than its call.
    #[error("The {} {call_id} needs a {}, not a {}.", made.words(), made.output_type(), given.output_type())]
    WrongKind {
        /// The call.
        call_id: String,
        /// The call's kind.
        made: CallKind,
        /// The output's kind.
        given: CallKind,
    },
    /// An awaited call has no output.
    #[error("No tool output found for {} {call_id}.", kind.words())]
    MissingOutput {
        /// The call.
        call_id: String,
        /// Its kind.
        kind: CallKind,
    },
    /// A call or an output has no call id, or an output has no text.
    #[error("Missing required parameter: 'input[{index}].{member}'.")]
    MissingMember {
        /// The item's place in the input.
        index: usize,
        /// What it lacks.
        member: &'static str,
    },
}

/// The call that an item makes, if it makes one. A cut-off call counts as none.
pub(crate) fn call_of(item: &Value) -> Option<MadeCall> {
    let kind = match item.get("type").and_then(Value::as_str) {
        Some("function_call") => CallKind::Function,
        Some("custom_tool_call") => CallKind::Custom,
        Some(_) | None => return None,
    };
    if item.get("status").and_then(Value::as_str) == Some("incomplete") {
        return None;
    }
    let mode = match item.get("async").and_then(Value::as_bool) {
        Some(true) => CallMode::Async,
        Some(false) | None => CallMode::Awaited,
    };
    let id = item.get("call_id").and_then(Value::as_str)?.to_owned();
    Some(MadeCall { id, kind, mode })
}

/// The call id and kind of an output, `None` for other items.
pub(crate) fn output_of(item: &Value) -> Option<(CallKind, Option<&str>)> {
    let kind = match item.get("type").and_then(Value::as_str) {
        Some("function_call_output") => CallKind::Function,
        Some("custom_tool_call_output") => CallKind::Custom,
        Some(_) | None => return None,
    };
    Some((kind, item.get("call_id").and_then(Value::as_str)))
}

/// Judges an input against the calls that are open on the response it continues, and gives those still open after it.
///
/// `was_made` tells whether the chain ever made a call of this id; it is asked only when something is wrong.
pub(crate) fn judge(
    mut open: Vec<MadeCall>,
    input: &[Value],
    was_made: impl Fn(&str) -> bool,
) -> Result<Vec<MadeCall>, PairingError> {
    let mut settled: Vec<&str> = Vec::new();
    for (index, item) in input.iter().enumerate() {
        if let Some(call) = call_of(item) {
            open.push(call);
            continue;
        }
        let Some((given, call_id)) = output_of(item) else {
            continue;
        };
        let Some(call_id) = call_id else {
            return Err(PairingError::MissingMember { index, member: "call_id" });
        };
        if !item.get("output").is_some_and(|output| output.is_string() || output.is_array()) {
            return Err(PairingError::MissingMember { index, member: "output" });
        }
        let Some(at) = open.iter().position(|call| call.id == call_id) else {
            let call_id = call_id.to_owned();
            return Err(if settled.contains(&call_id.as_str()) || was_made(&call_id) {
                PairingError::Repeated { call_id }
            } else {
                PairingError::NeverMade { call_id, kind: given }
            });
        };
        let call = open.remove(at);
        if call.kind != given {
            return Err(PairingError::WrongKind { call_id: call.id, made: call.kind, given });
        }
        settled.push(call_id);
    }
    let missing = open.iter().find(|call| call.mode == CallMode::Awaited);
    match missing {
        Some(call) => Err(PairingError::MissingOutput { call_id: call.id.clone(), kind: call.kind }),
        None => Ok(open),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(id: &str, kind: CallKind, mode: CallMode) -> MadeCall {
        MadeCall { id: id.to_owned(), kind, mode }
    }

    fn check(open: Vec<MadeCall>, input: Value, earlier: &[&str], expected: Result<Vec<MadeCall>, PairingError>) {
        let input = input.as_array().cloned().unwrap_or_default();
        assert_eq!(judge(open, &input, |id| earlier.contains(&id)), expected);
    }

    #[test]
    fn outputs_in_any_order_close_their_calls_and_async_calls_may_stay_open() {
        let (function, custom) = (CallKind::Function, CallKind::Custom);
        let open = vec![
            made("a", function, CallMode::Awaited),
            made("b", custom, CallMode::Async),
            made("c", function, CallMode::Async),
        ];
        let input = json!([
            { "type": "custom_tool_call_output", "call_id": "b", "output": "x" },
            { "type": "message", "role": "user", "content": "hi" },
            { "type": "function_call_output", "call_id": "a", "output": [] },
        ]);
        check(open, input, &[], Ok(vec![made("c", function, CallMode::Async)]));
    }

    #[test]
    fn calls_replayed_in_the_input_are_answered_there() {
        let replay = json!([
            { "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "a", "output": "1" },
            { "type": "function_call", "call_id": "b", "name": "f", "arguments": "{}", "async": true },
            { "type": "function_call", "call_id": "cut", "name": "f", "arguments": "{", "status": "incomplete" },
        ]);
        check(vec![], replay, &[], Ok(vec![made("b", CallKind::Function, CallMode::Async)]));
        let unanswered = json!([{ "type": "custom_tool_call", "call_id": "a", "name": "f", "input": "" }]);
        let missing = PairingError::MissingOutput { call_id: "a".to_owned(), kind: CallKind::Custom };
        check(vec![], unanswered, &[], Err(missing));
    }

    #[test]
    fn an_awaited_call_without_output_is_refused_in_the_providers_words() {
        let open = vec![made("call_x", CallKind::Function, CallMode::Awaited)];
        let missing = PairingError::MissingOutput { call_id: "call_x".to_owned(), kind: CallKind::Function };
        assert_eq!(missing.to_string(), "No tool output found for function call call_x.");
        check(open, json!([]), &[], Err(missing));
    }

    #[test]
    fn an_output_that_no_call_asked_for_is_refused() {
        let output = json!([{ "type": "function_call_output", "call_id": "a", "output": "1" }]);
        let never = PairingError::NeverMade { call_id: "a".to_owned(), kind: CallKind::Function };
        check(vec![], output.clone(), &[], Err(never));
        check(vec![], output.clone(), &["a"], Err(PairingError::Repeated { call_id: "a".to_owned() }));
        let open = vec![made("a", CallKind::Custom, CallMode::Async)];
        let wrong =
            PairingError::WrongKind { call_id: "a".to_owned(), made: CallKind::Custom, given: CallKind::Function };
        check(open, output, &[], Err(wrong));
    }

    #[test]
    fn an_output_twice_in_one_input_is_refused() {
        let open = vec![made("a", CallKind::Function, CallMode::Async)];
        let twice = json!([
            { "type": "function_call_output", "call_id": "a", "output": "1" },
            { "type": "function_call_output", "call_id": "a", "output": "1" },
        ]);
        check(open, twice, &[], Err(PairingError::Repeated { call_id: "a".to_owned() }));
    }

    #[test]
    fn an_output_without_id_or_text_is_refused() {
        let missing = |member| PairingError::MissingMember { index: 0, member };
        check(vec![], json!([{ "type": "function_call_output" }]), &[], Err(missing("call_id")));
        let without_text = json!([{ "type": "function_call_output", "call_id": "a" }]);
        check(vec![], without_text, &["a"], Err(missing("output")));
    }

    #[test]
    fn a_call_id_that_is_used_again_is_open_again() {
        let open = vec![made("a", CallKind::Function, CallMode::Awaited)];
        let output = json!([{ "type": "function_call_output", "call_id": "a", "output": "2" }]);
        check(open, output, &["a"], Ok(vec![]));
    }
}
