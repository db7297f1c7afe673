//! The script as values. It must never know TOML, JSON events or sockets.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// What the server answers, request by request.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Shown in messages and in the log.
    pub name: String,
    /// How requests find their step.
    pub order: Order,
    /// What response ids begin with; the number of the response follows.
    pub id_prefix: String,
    /// The bearer key that every request must carry; none lets everybody in.
    pub api_key: Option<ApiKey>,
    /// The answers.
    pub steps: Vec<Step>,
}

/// How requests find their step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The n-th answered request gets step n.
    #[default]
    InOrder,
    /// A request gets the first unused step whose expectations it meets.
    FirstMatch,
}

/// A scripted key. Its value is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub(crate) String);

impl ApiKey {
    /// A key that requests have to carry as `Authorization: Bearer …`.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}

/// One expected request and the answer to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Shown in messages and in the log.
    pub name: Option<String>,
    /// What the request has to be like.
    pub expect: Expect,
    /// Whether outputs and calls of the request must match.
    pub pairing: PairingRule,
    /// What the client gets.
    pub reply: Reply,
}

/// Whether the lawful pairing of calls and outputs is checked before a step answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PairingRule {
    /// An unlawful request is refused and recorded.
    #[default]
    Checked,
    /// Anything goes, unknown previous responses included.
    Unchecked,
}

/// What a request has to be like; an unset part accepts anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// The response that the request continues.
    pub previous: Option<ExpectPrevious>,
    /// Call ids whose outputs must be in the input, in any order, others allowed.
    pub outputs: Vec<String>,
    /// Call ids of all outputs in the input, in this order, no others.
    pub only_outputs: Option<Vec<String>>,
    /// The model's name.
    pub model: Option<String>,
    /// Names of tools that must be offered.
    pub tools: Vec<String>,
    /// Texts that must stand in some string of the input.
    pub contains: Vec<String>,
    /// Texts that must stand nowhere in the request.
    pub lacks: Vec<String>,
    /// Texts that must stand in the instructions.
    pub instructions: Vec<String>,
    /// Whether a stream is asked for.
    pub stream: Option<bool>,
}

/// The response that a request has to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectPrevious {
    /// No response: a fresh conversation.
    Absent,
    /// The response that was begun last of those that can be continued.
    Latest,
    /// This id.
    Is(String),
}

/// What the client gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A response, as a stream or whole, as the request asks.
    Answer(Box<Answer>),
    /// A plain HTTP answer, usually an error.
    Http(HttpReply),
    /// The connection is closed without a byte.
    Drop,
}

/// A response and how it is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// What is streamed, in order.
    pub items: Vec<Item>,
    /// Token counts of the terminal event; none leaves the member null.
    pub usage: Option<Usage>,
    /// How the response ends.
    pub finish: Finish,
    /// How the connection ends.
    pub ending: Ending,
    /// How events become bytes.
    pub framing: Framing,
    /// What is left out of the stream.
    pub omit: Vec<Omitted>,
    /// What successive GETs say instead of the true state; the last one repeats.
    pub retrieve: Vec<Retrieved>,
    /// What becomes of the response when its stream breaks.
    pub if_broken: Retrieved,
    /// The model's name in the response; none repeats the request's.
    pub model: Option<String>,
}

/// One thing that a response streams, or a pause between two.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Assistant text.
    Text(TextItem),
    /// A refusal, as a message of its own.
    Refusal(TextItem),
    /// A reasoning summary.
    Reasoning(ReasoningItem),
    /// A call of a function tool; the text is its arguments.
    FunctionCall(CallItem),
    /// A call of a custom tool; the text is its input.
    CustomCall(CallItem),
    /// Any other whole output item, announced and finished as it is.
    Other(Value),
    /// An event as it is.
    Raw(Value),
    /// An event-stream comment.
    Comment(String),
    /// A pause.
    Wait(Duration),
    /// A pause until the named gate is released.
    WaitFor(String),
}

/// A message of the assistant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextItem {
    /// The whole text.
    pub text: String,
    /// How it is cut into deltas.
    pub pace: Pace,
    /// `commentary` or `final_answer`, if the message is marked.
    pub phase: Option<String>,
    /// How far the item gets.
    pub extent: Extent,
}

/// A reasoning summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasoningItem {
    /// The summary's text.
    pub summary: String,
    /// How it is cut into deltas.
    pub pace: Pace,
    /// The opaque state that a stateless client sends back.
    pub encrypted: Option<String>,
}

/// A call that the model makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallItem {
    /// The id that the output has to name.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Arguments or input, exactly as sent.
    pub text: String,
    /// Whether the model waits for the output.
    pub mode: CallMode,
    /// How the text is cut into deltas.
    pub pace: Pace,
    /// How far the item gets.
    pub extent: Extent,
}

