//! One use of a tool that the model asked for, as text that is never normalised (conformance A).

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::ids::{CallId, ToolName};
use crate::limits;
use crate::output::Output;

/// A call of a tool: a function with JSON arguments, or a custom tool with raw input.
///
/// Two calls are equal only if variant, id, name, text as received and async flag all agree (A17).
///
/// ```
/// use wharf_core::Call;
/// let call = Call::function("call_1", "read_file", r#"{"path": "a.md"}"#);
/// assert_eq!(call.output_item("done")["type"], "function_call_output");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The host's key of the call; on a driver's side of the border the provider's id (B13).
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub name: ToolName,
    /// What the model passes.
    pub payload: Payload,
    /// Whether the model used the tool's leave to run async. Leave and use are two facts.
    pub is_async: bool,
}

/// What the model passes, byte for byte as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Argument text, meant to be JSON (A7).
    Function {
        /// The text; blank means `{}` (A19).
        arguments: String,
    },
    /// Raw text; never JSON-normalised (A8).
    Custom {
        /// The text.
        input: String,
    },
}

impl Call {
    /// A sync function call.
    pub fn function(id: impl Into<CallId>, name: impl Into<ToolName>, arguments: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            payload: Payload::Function { arguments: arguments.into() },
            is_async: false,
        }
    }

    /// A sync custom call.
    pub fn custom(id: impl Into<CallId>, name: impl Into<ToolName>, input: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), payload: Payload::Custom { input: input.into() }, is_async: false }
    }

    /// The same call, async.
    #[must_use]
    pub fn asynchronous(mut self) -> Self {
        self.is_async = true;
        self
    }

    /// The same call under another id: the wire id of a call whose host key differs (B13).
    #[must_use]
    pub fn with_id(mut self, id: CallId) -> Self {
        self.id = id;
        self
    }

    /// The text that came.
    pub fn text(&self) -> &str {
        match &self.payload {
            Payload::Function { arguments } => arguments,
            Payload::Custom { input } => input,
        }
    }

    /// The text that an executor gets: as it came, but `{}` for blank function arguments (A19).
    pub fn effective_text(&self) -> &str {
        match &self.payload {
            Payload::Function { arguments } if arguments.trim().is_empty() => "{}",
            Payload::Function { arguments } => arguments,
            Payload::Custom { input } => input,
        }
    }

    /// Checks what any call must have: an id, a name (A11, A12, A16), and arguments that are JSON of any shape (A13, A14).
    /// Custom input is never looked into (A15).
    ///
    /// # Errors
    /// A provider error that says what is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        if self.id.is_blank() {
            return Err(Error::provider(format!("a call of tool {:?} has no call id", self.name.as_str())));
        }
        if self.name.is_blank() {
            return Err(Error::provider(format!("call {:?} has no tool name", self.id.as_str())));
        }
        self.check_arguments()
    }

    /// Checks what a call must keep to so that its records can be stored, whether it is accepted or refused. Apart from
    /// [`Call::validate`], because a call that was stored under another limit stays one.
    ///
    /// # Errors
    /// A provider error that says what is too long.
    pub fn check_bounds(&self) -> Result<(), Error> {
        for (what, length) in [("id", self.id.as_str().len()), ("name", self.name.as_str().len())] {
            if length > limits::ID_BYTES_MAX {
                return Err(Error::provider(format!(
                    "the {what} of a call has {length} bytes, over the limit of {}",
                    limits::ID_BYTES_MAX
                )));
            }
        }
        if self.text().len() > limits::CALL_PAYLOAD_BYTES_MAX {
            return Err(Error::provider(format!(
                "call {:?} of tool {:?} has {} bytes of input, over the limit of {}",
                self.id.as_str(),
                self.name.as_str(),
                self.text().len(),
                limits::CALL_PAYLOAD_BYTES_MAX
            )));
        }
        Ok(())
    }

    /// The part of [`Call::validate`] that a malformed call fails and that the model can mend (L46).
    ///
    /// # Errors
    /// A provider error with the place of the fault.
    pub fn check_arguments(&self) -> Result<(), Error> {
        match &self.payload {
            Payload::Function { .. } => match serde_json::from_str::<serde::de::IgnoredAny>(self.effective_text()) {
                Ok(_) => Ok(()),
                Err(fault) => Err(Error::provider(format!(
                    "the arguments of call {:?} of tool {:?} are not JSON: {fault}",
                    self.id.as_str(),
                    self.name.as_str()
                ))),
            },
            Payload::Custom { .. } => Ok(()),
        }
    }

    /// The output item for this call: exactly `type`, `call_id` and `output` (A10). The type follows from the variant.
    pub fn output_item(&self, output: &str) -> Value {
        json!({ "type": self.output_type(), "call_id": self.id.as_str(), "output": output })
    }

    /// The output item for this call with an output of either form (A21).
    pub fn output_item_for(&self, output: &Output) -> Value {
        json!({ "type": self.output_type(), "call_id": self.id.as_str(), "output": output.to_wire() })
    }

    /// `function_call_output` or `custom_tool_call_output`.
    pub fn output_type(&self) -> &'static str {
        match self.payload {
            Payload::Function { .. } => "function_call_output",
            Payload::Custom { .. } => "custom_tool_call_output",
        }
    }

    /// The public JSON form; `async` is always written (A2, A4).
    pub fn to_json(&self) -> Value {
        match &self.payload {
            Payload::Function { arguments } => json!({
                "type": "function_call", "call_id": self.id.as_str(), "name": self.name.as_str(),
                "arguments": arguments, "async": self.is_async,
            }),
            Payload::Custom { input } => json!({
                "type": "custom_tool_call", "call_id": self.id.as_str(), "name": self.name.as_str(),
                "input": input, "async": self.is_async,
            }),
        }
    }

    /// Reads the public JSON form. Members that it does not know, an item's `id` or `status` say, do not matter (A5); an
    /// absent `async` is false (A3).
    ///
    /// # Errors
    /// A provider error that names the member that is missing or of a wrong type (A6).
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let members =
            value.as_object().ok_or_else(|| Error::provider(format!("a call is {}, not an object", kind_of(value))))?;
        let text = |name: &str| member_text(members, name);
        let payload = match text("type")?.as_str() {
            "function_call" => Payload::Function { arguments: text("arguments")? },
            "custom_tool_call" => Payload::Custom { input: text("input")? },
            other => {
                return Err(Error::provider(format!(
                    "a call has type {other:?}; expected \"function_call\" or \"custom_tool_call\""
                )));
            }
        };
        let is_async = match members.get("async") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                return Err(Error::provider(format!("member async of a call is {}, not a boolean", kind_of(other))));
            }
        };
        Ok(Self { id: text("call_id")?.into(), name: text("name")?.into(), payload, is_async })
    }
}

