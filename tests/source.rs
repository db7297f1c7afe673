//! Rust sources as text, for rules that no lint can state: files below a folder, and code without what only looks like
//! code. It knows no rule.

use std::path::{Path, PathBuf};

/// All files below a folder whose name ends so, in order of path. Build output and hidden folders are passed over; a folder
/// that is absent has none.
pub fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if name != "target" && !name.starts_with('.') {
                    open.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A file's text.
///
/// # Panics
/// If it cannot be read.
pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The code alone: comments and the insides of texts are blank, lines stay where they are.
pub fn code(text: &str) -> String {
    let source: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&char) = source.get(at) {
        let end = if starts(&source, at, "//") {
            find(&source, at, "\n")
        } else if starts(&source, at, "/*") {
            end_of_block(&source, at)
        } else if let Some(end) = end_of_text(&source, at) {
            end
        } else {
            code.push(char);
            at += 1;
            continue;
        };
        code.extend(source[at..end].iter().map(|&char| if char == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// The lines, from 1, that name this path of modules or this word, as it stands or through a group (`use std::{fs, net}`).
pub fn lines_naming(code: &str, path: &str) -> Vec<usize> {
    let mut lines: Vec<usize> = positions(code, path).collect();
    if let Some((module, item)) = path.rsplit_once("::") {
        for start in positions(code, &format!("{module}::{{")) {
            let group = &code[start + module.len() + 3..];
            lines.extend(in_group(group, item).map(|at| start + module.len() + 3 + at));
        }
    }
    let mut lines: Vec<usize> = lines.into_iter().map(|at| code[..at].matches('\n').count() + 1).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Where a word stands that is not part of a longer one.
fn positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let inside =
            |neighbour: Option<char>, edge: Option<char>| neighbour.is_some_and(is_name) && edge.is_some_and(is_name);
        !inside(before, word.chars().next()) && !inside(after, word.chars().next_back())
    })
}

/// Where an item stands on the first level of a group of imports.
fn in_group<'a>(group: &'a str, item: &'a str) -> impl Iterator<Item = usize> + 'a {
    let mut depth = 1_usize;
    let mut end = group.len();
    let mut deep = Vec::new();
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            end = at;
            break;
        }
        if depth > 1 {
            deep.push(at);
        }
    }
    positions(&group[..end], item).filter(move |at| deep.binary_search(at).is_err())
}

fn starts(source: &[char], at: usize, what: &str) -> bool {
    what.chars().enumerate().all(|(n, char)| source.get(at + n) == Some(&char))
}

/// Where this comes next, or the end.
fn find(source: &[char], from: usize, what: &str) -> usize {
    (from..source.len()).find(|&at| starts(source, at, what)).unwrap_or(source.len())
}

fn end_of_block(source: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < source.len() {
        if starts(source, at, "/*") {
            depth += 1;
            at += 2;
        } else if starts(source, at, "*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    source.len()
}

/// The end of the text or character that begins here, if one does.
fn end_of_text(source: &[char], start: usize) -> Option<usize> {
    match source[start] {
        '"' => Some(end_of_plain(source, start, '"')),
        // A character, and not a lifetime.
        '\'' if source.get(start + 1) == Some(&'\\') => Some(end_of_plain(source, start, '\'')),
        '\'' if source.get(start + 2) == Some(&'\'') => Some(start + 3),
        'r' => {
            let part_of_a_name = start > 0
                && (source[start - 1].is_alphanumeric() && source[start - 1] != 'b' || source[start - 1] == '_');
            let hashes = source[start + 1..].iter().take_while(|&&char| char == '#').count();
            if part_of_a_name || source.get(start + 1 + hashes) != Some(&'"') {
                return None;
            }
            let close = format!("\"{}", "#".repeat(hashes));
            Some((find(source, start + hashes + 2, &close) + close.len()).min(source.len()))
        }
        _ => None,
    }
}

fn end_of_plain(source: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < source.len() {
        match source[at] {
            '\\' => at += 2,
            char if char == quote => return at + 1,
            _ => at += 1,
        }
    }
    source.len()
}
