//! Marks that can be seen from outside: one line for each run that happened, on disk before the tool goes on.

use std::{fmt, fs::OpenOptions, io::Write};

use wharf_tool_sdk::{Call, Failure, Root};

use crate::Config;

/// What `note` writes to.
pub(crate) const NOTES: &str = "notes.log";

/// What `word_stats` writes to.
pub(crate) const RUNS: &str = "runs.log";

/// One line: tool, call id, attempt and text, with tabs between them.
pub(crate) struct Line<'call> {
    tool: &'call str,
    call_id: &'call str,
    attempt: u32,
    text: &'call str,
}

impl<'call> Line<'call> {
    pub(crate) fn of(call: &'call Call<Config>, tool: &'call str, text: &'call str) -> Self {
        Self { tool, call_id: &call.call_id, attempt: call.attempt, text }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, call_id, attempt, text } = self;
        writeln!(formatter, "{tool}\t{call_id}\t{attempt}\t{text}")
    }
}

pub(crate) fn folder(config: &Config) -> Result<&Root, Failure> {
    config.notes_root.as_ref().ok_or_else(|| Failure::failed("the config has no notes_root"))
}

/// Appends a line in one write and waits until it is on disk.
pub(crate) fn append(folder: &Root, file: &str, line: &Line<'_>) -> Result<(), Failure> {
    let place = folder.resolve(file)?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(place.real())
        .and_then(|mut opened| {
            opened.write_all(line.to_string().as_bytes())?;
            opened.sync_all()
        })
        .map_err(|error| Failure::from_io(&format!("{file} in {}", folder.as_str()), &error))
}
