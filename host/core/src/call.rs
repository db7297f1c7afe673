//! One use of a tool that the model asked for, as text that is never normalised (conformance A).

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::ids::{CallId, ToolName};
use crate::limits;

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
        if self.text().len() > limits::CALL_PAYLOAD_BYTES_MAX {
            return Err(Error::provider(format!(
                "call {:?} of tool {:?} has {} bytes of input, over the limit of {}",
                self.id.as_str(),
                self.name.as_str(),
                self.text().len(),
                limits::CALL_PAYLOAD_BYTES_MAX
            )));
        }
        self.check_arguments()
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
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => return Err(Error::provider(format!("member async of a call is {}, not a boolean", kind_of(other)))),
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
