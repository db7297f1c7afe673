//! The neutral words between the turn and a provider's driver: a request, the events of its stream, and the outcome.
//! Nothing here knows a protocol, an address or a key.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::call::Call;
use crate::error::Error;
use crate::ids::{CallId, ResponseId};
use crate::tool::Definition;

/// One request to a model, in no protocol's form.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The model's name without its provider part (O13, O14).
    pub model: String,
    /// Sent with every request, continuations included (O13).
    pub instructions: String,
    /// All tools, in order.
    pub tools: Vec<ToolOffer>,
    /// History or new input, oldest first. Not sent when a delivery is there (O16).
    pub messages: Vec<Item>,
    /// The response that this request goes on from, where the provider keeps it.
    pub previous: Option<ResponseId>,
    /// Finished calls to send back. Its own previous id has to equal `previous` where both are there (O5).
    pub delivery: Option<Delivery>,
    /// True if the whole history is sent even where the provider keeps responses: what the delivery is for was made elsewhere.
    pub replay: bool,
    /// True if the history was shortened: such a request can continue nothing (O5).
    pub compacted: bool,
    /// A pending effort update; stands before the outputs (O6).
    pub effort_update: Option<String>,
    /// Neutral options; an unset one is absent from the body (O15).
    pub options: Options,
    /// Whether the answer streams.
    pub stream: bool,
    /// Calls that are still open at the provider: while there are any, or any in the delivery, a refused continuation is
    /// never turned into a stateless retry (O9, O10).
    pub async_open: bool,
}

/// A tool as it is offered in one request.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOffer {
    /// What is shown.
    pub definition: Definition,
    /// Whether policy lets the model run it async (O3, O8, L54).
    pub async_allowed: bool,
    /// Sent short, with full parameters once the model asks, where the protocol can (O23).
    pub deferred: bool,
}

/// Options that providers spell differently (O15). `None` is "do not send". `Debug` shows no values of headers, metadata or
/// the driver's own members (O22).
#[derive(Clone, PartialEq, Default)]
pub struct Options {
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Cap on generated tokens.
    pub max_output_tokens: Option<u64>,
    /// Reasoning effort, in the provider's word.
    pub effort: Option<String>,
    /// Verbosity of text, in the provider's word.
    pub verbosity: Option<String>,
    /// Service tier.
    pub speed: Option<String>,
    /// Sent along as it is.
    pub metadata: BTreeMap<String, String>,
    /// Whether calls may run side by side; false also sets L4.
    pub parallel_calls: Option<bool>,
    /// Cache key of the stable prefix (O21).
    pub prompt_cache_key: Option<String>,
    /// Trailing messages that stay outside the cached prefix (O21).
    pub volatile_suffix: usize,
    /// Members for this driver's body. They cannot replace what is ours (O22).
    pub extra: Map<String, Value>,
    /// Extra headers. They cannot replace authorisation (O22).
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            temperature,
            max_output_tokens,
            effort,
            verbosity,
            speed,
            metadata,
            parallel_calls,
            prompt_cache_key,
            volatile_suffix,
            extra,
            headers,
        } = self;
        f.debug_struct("Options")
            .field("temperature", temperature)
            .field("max_output_tokens", max_output_tokens)
            .field("effort", effort)
            .field("verbosity", verbosity)
            .field("speed", speed)
            .field("metadata", &metadata.keys())
            .field("parallel_calls", parallel_calls)
            .field("prompt_cache_key", prompt_cache_key)
            .field("volatile_suffix", volatile_suffix)
            .field("extra", &extra.keys().collect::<Vec<_>>())
            .field("headers", &headers.keys())
            .finish()
    }
}

/// One item of history or of input.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Text of a role.
    Message {
        /// Whose.
        role: Role,
        /// What.
        text: String,
    },
    /// A call that the model made; its id is the wire id here.
    Call(Call),
    /// The output of a call.
    Output {
        /// The call; its id is the wire id here.
        call: Call,
        /// The text.
        output: String,
    },
    /// A provider's item, verbatim, that only the model that made it may get back (O20).
    Opaque {
        /// `provider/model` of the maker.
        maker: String,
        /// The item.
        raw: Value,
    },
}

/// Whose text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The operator's, beside the instructions.
    System,
    /// The user's.
    User,
    /// The model's.
    Assistant,
}

impl Role {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// Outputs of finished calls, on their way back to the provider (B9, I).
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The latest response id at the moment of preparing (I7).
    pub previous_response_id: ResponseId,
    /// Host keys, parallel to `input` (I6).
    pub call_ids: Vec<CallId>,
    /// Output items in wire form, with wire ids (I9, A10).
    pub input: Vec<Value>,
    /// Items that stand after the outputs (I10, L59).
    pub after: Vec<Item>,
}

