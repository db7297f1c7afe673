//! Short ways to write a script in Rust. It only fills the model; it must never check or run anything.

use std::time::Duration;

use serde_json::Value;

use super::model::*;

impl Script {
    /// A script without steps, answered in order.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            order: Order::InOrder,
            id_prefix: "resp_".to_owned(),
            api_key: None,
            steps: Vec::new(),
        }
    }

    /// Adds a step; an [`Answer`] or an [`HttpReply`] is a step too.
    #[must_use]
    pub fn step(mut self, step: impl Into<Step>) -> Self {
        self.steps.push(step.into());
        self
    }

    /// Lets each request take the first unused step that it fits.
    #[must_use]
    pub fn first_match(mut self) -> Self {
        self.order = Order::FirstMatch;
        self
    }

    /// Sets what response ids begin with.
    #[must_use]
    pub fn id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.id_prefix = prefix.into();
        self
    }

    /// Requires a bearer key of every request.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(ApiKey::new(key));
        self
    }

    /// The gates that some step waits for.
    pub(crate) fn has_gate(&self, gate: &str) -> bool {
        self.steps.iter().any(|step| match &step.reply {
            Reply::Answer(answer) => answer.items.iter().any(|item| match item {
                Item::WaitFor(name) => name == gate,
                Item::Text(_)
                | Item::Refusal(_)
                | Item::Reasoning(_)
                | Item::FunctionCall(_)
                | Item::CustomCall(_)
                | Item::Other(_)
                | Item::Raw(_)
                | Item::Comment(_)
                | Item::Wait(_) => false,
            }),
            Reply::Http(_) | Reply::Drop => false,
        })
    }
}

impl Step {
    /// A step that answers anything with this.
    pub fn new(reply: Reply) -> Self {
        Self { name: None, expect: Expect::default(), pairing: PairingRule::Checked, reply }
    }

    /// A step that closes the connection without a byte.
    pub fn drop_connection() -> Self {
        Self::new(Reply::Drop)
    }

    /// Names the step for messages and the log.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets what the request has to be like.
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// Answers unlawful requests too.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.pairing = PairingRule::Unchecked;
        self
    }
}

impl From<Answer> for Step {
    fn from(answer: Answer) -> Self {
        Self::new(Reply::Answer(Box::new(answer)))
    }
}

impl From<HttpReply> for Step {
    fn from(reply: HttpReply) -> Self {
        Self::new(Reply::Http(reply))
    }
}

impl Expect {
    /// Accepts anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// The request must continue nothing.
    #[must_use]
    pub fn no_previous(mut self) -> Self {
        self.previous = Some(ExpectPrevious::Absent);
        self
    }

    /// The request must continue the latest response.
    #[must_use]
    pub fn latest(mut self) -> Self {
        self.previous = Some(ExpectPrevious::Latest);
        self
    }

    /// The request must continue this response.
    #[must_use]
    pub fn previous(mut self, id: impl Into<String>) -> Self {
        self.previous = Some(ExpectPrevious::Is(id.into()));
        self
    }

    /// Outputs of these calls must be in the input, others may.
    #[must_use]
    pub fn outputs<'a>(mut self, calls: impl IntoIterator<Item = &'a str>) -> Self {
        self.outputs = calls.into_iter().map(str::to_owned).collect();
        self
    }

    /// The input must have outputs of exactly these calls in this order.
    #[must_use]
    pub fn only_outputs<'a>(mut self, calls: impl IntoIterator<Item = &'a str>) -> Self {
        self.only_outputs = Some(calls.into_iter().map(str::to_owned).collect());
        self
    }

    /// The request must name this model.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The request must offer this tool.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tools.push(name.into());
        self
    }

    /// Some string of the input must contain this.
    #[must_use]
    pub fn contains(mut self, text: impl Into<String>) -> Self {
        self.contains.push(text.into());
        self
    }

    /// No string of the request may contain this.
    #[must_use]
    pub fn lacks(mut self, text: impl Into<String>) -> Self {
        self.lacks.push(text.into());
        self
    }

    /// The instructions must contain this.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions.push(text.into());
        self
    }

    /// The request must ask for a stream, or for a whole answer.
    #[must_use]
    pub fn stream(mut self, stream: bool) -> Self {
        self.stream = Some(stream);
        self
    }
}