/// Whether the model waits for an output before it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallMode {
    /// The next request has to carry the output.
    #[default]
    Awaited,
    /// The output may come with any later request.
    Async,
}

/// How far an item gets before the stream goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Finished; a call counts as made.
    #[default]
    Completed,
    /// Finished with status `incomplete`; a call does not count.
    Incomplete,
    /// Announced and streamed, never finished; absent from the terminal output.
    Partial,
}

/// How a text becomes deltas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Where the text is cut.
    pub chunk: Chunk,
    /// The pause before each delta but the first.
    pub delay: Duration,
}

/// Where a text is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunk {
    /// Nowhere: one delta.
    #[default]
    Whole,
    /// After each run of white space.
    Words,
    /// After this many characters; zero counts as one.
    Chars(usize),
}

/// Token counts as the provider counts them: cached and written are part of input, reasoning is part of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens.
    pub input: u64,
    /// Those read from the cache.
    pub cached: u64,
    /// Those written to the cache.
    pub cache_write: u64,
    /// All output tokens.
    pub output: u64,
    /// Those spent on reasoning.
    pub reasoning: u64,
}

/// How a response ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// `response.completed`.
    #[default]
    Completed,
    /// `response.incomplete`.
    Incomplete {
        /// `max_output_tokens`, `content_filter`, `steered` or another.
        reason: String,
    },
    /// `response.failed`.
    Failed {
        /// The error's code.
        code: String,
        /// The error's text.
        message: String,
    },
    /// `response.cancelled`, as some relays send it.
    Cancelled,
    /// An `error` event; the response counts as failed.
    Error {
        /// The error's code.
        code: String,
        /// The error's text.
        message: String,
    },
    /// No terminal event; the response counts as broken (see [`Answer::if_broken`]) unless a raw event was terminal.
    Nothing,
}

/// How the connection ends after the last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The body is closed properly.
    #[default]
    Close,
    /// The socket stays open in silence.
    Hang,
    /// The body stops early.
    Cut(Cut),
}

/// A body that stops early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Events that are sent whole.
    pub after_events: usize,
    /// Bytes of the next event that are still sent.
    pub extra_bytes: usize,
    /// What the client sees.
    pub how: CutHow,
}

/// What the client sees of a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CutHow {
    /// A transport error: the connection closes inside the body.
    #[default]
    Abort,
    /// A proper end of the body, only too early.
    Clean,
}

/// How events become bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framing {
    /// The line ending.
    pub line_ending: LineEnding,
    /// Whether the body begins with a byte order mark.
    pub bom: bool,
    /// Whether each event has an `event:` line.
    pub event_lines: bool,
    /// Whether the JSON is spread over several `data:` lines.
    pub multiline: bool,
    /// Whether a comment stands before each event.
    pub comments: bool,
    /// Whether `data: [DONE]` follows the last event.
    pub done: bool,
    /// The body is sent in pieces of this many bytes; none sends an event at a time, zero counts as one.
    pub chunk_bytes: Option<usize>,
    /// The content type of the body.
    pub content_type: String,
}

impl Default for Framing {
    fn default() -> Self {
        Self {
            line_ending: LineEnding::Lf,
            bom: false,
            event_lines: true,
            multiline: false,
            comments: false,
            done: false,
            chunk_bytes: None,
            content_type: "text/event-stream; charset=utf-8".to_owned(),
        }
    }
}

/// The line ending of the event stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnding {
    /// `\n`
    #[default]
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r`
    Cr,
}

/// A part of the stream that some servers leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omitted {
    /// The event `response.created`.
    Created,
    /// The event `response.in_progress`.
    InProgress,
    /// The `sequence_number` of every event.
    SequenceNumbers,
    /// All deltas, content parts and `.done` events inside items; the items themselves stay.
    Deltas,
    /// `response.output_item.added`.
    Added,
    /// The `output` list of the terminal event (it is empty then; a GET still has it).
    TerminalOutput,
}

/// What a GET says of a response, or what becomes of one whose stream breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retrieved {
    /// 404, and it cannot be continued.
    #[default]
    NotFound,
    /// Waiting to be worked on.
    Queued,
    /// Being worked on.
    InProgress,
    /// Completed, with the whole output.
    Completed,
    /// Incomplete, with the whole output.
    Incomplete,
    /// Failed.
    Failed,
    /// Cancelled.
    Cancelled,
}

/// A plain HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: HttpBody,
}

/// The body of a plain HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpBody {
    /// The provider's error form.
    Error {
        /// The text.
        message: String,
        /// The `type`.
        kind: String,
        /// The code, often absent.
        code: Option<String>,
        /// The parameter at fault.
        param: Option<String>,
    },
    /// Text as it is, with its content type.
    Text {
        /// The content type.
        content_type: String,
        /// The body.
        text: String,
    },
}
