//! How a command ends: the exit codes, which `docs/exit-codes.md` documents, and how an error is told on the way out.
//! A code is a promise: add, never alter.

use std::io;

use wharf::core::harness::HarnessErrors;
use wharf::core::{Error, ErrorKind};
use wharf::store::StoreError;
use wharf_simulate::{ScriptError, StartError};

use crate::say::plain_lines;
use crate::screen;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok,
    /// The turn or the tool came to an end, and it failed: the model declined, the tool gave an error.
    Failed,
    /// Wrong use, or a wrong set-up: arguments, harness file, component, limit.
    Usage,
    /// The model service, or what it sent.
    Provider,
    /// The journal or its lease, or something has to be reconciled first.
    Store,
    /// Stored data contradicts itself.
    Corruption,
    /// What is stored and what is asked for differ.
    Conflict,
    /// The turn rests and waits for somebody.
    Paused,
    /// Somebody cancelled.
    Cancelled,
}

impl Exit {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Provider => 3,
            Self::Store => 4,
            Self::Corruption => 5,
            Self::Conflict => 6,
            Self::Paused => 7,
            Self::Cancelled => 130,
        }
    }

    /// The code for an error of this kind.
    pub(crate) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Provider => Self::Provider,
            ErrorKind::Config => Self::Usage,
            ErrorKind::Store => Self::Store,
            ErrorKind::Corruption => Self::Corruption,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::Tool => Self::Failed,
            ErrorKind::Cancelled => Self::Cancelled,
        }
    }
}

/// One fault as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// What failed, where and why.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

/// Prints what went wrong, each fault once with its hint on a line of its own, and gives the exit code.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if is_broken_pipe(error) {
        // Whoever read our output has enough of it, as `| head` has. That is no failure.
        return Exit::Ok;
    }
    for told in faults(error) {
        screen::error(&told.message);
        if let Some(hint) = &told.hint {
            screen::hint(hint);
        }
    }
    code(error)
}

/// The exit code of an error: that of the first error of ours in its chain.
pub(crate) fn code(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(ours) = ours(cause) {
            return Exit::of(ours.kind);
        }
        if cause.is::<HarnessErrors>() || cause.is::<ScriptError>() || cause.is::<StartError>() {
            return Exit::Usage;
        }
        if cause.is::<io::Error>() {
            return Exit::Failed;
        }
    }
    Exit::Usage
}

/// An error of the library; the store's own are told as the library tells them.
fn ours(cause: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let store = || cause.downcast_ref::<StoreError>().map(|error| Error::from(error.clone()));
    cause.downcast_ref::<Error>().cloned().or_else(store)
}

/// The faults of an error: all those of a harness file, else its chain as one.
pub(crate) fn faults(error: &anyhow::Error) -> Vec<Told> {
    if let Some(errors) = error.downcast_ref::<HarnessErrors>() {
        return errors.iter().map(|fault| Told { message: fault.to_string(), hint: fault.hint.clone() }).collect();
    }
    let mut parts: Vec<String> = Vec::new();
    let mut hint = None;
    for cause in error.chain() {
        let text = cause.to_string();
        // Errors of the simulator carry their hint in their text.
        let text = match text.split_once("\nhint: ") {
            Some((text, inner)) => {
                hint.get_or_insert_with(|| inner.to_owned());
                text.to_owned()
            }
            None => text,
        };
        if let Some(ours) = ours(cause) {
            hint = hint.or_else(|| ours.hint.clone()).or_else(|| default_hint(ours.kind).map(str::to_owned));
        }
        // A cause that its outer error has in its own text already is not said twice.
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
    }
    vec![Told { message: plain_lines(&parts.join(": ")), hint: hint.map(|hint| plain_lines(&hint)) }]
}

/// What helps where the layer that failed had no better advice.
fn default_hint(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Corruption => Some(
            "nothing was changed: keep a copy of the folder .wharf, then put a backup in its place or move it away",
        ),
        ErrorKind::Provider
        | ErrorKind::Config
        | ErrorKind::Store
        | ErrorKind::Conflict
        | ErrorKind::Tool
        | ErrorKind::Cancelled => None,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn every_kind_of_error_has_its_documented_code() {
        let all = [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Provider,
            Exit::Store,
            Exit::Corruption,
            Exit::Conflict,
            Exit::Paused,
            Exit::Cancelled,
        ];
        // `| 0 | ok | it did what was asked |`
        let rows = include_str!("../../../docs/exit-codes.md").lines().filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            Some((cells.get(1)?.parse::<u8>().ok()?, (*cells.get(2)?).to_owned()))
        });
        let documented: Vec<(u8, String)> = rows.collect();
        let coded: Vec<(u8, String)> =
            all.iter().map(|exit| (exit.code(), format!("{exit:?}").to_lowercase())).collect();
        assert_eq!(documented, coded, "docs/exit-codes.md and the code differ");
        let kinds = [
            ErrorKind::Provider,
            ErrorKind::Config,
            ErrorKind::Store,
            ErrorKind::Corruption,
            ErrorKind::Conflict,
            ErrorKind::Tool,
            ErrorKind::Cancelled,
        ];
        let codes: Vec<u8> = kinds.map(|kind| code(&Error::new(kind, "it failed").into()).code()).into();
        assert_eq!(codes, [3, 2, 4, 5, 6, 1, 130]);
    }

    #[test]
    fn a_chain_is_told_once_with_the_nearest_hint() {
        let error =
            anyhow::Error::from(Error::store("the journal is busy").hint("wait")).context("the turn cannot go on");
        assert_eq!(
            faults(&error),
            [Told { message: "the turn cannot go on: the journal is busy".into(), hint: Some("wait".into()) }]
        );
        let error = Err::<(), _>(io::Error::other("no such file")).context("file \"a\" cannot be read: no such file");
        let error = error.expect_err("it is one");
        assert_eq!(faults(&error), [Told { message: "file \"a\" cannot be read: no such file".into(), hint: None }]);
    }

    #[test]
    fn text_of_an_error_cannot_move_the_cursor() {
        let error = anyhow::Error::from(Error::provider("it said \u{1b}[2Jnothing"));
        assert_eq!(faults(&error)[0].message, "it said \\u{1b}[2Jnothing");
    }
}
