//! What a client did wrong, or what the script did not foresee, and how it is answered.
//! It must never know sockets or the log.

use crate::pairing::PairingError;

/// Something that should not have happened; a test ends with none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The order number of the request, if one is to blame.
    pub request: Option<u64>,
    /// What happened.
    pub kind: ViolationKind,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.request {
            Some(request) => write!(f, "request {request}: {}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViolationKind {
    /// All steps have answered.
    #[error("the script {script:?} has no step left: all {steps} have answered")]
    OutOfSteps {
        /// The script's name.
        script: String,
        /// How many steps it has.
        steps: usize,
    },
    /// The request is not what the step expects.
    #[error("{step} does not expect this request: {}", reasons.join("; "))]
    Unexpected {
        /// The step.
        step: String,
        /// What differs.
        reasons: Vec<String>,
    },
    /// No unused step expects the request.
    #[error("no unused step expects this request: {}", reasons.join("; "))]
    NoStepMatches {
        /// What differs, step by step.
        reasons: Vec<String>,
    },
    /// The response to continue is unknown, unfinished or failed.
    #[error("Previous response with id '{id}' not found.")]
    PreviousNotFound {
        /// The id that the request names.
        id: String,
    },
    /// Calls and outputs do not match.
    #[error(transparent)]
    Pairing(#[from] PairingError),
    /// The body is not a JSON object, is too large or broke off.
    #[error("the request's body cannot be read: {why}")]
    BadBody {
        /// Why.
        why: String,
    },
    /// Nobody released a gate in time.
    #[error("the gate {gate:?} was not released within {waited_ms} ms, the stream was cut off")]
    GateTimedOut {
        /// The gate.
        gate: String,
        /// How long the stream waited.
        waited_ms: u128,
    },
    /// A gate was released that no step waits for.
    #[error("no step of the script waits for the gate {gate:?}")]
    UnknownGate {
        /// The gate.
        gate: String,
    },
    /// The log is full.
    #[error("the request log is full ({entries} entries): start a new server")]
    LogFull {
        /// How many entries it has.
        entries: usize,
    },
    /// The log file could not be written.
    #[error("the request log cannot be written: {why}")]
    LogFile {
        /// Why.
        why: String,
    },
    /// A header of the script is not one.
    #[error("the header {name:?} of the script cannot be sent")]
    BadHeader {
        /// The header.
        name: String,
    },
}

/// How a violation is answered: the provider's own code where it has one, else one that says that the script speaks.
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    pub(crate) param: Option<&'static str>,
}

impl ViolationKind {
    pub(crate) fn refusal(&self) -> Refusal {
        let request = |code, param| Refusal { status: 400, kind: "invalid_request_error", code, param };
        let server = |code| Refusal { status: 500, kind: "server_error", code: Some(code), param: None };
        match self {
            Self::OutOfSteps { .. } => server("simulate_out_of_steps"),
            Self::Unexpected { .. } | Self::NoStepMatches { .. } => request(Some("simulate_unexpected_request"), None),
            Self::PreviousNotFound { .. } => request(Some("previous_response_not_found"), Some("previous_response_id")),
            // The provider sends no code with these.
            Self::Pairing(_) => request(None, Some("input")),
            Self::BadBody { .. } => request(Some("invalid_json"), None),
            Self::GateTimedOut { .. } | Self::UnknownGate { .. } => server("simulate_gate"),
            Self::LogFull { .. } | Self::LogFile { .. } => server("simulate_log"),
            Self::BadHeader { .. } => server("simulate_bad_header"),
        }
    }
}