impl Answer {
    /// An empty response that completes.
    pub fn new() -> Self {
        Self { usage: Some(Usage::default()), ..Self::default() }
    }

    /// Adds anything.
    #[must_use]
    pub fn item(mut self, item: impl Into<Item>) -> Self {
        self.items.push(item.into());
        self
    }

    /// Says a text, a word at a time without pauses.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.item(TextItem::new(text))
    }

    /// Declines, as a refusal part of a message.
    #[must_use]
    pub fn refusal(self, text: impl Into<String>) -> Self {
        self.item(Item::Refusal(TextItem::new(text)))
    }

    /// Streams a reasoning summary.
    #[must_use]
    pub fn reasoning(self, summary: impl Into<String>) -> Self {
        self.item(Item::Reasoning(ReasoningItem {
            summary: summary.into(),
            pace: Pace { chunk: Chunk::Words, delay: Duration::ZERO },
            encrypted: None,
        }))
    }

    /// Calls a function tool and waits for its output.
    #[must_use]
    pub fn function_call(
        self,
        call_id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.item(Item::FunctionCall(CallItem::new(call_id, name, arguments)))
    }

    /// Calls a function tool and goes on.
    #[must_use]
    pub fn async_function_call(
        self,
        call_id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.item(Item::FunctionCall(CallItem::new(call_id, name, arguments).asynchronous()))
    }

    /// Calls a custom tool and waits for its output.
    #[must_use]
    pub fn custom_call(self, call_id: impl Into<String>, name: impl Into<String>, input: impl Into<String>) -> Self {
        self.item(Item::CustomCall(CallItem::new(call_id, name, input)))
    }

    /// Calls a custom tool and goes on.
    #[must_use]
    pub fn async_custom_call(
        self,
        call_id: impl Into<String>,
        name: impl Into<String>,
        input: impl Into<String>,
    ) -> Self {
        self.item(Item::CustomCall(CallItem::new(call_id, name, input).asynchronous()))
    }

    /// Sends an event as it is; a missing `sequence_number` is added.
    #[must_use]
    pub fn raw(self, event: Value) -> Self {
        self.item(Item::Raw(event))
    }

    /// Pauses. Tests use [`Answer::wait_for`] instead.
    #[must_use]
    pub fn wait(self, pause: Duration) -> Self {
        self.item(Item::Wait(pause))
    }

    /// Pauses until the gate is released.
    #[must_use]
    pub fn wait_for(self, gate: impl Into<String>) -> Self {
        self.item(Item::WaitFor(gate.into()))
    }

    /// Sets the token counts.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Leaves the token counts out.
    #[must_use]
    pub fn no_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Sets how the response ends.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// Ends incomplete.
    #[must_use]
    pub fn incomplete(self, reason: impl Into<String>) -> Self {
        self.finish(Finish::Incomplete { reason: reason.into() })
    }

    /// Ends failed.
    #[must_use]
    pub fn failed(self, code: impl Into<String>, message: impl Into<String>) -> Self {
        self.finish(Finish::Failed { code: code.into(), message: message.into() })
    }

    /// Keeps the socket open after the last event.
    #[must_use]
    pub fn hang(mut self) -> Self {
        self.ending = Ending::Hang;
        self
    }

    /// Breaks the connection after this many events.
    #[must_use]
    pub fn abort_after(self, events: usize) -> Self {
        self.cut(Cut { after_events: events, extra_bytes: 0, how: CutHow::Abort })
    }

    /// Closes the body properly, but after this many events.
    #[must_use]
    pub fn close_after(self, events: usize) -> Self {
        self.cut(Cut { after_events: events, extra_bytes: 0, how: CutHow::Clean })
    }

    /// Stops the body early.
    #[must_use]
    pub fn cut(mut self, cut: Cut) -> Self {
        self.ending = Ending::Cut(cut);
        self
    }

    /// Sets how events become bytes.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Leaves a part of the stream out.
    #[must_use]
    pub fn omit(mut self, part: Omitted) -> Self {
        self.omit.push(part);
        self
    }

    /// Sets what successive GETs say; the last one repeats.
    #[must_use]
    pub fn retrieve(mut self, answers: impl IntoIterator<Item = Retrieved>) -> Self {
        self.retrieve = answers.into_iter().collect();
        self
    }

    /// Sets what becomes of the response when its stream breaks.
    #[must_use]
    pub fn if_broken(mut self, state: Retrieved) -> Self {
        self.if_broken = state;
        self
    }

    /// Sets the expectations, which makes it a step.
    pub fn expect(self, expect: Expect) -> Step {
        Step::from(self).expect(expect)
    }
}

