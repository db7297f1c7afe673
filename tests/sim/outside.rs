//! What can be seen of a host from outside, in order: what the provider was sent and made of it, what tools did, what people
//! were shown and said, and that something became durable. The checker sees nothing else.

use std::collections::BTreeMap;

use wharf_core::policy::ReplayClass;

/// How a call is spelled where a text quotes its arguments: the provider puts it there.
pub fn mark(call: &str) -> String {
    format!("<{call}>")
}

/// The call whose arguments a text quotes.
pub fn marked(text: &str) -> String {
    text.split('<').nth(1).and_then(|rest| rest.split('>').next()).unwrap_or_default().to_owned()
}

/// Whether a record's text names a call.
pub fn names(text: &str, call: &str) -> bool {
    text.contains(&format!("\"{call}\""))
}

/// One process that opened the session, from 1.
pub type Owner = usize;

/// A piece of the conversation as a model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// What the user said.
    User(String),
    /// The provider's answer of this id.
    Answer(String),
    /// A call of the answer before it.
    Call(String),
    /// The output of a call, on its id.
    Output(String, String),
    /// A framed item of the host.
    Host(String),
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process may act from here on, instead of those before it.
    Opened(Owner),
    /// A record became durable: its kind, and its text to look for names in.
    Durable { owner: Owner, kind: String, text: String },
    /// A request reached the provider: the whole conversation that it amounts to.
    Sent { owner: Owner, request: usize, lines: Vec<Line> },
    /// What the provider made of it, whoever reads it. Accepted if it ended completed or incomplete.
    Made { request: usize, response: String, calls: Vec<String>, accepted: bool },
    /// A tool began.
    Started { owner: Owner, call: String, key: Option<String> },
    /// A tool ended with what has to be delivered; none if it crashed, which has to be some error.
    Ended { owner: Owner, call: String, output: Option<String> },
    /// An operator said what becomes of a held call: with this output, or none for an approval.
    Decided { call: String, output: Option<String> },
    /// An owner lost its life, its store or its lease: results that were not durable by then are lost with it.
    Disturbed(Owner),
    /// From here on policy lets no call run twice.
    Narrowed,
    /// Somebody cancelled what runs.
    Cancelled,
    /// A process is gone, or said that it stopped.
    Gone(Owner),
    /// A user was shown how a turn ended, and the last answer.
    Shown { turn: usize, status: String, answer: Option<String> },
    /// The operator's documented answers did not lead to an end.
    Stuck(String),
}

/// What an operator's policy says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub class: ReplayClass,
    pub is_async: bool,
    /// It waits for somebody.
    pub held: bool,
    /// It must not start.
    pub refused: bool,
}

/// Everything that was seen of one world.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    pub rules: BTreeMap<String, Rules>,
    pub events: Vec<Event>,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Durable { owner, kind, text } => write!(f, "{owner}   durable {kind} {text}"),
            Self::Sent { owner, request, lines } => {
                write!(f, "{owner} request {request}")?;
                lines.iter().try_for_each(|line| write!(f, "\n      {line:?}"))
            }
            other => write!(f, "  {other:?}"),
        }
    }
}
