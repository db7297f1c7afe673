//! Failures that the model reads. They know nothing of the host: a failure is a result, and the session goes on.

use std::io;

use crate::{Failure, FailureKind};

impl Failure {
    /// A failure of `kind`. The message says what failed and how to mend it: the model reads it and tries again.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, details: None }
    }

    /// The input is wrong, and the model can mend it.
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(FailureKind::InvalidInput, message)
    }

    /// The thing that the input names does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NotFound, message)
    }

    /// Policy or a service refused.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Denied, message)
    }

    /// A service is down or busy; see [`Failure::retry_after_ms`](Self::with_retry_after_ms).
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Unavailable, message)
    }

    /// Something that the tool waited for took too long.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::new(FailureKind::TimedOut, message)
    }

    /// The state of the world does not fit what the input assumes.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Conflict, message)
    }

    /// Anything else.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, message)
    }

    /// Says after how many milliseconds another try makes sense.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// Adds facts for programs. `details` is kept as it prints.
    #[must_use]
    pub fn with_details(mut self, details: &serde_json::Value) -> Self {
        self.details = Some(details.to_string());
        self
    }

    /// An I/O error at `what`, with the kind that fits it.
    pub fn from_io(what: &str, error: &io::Error) -> Self {
        // WASI's word for a path that lies in no granted folder; the standard library has no kind for it.
        const NOT_CAPABLE: i32 = 76;
        if cfg!(target_os = "wasi") && error.raw_os_error() == Some(NOT_CAPABLE) {
            return Self::denied(format!("{what}: no folder that holds it is granted"));
        }
        let (kind, text) = match error.kind() {
            io::ErrorKind::NotFound => (FailureKind::NotFound, "it does not exist".to_owned()),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (FailureKind::Denied, format!("it is not granted ({error})"))
            }
            io::ErrorKind::AlreadyExists => (FailureKind::Conflict, "it exists already".to_owned()),
            io::ErrorKind::IsADirectory => (FailureKind::InvalidInput, "it is a folder".to_owned()),
            io::ErrorKind::NotADirectory => {
                (FailureKind::InvalidInput, "a part of the path is a file, not a folder".to_owned())
            }
            // `ErrorKind` is the standard library's and grows.
            _ => (FailureKind::Failed, error.to_string()),
        };
        Self::new(kind, format!("{what}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_keep_their_meaning() {
        let made = |kind: io::ErrorKind| Failure::from_io("a.txt", &io::Error::from(kind));
        assert_eq!(made(io::ErrorKind::NotFound), Failure::not_found("a.txt: it does not exist"));
        assert_eq!(made(io::ErrorKind::PermissionDenied).kind, FailureKind::Denied);
        assert_eq!(made(io::ErrorKind::AlreadyExists).kind, FailureKind::Conflict);
        assert_eq!(made(io::ErrorKind::BrokenPipe).kind, FailureKind::Failed);
    }
}
