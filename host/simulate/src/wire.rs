//! The JSON of the OpenAI Responses protocol: error bodies, the response object and its events.
//! It must never know connections, steps or state; sequence numbers are added where events are sent.

use serde_json::{Map, Value, json};

use crate::script::{HttpBody, Retrieved, Usage};

/// Creation time of response zero. The clock stays out, so that a script always gives the same bytes.
const CREATED_AT: u64 = 1_800_000_000;

/// The provider's error form.
pub(crate) fn error_body(message: &str, kind: &str, code: Option<&str>, param: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

/// A scripted body and its content type.
pub(crate) fn http_body(body: &HttpBody) -> (String, String) {
    match body {
        HttpBody::Error { message, kind, code, param } => {
            ("application/json".to_owned(), error_body(message, kind, code.as_deref(), param.as_deref()).to_string())
        }
        HttpBody::Text { content_type, text } => (content_type.clone(), text.clone()),
    }
}

/// A status that a response can have on the wire.
pub(crate) fn status_word(status: Retrieved) -> &'static str {
    match status {
        Retrieved::NotFound => "not_found",
        Retrieved::Queued => "queued",
        Retrieved::InProgress => "in_progress",
        Retrieved::Completed => "completed",
        Retrieved::Incomplete => "incomplete",
        Retrieved::Failed => "failed",
        Retrieved::Cancelled => "cancelled",
    }
}

/// Why a response ended other than completed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reasons {
    pub(crate) incomplete: Option<String>,
    pub(crate) error: Option<(String, String)>,
}

/// A response as it is stored: what the request said, and what the response comes to.
#[derive(Clone, Debug)]
pub(crate) struct ResponseObject {
    base: Map<String, Value>,
    output: Vec<Value>,
    usage: Value,
    reasons: Reasons,
}

impl ResponseObject {
    pub(crate) fn new(
        id: &str,
        number: u64,
        request: &Value,
        model: Option<&str>,
        usage: Option<Usage>,
        reasons: Reasons,
    ) -> Self {
        let echo = |key: &str, usual: Value| match request.get(key) {
            Some(value) if !value.is_null() => value.clone(),
            Some(_) | None => usual,
        };
        let fields = [
            ("id", json!(id)),
            ("object", json!("response")),
            ("created_at", json!(CREATED_AT.saturating_add(number))),
            ("status", Value::Null),
            ("error", Value::Null),
            ("incomplete_details", Value::Null),
            ("instructions", echo("instructions", Value::Null)),
            ("max_output_tokens", echo("max_output_tokens", Value::Null)),
            ("metadata", echo("metadata", json!({}))),
            ("model", model.map_or_else(|| echo("model", Value::Null), |model| json!(model))),
            ("output", json!([])),
            ("parallel_tool_calls", echo("parallel_tool_calls", json!(true))),
            ("previous_response_id", echo("previous_response_id", Value::Null)),
            ("reasoning", echo("reasoning", json!({ "effort": null, "summary": null }))),
            ("store", echo("store", json!(true))),
            ("tool_choice", echo("tool_choice", json!("auto"))),
            ("tools", echo("tools", json!([]))),
            ("truncation", echo("truncation", json!("disabled"))),
            ("usage", Value::Null),
        ];
        let base = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self { base, output: Vec::new(), usage: usage.map_or(Value::Null, usage_object), reasons }
    }

    pub(crate) fn push_output(&mut self, item: Value) {
        self.output.push(item);
    }

