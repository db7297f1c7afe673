//! The component `slow`: a tool that takes its time over real work, and one that leaves a mark on the world. Demonstrations
//! and tests of crashes watch the marks from outside: a line for each run, with the call and the attempt that made it.

mod limits;
mod stats;
#[cfg(test)]
mod tests;
mod witness;

use std::{thread, time::Duration};

use serde::Deserialize;
use wharf_tool_sdk::{Call, Claims, Component, Failure, JsonSchema, Root, Tool};

use witness::Line;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The folder that `word_stats` reads: absolute, as granted in `grants.fs` (`guest`).
    #[serde(default)]
    root: Root,
    /// A writable folder for notes and marks; without it there is no tool `note`.
    notes_root: Option<Root>,
    /// How long `word_stats` waits before each file, in milliseconds.
    #[serde(default)]
    pace_ms: u64,
    /// How long `note` waits before it writes, in milliseconds.
    #[serde(default)]
    note_before_ms: u64,
    /// How long `note` waits after it wrote, in milliseconds.
    #[serde(default)]
    note_after_ms: u64,
    /// Let each run of `word_stats` add a line to `runs.log` in `notes_root`.
    #[serde(default)]
    witness: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Note {
    /// One line of text.
    text: String,
}

struct Slow;

impl Component for Slow {
    type Config = Config;

    fn tools(config: &Config) -> Result<Vec<Tool<Config>>, Failure> {
        if config.witness && config.notes_root.is_none() {
            return Err(Failure::invalid_input(
                "witness is true, but there is no notes_root to write to; hint: set notes_root",
            ));
        }
        for (key, pause) in [
            ("pace_ms", config.pace_ms),
            ("note_before_ms", config.note_before_ms),
            ("note_after_ms", config.note_after_ms),
        ] {
            if pause > limits::PAUSE_MS_MAX {
                return Err(Failure::invalid_input(format!(
                    "{key} is {pause}; at most {} is possible",
                    limits::PAUSE_MS_MAX
                )));
            }
        }
        // A witness line is an effect, and then the tool says so.
        let claims = if config.witness { Claims::empty() } else { Claims::READ_ONLY | Claims::IDEMPOTENT };
        let mut tools = vec![
            Tool::json(
                "word_stats",
                "Counts files, lines and words in a folder and all below it, for each file extension. Takes a while.",
                stats::word_stats,
            )
            .title("Word statistics")
            .claims(claims),
        ];
        if config.notes_root.is_some() {
            tools.push(
                Tool::json(
                    "note",
                    "Adds one line to the notes. Each call adds a line, also when the text was noted before.",
                    note,
                )
                .title("Take a note"),
            );
        }
        Ok(tools)
    }
}

fn note(call: &Call<Config>, input: Note) -> Result<String, Failure> {
    let notes_root = witness::folder(&call.config)?;
    if input.text.contains(['\n', '\r']) || input.text.len() > limits::NOTE_BYTES_MAX {
        return Err(Failure::invalid_input(format!(
            "a note is one line of at most {} bytes; hint: write several notes",
            limits::NOTE_BYTES_MAX
        )));
    }
    pause(call.config.note_before_ms);
    witness::append(notes_root, witness::NOTES, &Line::of(call, "note", &input.text))?;
    pause(call.config.note_after_ms);
    Ok(format!("noted in {}", witness::NOTES))
}

fn pause(milliseconds: u64) {
    if milliseconds > 0 {
        thread::sleep(Duration::from_millis(milliseconds));
    }
}

wharf_tool_sdk::export_tools!(Slow);
