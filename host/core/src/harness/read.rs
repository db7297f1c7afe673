//! The raw form of a harness file: the tree as it is written, with the place of every key and value, and readers that
//! turn a wrong type or an unknown key into an error instead of stopping. Knows no meaning of any key.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::{HarnessError, Place};
use super::keys;
use crate::limits;
use crate::names::{did_you_mean, quoted};

/// A file's text with the faults found in it so far.
pub(super) struct Source<'t> {
    file: Arc<str>,
    text: &'t str,
    line_starts: Vec<usize>,
    faults: RefCell<Vec<HarnessError>>,
}

impl<'t> Source<'t> {
    pub(super) fn new(file: &str, text: &'t str) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { file: Arc::from(file), text, line_starts, faults: RefCell::new(Vec::new()) }
    }

    pub(super) fn place(&self, span: &Range<usize>, key: &str) -> Place {
        let line = self.line_starts.partition_point(|start| *start <= span.start).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..span.start).map_or(0, |before| before.chars().count());
        Place {
            file: self.file.clone(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column + 1).unwrap_or(u32::MAX),
            key: Arc::from(key),
        }
    }

    pub(super) fn fault(&self, place: Place, message: impl Into<String>, hint: Option<String>) {
        let mut faults = self.faults.borrow_mut();
        // Faults come in the order of checking, not of the file: one more than the bound tells that there were more.
        if faults.len() < limits::HARNESS_ERRORS_MAX {
            faults.push(HarnessError { place, message: message.into(), hint });
        }
    }

    /// The tree's root.
    pub(super) fn root<'a>(&'a self, tree: &'a Spanned<DeValue<'a>>) -> Node<'a>
    where
        't: 'a,
    {
        Node {
            source: self,
            value: tree.get_ref(),
            span: 0..0,
            name: String::new(),
            path: String::new(),
            pattern: String::new(),
        }
    }

    pub(super) fn into_faults(self) -> Vec<HarnessError> {
        self.faults.into_inner()
    }
}

/// One value of the tree with its place.
#[derive(Clone)]
pub(super) struct Node<'a> {
    source: &'a Source<'a>,
    value: &'a DeValue<'a>,
    span: Range<usize>,
    /// Its own name in its table, without quotes.
    name: String,
    /// In full, as the person would write it.
    path: String,
    /// The same with `NAME` for names that people choose.
    pattern: String,
}

/// A value that was read, with its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

impl<'a> Node<'a> {
    pub(super) fn place(&self) -> Place {
        self.source.place(&self.span, &self.path)
    }

    /// Its own name in its table, without the quotes that a path puts around odd ones.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reports a fault here, with an example of the key as hint.
    pub(super) fn fault(&self, message: impl Into<String>) {
        let hint = keys::find(&self.pattern).map(|key| format!("for example {}", key.example));
        self.fault_with(message, hint);
    }

    /// Reports a fault here, with this hint.
    pub(super) fn fault_with(&self, message: impl Into<String>, hint: Option<String>) {
        self.source.fault(self.place(), message, hint);
    }

