//! Reading TOML tables key by key, so that what nobody asked for is an error with line and hint.
//! It must never know which keys a script has.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Place, ScriptError};
use crate::limits;

/// The file that is read, for places.
#[derive(Clone, Copy)]
pub(super) struct Source<'t> {
    file: &'t str,
    text: &'t str,
}

impl<'t> Source<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        Self { file, text }
    }

    fn place(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            file: self.file.to_owned(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        }
    }

    /// The whole file as a table.
    pub(super) fn root(self) -> Result<Table<'t>, ScriptError> {
        let document = DeTable::parse(self.text).map_err(|error| ScriptError::Syntax {
            place: self.place(error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        let start = document.span().start;
        Ok(Table::new(self, String::new(), start, document.into_inner()))
    }
}

/// A table whose keys are taken one by one.
pub(super) struct Table<'t> {
    source: Source<'t>,
    path: String,
    start: usize,
    entries: Vec<(String, usize, Option<Spanned<DeValue<'t>>>)>,
    known: Vec<&'static str>,
}

impl<'t> Table<'t> {
    fn new(source: Source<'t>, path: String, start: usize, table: DeTable<'t>) -> Self {
        let entries = table
            .into_iter()
            .map(|(key, value)| {
                let at = key.span().start;
                (key.into_inner().into_owned(), at, Some(value))
            })
            .collect();
        Self { source, path, start, entries, known: Vec::new() }
    }

    fn key(&self, key: &str) -> String {
        join(&self.path, key)
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Field<'t>> {
        self.known.push(key);
        let path = self.key(key);
        let value = self.entries.iter_mut().find(|entry| entry.0 == key)?.2.take()?;
        Some(Field { source: self.source, path, value })
    }

    pub(super) fn require(&mut self, key: &'static str, hint: &str) -> Result<Field<'t>, ScriptError> {
        self.take(key).ok_or_else(|| ScriptError::Missing {
            place: self.source.place(self.start),
            key: self.key(key),
            hint: hint.to_owned(),
        })
    }

    /// Takes a key and converts it, if it is there.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        convert: impl FnOnce(Field<'t>) -> Result<T, ScriptError>,
    ) -> Result<Option<T>, ScriptError> {
        self.take(key).map(convert).transpose()
    }

    /// Any pair of key and value, for tables whose keys are free.
    pub(super) fn into_fields(self) -> Vec<(String, Field<'t>)> {
        let (source, path) = (self.source, self.path);
        self.entries
            .into_iter()
            .filter_map(|(key, _, value)| {
                let path = join(&path, &key);
                value.map(|value| (key, Field { source, path, value }))
            })
            .collect()
    }

    /// A complaint about the table as a whole.
    pub(super) fn bad(&self, why: impl Into<String>, hint: impl Into<String>) -> ScriptError {
        ScriptError::BadValue {
            place: self.source.place(self.start),
            key: if self.path.is_empty() { "the script".to_owned() } else { self.path.clone() },
            why: why.into(),
            hint: hint.into(),
        }
    }

    /// Every key must have been taken.
    pub(super) fn finish(self) -> Result<(), ScriptError> {
        let Some((key, at, _)) = self.entries.iter().find(|entry| entry.2.is_some()) else {
            return Ok(());
        };
        Err(ScriptError::UnknownKey {
            place: self.source.place(*at),
            key: self.key(key),
            hint: match closest(key, &self.known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("the keys here are {}", self.known.join(", ")),
            },
        })
    }
}

/// One value with its path and place.
pub(super) struct Field<'t> {
    source: Source<'t>,
    path: String,
    value: Spanned<DeValue<'t>>,
}

impl<'t> Field<'t> {
    pub(super) fn bad(&self, why: impl Into<String>, hint: impl Into<String>) -> ScriptError {
        ScriptError::BadValue {
            place: self.source.place(self.value.span().start),
            key: self.path.clone(),
            why: why.into(),
            hint: hint.into(),
        }
    }

