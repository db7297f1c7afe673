//! From a scripted answer to the beats that a stream plays. It must never know bytes, sockets or time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::pairing::{MadeCall, call_of};
use crate::script::{
    Answer, CallItem, CallMode, Chunk, Extent, Finish, Item, Omitted, Pace, ReasoningItem, Retrieved, TextItem,
};
use crate::wire::{self, At, Reasons, ResponseObject};

/// One thing that a stream does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Beat {
    /// Sends an event.
    Event(Value),
    /// Sends the event that ends the response in this state.
    Terminal(Value, Retrieved),
    /// Sends a comment.
    Comment(String),
    /// Pauses.
    Wait(Duration),
    /// Pauses until a gate is released.
    Gate(String),
}

/// An answer, ready to be played and stored.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) beats: Vec<Beat>,
    pub(crate) object: ResponseObject,
    /// The calls that the model makes, if the response is accepted.
    pub(crate) calls: Vec<MadeCall>,
}

/// Which response is planned.
pub(crate) struct Subject<'a> {
    pub(crate) id: &'a str,
    pub(crate) number: u64,
    pub(crate) request: &'a Value,
}

impl Plan {
    pub(crate) fn new(answer: &Answer, subject: &Subject<'_>) -> Self {
        let reasons = match &answer.finish {
            Finish::Incomplete { reason } => Reasons { incomplete: Some(reason.clone()), error: None },
            Finish::Failed { code, message } | Finish::Error { code, message } => {
                Reasons { incomplete: None, error: Some((code.clone(), message.clone())) }
            }
            Finish::Completed | Finish::Cancelled | Finish::Nothing => Reasons::default(),
        };
        let object = ResponseObject::new(
            subject.id,
            subject.number,
            subject.request,
            answer.model.as_deref(),
            answer.usage,
            reasons,
        );
        let mut writer = Writer {
            omit: &answer.omit,
            number: subject.number,
            index: 0,
            plan: Self { beats: Vec::new(), object, calls: Vec::new() },
        };
        writer.opening();
        for item in &answer.items {
            writer.item(item);
        }
        writer.terminal(&answer.finish);
        writer.plan
    }

    /// The event that ends a response which was cancelled on the way.
    pub(crate) fn cancelled_event(object: &ResponseObject) -> Value {
        wire::life_event("cancelled", object.at(Retrieved::Cancelled))
    }
}

struct Writer<'a> {
    omit: &'a [Omitted],
    number: u64,
    index: usize,
    plan: Plan,
}