    fn wrong_type(&self, expected: &str) {
        self.fault(format!("is {}, not {expected}", type_of(self.value)));
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    pub(super) fn is_bool(&self) -> bool {
        matches!(self.value, DeValue::Boolean(_))
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    pub(super) fn text(&self) -> Option<At<String>> {
        match self.value {
            DeValue::String(text) => Some(At { value: text.clone().into_owned(), place: self.place() }),
            _ => {
                self.wrong_type("a string");
                None
            }
        }
    }

    /// A string that is not blank.
    pub(super) fn some_text(&self) -> Option<At<String>> {
        let text = self.text()?;
        if text.value.trim().is_empty() {
            self.fault("is empty");
            return None;
        }
        Some(text)
    }

    pub(super) fn boolean(&self) -> Option<At<bool>> {
        match self.value {
            DeValue::Boolean(flag) => Some(At { value: *flag, place: self.place() }),
            _ => {
                self.wrong_type("true or false");
                None
            }
        }
    }

    /// A whole number within bounds, both included.
    pub(super) fn whole(&self, least: u64, most: u64) -> Option<At<u64>> {
        let DeValue::Integer(digits) = self.value else {
            self.wrong_type("a whole number");
            return None;
        };
        match u64::from_str_radix(digits.as_str().trim_start_matches('+'), digits.radix()) {
            Ok(number) if (least..=most).contains(&number) => Some(At { value: number, place: self.place() }),
            _ => {
                self.fault(format!("is {digits}, not between {least} and {most}"));
                None
            }
        }
    }

    pub(super) fn number(&self) -> Option<At<f64>> {
        let digits = match self.value {
            DeValue::Float(digits) => digits.as_str().parse().ok(),
            DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str().parse().ok(),
            _ => None,
        };
        match digits.filter(|number: &f64| number.is_finite()) {
            Some(value) => Some(At { value, place: self.place() }),
            None => {
                self.wrong_type("a finite number");
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn word<T>(&self, words: &[(&str, T)]) -> Option<At<T>>
    where
        T: Clone,
    {
        let text = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(At { value: value.clone(), place: text.place });
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = did_you_mean(&text.value, known.iter().copied());
        let message = format!("is {:?}, not {}", text.value, quoted(&known, "or"));
        match hint {
            Some(hint) => self.fault_with(message, Some(hint)),
            None => self.fault(message),
        }
        None
    }

    pub(super) fn list(&self) -> Option<Vec<Node<'a>>> {
        let DeValue::Array(items) = self.value else {
            self.wrong_type("a list");
            return None;
        };
        Some(
            items
                .iter()
                .enumerate()
                .map(|(n, item)| Node {
                    source: self.source,
                    value: item.get_ref(),
                    span: item.span(),
                    name: self.name.clone(),
                    path: format!("{}[{n}]", self.path),
                    pattern: self.pattern.clone(),
                })
                .collect(),
        )
    }

    /// A list of strings that are not blank.
    pub(super) fn texts(&self) -> Option<Vec<At<String>>> {
        let items = self.list()?;
        let texts: Vec<_> = items.iter().filter_map(Node::some_text).collect();
        (texts.len() == items.len()).then_some(texts)
    }

    /// A table whose keys the file's format names. Unknown keys are reported at once.
    pub(super) fn table(&self) -> Option<Table<'a>> {
        let table = self.open_table()?;
        table.report_unknown();
        Some(table)
    }

    /// A table whose keys are names that people choose.
    pub(super) fn named(&self) -> Option<Vec<Node<'a>>> {
        Some(self.open_table()?.entries("NAME"))
    }

    fn open_table(&self) -> Option<Table<'a>> {
        match self.value {
            DeValue::Table(map) => Some(Table { node: self.clone(), map }),
            _ => {
                self.wrong_type("a table");
                None
            }
        }
    }

    /// The value as JSON; dates have no JSON form and are reported.
    pub(super) fn json(&self) -> Option<Value> {
        match self.value {
            DeValue::String(text) => Some(Value::String(text.clone().into_owned())),
            DeValue::Boolean(flag) => Some(Value::Bool(*flag)),
            DeValue::Integer(digits) => {
                let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok().map(Number::from);
                if number.is_none() {
                    self.fault_with("is a whole number that does not fit 64 bits", None);
                }
                number.map(Value::Number)
            }
            DeValue::Float(_) => self.number().and_then(|number| Number::from_f64(number.value)).map(Value::Number),
            DeValue::Datetime(_) => {
                self.fault_with("is a date, which has no JSON form", Some("write it as a string".to_owned()));
                None
            }
            DeValue::Array(_) => self.list()?.iter().map(Node::json).collect::<Option<Vec<_>>>().map(Value::Array),
            DeValue::Table(_) => self
                .open_table()?
                .entries("NAME")
                .iter()
                .map(|member| Some((member.name.clone(), member.json()?)))
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object),
        }
    }

    /// A table of strings.
    pub(super) fn text_map(&self) -> Option<std::collections::BTreeMap<String, String>> {
        let entries = self.named()?;
        Some(entries.iter().filter_map(|entry| Some((entry.name.clone(), entry.text()?.value))).collect())
    }
}

/// A table with its place.
pub(super) struct Table<'a> {
    node: Node<'a>,
    map: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    pub(super) fn node(&self) -> &Node<'a> {
        &self.node
    }

    /// A key's value; its place is that of the value.
    pub(super) fn get(&self, key: &'static str) -> Option<Node<'a>> {
        debug_assert!(
            keys::find(&join(&self.node.pattern, key)).is_some(),
            "{key} of {} is in no table",
            self.node.pattern
        );
        self.map
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == key)
            .map(|(name, value)| self.child(name, value, key))
    }

    /// Whether the file's format has this key here.
    pub(super) fn knows(&self, key: &str) -> bool {
        keys::find(&join(&self.node.pattern, key)).is_some()
    }

    /// A key that has to be there; its absence is reported at the table.
    pub(super) fn need(&self, key: &'static str) -> Option<Node<'a>> {
        let found = self.get(key);
        if found.is_none() {
            let hint = keys::find(&join(&self.node.pattern, key)).map(|key| format!("add {}", key.example));
            self.node.fault_with(format!("has no {key:?}"), hint);
        }
        found
    }

    fn entries(&self, pattern: &str) -> Vec<Node<'a>> {
        self.map.iter().map(|(name, value)| self.child(name, value, pattern)).collect()
    }

    fn child(&self, name: &Spanned<DeString<'a>>, value: &'a Spanned<DeValue<'a>>, pattern: &str) -> Node<'a> {
        let text = name.get_ref().as_ref();
        let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let shown = if bare { text.to_owned() } else { format!("{text:?}") };
        Node {
            source: self.node.source,
            value: value.get_ref(),
            span: value.span(),
            name: text.to_owned(),
            path: join(&self.node.path, &shown),
            pattern: join(&self.node.pattern, pattern),
        }
    }

    fn report_unknown(&self) {
        let known: Vec<&str> = keys::section(&self.node.pattern)
            .map(|section| section.keys().map(|key| key.name).collect())
            .unwrap_or_default();
        for (name, value) in self.map {
            let text = name.get_ref().as_ref();
            if known.contains(&text) {
                continue;
            }
            let child = self.child(name, value, text);
            let hint = did_you_mean(text, known.iter().copied())
                .unwrap_or_else(|| format!("known keys here are {}", quoted(&known, "and")));
            self.node.source.fault(self.node.source.place(&name.span(), &child.path), "is not a known key", Some(hint));
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
