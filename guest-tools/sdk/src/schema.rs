//! JSON Schema from Rust types, and JSON text to Rust values with errors that a model or an operator can act on.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Failure, limits};

/// The schema of values that are read as `T`.
pub(crate) fn of_input<T: JsonSchema>() -> Value {
    made::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// The schema of values that are written from `T`.
pub(crate) fn of_output<T: JsonSchema>() -> Value {
    made::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// Models pay for every token of a schema: no reference where it can be avoided, no dialect line, no Rust type name.
fn made<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let mut schema = settings
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator()
        .into_root_schema_for::<T>();
    schema.remove("title");
    schema.to_value()
}

/// Reads the input that a model wrote. Blank text counts as `{}`: models send nothing for tools without parameters.
pub(crate) fn read_input<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    read(text).map_err(|fault| Failure::invalid_input(format!("the input does not fit: {fault}")))
}

/// Reads a config. Unknown keys are refused whether or not the type says so: a misspelt key must not be a silent default.
pub(crate) fn read_config<T: DeserializeOwned + JsonSchema>(text: &str) -> Result<T, Failure> {
    if let Ok(Value::Object(given)) = serde_json::from_str(text) {
        refuse_unknown_keys(&given, &of_input::<T>())?;
    }
    read(text).map_err(|fault| Failure::invalid_input(format!("the config does not fit: {fault}")))
}

fn refuse_unknown_keys(given: &serde_json::Map<String, Value>, schema: &Value) -> Result<(), Failure> {
    let open = schema.get("additionalProperties").is_some_and(|rule| *rule != Value::Bool(false));
    let composed = ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|word| schema.get(word).is_some());
    if open || composed {
        return Ok(());
    }
    let known: Vec<&str> = schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|properties| properties.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let Some(unknown) = given.keys().find(|key| !known.contains(&key.as_str())) else {
        return Ok(());
    };
    let message = match (closest(unknown, &known), known.is_empty()) {
        (_, true) => format!("unknown config key {unknown:?}: this component takes no config"),
        (Some(close), false) => format!("unknown config key {unknown:?}; hint: did you mean {close:?}?"),
        (None, false) => format!("unknown config key {unknown:?}; hint: the keys are {}", known.join(", ")),
    };
    Err(Failure::invalid_input(message))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        describe(&error.into_inner(), (path != ".").then_some(path))
    })?;
    json.end().map_err(|error| describe(&error, None))?;
    Ok(value)
}

/// The place first: the text of an error may end with a hint.
fn describe(error: &serde_json::Error, path: Option<String>) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    match path {
        Some(path) => format!("{path:?} (line {line}, column {column}): {text}"),
        None => format!("line {line}, column {column}: {text}"),
    }
}

/// The word of `known` that `given` is most likely a misspelling of.
pub(crate) fn closest<'known>(given: &str, known: &[&'known str]) -> Option<&'known str> {
    if given.len() > limits::SUGGESTION_BYTES_MAX {
        return None;
    }
    known
        .iter()
        .map(|word| (edits(given, word), *word))
        .filter(|(distance, word)| *distance <= word.chars().count().div_ceil(3))
        .min()
        .map(|(_, word)| word)
}

/// Levenshtein distance.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        for (to, cell) in right.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            before = (diagonal + usize::from(from != *to)).min(before + 1).min(above + 1);
            diagonal = above;
            *cell = before;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    #[schemars(description = "What to read.")]
    struct Sample {
        /// Relative to the root.
        path: String,
        lines: Option<Lines>,
    }

    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    struct Lines {
        start: u32,
    }

    #[test]
    fn schema_is_self_contained_and_short() {
        assert_eq!(
            of_input::<Sample>(),
            serde_json::json!({
                "description": "What to read.",
                "type": "object",
                "properties": {
                    "path": { "description": "Relative to the root.", "type": "string" },
                    "lines": {
                        "type": ["object", "null"],
                        "properties": { "start": { "type": "integer", "format": "uint32", "minimum": 0 } },
                        "required": ["start"],
                    },
                },
                "required": ["path"],
            })
        );
    }

    #[test]
    fn blank_input_is_an_empty_object() {
        #[derive(Debug, Deserialize, PartialEq)]
        struct Nothing {}
        assert_eq!(read_input::<Nothing>(" \n"), Ok(Nothing {}));
    }

    #[test]
    fn input_error_names_the_place() {
        let refused = read_input::<Sample>(r#"{"path":"a","lines":{"start":"x"}}"#).map_err(|f| f.message);
        assert_eq!(
            refused,
            Err(
                "the input does not fit: \"lines.start\" (line 1, column 32): invalid type: string \"x\", expected u32"
                    .to_owned()
            )
        );
        assert!(read_input::<Sample>(r#"{"path":"a"} x"#).is_err());
    }

    #[test]
    fn unknown_config_key_is_refused_with_a_hint() {
        let refused = |text: &str| read_config::<Sample>(text).map_err(|failure| failure.message);
        assert_eq!(
            refused(r#"{"pth":"a"}"#),
            Err("unknown config key \"pth\"; hint: did you mean \"path\"?".to_owned())
        );
        assert_eq!(
            refused(r#"{"zebra":1}"#),
            Err("unknown config key \"zebra\"; hint: the keys are path, lines".to_owned())
        );
        assert_eq!(refused(r#"{"path":"a"}"#), Ok(Sample { path: "a".to_owned(), lines: None }));
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(closest("roof", &["root", "pace_ms"]), Some("root"));
        assert_eq!(closest("quite-else", &["root"]), None);
    }
}