fn member_text(members: &Map<String, Value>, name: &str) -> Result<String, Error> {
    match members.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(Error::provider(format!("member {name} of a call is {}, not a string", kind_of(other)))),
        None => Err(Error::provider(format!("a call has no member {name}"))),
    }
}

/// The JSON type of a value, for messages.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn decode(text: &str) -> Result<Call, Error> {
        Call::from_json(&serde_json::from_str(text).expect("the test writes JSON"))
    }

    #[test]
    fn the_two_variants_are_told_apart_by_type_and_have_their_members() {
        // covers A1, A2, A4
        assert_eq!(
            Call::function("c1", "read", r#"{"a":1}"#).to_json(),
            json!({ "type": "function_call", "call_id": "c1", "name": "read", "arguments": r#"{"a":1}"#, "async": false })
        );
        assert_eq!(
            Call::custom("c2", "query", ".a").asynchronous().to_json(),
            json!({ "type": "custom_tool_call", "call_id": "c2", "name": "query", "input": ".a", "async": true })
        );
        assert_eq!(
            decode(r#"{"type":"function_call","call_id":"c1","name":"read","arguments":"{}","async":true}"#),
            Ok(Call::function("c1", "read", "{}").asynchronous())
        );
        assert_eq!(
            decode(r#"{"type":"custom_tool_call","call_id":"c1","name":"read","input":"{}","async":false}"#),
            Ok(Call::custom("c1", "read", "{}"))
        );
    }

    #[test]
    fn absent_async_is_false_and_unknown_members_do_not_disturb() {
        // covers A3, A5
        let read = decode(
            r#"{"id":"fc_1","status":"completed","namespace":{"x":[1]},"type":"function_call","call_id":"c1","name":"t","arguments":"{}","input":7}"#,
        );
        assert_eq!(read, Ok(Call::function("c1", "t", "{}")));
    }

    #[test]
    fn async_without_a_value_is_false() {
        // covers A3
        let read = decode(r#"{"type":"function_call","call_id":"c1","name":"t","arguments":"{}","async":null}"#);
        assert_eq!(read, Ok(Call::function("c1", "t", "{}")));
    }

    #[test]
    fn decoding_fails_on_an_unknown_type_and_on_each_missing_member() {
        // covers A6
        for (text, message) in [
            (
                r#"{"type":"mcp_call","call_id":"c","name":"t","arguments":""}"#,
                r#"a call has type "mcp_call"; expected "function_call" or "custom_tool_call""#,
            ),
            (r#"{"call_id":"c","name":"t","arguments":""}"#, "a call has no member type"),
            (r#"{"type":"function_call","name":"t","arguments":""}"#, "a call has no member call_id"),
            (r#"{"type":"function_call","call_id":"c","arguments":""}"#, "a call has no member name"),
            (r#"{"type":"function_call","call_id":"c","name":"t","input":""}"#, "a call has no member arguments"),
            (r#"{"type":"custom_tool_call","call_id":"c","name":"t","arguments":""}"#, "a call has no member input"),
            (
                r#"{"type":"custom_tool_call","call_id":7,"name":"t","input":""}"#,
                "member call_id of a call is a number, not a string",
            ),
            (
                r#"{"type":"function_call","call_id":"c","name":"t","arguments":{}}"#,
                "member arguments of a call is an object, not a string",
            ),
            (
                r#"{"type":"function_call","call_id":"c","name":"t","arguments":"","async":"yes"}"#,
                "member async of a call is a string, not a boolean",
            ),
            ("[]", "a call is an array, not an object"),
        ] {
            assert_eq!(decode(text), Err(Error::provider(message)), "{text}");
        }
    }

    #[test]
    fn payload_text_survives_byte_for_byte() {
        // covers A7, A8
        let arguments = "{ \"b\" : 1.0e+2,\n\t\"a\": \"\\u00e9\\/\", \"b\": 1e400 }  ";
        let input = "line one\r\nline two\n\t{\"not\": json\u{0} é \\n";
        for call in [Call::function("c", "t", arguments), Call::custom("c", "t", input)] {
            let text = serde_json::to_string(&call.to_json()).expect("JSON writes");
            let back = decode(&text).expect("it reads back");
            assert_eq!(back, call);
            assert_eq!(back.text(), call.text());
            assert_eq!(back.effective_text(), call.text());
        }
    }

    #[test]
    fn id_name_and_async_are_read_alike_on_both_variants() {
        // covers A9
        for call in [Call::function("c1", "t1", "{}").asynchronous(), Call::custom("c1", "t1", "x").asynchronous()] {
            assert_eq!((call.id.as_str(), call.name.as_str(), call.is_async), ("c1", "t1", true));
        }
    }

    #[test]
    fn the_output_item_has_three_members_and_its_type_follows_the_variant() {
        // covers A10, E5
        for output in ["", "plain", r#"{"result":1}"#] {
            assert_eq!(
                Call::function("c1", "t", "{}").asynchronous().output_item(output),
                json!({ "type": "function_call_output", "call_id": "c1", "output": output })
            );
            assert_eq!(
                Call::custom("c2", "t", "x").output_item(output),
                json!({ "type": "custom_tool_call_output", "call_id": "c2", "output": output })
            );
        }
    }

    #[test]
    fn blank_ids_and_names_are_provider_errors() {
        // covers A11, A12, A16
        for blank in ["", " ", "\t\n\u{a0}"] {
            for call in [Call::function(blank, "t", "{}"), Call::custom(blank, "t", "x")] {
                assert_eq!(call.validate(), Err(Error::provider(r#"a call of tool "t" has no call id"#)));
            }
            for call in [Call::function("c", blank, "{}"), Call::custom("c", blank, "x")] {
                assert_eq!(call.validate(), Err(Error::provider(r#"call "c" has no tool name"#)));
            }
        }
        assert_eq!(Call::function("c", "t", "{}").validate(), Ok(()));
    }

    #[test]
    fn arguments_have_to_be_json_of_any_shape() {
        // covers A13, A14
        for broken in ["{", "{} {}", "nope", r#"{"a":}"#, "{'a': 1}"] {
            let error = Call::function("c", "t", broken).validate().expect_err(broken);
            assert_eq!(error.kind, ErrorKind::Provider, "{broken}");
            assert!(error.message.starts_with(r#"the arguments of call "c" of tool "t" are not JSON: "#), "{error}");
        }
        for good in ["{}", "[1]", "7", "null", "\"x\"", " true ", "-1.5e3"] {
            assert_eq!(Call::function("c", "t", good).validate(), Ok(()), "{good}");
        }
    }

    #[test]
    fn custom_input_is_never_parsed() {
        // covers A15
        for input in ["", "{", "\n", "nope"] {
            assert_eq!(Call::custom("c", "t", input).validate(), Ok(()), "{input:?}");
        }
    }

    #[test]
    fn calls_are_equal_only_if_everything_agrees() {
        // covers A17
        let call = Call::function("c", "t", "{}");
        assert_eq!(call, call.clone());
        for other in [
            Call::custom("c", "t", "{}"),
            Call::function("d", "t", "{}"),
            Call::function("c", "u", "{}"),
            Call::function("c", "t", "{ }"),
            Call::function("c", "t", ""),
            Call::function("c", "t", "{}").asynchronous(),
        ] {
            assert_ne!(call, other);
        }
    }

    #[test]
    fn an_async_custom_call_survives_the_round_trip() {
        // covers A18
        let text = r#"{"type":"custom_tool_call","call_id":"c9","name":"query","input":".a\n.b","async":true}"#;
        let once = decode(text).expect("it is a call");
        let twice = Call::from_json(&once.to_json()).expect("it is a call");
        assert_eq!(twice, Call::custom("c9", "query", ".a\n.b").asynchronous());
    }

    #[test]
    fn blank_arguments_read_as_an_empty_object_and_stay_as_they_came() {
        // covers A19
        for blank in ["", "  ", "\n\t"] {
            let call = Call::function("c", "t", blank);
            assert_eq!(call.validate(), Ok(()));
            assert_eq!((call.text(), call.effective_text()), (blank, "{}"));
            assert_eq!(call.to_json()["arguments"], blank);
        }
        assert_eq!(Call::custom("c", "t", " ").effective_text(), " ");
    }

    #[test]
    fn id_name_and_input_are_bounded_at_the_limit_and_past_it() {
        let long = |length: usize| "x".repeat(length);
        for (more, good) in [(0, true), (1, false)] {
            let (word, text) = (long(limits::ID_BYTES_MAX + more), long(limits::CALL_PAYLOAD_BYTES_MAX + more));
            assert_eq!(Call::custom(word.as_str(), "t", "").check_bounds().is_ok(), good, "id");
            assert_eq!(Call::custom("c", word.as_str(), "").check_bounds().is_ok(), good, "name");
            assert_eq!(Call::custom("c", "t", text.as_str()).check_bounds().is_ok(), good, "input");
        }
    }
}