impl TextItem {
    /// A finished text, a word at a time without pauses.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            pace: Pace { chunk: Chunk::Words, delay: Duration::ZERO },
            phase: None,
            extent: Extent::Completed,
        }
    }

    /// Sets how the text is cut, and the pause between two pieces.
    #[must_use]
    pub fn pace(mut self, chunk: Chunk, delay: Duration) -> Self {
        self.pace = Pace { chunk, delay };
        self
    }

    /// Marks the message as `commentary` or `final_answer`.
    #[must_use]
    pub fn phase(mut self, phase: impl Into<String>) -> Self {
        self.phase = Some(phase.into());
        self
    }

    /// Sets how far the item gets.
    #[must_use]
    pub fn extent(mut self, extent: Extent) -> Self {
        self.extent = extent;
        self
    }
}

impl From<TextItem> for Item {
    fn from(item: TextItem) -> Self {
        Self::Text(item)
    }
}

impl From<ReasoningItem> for Item {
    fn from(item: ReasoningItem) -> Self {
        Self::Reasoning(item)
    }
}

impl CallItem {
    /// A finished call that is waited for, its text in one delta.
    pub fn new(call_id: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            call_id: call_id.into(),
            name: name.into(),
            text: text.into(),
            mode: CallMode::Awaited,
            pace: Pace::default(),
            extent: Extent::Completed,
        }
    }

    /// The model goes on without the output.
    #[must_use]
    pub fn asynchronous(mut self) -> Self {
        self.mode = CallMode::Async;
        self
    }

    /// Sets how the text is cut, and the pause between two pieces.
    #[must_use]
    pub fn pace(mut self, chunk: Chunk, delay: Duration) -> Self {
        self.pace = Pace { chunk, delay };
        self
    }

    /// Sets how far the item gets.
    #[must_use]
    pub fn extent(mut self, extent: Extent) -> Self {
        self.extent = extent;
        self
    }
}

impl Usage {
    /// Input and output tokens, nothing cached, nothing spent on reasoning.
    pub fn new(input: u64, output: u64) -> Self {
        Self { input, output, ..Self::default() }
    }
}

impl HttpReply {
    /// An error in the provider's form.
    pub fn error(status: u16, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: HttpBody::Error {
                message: message.into(),
                kind: if status >= 500 { "server_error" } else { "invalid_request_error" }.to_owned(),
                code: Some(code.into()),
                param: None,
            },
        }
    }

    /// A body as it is.
    pub fn text(status: u16, content_type: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: HttpBody::Text { content_type: content_type.into(), text: text.into() },
        }
    }

    /// 400 for a continuation that lacks the output of a call; it has no code, as at the provider.
    pub fn missing_output(call_id: &str) -> Self {
        Self {
            status: 400,
            headers: Vec::new(),
            body: HttpBody::Error {
                message: format!("No tool output found for function call {call_id}."),
                kind: "invalid_request_error".to_owned(),
                code: None,
                param: Some("input".to_owned()),
            },
        }
    }

    /// 401 for a wrong key.
    pub fn unauthorized() -> Self {
        Self::error(401, "invalid_api_key", "Incorrect API key provided.")
    }

    /// An unknown previous response, with the status that the route uses (400 or 404).
    pub fn previous_not_found(status: u16, id: &str) -> Self {
        let mut reply =
            Self::error(status, "previous_response_not_found", format!("Previous response with id '{id}' not found."));
        if let HttpBody::Error { param, .. } = &mut reply.body {
            *param = Some("previous_response_id".to_owned());
        }
        reply
    }

    /// 429 with a `retry-after` as written.
    pub fn rate_limited(retry_after: &str) -> Self {
        Self::error(429, "rate_limit_exceeded", "Rate limit reached.").header("retry-after", retry_after)
    }

    /// 500.
    pub fn server_error() -> Self {
        Self::error(500, "server_error", "The server had an error while processing the request.")
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}
