//! What the operator's policy says of one call. Made from the harness alone (L64); nothing that a component, a model or a
//! provider says takes part.

use std::fmt;
use std::sync::Arc;

/// What may happen to a call whose outcome is unknown (B10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReplayClass {
    /// It is not run again. The default.
    #[default]
    Never,
    /// It may be run again.
    Safe,
    /// It may be run again with the same idempotency key.
    Keyed,
}

impl ReplayClass {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Safe => "safe",
            Self::Keyed => "keyed",
        }
    }

    /// Reads the word; `None` if it is another.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "never" => Some(Self::Never),
            "safe" => Some(Self::Safe),
            "keyed" => Some(Self::Keyed),
            _ => None,
        }
    }
}

impl fmt::Display for ReplayClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a call waits before it may start (L61).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Hold {
    /// For somebody's approval.
    Approval,
    /// For an output from outside; the host has no executor for it.
    Output,
}

impl Hold {
    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Output => "output",
        }
    }
}

/// Whether a call may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Now.
    Start,
    /// Not before somebody decides.
    Hold(Hold),
    /// Never. The reason is the result that the model gets.
    Refuse(Refusal),
}

/// A refusal, as the model is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What was refused and why, and what would be accepted.
    pub message: String,
    /// Why, for counting and for people.
    pub reason: RefusalReason,
}

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// Policy does not let this tool be called so.
    Policy,
    /// Policy does not let this tool run async (L8).
    NotAsync,
    /// No tool has this name (L50).
    UnknownTool,
    /// The arguments are not JSON (L46).
    MalformedArguments,
    /// The input does not fit the tool's schema or pattern (L47).
    InvalidInput,
}

impl RefusalReason {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::NotAsync => "not_async",
            Self::UnknownTool => "unknown_tool",
            Self::MalformedArguments => "malformed_arguments",
            Self::InvalidInput => "invalid_input",
        }
    }

    /// Reads the word; `None` if it is another.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Policy, Self::NotAsync, Self::UnknownTool, Self::MalformedArguments, Self::InvalidInput]
            .into_iter()
            .find(|reason| reason.as_str() == word)
    }
}

/// The policy of one call (L64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPolicy {
    /// Whether it may start.
    pub admission: Admission,
    /// Whether it may run beside the stream that made it.
    pub async_allowed: bool,
    /// What may happen to it when its outcome is unknown.
    pub replay: ReplayClass,
    /// Calls of one class run one at a time; the name is global to the harness.
    pub class: Option<Arc<str>>,
}

impl CallPolicy {
    /// Starts at once, not async, never replayed, no class: the built-in of Z16 and the base of tests.
    pub fn start() -> Self {
        Self { admission: Admission::Start, async_allowed: false, replay: ReplayClass::Never, class: None }
    }

    /// The same with async allowed.
    #[must_use]
    pub fn with_async(mut self) -> Self {
        self.async_allowed = true;
        self
    }

    /// The same with a replay class.
    #[must_use]
    pub fn with_replay(mut self, replay: ReplayClass) -> Self {
        self.replay = replay;
        self
    }

    /// The same with a concurrency class.
    #[must_use]
    pub fn with_class(mut self, class: &str) -> Self {
        self.class = Some(Arc::from(class));
        self
    }

    /// Refused for this reason.
    pub fn refuse(reason: RefusalReason, message: impl Into<String>) -> Self {
        Self { admission: Admission::Refuse(Refusal { message: message.into(), reason }), ..Self::start() }
    }

    /// Held.
    pub fn hold(hold: Hold) -> Self {
        Self { admission: Admission::Hold(hold), ..Self::start() }
    }
}
