//! `word_stats`: counts what is in a tree, at the pace that the config sets.

use std::{collections::BTreeMap, fs, io::Read};

use serde::{Deserialize, Serialize};
use wharf_tool_sdk::{Call, Failure, Json, JsonSchema, Place};

use crate::{
    Config, limits, pause,
    witness::{self, Line},
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WordStats {
    /// The folder, relative to the root; the root itself if left out.
    #[serde(default)]
    path: String,
    /// Count only files with this extension, for example `md`.
    extension: Option<String>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Stats {
    /// Text files that were counted.
    files: u64,
    lines: u64,
    words: u64,
    /// The same for each file extension, without its dot; `-` for files that have none.
    by_extension: BTreeMap<String, Counts>,
    /// Files that were not counted: binary, unreadable, too large or too many.
    skipped: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Counts {
    files: u64,
    lines: u64,
    words: u64,
}

pub(crate) fn word_stats(call: &Call<Config>, input: WordStats) -> Result<Json<Stats>, Failure> {
    if call.config.witness {
        let line = Line::of(call, "word_stats", &input.path);
        witness::append(witness::folder(&call.config)?, witness::RUNS, &line)?;
    }
    let folder = call.config.root.resolve(&input.path)?;
    let wanted = input.extension.as_deref().map(|wanted| wanted.trim_start_matches(['*', '.']));
    let mut found = Found { files: Vec::new(), skipped: 0 };
    found.tree(&folder, 0).map_err(|error| Failure::from_io(&folder.to_string(), &error))?;
    found.files.retain(|place| wanted.is_none_or(|wanted| extension(name(place)) == wanted));
    let total = found.files.len() as u64;
    let mut stats = Stats { skipped: found.skipped, ..Stats::default() };
    for (done, place) in found.files.iter().enumerate() {
        call.report(&format!("counting {place}"), Some(done as u64), Some(total));
        pause(call.config.pace_ms);
        match count(place) {
            Some(counts) => stats.add(extension(name(place)), counts),
            None => stats.skipped += 1,
        }
    }
    call.report("counted", Some(total), Some(total));
    Ok(Json(stats))
}

/// The files of a tree in the order of their names.
struct Found {
    files: Vec<Place>,
    skipped: u64,
}

impl Found {
    /// Fails only for the folder itself; what cannot be read in it is counted as skipped. Links are not followed.
    fn tree(&mut self, folder: &Place, depth: usize) -> std::io::Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder.real())?.take(limits::FILES_MAX + 1) {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        for name in names {
            let place = folder.child(&name);
            match fs::symlink_metadata(place.real()) {
                Ok(found) if found.is_dir() && name == ".git" => {}
                Ok(found) if found.is_dir() => {
                    if depth >= limits::DEPTH_MAX || self.tree(&place, depth + 1).is_err() {
                        self.skipped += 1;
                    }
                }
                Ok(found) if found.is_file() && self.files.len() < limits::FILES_MAX => self.files.push(place),
                Ok(_) | Err(_) => self.skipped += 1,
            }
        }
        Ok(())
    }
}

impl Stats {
    fn add(&mut self, extension: &str, counts: Counts) {
        let known = self.by_extension.contains_key(extension);
        let extension = if known || self.by_extension.len() < limits::EXTENSIONS_MAX { extension } else { "(others)" };
        let entry = self.by_extension.entry(extension.to_owned()).or_default();
        entry.files += counts.files;
        entry.lines += counts.lines;
        entry.words += counts.words;
        self.files += counts.files;
        self.lines += counts.lines;
        self.words += counts.words;
    }
}

/// Counts one file; none if it is no text, too large or cannot be read.
fn count(place: &Place) -> Option<Counts> {
    let mut bytes = Vec::new();
    let file = fs::File::open(place.real()).ok()?;
    file.take(limits::FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > limits::FILE_BYTES_MAX || bytes.contains(&0) {
        return None;
    }
    let text = String::from_utf8(bytes).ok()?;
    Some(Counts { files: 1, lines: text.lines().count() as u64, words: text.split_whitespace().count() as u64 })
}

fn name(place: &Place) -> &str {
    place.relative().rsplit('/').next().unwrap_or_default()
}

fn extension(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && !extension.is_empty() => extension,
        Some(_) | None => "-",
    }
}
