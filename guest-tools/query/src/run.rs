//! Runs a jq program over JSON text. Knows no files and no host.

use jaq_core::{
    Compiler, Ctx, Vars,
    data::JustLut,
    load::{self, Arena, File, Loader},
};
use jaq_json::{Num, Val};
use serde::de::IgnoredAny;
use wharf_tool_sdk::Failure;

use crate::limits;

/// What a program gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outputs {
    /// JSON texts, in order.
    pub(crate) values: Vec<String>,
    /// Whether there was more than an answer holds.
    pub(crate) cut: bool,
}

/// Reads documents (one, or several one after the other, as in JSON Lines) and runs the program over each.
pub(crate) fn run(program: &str, document: &str, name: &str) -> Result<Outputs, Failure> {
    let inputs = documents(document, name)?;
    // What is missing at the end of a program is missing after its last word, not on an empty line below it.
    let program = program.trim_end();
    let arena = Arena::default();
    let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let modules = Loader::new(definitions)
        .load(&arena, File { code: program, path: () })
        .map_err(|errors| refuse(&errors, |error| loading(program, error)))?;
    let functions = jaq_core::funs::<JustLut<Val>>().chain(jaq_std::funs()).chain(jaq_json::funs());
    let filter = Compiler::default()
        .with_funs(functions)
        .compile(modules)
        .map_err(|errors| refuse(&errors, |error| compiling(program, error)))?;
    let mut outputs = Outputs { values: Vec::new(), cut: false };
    let mut bytes = 0;
    for input in inputs {
        let context = Ctx::<JustLut<Val>>::new(&filter.lut, Vars::new([]));
        for output in filter.id.run((context, input)) {
            let value = match output {
                Ok(value) => value,
                Err(exception) => match exception.get_err() {
                    Ok(error) => return Err(raised(&error.to_string(), outputs.values.len())),
                    // `halt`: the program ends, and what it gave so far is its answer.
                    Err(_) => return Ok(outputs),
                },
            };
            let mut text = String::new();
            write(&value, &mut text, 0)?;
            bytes += text.len();
            if outputs.values.len() >= limits::OUTPUTS_MAX || bytes > limits::OUTPUT_BYTES_MAX {
                outputs.cut = true;
                return Ok(outputs);
            }
            outputs.values.push(text);
        }
    }
    Ok(outputs)
}

/// The values of a document. The strict reader goes first: it names line and column, and what the lenient one also takes
/// (comments, NaN) is no JSON.
fn documents(document: &str, name: &str) -> Result<Vec<Val>, Failure> {
    let document = document.strip_prefix('\u{feff}').unwrap_or(document);
    if let Some(offset) = too_deep(document) {
        let (line, column) = place(document, offset);
        return Err(Failure::invalid_input(format!(
            "{name}, line {line}, column {column}: more than {} values within values",
            limits::DEPTH_MAX
        )));
    }
    let mut count = 0;
    for value in serde_json::Deserializer::from_str(document).into_iter::<IgnoredAny>() {
        value.map_err(|error| {
            Failure::invalid_input(format!("{name} is not JSON: {error}; hint: mend the JSON, or name another file"))
        })?;
        count += 1;
    }
    if count == 0 {
        return Err(Failure::invalid_input(format!("{name} is empty: there is no JSON to run the program over")));
    }
    jaq_json::read::parse_many(document.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::invalid_input(format!("{name} is not JSON: {error}")))
}

/// The first byte at which the text nests too deeply.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > limits::DEPTH_MAX {
                    return Some(offset);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Writes a value as JSON. jq's values are more than JSON: what has no JSON form becomes what jq itself prints, or a failure.
fn write(value: &Val, text: &mut String, depth: usize) -> Result<(), Failure> {
    if depth > limits::DEPTH_MAX {
        return Err(Failure::invalid_input(format!(
            "the program gives more than {} values within values; hint: give a part, or flatten it",
            limits::DEPTH_MAX
        )));
    }
    match value {
        Val::Null => text.push_str("null"),
        Val::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Val::Num(number) => number_text(number, text),
        Val::TStr(bytes) => string_text(&String::from_utf8_lossy(bytes), text),
        Val::BStr(_) => {
            return Err(Failure::invalid_input(
                "the program gives bytes, which are no JSON; hint: encode them, with @base64",
            ));
        }
        Val::Arr(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(value, text, depth + 1)?;
            }
            text.push(']');
        }
        Val::Obj(members) => {
            text.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                let Val::TStr(key) = key else {
                    return Err(Failure::invalid_input(format!(
                        "the program gives an object whose key {key} is no string; hint: use tostring on the key"
                    )));
                };
                string_text(&String::from_utf8_lossy(key), text);
                text.push(':');
                write(value, text, depth + 1)?;
            }
            text.push('}');
        }
    }
    Ok(())
}

