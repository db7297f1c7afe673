//! `read_file`: part of a text file, by lines or from a byte, and how to go on.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
};

use serde::Deserialize;
use wharf_tool_sdk::{Call, Content, Failure, JsonSchema, Place};

use crate::{Config, limits, text, text::NotText};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    /// The file, relative to the root.
    path: String,
    /// First line to read, counted from 1.
    start: Option<u64>,
    /// Last line to read, included.
    end: Option<u64>,
    /// Read from this byte instead of from a line: the way through files with very long lines.
    from_byte: Option<u64>,
}

/// Part of a file.
struct Part {
    text: String,
    /// How to go on, and whatever else the model should know.
    note: Option<String>,
}

pub(crate) fn read_file(call: &Call<Config>, input: ReadFile) -> Result<Vec<Content>, Failure> {
    let place = call.config.root.resolve(&input.path)?;
    let (mut file, bytes) = open(&place)?;
    let mut beginning = Vec::new();
    file.by_ref()
        .take(limits::SNIFF_BYTES as u64)
        .read_to_end(&mut beginning)
        .map_err(|error| Failure::from_io(&place.to_string(), &error))?;
    let part = match text::sniff(&beginning) {
        Err(not_text) => Err(not_text),
        Ok(()) => match (input.from_byte, input.start, input.end) {
            (Some(from), None, None) => from_byte(file, &place, bytes, from)?,
            (Some(_), _, _) => {
                return Err(Failure::invalid_input(
                    "from_byte goes with neither start nor end; hint: use one of the two",
                ));
            }
            (None, start, end) => lines(file, &place, bytes, start.unwrap_or(1), end)?,
        },
    };
    Ok(match part {
        Ok(Part { text, note }) => std::iter::once(text).chain(note).map(Content::Text).collect(),
        Err(not_text) => vec![Content::Text(not_text.describe(&place.to_string(), bytes))],
    })
}

/// Opens a regular file, with its length.
pub(crate) fn open(place: &Place) -> Result<(File, u64), Failure> {
    let failed = |error: std::io::Error| Failure::from_io(&place.to_string(), &error);
    let found = std::fs::metadata(place.real()).map_err(failed)?;
    if found.is_dir() {
        return Err(Failure::invalid_input(format!("{place} is a folder; hint: list_files shows what is in it")));
    }
    if !found.is_file() {
        return Err(Failure::invalid_input(format!("{place} is neither a file nor a folder")));
    }
    Ok((File::open(place.real()).map_err(failed)?, found.len()))
}

fn from_byte(mut file: File, place: &Place, bytes: u64, from: u64) -> Result<Result<Part, NotText>, Failure> {
    if from > bytes {
        return Err(Failure::invalid_input(format!("{place} has only {bytes} bytes; from_byte is {from}")));
    }
    let failed = |error: std::io::Error| Failure::from_io(&place.to_string(), &error);
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let mut piece = Vec::new();
    file.take(limits::ANSWER_BYTES_MAX as u64).read_to_end(&mut piece).map_err(failed)?;
    // An offset into the middle of a character begins with the next one.
    let skipped = piece.iter().take(3).take_while(|byte| (**byte & 0xC0) == 0x80).count();
    let (_, whole) = piece.split_at(skipped);
    Ok(match text::whole_characters(whole) {
        Err(bad) => Err(NotText::BadUtf8 { offset: from + (skipped + bad) as u64 }),
        Ok(text) => {
            let next = from + (skipped + text.len()) as u64;
            let note = (next < bytes && !text.is_empty())
                .then(|| format!("note: bytes {from} to {next} of {bytes}; to go on, read with from_byte {next}"));
            Ok(Part { text: text.to_owned(), note })
        }
    })
}

fn lines(
    mut file: File,
    place: &Place,
    bytes: u64,
    start: u64,
    end: Option<u64>,
) -> Result<Result<Part, NotText>, Failure> {
    if start == 0 {
        return Err(Failure::invalid_input("start is 0; hint: lines are counted from 1"));
    }
    if let Some(end) = end.filter(|end| *end < start) {
        return Err(Failure::invalid_input(format!("end {end} lies before start {start}")));
    }
    let failed = |error: std::io::Error| Failure::from_io(&place.to_string(), &error);
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut reader = BufReader::new(file);
    let mut skipped = 0_u64;
    for passed in 1..start {
        let length = skip_line(&mut reader, limits::SKIP_BYTES_MAX - skipped).map_err(failed)?;
        skipped += length;
        if length == 0 {
            return Err(past_the_end(place, passed - 1, start));
        }
        if skipped >= limits::SKIP_BYTES_MAX {
            return Err(Failure::invalid_input(format!(
                "line {start} of {place} lies more than {} bytes into the file; hint: use from_byte",
                limits::SKIP_BYTES_MAX
            )));
        }
    }
    let mut read = Vec::new();
    let mut line = start;
    let note = loop {
        if end.is_some_and(|end| line > end) {
            break None;
        }
        let room = limits::ANSWER_BYTES_MAX - read.len();
        let before = read.len();
        let taken = reader.by_ref().take(room as u64).read_until(b'\n', &mut read).map_err(failed)?;
        if taken == 0 && room > 0 {
            if line == start && start > 1 {
                return Err(past_the_end(place, start - 1, start));
            }
            break (bytes == 0).then(|| format!("note: {place} is empty"));
        }
        if read.last() == Some(&b'\n') && taken > 0 {
            line += 1;
            continue;
        }
        if reader.fill_buf().map_err(failed)?.is_empty() {
            break None;
        }
        // The room is used up inside a line.
        if line > start {
            read.truncate(before);
            let last = line - 1;
            break Some(format!(
                "note: lines {start} to {last} of a file of {bytes} bytes; to go on, read with start {line}"
            ));
        }
        let kept = text::whole_characters(&read).map_or(read.len(), str::len);
        read.truncate(kept);
        let next = skipped + kept as u64;
        break Some(format!(
            "note: line {line} is longer than one answer ({bytes} bytes in the file); to go on, read with from_byte {next}"
        ));
    };
    Ok(match std::str::from_utf8(&read) {
        Ok(text) => Ok(Part { text: text.to_owned(), note }),
        Err(error) => Err(NotText::BadUtf8 { offset: skipped + error.valid_up_to() as u64 }),
    })
}

fn past_the_end(place: &Place, lines: u64, start: u64) -> Failure {
    Failure::invalid_input(match lines {
        0 => format!("{place} is empty"),
        1 => format!("{place} has only 1 line; start is {start}"),
        lines => format!("{place} has only {lines} lines; start is {start}"),
    })
}

/// Passes over one line, at most `most` bytes of it. Returns its length; 0 at the end of the file.
fn skip_line(reader: &mut impl BufRead, most: u64) -> std::io::Result<u64> {
    let mut passed = 0;
    while passed < most {
        let ready = reader.fill_buf()?;
        if ready.is_empty() {
            break;
        }
        let (length, ended) = match ready.iter().position(|byte| *byte == b'\n') {
            Some(index) => (index + 1, true),
            None => (ready.len(), false),
        };
        reader.consume(length);
        passed += length as u64;
        if ended {
            break;
        }
    }
    Ok(passed)
}
