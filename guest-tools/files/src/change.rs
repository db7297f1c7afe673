//! `write_file` and `edit_file`. A file is replaced by a rename, never written over: a call may be dropped at any moment, and
//! half a file would be left.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
};

use serde::Deserialize;
use wharf_tool_sdk::{Call, Failure, JsonSchema, Place};

use crate::{Config, limits, read, text};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// The file, relative to the root. It is created, or replaced whole.
    path: String,
    /// The whole new content.
    content: String,
    /// Create missing folders on the way.
    #[serde(default)]
    create_parents: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    /// The file, relative to the root.
    path: String,
    /// The text to replace, exactly as it stands in the file, white space included. It must occur once.
    old: String,
    /// The text to put in its place.
    new: String,
    /// Replace every occurrence instead of the only one.
    #[serde(default)]
    replace_all: bool,
}

pub(crate) fn write_file(call: &Call<Config>, input: WriteFile) -> Result<String, Failure> {
    let place = call.config.root.resolve(&input.path)?;
    let before = target(&place)?;
    let folder = place.real().parent().filter(|_| !place.relative().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        if !input.create_parents {
            return Err(Failure::not_found(format!(
                "{place} cannot be written: its folder does not exist; hint: check the path, or set create_parents to true"
            )));
        }
        fs::create_dir_all(folder).map_err(|error| Failure::from_io(&place.to_string(), &error))?;
    }
    replace(&place, &call.call_id, &input.content)?;
    let after = input.content.len();
    Ok(match before {
        None => format!("created {place} ({after} bytes)"),
        Some(before) => format!("replaced {place} ({after} bytes, {before} before)"),
    })
}

pub(crate) fn edit_file(call: &Call<Config>, input: EditFile) -> Result<String, Failure> {
    let place = call.config.root.resolve(&input.path)?;
    if input.old.is_empty() {
        return Err(Failure::invalid_input("old is empty; hint: write_file writes a whole file"));
    }
    if input.old == input.new {
        return Err(Failure::invalid_input("old and new are the same: there is nothing to change"));
    }
    target(&place)?;
    let before = read_whole(&place)?;
    let places: Vec<usize> = before.match_indices(&input.old).map(|(offset, _)| line_of(&before, offset)).collect();
    match places.as_slice() {
        [] => return Err(missing(&place, &before, &input.old)),
        [_] => {}
        _ if input.replace_all => {}
        places => {
            return Err(Failure::conflict(format!(
                "the text occurs {} times in {place}, at {}; nothing was changed; hint: add lines around it until it is unique, \
                 or set replace_all to true",
                places.len(),
                shown(places)
            )));
        }
    }
    replace(&place, &call.call_id, &before.replace(&input.old, &input.new))?;
    Ok(match places.as_slice() {
        [line] => format!("edited {place} at line {line}"),
        places => format!("edited {place} at {} places, {}", places.len(), shown(places)),
    })
}

/// The length of the file that stands at `place`, if one does. Anything but a file is refused.
fn target(place: &Place) -> Result<Option<u64>, Failure> {
    match fs::symlink_metadata(place.real()) {
        Ok(found) if found.is_file() => Ok(Some(found.len())),
        Ok(found) if found.is_dir() => {
            Err(Failure::invalid_input(format!("{place} is a folder; hint: name a file in it")))
        }
        Ok(_) => Err(Failure::conflict(format!(
            "{place} is a link or a special file; hint: change the file that it leads to"
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::from_io(&place.to_string(), &error)),
    }
}

fn read_whole(place: &Place) -> Result<String, Failure> {
    let (file, bytes) = read::open(place)?;
    if bytes > limits::WHOLE_FILE_BYTES_MAX {
        return Err(Failure::invalid_input(format!(
            "{place} has {bytes} bytes; files of more than {} bytes cannot be edited",
            limits::WHOLE_FILE_BYTES_MAX
        )));
    }
    let mut content = Vec::new();
    file.take(limits::WHOLE_FILE_BYTES_MAX)
        .read_to_end(&mut content)
        .map_err(|error| Failure::from_io(&place.to_string(), &error))?;
    match text::whole(&content) {
        Ok(text) => Ok(text.to_owned()),
        Err(not_text) => Err(Failure::invalid_input(format!(
            "{place} is no text and cannot be edited ({})",
            not_text.describe(&place.to_string(), bytes)
        ))),
    }
}

/// Writes beside the file and renames. The name holds the call's id, so that two calls never share it.
fn replace(place: &Place, call_id: &str, content: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::from_io(&place.to_string(), &error);
    let (Some(folder), Some(name)) = (place.real().parent(), place.real().file_name()) else {
        return Err(Failure::invalid_input(format!("{place} is no file name")));
    };
    let tag: String = call_id.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    let aside = folder.join(format!(".{}.{tag}.new", name.to_string_lossy()));
    let written = fs::File::create(&aside).and_then(|mut file| {
        file.write_all(content.as_bytes())?;
        file.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&aside, place.real()));
    if let Err(error) = done {
        // The first error is the one to tell; a file that cannot be removed either is left, with a name that says what it is.
        let _ = fs::remove_file(&aside);
        return Err(failed(error));
    }
    Ok(())
}

/// The text is not there: say what comes closest, for that is how the model mends it.
fn missing(place: &Place, content: &str, old: &str) -> Failure {
    let hint = if content.contains("\r\n") && content.contains(&old.replace('\n', "\r\n")) {
        "the file ends its lines with \\r\\n; write old and new so".to_owned()
    } else if let Some(line) = loose(content, old) {
        format!("text that differs only in white space begins at line {line}; read it and copy it exactly")
    } else if let Some(line) = first_line(content, old) {
        format!("its first line stands at line {line}, and what follows differs; read the file again")
    } else {
        "read the file again and copy the text exactly".to_owned()
    };
    Failure::conflict(format!("the text to replace is not in {place}; nothing was changed; hint: {hint}"))
}

/// The line where `old` would begin if white space did not count.
fn loose(content: &str, old: &str) -> Option<usize> {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted: Vec<String> = old.lines().map(squeezed).filter(|line| !line.is_empty()).collect();
    let lines: Vec<(usize, String)> = content
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, squeezed(line)))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    lines
        .windows(wanted.len().max(1))
        .find(|window| window.iter().map(|(_, line)| line).eq(wanted.iter()))
        .and_then(|window| window.first())
        .map(|(line, _)| *line)
}

fn first_line(content: &str, old: &str) -> Option<usize> {
    let first = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    content.lines().position(|line| line.trim() == first).map(|index| index + 1)
}

fn line_of(content: &str, offset: usize) -> usize {
    content.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

fn shown(lines: &[usize]) -> String {
    let first: Vec<String> = lines.iter().take(limits::PLACES_SHOWN_MAX).map(ToString::to_string).collect();
    let more = if lines.len() > first.len() { " …" } else { "" };
    format!("lines {}{more}", first.join(", "))
}
