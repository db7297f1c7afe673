//! `search_files`: lines that match a regular expression. The engine takes time linear in what it reads, whatever the pattern.

use std::io::Read;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use wharf_tool_sdk::{Call, Failure, JsonSchema, Place};

use crate::{
    Config, limits, read, text,
    walk::{Cut, Filter, Kind, Reach, walk},
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFiles {
    /// A regular expression that is looked for within each line (no look-around, no back-references).
    pattern: String,
    /// A folder or a file, relative to the root; everything if left out.
    #[serde(default)]
    path: String,
    /// Search only files that match, for example `*.rs` (any name) or `docs/**/*.md` (path below the folder).
    glob: Option<String>,
    /// Upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// Lines to show before and after each match, 0 to 5.
    #[serde(default)]
    context: usize,
    /// Most matching lines to show, 1 to 500; 100 if left out.
    limit: Option<usize>,
}

pub(crate) fn search_files(call: &Call<Config>, input: SearchFiles) -> Result<String, Failure> {
    let place = call.config.root.resolve(&input.path)?;
    let filter = input.glob.as_deref().map(Filter::new).transpose()?;
    let pattern = compile(&input.pattern, input.ignore_case)?;
    let mut search = Search {
        pattern,
        context: input.context.min(limits::CONTEXT_LINES_MAX),
        limit: input.limit.unwrap_or(limits::MATCHES_DEFAULT).clamp(1, limits::MATCHES_MAX),
        answer: String::new(),
        matches: 0,
        files: 0,
        skipped: 0,
        bytes: 0,
        stopped: None,
    };
    let found = std::fs::metadata(place.real()).map_err(|error| Failure::from_io(&place.to_string(), &error))?;
    if !found.is_dir() {
        let (_, bytes) = read::open(&place)?;
        search.file(&place, bytes);
        return Ok(search.finish(&input.pattern, None));
    }
    let cut = walk(&place, Reach::Tree, |entry| {
        match entry.kind {
            Kind::File { bytes } if filter.as_ref().is_none_or(|filter| filter.passes(&place, &entry.place)) => {
                search.file(&entry.place, bytes);
                if search.files.is_multiple_of(limits::FILES_PER_REPORT) {
                    call.report("searching", Some(search.files), None);
                }
            }
            Kind::Unreadable(_) => search.skipped += 1,
            Kind::File { .. } | Kind::Folder | Kind::Link | Kind::Other => {}
        }
        Ok(search.stopped.is_none())
    })?;
    Ok(search.finish(&input.pattern, cut))
}

fn compile(pattern: &str, ignore_case: bool) -> Result<Regex, Failure> {
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .size_limit(limits::PATTERN_BYTES_MAX)
        .dfa_size_limit(limits::PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| {
            Failure::invalid_input(format!("pattern {pattern:?}: {error}; hint: to search for the text itself, put \\ before . * + ? ( ) [ ] {{ }} | ^ $ \\"))
        })
}

/// Why a search ended before the last file.
enum Stopped {
    Matches,
    Answer,
    Bytes,
}

struct Search {
    pattern: Regex,
    context: usize,
    limit: usize,
    answer: String,
    matches: usize,
    files: u64,
    skipped: u64,
    bytes: u64,
    stopped: Option<Stopped>,
}

impl Search {
    fn file(&mut self, place: &Place, bytes: u64) {
        if bytes > limits::WHOLE_FILE_BYTES_MAX {
            self.skipped += 1;
            return;
        }
        if self.bytes + bytes > limits::SEARCH_BYTES_MAX {
            self.stopped = Some(Stopped::Bytes);
            return;
        }
        let mut content = Vec::new();
        // The file may have grown since it was looked at; it is bounded all the same.
        let read = std::fs::File::open(place.real())
            .and_then(|file| file.take(limits::WHOLE_FILE_BYTES_MAX).read_to_end(&mut content));
        self.bytes += content.len() as u64;
        match (read, text::whole(&content)) {
            (Ok(_), Ok(text)) => {
                self.files += 1;
                self.text(place, text);
            }
            // One file that cannot be read or is binary must not hide the others; the answer counts it.
            (Err(_), _) | (Ok(_), Err(_)) => self.skipped += 1,
        }
    }

    fn text(&mut self, place: &Place, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        // The first line that was not shown yet.
        let mut next = 0;
        let mut after = 0;
        for (index, line) in lines.iter().enumerate() {
            let Some(found) = self.pattern.find(line) else {
                if index < after {
                    self.show(place, index, '-', shorten(line, 0));
                    next = index + 1;
                }
                continue;
            };
            if self.matches >= self.limit {
                self.stopped = Some(Stopped::Matches);
                return;
            }
            if self.answer.len() > limits::ANSWER_BYTES_MAX {
                self.stopped = Some(Stopped::Answer);
                return;
            }
            let first = index.saturating_sub(self.context).max(next);
            if self.context > 0 && self.matches > 0 && (next == 0 || first > next) {
                self.answer.push_str("--\n");
            }
            for (before, line) in lines.iter().enumerate().take(index).skip(first) {
                self.show(place, before, '-', shorten(line, 0));
            }
            self.show(place, index, ':', shorten(line, found.start()));
            self.matches += 1;
            next = index + 1;
            after = index + 1 + self.context;
        }
    }

    fn show(&mut self, place: &Place, index: usize, mark: char, line: String) {
        self.answer.push_str(&format!("{place}{mark}{}{mark} {line}\n", index + 1));
    }

    fn finish(mut self, pattern: &str, cut: Option<Cut>) -> String {
        let mut notes = Vec::new();
        match self.stopped {
            Some(Stopped::Matches) => notes.push(format!("cut after {} matching lines, there are more", self.matches)),
            Some(Stopped::Answer) => {
                notes.push(format!("cut after {} matching lines: the answer is full", self.matches))
            }
            Some(Stopped::Bytes) => {
                notes.push(format!("stopped after {} bytes in {} files", self.bytes, self.files));
            }
            None => {}
        }
        notes.extend(cut.map(Cut::describe));
        if !notes.is_empty() {
            notes.push("hint: narrow it with path or glob".to_owned());
        }
        if self.matches == 0 {
            notes.insert(0, format!("no line matches {pattern:?} in {} files", self.files));
        }
        if self.skipped > 0 {
            notes.push(format!("{} files were skipped (binary, unreadable or too large)", self.skipped));
        }
        if !notes.is_empty() {
            self.answer.push_str("note: ");
            self.answer.push_str(&notes.join("; "));
        }
        self.answer.trim_end_matches('\n').to_owned()
    }
}

/// At most so many bytes of a line as an answer shows, with the byte `around` in them.
fn shorten(line: &str, around: usize) -> String {
    if line.len() <= limits::MATCH_LINE_BYTES_MAX {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(around.saturating_sub(limits::MATCH_LINE_BYTES_MAX / 4));
    let end = line.floor_char_boundary(start + limits::MATCH_LINE_BYTES_MAX);
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", line.get(start..end).unwrap_or_default())
}