impl Writer<'_> {
    fn keeps(&self, part: Omitted) -> bool {
        !self.omit.contains(&part)
    }

    fn event(&mut self, event: Value) {
        self.plan.beats.push(Beat::Event(event));
    }

    /// An event inside an item.
    fn detail(&mut self, event: Value) {
        if self.keeps(Omitted::Deltas) {
            self.event(event);
        }
    }

    fn opening(&mut self) {
        let object = self.plan.object.at(Retrieved::InProgress);
        if self.keeps(Omitted::Created) {
            self.event(wire::life_event("created", object.clone()));
        }
        if self.keeps(Omitted::InProgress) {
            self.event(wire::life_event("in_progress", object));
        }
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Text(text) => self.message(text, Voice::Text),
            Item::Refusal(text) => self.message(text, Voice::Refusal),
            Item::Reasoning(reasoning) => self.reasoning(reasoning),
            Item::FunctionCall(call) => self.call(call, Tool::Function),
            Item::CustomCall(call) => self.call(call, Tool::Custom),
            Item::Other(item) => {
                self.added(item);
                self.done(item.clone());
            }
            Item::Raw(event) => self.raw(event),
            Item::Comment(text) => self.plan.beats.push(Beat::Comment(text.clone())),
            Item::Wait(pause) => self.plan.beats.push(Beat::Wait(*pause)),
            Item::WaitFor(gate) => self.plan.beats.push(Beat::Gate(gate.clone())),
        }
    }

    fn added(&mut self, item: &Value) {
        if self.keeps(Omitted::Added) {
            self.event(wire::item_event("added", self.index, item));
        }
    }

    /// Finishes the item: it is sent, and it belongs to the output from now on.
    fn done(&mut self, item: Value) {
        self.event(wire::item_event("done", self.index, &item));
        self.keep(item);
    }

    fn keep(&mut self, item: Value) {
        self.plan.calls.extend(call_of(&item));
        self.plan.object.push_output(item);
        self.index += 1;
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}_{}_{}", self.number, self.index)
    }

    fn deltas(&mut self, text: &str, pace: Pace, event: impl Fn(&str) -> Value) {
        if !self.keeps(Omitted::Deltas) {
            return;
        }
        for (nth, piece) in pieces(text, pace.chunk).into_iter().enumerate() {
            if nth > 0 && !pace.delay.is_zero() {
                self.plan.beats.push(Beat::Wait(pace.delay));
            }
            self.event(event(piece));
        }
    }

    fn message(&mut self, text: &TextItem, voice: Voice) {
        let id = self.id("msg");
        let at = At { item: &id, index: self.index };
        let item = |status: &str, content: Value| {
            let mut item = json!({
                "id": id, "type": "message", "status": status, "role": "assistant", "content": content,
            });
            if let (Some(phase), Some(item)) = (&text.phase, item.as_object_mut()) {
                item.insert("phase".to_owned(), json!(phase));
            }
            item
        };
        self.added(&item("in_progress", json!([])));
        self.detail(at.part("added", &voice.part("")));
        self.deltas(&text.text, text.pace, |delta| match voice {
            Voice::Text => at.text_delta(delta),
            Voice::Refusal => at.refusal_delta(delta),
        });
        let part = voice.part(&text.text);
        let Some(status) = done_status(text.extent) else {
            self.index += 1;
            return;
        };
        self.detail(match voice {
            Voice::Text => at.text_done(&text.text),
            Voice::Refusal => at.refusal_done(&text.text),
        });
        self.detail(at.part("done", &part));
        self.done(item(status, json!([part])));
    }

    fn reasoning(&mut self, reasoning: &ReasoningItem) {
        let id = self.id("rs");
        let at = At { item: &id, index: self.index };
        let item = |summary: Value| {
            let mut item = json!({ "id": id, "type": "reasoning", "summary": summary });
            if let (Some(encrypted), Some(item)) = (&reasoning.encrypted, item.as_object_mut()) {
                item.insert("encrypted_content".to_owned(), json!(encrypted));
            }
            item
        };
        self.added(&item(json!([])));
        self.detail(at.summary_part("added", ""));
        self.deltas(&reasoning.summary, reasoning.pace, |delta| at.summary_delta(delta));
        self.detail(at.summary_done(&reasoning.summary));
        self.detail(at.summary_part("done", &reasoning.summary));
        self.done(item(json!([{ "type": "summary_text", "text": reasoning.summary }])));
    }

    fn call(&mut self, call: &CallItem, tool: Tool) {
        let id = self.id(tool.id_word());
        let at = At { item: &id, index: self.index };
        let item = |status: &str, text: &str| {
            let mut item = json!({
                "id": id, "type": tool.item_type(), "status": status,
                "call_id": call.call_id, "name": call.name, tool.text_member(): text,
            });
            if let (CallMode::Async, Some(item)) = (call.mode, item.as_object_mut()) {
                item.insert("async".to_owned(), json!(true));
            }
            item
        };
        self.added(&item("in_progress", ""));
        self.deltas(&call.text, call.pace, |delta| match tool {
            Tool::Function => at.arguments_delta(delta),
            Tool::Custom => at.input_delta(delta),
        });
        let Some(status) = done_status(call.extent) else {
            self.index += 1;
            return;
        };
        self.detail(match tool {
            Tool::Function => at.arguments_done(&call.text),
            Tool::Custom => at.input_done(&call.text),
        });
        self.done(item(status, &call.text));
    }

    /// A raw event counts like one of ours: a finished item belongs to the output, a terminal event ends the response.
    fn raw(&mut self, event: &Value) {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        let state = match kind {
            "response.completed" | "response.done" => Some(Retrieved::Completed),
            "response.incomplete" => Some(Retrieved::Incomplete),
            "response.failed" | "error" | "response.error" => Some(Retrieved::Failed),
            "response.cancelled" => Some(Retrieved::Cancelled),
            _ => None,
        };
        match state {
            Some(state) => self.plan.beats.push(Beat::Terminal(event.clone(), state)),
            None => self.event(event.clone()),
        }
        if let ("response.output_item.done", Some(item)) = (kind, event.get("item")) {
            self.keep(item.clone());
        }
    }

    fn terminal(&mut self, finish: &Finish) {
        let state = match finish {
            Finish::Completed => Retrieved::Completed,
            Finish::Incomplete { .. } => Retrieved::Incomplete,
            Finish::Failed { .. } | Finish::Error { .. } => Retrieved::Failed,
            Finish::Cancelled => Retrieved::Cancelled,
            Finish::Nothing => return,
        };
        let event = match finish {
            Finish::Error { code, message } => wire::error_event(code, message),
            Finish::Completed
            | Finish::Incomplete { .. }
            | Finish::Failed { .. }
            | Finish::Cancelled
            | Finish::Nothing => {
                let mut object = self.plan.object.at(state);
                if !self.keeps(Omitted::TerminalOutput)
                    && let Some(object) = object.as_object_mut()
                {
                    object.insert("output".to_owned(), json!([]));
                }
                wire::life_event(wire::status_word(state), object)
            }
        };
        self.plan.beats.push(Beat::Terminal(event, state));
    }
}