    pub(super) fn wrong_type(&self, wanted: &'static str) -> ScriptError {
        ScriptError::WrongType {
            place: self.source.place(self.value.span().start),
            key: self.path.clone(),
            wanted,
            found: self.value.get_ref().type_str(),
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        self.value.get_ref().as_str()
    }

    pub(super) fn is_integer(&self) -> bool {
        self.value.get_ref().is_integer()
    }

    pub(super) fn text(self) -> Result<String, ScriptError> {
        match self.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.wrong_type("a string")),
        }
    }

    pub(super) fn flag(self) -> Result<bool, ScriptError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong_type("true or false"))
    }

    pub(super) fn count(self) -> Result<u64, ScriptError> {
        let Some(integer) = self.value.get_ref().as_integer() else {
            return Err(self.wrong_type("a whole number"));
        };
        u64::from_str_radix(integer.as_str(), integer.radix())
            .map_err(|_| self.bad("is not a number from 0 on", "write a number such as 3"))
    }

    pub(super) fn size(self) -> Result<usize, ScriptError> {
        let complaint = self.bad("is too large", "write a smaller number");
        usize::try_from(self.count()?).map_err(|_| complaint)
    }

    /// A pause such as `"200ms"`, `"1.5s"` or `"2m"`.
    pub(super) fn pause(self) -> Result<Duration, ScriptError> {
        let Some(text) = self.as_str() else {
            return Err(self.wrong_type("a string such as \"200ms\""));
        };
        let Some(pause) = parse_pause(text) else {
            return Err(self
                .bad(format!("is not a time: {text:?}"), "write a number and a unit (ms, s or m), such as \"200ms\""));
        };
        if pause > limits::PAUSE_MAX {
            let why = format!("is longer than {} s", limits::PAUSE_MAX.as_secs());
            return Err(self.bad(why, "use a gate (wait_for) for a pause without a known length"));
        }
        Ok(pause)
    }

    /// One of some words.
    pub(super) fn one_of<T: Clone>(self, words: &[(&'static str, T)]) -> Result<T, ScriptError> {
        let Some(text) = self.as_str() else {
            return Err(self.wrong_type("a string"));
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(value.clone());
        }
        let names: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
        let hint = match closest(text, &names) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("use one of {}", names.join(", ")),
        };
        Err(self.bad(format!("has no such value: {text:?}"), hint))
    }

    /// JSON written as a string.
    pub(super) fn json(self) -> Result<serde_json::Value, ScriptError> {
        let Some(text) = self.as_str() else {
            return Err(self.wrong_type("a string that holds JSON"));
        };
        serde_json::from_str(text)
            .map_err(|error| self.bad(format!("is not JSON: {error}"), "write the JSON between ''' and '''"))
    }

    pub(super) fn table(self) -> Result<Table<'t>, ScriptError> {
        if !self.value.get_ref().is_table() {
            return Err(self.wrong_type("a table"));
        }
        let start = self.value.span().start;
        match self.value.into_inner() {
            DeValue::Table(table) => Ok(Table::new(self.source, self.path, start, table)),
            // The check above leaves nothing else; an empty table keeps this total.
            _ => Ok(Table::new(self.source, self.path, start, DeTable::new())),
        }
    }

    pub(super) fn list<T>(
        self,
        mut convert: impl FnMut(Field<'t>) -> Result<T, ScriptError>,
    ) -> Result<Vec<T>, ScriptError> {
        if !self.value.get_ref().is_array() {
            return Err(self.wrong_type("a list"));
        }
        let (source, path) = (self.source, self.path);
        let DeValue::Array(array) = self.value.into_inner() else {
            return Ok(Vec::new());
        };
        array
            .into_iter()
            .enumerate()
            .map(|(index, value)| convert(Field { source, path: format!("{path}[{index}]"), value }))
            .collect()
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The nearest of some words, if one is near enough to be a typing error.
fn closest(word: &str, words: &[&'static str]) -> Option<&'static str> {
    words
        .iter()
        .map(|known| (strsim::damerau_levenshtein(word, known), *known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

fn parse_pause(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}
