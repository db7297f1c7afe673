//! The raw text of a call: a jq program, and where its JSON comes from. Knows the form of the text, no files.

use wharf_tool_sdk::Failure;

/// What a first line has to begin with to name a file. For jq the line is a comment, so the program keeps its line numbers.
const FILE_LINE: &str = "# file:";

/// The line between the program and JSON that follows it.
const DIVIDER: &str = "---";

/// A call's input, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query<'text> {
    /// The program as it was written, line breaks included.
    pub(crate) program: &'text str,
    pub(crate) source: Source<'text>,
}

/// Where the JSON comes from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'text> {
    /// The text after the divider.
    Inline(&'text str),
    /// A file that the first line names.
    File(&'text str),
    /// Nothing was said: the config's file, if it has one.
    Config,
}

impl<'text> Query<'text> {
    pub(crate) fn read(text: &'text str) -> Result<Self, Failure> {
        let (program, inline) = match divider(text) {
            Some((start, end)) => (text.get(..start).unwrap_or_default(), Some(text.get(end..).unwrap_or_default())),
            None => (text, None),
        };
        let first = program.lines().next().unwrap_or_default();
        let file = first.trim_start().strip_prefix(FILE_LINE).map(str::trim);
        let source = match (inline, file) {
            (Some(_), Some(file)) => {
                return Err(Failure::invalid_input(format!(
                    "the input names the file {file:?} and brings JSON after \"{DIVIDER}\"; hint: use one of the two"
                )));
            }
            (Some(json), None) => Source::Inline(json),
            (None, Some("")) => {
                return Err(Failure::invalid_input(format!(
                    "the first line {first:?} names no file; hint: write \"{FILE_LINE} data/orders.json\""
                )));
            }
            (None, Some(file)) => Source::File(file),
            (None, None) => Source::Config,
        };
        let empty = program.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if empty {
            return Err(Failure::invalid_input("the input holds no jq program; hint: \".\" gives the whole document"));
        }
        Ok(Self { program, source })
    }
}

/// Where the divider's line begins and where the text after it begins.
fn divider(text: &str) -> Option<(usize, usize)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if line.trim_end() == DIVIDER {
            return Some((start, end));
        }
        start = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_taken_apart_without_a_change() {
        assert_eq!(
            Query::read(".a\r\n  | .b\n---\n{\"a\":\n1}\n"),
            Ok(Query { program: ".a\r\n  | .b\n", source: Source::Inline("{\"a\":\n1}\n") })
        );
        assert_eq!(
            Query::read("# file: data/x y.json \n.a"),
            Ok(Query { program: "# file: data/x y.json \n.a", source: Source::File("data/x y.json") })
        );
        assert_eq!(Query::read(".a - --- 1"), Ok(Query { program: ".a - --- 1", source: Source::Config }));
    }

    #[test]
    fn input_that_says_too_much_or_too_little_is_refused() {
        for text in ["# file: a.json\n.\n---\n{}", "# file:\n.", "", "  \n", "---\n{}", "# file: a.json\n# nothing\n"] {
            let failure = Query::read(text).expect_err(text);
            assert!(failure.message.contains("hint: "), "{}", failure.message);
        }
    }
}
