//! Whether a request is what a step expects. It must never know state beyond the latest response id.

use serde_json::Value;

use crate::pairing::output_of;
use crate::script::{Expect, ExpectPrevious};

/// A request's body, with its input as a list.
pub(crate) struct RequestView<'a> {
    pub(crate) body: &'a Value,
    pub(crate) input: &'a [Value],
}

impl<'a> RequestView<'a> {
    pub(crate) fn new(body: &'a Value) -> Self {
        // A plain string is one user message and names no call.
        let input = body.get("input").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Self { body, input }
    }

    pub(crate) fn previous(&self) -> Option<&'a str> {
        self.body.get("previous_response_id").and_then(Value::as_str)
    }

    pub(crate) fn wants_stream(&self) -> bool {
        self.body.get("stream").and_then(Value::as_bool) == Some(true)
    }

    fn outputs(&self) -> Vec<&'a str> {
        self.input.iter().filter_map(output_of).filter_map(|(_, call_id)| call_id).collect()
    }

    fn offers(&self, tool: &str) -> bool {
        let tools = self.body.get("tools").and_then(Value::as_array);
        tools.is_some_and(|tools| tools.iter().any(|offered| offered.get("name").and_then(Value::as_str) == Some(tool)))
    }
}

/// What the request lacks, one line each; nothing if it fits.
pub(crate) fn mismatches(expect: &Expect, request: &RequestView<'_>, latest: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, wanted: Option<&str>, given: Option<&str>| {
        if wanted != given {
            found.push(format!("{what}: expected {}, got {}", shown(wanted), shown(given)));
        }
    };
    match &expect.previous {
        Some(ExpectPrevious::Absent) => {
            compare("previous_response_id", None, request.previous());
        }
        Some(ExpectPrevious::Latest) => {
            compare("previous_response_id (latest)", latest, request.previous());
        }
        Some(ExpectPrevious::Is(id)) => {
            compare("previous_response_id", Some(id), request.previous());
        }
        None => {}
    }
    if let Some(model) = &expect.model {
        compare("model", Some(model), request.body.get("model").and_then(Value::as_str));
    }
    let outputs = request.outputs();
    for call in expect.outputs.iter().filter(|call| !outputs.contains(&call.as_str())) {
        found.push(format!("outputs: no output of {call:?}, got {outputs:?}"));
    }
    if let Some(only) = &expect.only_outputs
        && *only != outputs
    {
        found.push(format!("outputs: expected exactly {only:?}, got {outputs:?}"));
    }
    for tool in expect.tools.iter().filter(|tool| !request.offers(tool)) {
        found.push(format!("tools: {tool:?} is not offered"));
    }
    let input = request.body.get("input").unwrap_or(&Value::Null);
    for text in expect.contains.iter().filter(|text| !stands_in(input, text)) {
        found.push(format!("input: does not contain {text:?}"));
    }
    for text in expect.lacks.iter().filter(|text| stands_in(request.body, text)) {
        found.push(format!("request: contains {text:?}"));
    }
    let instructions = request.body.get("instructions").and_then(Value::as_str).unwrap_or_default();
    for text in expect.instructions.iter().filter(|text| !instructions.contains(text.as_str())) {
        found.push(format!("instructions: do not contain {text:?}"));
    }
    if let Some(stream) = expect.stream
        && stream != request.wants_stream()
    {
        found.push(format!("stream: expected {stream}, got {}", request.wants_stream()));
    }
    found
}

fn shown(value: Option<&str>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("{value:?}"))
}

/// Whether some string inside the value contains the text. Depth is bounded by the JSON parser.
fn stands_in(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(list) => list.iter().any(|value| stands_in(value, text)),
        Value::Object(members) => members.iter().any(|(key, value)| key.contains(text) || stands_in(value, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(expect: Expect, expected: &[&str]) {
        let body = json!({
            "model": "m-1",
            "previous_response_id": "resp_2",
            "instructions": "be brief",
            "stream": true,
            "tools": [{ "type": "function", "name": "grep" }],
            "input": [
                { "type": "function_call_output", "call_id": "b", "output": "two lines" },
                { "type": "custom_tool_call_output", "call_id": "a", "output": [{ "text": "deep" }] },
            ],
        });
        assert_eq!(mismatches(&expect, &RequestView::new(&body), Some("resp_2")), expected);
    }

    #[test]
    fn a_request_that_fits_has_no_mismatch() {
        let all = Expect::new()
            .latest()
            .model("m-1")
            .outputs(["a"])
            .only_outputs(["b", "a"])
            .tool("grep")
            .contains("two")
            .contains("deep")
            .lacks("secret")
            .instructions("brief")
            .stream(true);
        check(all, &[]);
        check(Expect::new(), &[]);
        check(Expect::new().previous("resp_2"), &[]);
    }

    #[test]
    fn each_mismatch_is_said() {
        let all = Expect::new()
            .no_previous()
            .model("m-2")
            .outputs(["c", "a"])
            .only_outputs(["a", "b"])
            .tool("find")
            .contains("three")
            .lacks("two")
            .instructions("long")
            .stream(false);
        check(
            all,
            &[
                "previous_response_id: expected none, got \"resp_2\"",
                "model: expected \"m-2\", got \"m-1\"",
                "outputs: no output of \"c\", got [\"b\", \"a\"]",
                "outputs: expected exactly [\"a\", \"b\"], got [\"b\", \"a\"]",
                "tools: \"find\" is not offered",
                "input: does not contain \"three\"",
                "request: contains \"two\"",
                "instructions: do not contain \"long\"",
                "stream: expected false, got true",
            ],
        );
        check(Expect::new().previous("resp_1"), &["previous_response_id: expected \"resp_1\", got \"resp_2\""]);
    }
}
