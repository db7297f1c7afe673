//! The error kinds that every layer speaks, with what, why and how to mend it apart.

use std::fmt;

/// What a failure means for whoever asked. Tests and exit codes go by this, never by the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The model service, or what it sent.
    Provider,
    /// Misuse or a wrong set-up.
    Config,
    /// Journal, lease, or something that has to be reconciled first.
    Store,
    /// Stored data contradicts itself.
    Corruption,
    /// A digest that differs, or two that resume at once.
    Conflict,
    /// A tool.
    Tool,
    /// Somebody cancelled.
    Cancelled,
}

impl ErrorKind {
    /// The word for it in JSON and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Config => "config",
            Self::Store => "store",
            Self::Corruption => "corruption",
            Self::Conflict => "conflict",
            Self::Tool => "tool",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure with its kind. `Display` tells what failed and why; the hint stands apart, so that the edge can print it on
/// a line of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What it means.
    pub kind: ErrorKind,
    /// What failed and why: lower case, no full stop.
    pub message: String,
    /// What to do about it, literally where that is possible.
    pub hint: Option<String>,
}

impl Error {
    /// An error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// A provider error.
    pub fn provider(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Provider, message)
    }

    /// A config error.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// A store error.
    pub fn store(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Store, message)
    }

    /// A corruption error.
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    /// A conflict error.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// A tool error.
    pub fn tool(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Tool, message)
    }

    /// A cancelled error.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// The same error with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