fn number_text(number: &Num, text: &mut String) {
    match number {
        Num::Float(float) if float.is_nan() => text.push_str("null"),
        Num::Float(float) if float.is_infinite() => {
            text.push_str(if *float > 0.0 { "1.7976931348623157e308" } else { "-1.7976931348623157e308" });
        }
        Num::Int(_) | Num::BigInt(_) | Num::Float(_) | Num::Dec(_) => text.push_str(&number.to_string()),
    }
}

fn string_text(string: &str, text: &mut String) {
    text.push_str(&serde_json::Value::from(string).to_string());
}

/// A failure that lists what is wrong with a program, at most a few places.
fn refuse<E>(errors: &load::Errors<&str, (), E>, describe: impl Fn(&E) -> Vec<String>) -> Failure {
    let faults: Vec<String> = errors.iter().flat_map(|(_, error)| describe(error)).take(3).collect();
    Failure::invalid_input(format!(
        "the jq program is wrong: {}; hint: nothing ran; mend it and send it again",
        faults.join("; ")
    ))
}

fn loading(program: &str, error: &load::Error<&str>) -> Vec<String> {
    match error {
        load::Error::Io(faults) => faults
            .iter()
            .map(|(path, _)| format!("{}module {path:?} cannot be loaded: modules are not served", at(program, path)))
            .collect(),
        load::Error::Lex(faults) => faults
            .iter()
            .map(|(expected, found)| {
                format!("{}expected {}, found {}", at(program, found), expected.as_str(), quote(found))
            })
            .collect(),
        load::Error::Parse(faults) => faults
            .iter()
            .map(|(expected, found)| {
                format!("{}expected {}, found {}", at(program, found), expected.as_str(), quote(found))
            })
            .collect(),
    }
}

fn compiling(program: &str, faults: &[jaq_core::compile::Error<&str>]) -> Vec<String> {
    faults
        .iter()
        .map(|(name, undefined)| {
            let what = match undefined {
                jaq_core::compile::Undefined::Filter(0) => format!("function {name:?} is not known"),
                jaq_core::compile::Undefined::Filter(arity) => {
                    format!("function {name:?} with {arity} arguments is not known")
                }
                other => format!("{} {name:?} is not known", other.as_str()),
            };
            format!("{}{what}", at(program, name))
        })
        .collect()
}

fn raised(error: &str, before: usize) -> Failure {
    let end = error.floor_char_boundary(limits::ERROR_BYTES_MAX);
    let more = if end < error.len() { "…" } else { "" };
    let error = error.get(..end).unwrap_or_default();
    let after = match before {
        0 => String::new(),
        1 => " after 1 output".to_owned(),
        count => format!(" after {count} outputs"),
    };
    Failure::invalid_input(format!(
        "the jq program failed{after}: {error}{more}; hint: look at the document's shape first, or use \".a?\" where a part may be missing"
    ))
}

/// `line L, column C: ` for a part of the program; empty if it is not a part of it.
fn at(program: &str, part: &str) -> String {
    let offset = (part.as_ptr() as usize).wrapping_sub(program.as_ptr() as usize);
    if offset > program.len() {
        return String::new();
    }
    let (line, column) = place(program, offset);
    format!("line {line}, column {column}: ")
}

fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..text.floor_char_boundary(offset)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(1, |rest| rest.chars().count() + 1);
    (line, column)
}

/// The first line of a part of the program, kept short.
fn quote(found: &str) -> String {
    match found.lines().next().map(str::trim) {
        None | Some("") => "its end".to_owned(),
        Some(line) => format!("{:?}", line.get(..line.floor_char_boundary(40)).unwrap_or_default()),
    }
}
