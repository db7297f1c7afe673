//! "Did you mean": names that are close to one that does not exist, for people and for models (L50, TOOL-1).

use crate::limits;

/// How alike two names have to be, from 0 to 1, to be worth a mention.
const LIKENESS_MIN: f64 = 0.7;

/// The names closest to `wanted`, best first, at most [`limits::CLOSE_NAMES_MAX`]. Equal likeness is ordered by name, so
/// that the answer does not depend on the order of the candidates.
///
/// ```
/// use wharf_core::names::close_names;
/// assert_eq!(close_names("raed_file", ["read_file", "write_file", "query"]), ["read_file", "write_file"]);
/// ```
pub fn close_names<'n>(wanted: &str, candidates: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let wanted_flat = flat(wanted);
    let mut scored: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|name| (likeness(&wanted_flat, &flat(name)), name))
        .filter(|(score, _)| *score >= LIKENESS_MIN)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.truncate(limits::CLOSE_NAMES_MAX);
    scored.into_iter().map(|(_, name)| name).collect()
}

/// `did you mean "a" or "b"?`, or nothing if no name is close.
pub fn did_you_mean<'n>(wanted: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let close = close_names(wanted, candidates);
    (!close.is_empty()).then(|| format!("did you mean {}?", quoted(&close, "or")))
}

/// Names in quotes as a list in a sentence: `"a", "b" and "c"`.
pub fn quoted(names: &[&str], last: &str) -> String {
    let mut text = String::new();
    for (n, name) in names.iter().enumerate() {
        if n > 0 {
            text.push_str(if n + 1 == names.len() { " " } else { ", " });
            if n + 1 == names.len() {
                text.push_str(last);
                text.push(' ');
            }
        }
        text.push_str(&format!("{name:?}"));
    }
    text
}

/// A name that only differs in case or in its joints is the same name to whoever mistyped it.
fn flat(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' ')).flat_map(char::to_lowercase).collect()
}

fn likeness(wanted: &str, name: &str) -> f64 {
    if wanted == name {
        return 1.0;
    }
    // The start of a name counts more for one measure, the number of slips for the other: a typo is close in both, a
    // word left out in the first.
    strsim::jaro_winkler(wanted, name).max(strsim::normalized_damerau_levenshtein(wanted, name)) * 0.99
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_do_not_depend_on_the_order_of_candidates() {
        // covers L50
        let names = ["read_file", "read_files", "list", "write_file", "search"];
        let mut reversed = names;
        reversed.reverse();
        assert_eq!(close_names("readFile", names), ["read_file", "read_files", "write_file"]);
        assert_eq!(close_names("readFile", names), close_names("readFile", reversed));
        assert_eq!(close_names("quux", names), Vec::<&str>::new());
        assert_eq!(close_names("", names), Vec::<&str>::new());
    }

    #[test]
    fn a_list_reads_as_a_sentence() {
        assert_eq!(quoted(&["a"], "or"), r#""a""#);
        assert_eq!(quoted(&["a", "b"], "or"), r#""a" or "b""#);
        assert_eq!(quoted(&["a", "b", "c"], "and"), r#""a", "b" and "c""#);
        assert_eq!(did_you_mean("modle", ["model", "name"]).as_deref(), Some(r#"did you mean "model"?"#));
        assert_eq!(did_you_mean("zzz", ["model", "name"]), None);
    }
}