#[derive(Clone, Copy)]
enum Voice {
    Text,
    Refusal,
}

impl Voice {
    fn part(self, text: &str) -> Value {
        match self {
            Self::Text => {
                json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
            }
            Self::Refusal => json!({ "type": "refusal", "refusal": text }),
        }
    }
}

#[derive(Clone, Copy)]
enum Tool {
    Function,
    Custom,
}

impl Tool {
    fn id_word(self) -> &'static str {
        match self {
            Self::Function => "fc",
            Self::Custom => "ctc",
        }
    }

    fn item_type(self) -> &'static str {
        match self {
            Self::Function => "function_call",
            Self::Custom => "custom_tool_call",
        }
    }

    fn text_member(self) -> &'static str {
        match self {
            Self::Function => "arguments",
            Self::Custom => "input",
        }
    }
}

/// The status on the finished item; none if it never is.
fn done_status(extent: Extent) -> Option<&'static str> {
    match extent {
        Extent::Completed => Some("completed"),
        Extent::Incomplete => Some("incomplete"),
        Extent::Partial => None,
    }
}

/// Cuts a text; the pieces joined are the text, and an empty text has none.
fn pieces(text: &str, chunk: Chunk) -> Vec<&str> {
    match chunk {
        Chunk::Whole if text.is_empty() => Vec::new(),
        Chunk::Whole => vec![text],
        Chunk::Words => {
            let mut pieces = Vec::new();
            let mut start = 0;
            let mut in_space = false;
            for (at, c) in text.char_indices() {
                if in_space && !c.is_whitespace() {
                    pieces.push(&text[start..at]);
                    start = at;
                }
                in_space = c.is_whitespace();
            }
            if start < text.len() {
                pieces.push(&text[start..]);
            }
            pieces
        }
        Chunk::Chars(count) => {
            let ends = text.char_indices().map(|(at, _)| at).step_by(count.max(1));
            let starts: Vec<usize> = ends.collect();
            starts
                .iter()
                .enumerate()
                .map(|(nth, start)| &text[*start..starts.get(nth + 1).copied().unwrap_or(text.len())])
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_to_the_text_for_every_cut() {
        let text = "one  two\nÿ€😀 three ";
        let check = |chunk, expected: &[&str]| {
            let pieces = pieces(text, chunk);
            assert_eq!(pieces, expected);
            assert_eq!(pieces.concat(), text);
        };
        check(Chunk::Whole, &[text]);
        check(Chunk::Words, &["one  ", "two\n", "ÿ€😀 ", "three "]);
        check(Chunk::Chars(6), &["one  t", "wo\nÿ€😀", " three", " "]);
        assert_eq!(super::pieces("", Chunk::Words), Vec::<&str>::new());
        assert_eq!(super::pieces("", Chunk::Chars(0)), Vec::<&str>::new());
        assert_eq!(super::pieces("ab", Chunk::Chars(0)), vec!["a", "b"]);
    }

    #[test]
    fn an_async_function_call_is_announced_streamed_finished_and_counted() {
        let answer = Answer::new().item(Item::FunctionCall(
            CallItem::new("call_1", "grep", "{\"q\":1}").asynchronous().pace(Chunk::Chars(4), Duration::from_millis(5)),
        ));
        let request = json!({ "model": "m" });
        let plan = Plan::new(&answer, &Subject { id: "resp_1", number: 1, request: &request });
        let item = |status: &str, arguments: &str| {
            json!({ "id": "fc_1_0", "type": "function_call", "status": status, "call_id": "call_1",
                "name": "grep", "arguments": arguments, "async": true })
        };
        let of_item = |name: &str, member: &str, text: &str| {
            json!({ "type": format!("response.function_call_arguments.{name}"), "item_id": "fc_1_0",
                "output_index": 0, member: text })
        };
        let expected = vec![
            Beat::Event(json!({ "type": "response.output_item.added", "output_index": 0,
                "item": item("in_progress", "") })),
            Beat::Event(of_item("delta", "delta", "{\"q\"")),
            Beat::Wait(Duration::from_millis(5)),
            Beat::Event(of_item("delta", "delta", ":1}")),
            Beat::Event(of_item("done", "arguments", "{\"q\":1}")),
            Beat::Event(json!({ "type": "response.output_item.done", "output_index": 0,
                "item": item("completed", "{\"q\":1}") })),
        ];
        // The first two beats are created and in_progress, the last is the terminal event.
        assert_eq!(plan.beats.get(2..8), Some(expected.as_slice()));
        assert_eq!(plan.beats.len(), 9);
        let made =
            MadeCall { id: "call_1".to_owned(), kind: crate::pairing::CallKind::Function, mode: CallMode::Async };
        assert_eq!(plan.calls, vec![made]);
        let output = plan.object.at(Retrieved::Completed)["output"].clone();
        assert_eq!(output, json!([item("completed", "{\"q\":1}")]));
    }

    #[test]
    fn cut_off_calls_do_not_count_as_made() {
        let call = |id: &str, extent| Item::CustomCall(CallItem::new(id, "sql", "select").extent(extent));
        let answer = Answer::new()
            .item(call("call_partial", Extent::Partial))
            .item(call("call_cut", Extent::Incomplete))
            .incomplete("max_output_tokens");
        let request = json!({});
        let plan = Plan::new(&answer, &Subject { id: "resp_1", number: 1, request: &request });
        assert_eq!(plan.calls, vec![]);
        let object = plan.object.at(Retrieved::Incomplete);
        assert_eq!(
            object["output"],
            json!([{ "id": "ctc_1_1", "type": "custom_tool_call", "status": "incomplete",
                "call_id": "call_cut", "name": "sql", "input": "select" }])
        );
        assert_eq!(object["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    }
}