/// One event of a response's stream.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // the large one comes once a response and is moved, not kept in bulk
pub enum StreamEvent {
    /// The response's id, on the first event that carries it (L55). Comes at most once before the completion.
    Started {
        /// The id.
        id: ResponseId,
    },
    /// A piece of the assistant's text.
    Text(String),
    /// A piece of a reasoning summary; never text (P16).
    Reasoning(String),
    /// A piece of a refusal: the model answered, it declined (P14).
    Refusal(String),
    /// A finished call that is native to the protocol: an async function, or any custom tool (P3).
    Call(FinishedCall),
    /// The accumulated set of finished sync function calls; each event carries the whole set (P4).
    SyncCalls(Vec<FinishedCall>),
    /// A whole item of another kind, verbatim, to be kept (O20).
    Opaque(Value),
    /// The terminal event. Nothing after it counts (P18).
    Completed(Completion),
}

/// A call that the provider finished, checked for id and name (P8, L48), its id the wire id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedCall {
    /// The call.
    pub call: Call,
    /// True if function arguments are not JSON (P9); such a call is refused, never run (L46).
    pub malformed: bool,
}

impl From<Call> for FinishedCall {
    /// Looks whether the arguments are JSON.
    fn from(call: Call) -> Self {
        let malformed = call.check_arguments().is_err();
        Self { call, malformed }
    }
}

/// What a terminal event says.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The id of the terminal event, or else of the stream. Absent is an error of the provider (L17).
    pub id: Option<ResponseId>,
    /// How the response ended.
    pub outcome: Outcome,
    /// The finish reason in neutral words (P11): `tool_calls`, `stop`, `length`, `content_filter`, `steered`, `cancelled`,
    /// `error`, or the provider's own. None where the provider gives none.
    pub finish_reason: Option<String>,
    /// Usage, if there was any.
    pub usage: Option<Usage>,
    /// The output items verbatim, as they are kept and sent back.
    pub items: Vec<Value>,
    /// The whole text.
    pub text: String,
    /// The whole refusal, if the model declined.
    pub refusal: Option<String>,
    /// The model that answered, if said.
    pub model: Option<String>,
}

/// How a response ended. One meaning each (G20).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Whole.
    Completed,
    /// Cut, for this reason: `max_output_tokens`, `content_filter`, `steered` or the provider's own.
    Incomplete {
        /// The provider's word.
        reason: String,
    },
    /// Failed at the provider.
    Failed {
        /// The provider's code; may be empty.
        code: String,
        /// What it says.
        message: String,
    },
    /// Cancelled at the provider.
    Cancelled,
}

/// Tokens in disjoint buckets (P15).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Usage {
    /// Input that no cache took part in.
    pub fresh_input: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Output that people see.
    pub visible_output: u64,
    /// Output spent on reasoning.
    pub reasoning: u64,
    /// The larger of the provider's total and the sum as the provider counts.
    pub total: u64,
    /// The provider's own object.
    pub raw: Option<Value>,
}

/// What a retrieved response says (G15, G20).
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // one at a time
pub enum Retrieved {
    /// It ended; the outcome is as if it had streamed (P21). The calls come in the order of the output list.
    Ended {
        /// The terminal outcome.
        completion: Completion,
        /// Its calls.
        calls: Vec<FinishedCall>,
    },
    /// It still runs at the provider.
    InProgress,
    /// The provider knows no such response. Proves nothing (G20).
    NotFound,
}

/// What is known of a request that brought no response (G13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Nothing left this machine.
    NotSent,
    /// The provider said no, definitely.
    Refused,
    /// It may have been accepted.
    Unknown,
}

impl Fate {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// A request that failed, with what is known of its fate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct RequestError {
    /// What is known.
    pub fate: Fate,
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The provider's code, if there was one; may be empty.
    pub code: String,
    /// What failed and why.
    pub error: Error,
}

impl RequestError {
    /// A failure without an answer.
    pub fn new(fate: Fate, error: Error) -> Self {
        Self { fate, status: None, code: String::new(), error }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_value_that_an_operator_hides_is_in_the_debug_form_of_a_request() {
        // covers O22
        let named = |value: &str| BTreeMap::from([("x-team".to_owned(), value.to_owned())]);
        let mut options =
            Options { headers: named("header-secret"), metadata: named("metadata-secret"), ..Options::default() };
        options.extra.insert("store".to_owned(), json!("member-secret"));
        let request = Request { model: "m".into(), options, ..Request::default() };
        let shown = format!("{request:?} {request:#?}");
        assert!(!shown.contains("secret"), "{shown}");
        for name in ["x-team", "store", r#"model: "m""#] {
            assert!(shown.contains(name), "{name}: {shown}");
        }
    }
}