    /// The object at this status. Before the end it has no output and no usage.
    pub(crate) fn at(&self, status: Retrieved) -> Value {
        let mut object = self.base.clone();
        object.insert("status".to_owned(), json!(status_word(status)));
        match status {
            Retrieved::NotFound | Retrieved::Queued | Retrieved::InProgress => {}
            Retrieved::Completed | Retrieved::Incomplete | Retrieved::Failed | Retrieved::Cancelled => {
                object.insert("output".to_owned(), Value::Array(self.output.clone()));
                object.insert("usage".to_owned(), self.usage.clone());
            }
        }
        if status == Retrieved::Incomplete {
            let reason = self.reasons.incomplete.as_deref().unwrap_or("max_output_tokens");
            object.insert("incomplete_details".to_owned(), json!({ "reason": reason }));
        }
        if status == Retrieved::Failed {
            let (code, message) = match &self.reasons.error {
                Some((code, message)) => (code.as_str(), message.as_str()),
                None => ("server_error", "The response failed."),
            };
            object.insert("error".to_owned(), json!({ "code": code, "message": message }));
        }
        Value::Object(object)
    }
}

fn usage_object(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

/// An event of the response's life: `created`, `in_progress`, `completed` …
pub(crate) fn life_event(name: &str, response: Value) -> Value {
    json!({ "type": format!("response.{name}"), "response": response })
}

/// The flat `error` event.
pub(crate) fn error_event(code: &str, message: &str) -> Value {
    json!({ "type": "error", "code": code, "message": message, "param": null })
}

/// An item's `added` or `done`.
pub(crate) fn item_event(name: &str, index: usize, item: &Value) -> Value {
    json!({ "type": format!("response.output_item.{name}"), "output_index": index, "item": item })
}

/// An item's place in the stream.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) item: &'a str,
    pub(crate) index: usize,
}

impl At<'_> {
    fn event(self, name: &str, more: Value) -> Value {
        let mut event = Map::new();
        event.insert("type".to_owned(), json!(format!("response.{name}")));
        event.insert("item_id".to_owned(), json!(self.item));
        event.insert("output_index".to_owned(), json!(self.index));
        if let Value::Object(more) = more {
            event.extend(more);
        }
        Value::Object(event)
    }

    /// A content part's `added` or `done`.
    pub(crate) fn part(self, name: &str, part: &Value) -> Value {
        self.event(&format!("content_part.{name}"), json!({ "content_index": 0, "part": part }))
    }

    pub(crate) fn text_delta(self, delta: &str) -> Value {
        self.event("output_text.delta", json!({ "content_index": 0, "delta": delta, "logprobs": [] }))
    }

    pub(crate) fn text_done(self, text: &str) -> Value {
        self.event("output_text.done", json!({ "content_index": 0, "text": text, "logprobs": [] }))
    }

    pub(crate) fn refusal_delta(self, delta: &str) -> Value {
        self.event("refusal.delta", json!({ "content_index": 0, "delta": delta }))
    }

    pub(crate) fn refusal_done(self, refusal: &str) -> Value {
        self.event("refusal.done", json!({ "content_index": 0, "refusal": refusal }))
    }

    /// A summary part's `added` or `done`.
    pub(crate) fn summary_part(self, name: &str, text: &str) -> Value {
        self.event(
            &format!("reasoning_summary_part.{name}"),
            json!({ "summary_index": 0, "part": { "type": "summary_text", "text": text } }),
        )
    }

    pub(crate) fn summary_delta(self, delta: &str) -> Value {
        self.event("reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": delta }))
    }

    pub(crate) fn summary_done(self, text: &str) -> Value {
        self.event("reasoning_summary_text.done", json!({ "summary_index": 0, "text": text }))
    }

    pub(crate) fn arguments_delta(self, delta: &str) -> Value {
        self.event("function_call_arguments.delta", json!({ "delta": delta }))
    }

    pub(crate) fn arguments_done(self, arguments: &str) -> Value {
        self.event("function_call_arguments.done", json!({ "arguments": arguments }))
    }

    pub(crate) fn input_delta(self, delta: &str) -> Value {
        self.event("custom_tool_call_input.delta", json!({ "delta": delta }))
    }

    pub(crate) fn input_done(self, input: &str) -> Value {
        self.event("custom_tool_call_input.done", json!({ "input": input }))
    }
}
