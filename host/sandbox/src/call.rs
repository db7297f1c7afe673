//! One call of a tool, as the host sees it: what goes in, who watches, what came of it. It names nothing of the engine.

use std::time::Duration;

use bytes::Bytes;
use wharf_core::grants::Limits;
use wharf_core::tool::{Content, Failure, FailureKind, envelope};
use wharf_core::{BlobDigest, CallId, ToolName};

/// One call. Plain data: whoever makes one has decided that the call may start and has journaled that.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The tool's name from its definition.
    pub tool: ToolName,
    /// The exact text that the model wrote: JSON for a function, raw text for a custom tool (Q19).
    pub input: String,
    /// The capability's config as JSON; `{}` if there is none.
    pub config: String,
    /// The host's id of the call.
    pub call_id: CallId,
    /// Equal for each run of this call and for no other.
    pub idempotency_key: String,
    /// 1 for the first run.
    pub attempt: u32,
    /// Time, memory and output of this call, where policy gives its tool others than its capability has. They take the
    /// place of the capability's, up or down; how many calls run at once stays the capability's.
    pub limits: Option<Limits>,
    /// What is left of the call's time, if that is less than its limit.
    pub time_limit: Option<Duration>,
    /// Blobs that this call may read.
    pub attachments: Vec<Attachment>,
}

/// A blob that is handed to one call.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// Its content address.
    pub digest: BlobDigest,
    /// For example `image/png`.
    pub media_type: String,
    /// A file name, if there is one.
    pub name: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

/// Watches one call. The functions are called on a component thread, in order, and must not block.
pub trait Observer: Send + Sync + 'static {
    /// The component says how far it is. Rate limited; untrusted text, cut to a line's length.
    fn progress(&self, progress: Progress) {
        drop(progress);
    }

    /// The component wrote to its standard output or error. Bounded as [`Captured`] is.
    fn output(&self, kind: OutputKind, bytes: &[u8]) {
        let _: (OutputKind, &[u8]) = (kind, bytes); // nothing to do unless somebody wants to see it
    }
}

/// Watches nothing.
impl Observer for () {}

/// How far a call is, in the component's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// For people.
    pub message: String,
    /// Units done, if known.
    pub done: Option<u64>,
    /// Units in all, if known.
    pub total: Option<u64>,
}

/// Which of a component's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a component wrote to one of its output streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The first bytes of it.
    pub text: String,
    /// Whether more was written than was kept.
    pub truncated: bool,
    /// How much was written.
    pub total_bytes: u64,
}

/// All that is known of a finished call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// What came of it.
    pub outcome: CallOutcome,
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// From instantiation to the end.
    pub elapsed: Duration,
    /// The most memory that it had at once, all memories and tables together.
    pub memory_peak_bytes: u64,
}

/// What came of a call. Each of these is a result for the model, none ends the session.
#[derive(Debug, Clone, PartialEq)]
pub enum CallOutcome {
    /// The tool's result, cut to the output limit.
    Success(Vec<Content>),
    /// The tool's own failure, or the host's refusal to run it.
    Failure(Failure),
    /// The component crashed.
    Trapped {
        /// What happened and in which functions, innermost first.
        message: String,
    },
    /// It took longer than it may.
    TimedOut {
        /// The limit that it reached.
        limit: Duration,
    },
    /// It wanted more memory than it may have and could not go on without.
    MemoryExceeded {
        /// The limit that it reached.
        limit_bytes: u64,
    },
    /// The sandbox was shut down meanwhile.
    Cancelled,
}

impl CallOutcome {
    /// The outcome as a failure, unless it is a success.
    pub fn failure(&self) -> Option<Failure> {
        self.result().err()
    }

    /// The text that is delivered to the model (Q5, Q18).
    pub fn into_envelope(self) -> String {
        match self.result() {
            Ok(contents) => envelope(Ok(contents)),
            Err(failure) => envelope(Err(&failure)),
        }
    }

    fn result(&self) -> Result<&[Content], Failure> {
        let failed = |kind, message: String| Err(Failure::new(kind, message));
        match self {
            Self::Success(contents) => Ok(contents),
            Self::Failure(failure) => Err(failure.clone()),
            Self::Trapped { message } => failed(FailureKind::Failed, format!("the tool crashed: {message}")),
            Self::TimedOut { limit } => {
                failed(FailureKind::TimedOut, format!("the call was ended after its time limit of {limit:?}"))
            }
            Self::MemoryExceeded { limit_bytes } => failed(
                FailureKind::Failed,
                format!("the call needed more memory than its limit of {limit_bytes} bytes"),
            ),
            Self::Cancelled => failed(FailureKind::Cancelled, "the call was cancelled".into()),
        }
    }
}
