//! JSON Schema and patterns from untrusted hands: compiled once, in one draft, without fetching anything, with an engine
//! that cannot backtrack, and with a bound on what one check may cost (L47).

mod cost;
mod strict;

use std::collections::HashSet;
use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

pub use strict::{JsonFault, parse_strict};

use crate::limits;

pub(crate) use strict::depth;

/// A compiled JSON Schema. Equal if the schemas are.
#[derive(Clone)]
pub struct Schema {
    source: Value,
    validator: Validator,
    /// The steps along one path through a value, by the value's depth; deeper values are not checked.
    steps: Vec<u64>,
}

impl Schema {
    /// Compiles a schema of draft 2020-12; one that says nothing of its draft is taken for one.
    ///
    /// # Errors
    /// Why it cannot be used; reads on after "the schema".
    pub fn compile(source: &Value) -> Result<Self, SchemaFault> {
        let bytes = source.to_string().len();
        if bytes > limits::SCHEMA_BYTES_MAX {
            return Err(SchemaFault::TooLarge { bytes });
        }
        if strict::depth(source) > limits::JSON_DEPTH_MAX {
            return Err(SchemaFault::TooDeep);
        }
        if paths_bytes(source) > limits::SCHEMA_PATHS_BYTES_MAX {
            return Err(SchemaFault::LongNames);
        }
        let bare = without_identity(source)?;
        let steps = cost::steps_by_depth(&bare)?;
        let share = pattern_share(&bare)?;
        let validator = jsonschema::options()
            .offline()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex().size_limit(share).dfa_size_limit(share))
            .build(&bare)
            .map_err(|fault| SchemaFault::Invalid {
                pointer: fault.instance_path().as_str().to_owned(),
                why: fault.to_string(),
            })?;
        Ok(Self { source: source.clone(), validator, steps })
    }

    /// The schema as it was written.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Deepest value that is checked.
    fn depth_max(&self) -> usize {
        self.steps.len() - 1
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first misfit, with its place in the value; or that the check would take more than
    /// [`limits::CHECK_STEPS_MAX`] steps.
    pub fn check(&self, value: &Value) -> Result<(), Misfit> {
        let whole = |why: String| Err(Misfit { pointer: String::new(), why });
        let Some(&steps) = self.steps.get(strict::depth(value)) else {
            return whole(format!("it is nested deeper than {} levels", self.depth_max()));
        };
        // No value has more paths than values in it.
        if cost::values_in(value).saturating_mul(steps) > limits::CHECK_STEPS_MAX {
            return whole(format!("it has more than {} values", limits::CHECK_STEPS_MAX / steps));
        }
        self.validator.validate(value).map_err(|fault| Misfit {
            pointer: fault.instance_path().as_str().to_owned(),
            why: shortened(&fault.masked_with("the value").to_string()),
        })
    }
}

/// The names of draft 2020-12.
const DRAFTS: [&str; 2] =
    ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft/2020-12/schema"];

