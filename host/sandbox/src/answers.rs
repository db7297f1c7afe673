//! What a component says of itself, checked and in core's words. It is untrusted text that goes into every request: counts
//! and sizes are capped, names and schemas must have their form, and nothing wrong is mended silently.

use std::collections::HashSet;

use serde_json::Value;
use wharf_core::ToolName;
use wharf_core::limits::{JSON_DEPTH_MAX, SCHEMA_BYTES_MAX};
use wharf_core::tool::{Claims, Definition, Grammar, GrammarSyntax, InputFormat};

use crate::contract::{about, types};
use crate::error::LoadError;
use crate::limits;

/// What a component says of itself beside its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Stable, 1 to 64 characters of `a-z 0-9 -`.
    pub id: String,
    /// For people.
    pub title: String,
    /// For people.
    pub description: String,
    /// For the model's instructions; empty for none. Untrusted: whoever uses it frames it.
    pub instructions: String,
}

pub(crate) fn config_schema(capability: &str, schema: Option<String>) -> Result<Option<Value>, LoadError> {
    let Some(text) = schema else { return Ok(None) };
    json_schema("its schema", &text).map(Some).map_err(|reason| wrong(capability, "config-schema", reason))
}

pub(crate) fn definitions(capability: &str, given: Vec<types::Definition>) -> Result<Vec<Definition>, LoadError> {
    let wrong = |reason| wrong(capability, "definitions", reason);
    if given.len() > limits::DEFINITIONS_MAX {
        return Err(wrong(format!("{} tools, at most {} are taken", given.len(), limits::DEFINITIONS_MAX)));
    }
    let mut names = HashSet::new();
    let mut definitions = Vec::with_capacity(given.len());
    for definition in given {
        let definition = self::definition(definition).map_err(wrong)?;
        if !names.insert(definition.name.clone()) {
            return Err(wrong(format!("two tools have the name {:?}", definition.name)));
        }
        definitions.push(definition);
    }
    Ok(definitions)
}

pub(crate) fn description(capability: &str, given: about::Description) -> Result<Description, LoadError> {
    let about::Description { id, title, description, instructions } = given;
    let checked = || {
        let form = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if id.is_empty() || id.len() > limits::TOOL_NAME_BYTES_MAX || !id.bytes().all(form) {
            return Err(format!("the id {:?} is not 1 to 64 characters of a-z, 0-9 and -", start(&id)));
        }
        bounded("the title", &title, limits::TITLE_BYTES_MAX)?;
        bounded("the description", &description, limits::DESCRIPTION_BYTES_MAX)?;
        bounded("the text for the instructions", &instructions, limits::INSTRUCTIONS_BYTES_MAX)
    };
    checked().map_err(|reason| wrong(capability, "describe", reason))?;
    Ok(Description { id, title, description, instructions })
}

fn definition(given: types::Definition) -> Result<Definition, String> {
    let types::Definition { name, title, category, description, input, output_schema, claims } = given;
    let form = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > limits::TOOL_NAME_BYTES_MAX || !name.bytes().all(form) {
        return Err(format!("the name {:?} is not 1 to 64 characters of A-Z, a-z, 0-9, _ and -", start(&name)));
    }
    let of = |what: &str| format!("the {what} of tool {name:?}");
    bounded(&of("title"), title.as_deref().unwrap_or_default(), limits::TITLE_BYTES_MAX)?;
    bounded(&of("category"), category.as_deref().unwrap_or_default(), limits::TITLE_BYTES_MAX)?;
    bounded(&of("description"), &description, limits::DESCRIPTION_BYTES_MAX)?;
    let input = match input {
        types::InputFormat::JsonSchema(text) => InputFormat::JsonSchema(json_schema(&of("input schema"), &text)?),
        types::InputFormat::Text => InputFormat::Text,
        types::InputFormat::Grammar(types::Grammar { syntax, definition }) => {
            bounded(&of("grammar"), &definition, limits::GRAMMAR_BYTES_MAX)?;
            let syntax = match syntax {
                types::GrammarSyntax::Lark => GrammarSyntax::Lark,
                types::GrammarSyntax::Regex => GrammarSyntax::Regex,
            };
            InputFormat::Grammar(Grammar { syntax, definition })
        }
    };
    let output_schema = output_schema.map(|text| json_schema(&of("output schema"), &text)).transpose()?;
    let claims = Claims {
        read_only: claims.contains(types::Claims::READ_ONLY),
        idempotent: claims.contains(types::Claims::IDEMPOTENT),
        destructive: claims.contains(types::Claims::DESTRUCTIVE),
        open_world: claims.contains(types::Claims::OPEN_WORLD),
    };
    Ok(Definition { name: ToolName::new(&name), title, category, description, input, output_schema, claims })
}

fn json_schema(what: &str, text: &str) -> Result<Value, String> {
    bounded(what, text, SCHEMA_BYTES_MAX)?;
    let value: Value = serde_json::from_str(text).map_err(|error| format!("{what} is not JSON: {error}"))?;
    if !value.is_object() {
        return Err(format!("{what} is not a JSON object"));
    }
    if depth(&value) > JSON_DEPTH_MAX {
        return Err(format!("{what} is nested deeper than {JSON_DEPTH_MAX}"));
    }
    Ok(value)
}

/// The parser has bounded the depth already, so that this does not run out of stack.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn bounded(what: &str, text: &str, limit: usize) -> Result<(), String> {
    match text.len() <= limit {
        true => Ok(()),
        false => Err(format!("{what} has {} bytes, at most {limit} are taken", text.len())),
    }
}

/// Enough of a name to find it.
fn start(text: &str) -> &str {
    &text[..text.floor_char_boundary(100)]
}

fn wrong(capability: &str, asked: &'static str, reason: String) -> LoadError {
    LoadError::Answer { name: capability.into(), asked, reason }
}