/// The schema without its draft and its own address, so that what a reference means follows from its text alone: a `#/…`
/// leads from the root, wherever it stands. Another draft reads other keywords; an address further inside makes
/// references lead from there. Both would hide from [`cost`] what a check does, so neither is taken.
fn without_identity(source: &Value) -> Result<Value, SchemaFault> {
    let mut open: Vec<(String, &Value)> = vec![(String::new(), source)];
    while let Some((pointer, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                for keyword in ["$id", "$schema"] {
                    if !pointer.is_empty() && members.get(keyword).is_some_and(Value::is_string) {
                        return Err(SchemaFault::Invalid {
                            pointer,
                            why: format!("only the whole schema may have {keyword:?}"),
                        });
                    }
                }
                open.extend(members.iter().map(|(name, member)| (below(&pointer, name), member)));
            }
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(n, item)| (below(&pointer, &n.to_string()), item)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut bare = source.clone();
    if let Value::Object(members) = &mut bare {
        if let Some(draft) = members.remove("$schema") {
            let named = draft.as_str().map(|name| name.strip_suffix('#').unwrap_or(name));
            if !named.is_some_and(|name| DRAFTS.contains(&name)) {
                return Err(SchemaFault::Draft { draft: shortened(&draft.to_string()) });
            }
        }
        if members.remove("$id").is_some_and(|id| !id.is_string()) {
            return Err(SchemaFault::Invalid { pointer: "/$id".to_owned(), why: "it is not a string".to_owned() });
        }
    }
    Ok(bare)
}

/// How many bytes the compiled form of each pattern may have, so that all together stay within their bound.
fn pattern_share(source: &Value) -> Result<usize, SchemaFault> {
    let mut patterns: HashSet<&str> = HashSet::new();
    let mut open = vec![source];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                patterns.extend(members.get("pattern").and_then(Value::as_str));
                if let Some(Value::Object(by_pattern)) = members.get("patternProperties") {
                    patterns.extend(by_pattern.keys().map(String::as_str));
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let text: usize = patterns.iter().map(|pattern| pattern.len()).sum();
    if patterns.len() > limits::PATTERNS_MAX || text > limits::PATTERNS_TEXT_BYTES_MAX {
        return Err(SchemaFault::TooManyPatterns { patterns: patterns.len(), bytes: text });
    }
    Ok(limits::PATTERN_BYTES_MAX.min(limits::PATTERNS_BYTES_MAX / patterns.len().max(1)))
}

/// How long the pointers to all values in it are together.
fn paths_bytes(source: &Value) -> usize {
    let mut sum = 0usize;
    let mut open: Vec<(usize, &Value)> = vec![(0, source)];
    while let Some((length, value)) = open.pop() {
        sum = sum.saturating_add(length);
        match value {
            Value::Object(members) => {
                open.extend(members.iter().map(|(name, member)| (length + 1 + name.len(), member)));
            }
            Value::Array(items) => open.extend(items.iter().map(|item| (length + 2, item))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    sum
}

/// The pointer to a member, cut where it is long: each subschema has one, which follows the references that led to it.
fn below(pointer: &str, name: &str) -> String {
    let room = limits::SCHEMA_POINTER_CHARS_MAX.saturating_sub(pointer.chars().count());
    match name.char_indices().nth(room) {
        Some(_) if pointer.ends_with('…') => pointer.to_owned(),
        Some((at, _)) => format!("{pointer}/{}…", name.get(..at).unwrap_or_default()),
        None => format!("{pointer}/{name}"),
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.source)
    }
}

/// Why a schema cannot be used. `Display` reads on after "the schema".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// Too many bytes.
    #[error("has {bytes} bytes, over the limit of {}", limits::SCHEMA_BYTES_MAX)]
    TooLarge {
        /// How many.
        bytes: usize,
    },
    /// Nested too deeply.
    #[error("is nested deeper than {} levels", limits::JSON_DEPTH_MAX)]
    TooDeep,
    /// Long names stand above many values.
    #[error(
        "has names so long that the paths to all its values have more than {} bytes",
        limits::SCHEMA_PATHS_BYTES_MAX
    )]
    LongNames,
    /// More patterns, or more text of patterns, than are compiled.
    #[error(
        "has {patterns} different patterns of {bytes} bytes together, over the limits of {} and {}",
        limits::PATTERNS_MAX,
        limits::PATTERNS_TEXT_BYTES_MAX
    )]
    TooManyPatterns {
        /// How many.
        patterns: usize,
        /// How long all are together.
        bytes: usize,
    },
    /// It is of another draft.
    #[error("is of draft {draft}, and only 2020-12 is taken")]
    Draft {
        /// What it says, as JSON.
        draft: String,
    },
    /// It refers to something outside itself.
    #[error("refers to {target:?}, and nothing outside the schema is fetched")]
    External {
        /// To what.
        target: String,
    },
    /// A reference leads back to itself without going into the value.
    #[error("refers to itself at {pointer:?} without going deeper into the value")]
    Circular {
        /// Where.
        pointer: String,
    },
    /// Its references fan out, or follow each other, so far that a check would take too much time or stack.
    #[error(
        "would take more than {} steps or {} open subschemas to check a flat value",
        limits::SCHEMA_STEPS_MAX,
        limits::SCHEMA_NESTING_MAX
    )]
    TooCostly,
    /// It is not a schema, or has a pattern that the engine does not take.
    #[error("is not valid at {pointer:?}: {why}")]
    Invalid {
        /// Where in the schema.
        pointer: String,
        /// Why.
        why: String,
    },
}

/// How a value does not fit. `Display` names the place as a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// JSON pointer into the value; empty for the whole.
    pub pointer: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() { f.write_str(&self.why) } else { write!(f, "at {}: {}", self.pointer, self.why) }
    }
}

/// Longest reason of a misfit: an enum with a thousand values would be listed whole.
const MISFIT_CHARS_MAX: usize = 400;

fn shortened(why: &str) -> String {
    match why.char_indices().nth(MISFIT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", why.get(..at).unwrap_or_default()),
        None => why.to_owned(),
    }
}

/// A compiled pattern over raw text. Equal if the patterns are.
#[derive(Clone)]
pub struct TextPattern {
    source: String,
    found: regex::Regex,
    whole: regex::Regex,
}

impl TextPattern {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// Why it is none; reads on after "the pattern".
    pub fn compile(source: &str) -> Result<Self, PatternFault> {
        let build = |text: &str| {
            regex::RegexBuilder::new(text)
                .size_limit(limits::PATTERN_BYTES_MAX)
                .build()
                .map_err(|fault| PatternFault::NotOne { why: fault.to_string() })
        };
        if source.len() > limits::PATTERNS_TEXT_BYTES_MAX {
            return Err(PatternFault::TooLong { bytes: source.len() });
        }
        let found = build(source)?;
        // The pattern is valid by itself, so the group cannot be closed by it.
        let whole = build(&format!(r"\A(?:{source})\z")).or_else(|_| build(&format!("\\A(?:{source}\n)\\z")))?;
        Ok(Self { source: source.to_owned(), found, whole })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Whether it is found anywhere in the text.
    pub fn is_found_in(&self, text: &str) -> bool {
        self.found.is_match(text)
    }

    /// Whether it matches the whole text.
    pub fn is_whole(&self, text: &str) -> bool {
        self.whole.is_match(text)
    }
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TextPattern({:?})", self.source)
    }
}

/// Why a pattern cannot be used. `Display` reads on after "the pattern".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    /// Too many bytes.
    #[error("has {bytes} bytes, over the limit of {}", limits::PATTERNS_TEXT_BYTES_MAX)]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// It is no pattern, or one that would be too large when compiled.
    #[error("is not a regular expression: {why}")]
    NotOne {
        /// The engine's reason.
        why: String,
    },
}

#[cfg(test)]
mod tests;
