//! What a tool is and what it gives back: definitions, contents, failures, and the one envelope in which the model sees a
//! result (Q5, Q18).

use serde_json::{Value, json};

use crate::ids::{BlobDigest, ToolName};

/// One tool as it is shown to the model (Z11). Untrusted text where it comes from a component.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Unique within its capability.
    pub name: ToolName,
    /// For people.
    pub title: Option<String>,
    /// A word to group by.
    pub category: Option<String>,
    /// For the model.
    pub description: String,
    /// How the model passes input; decides between function and custom tool (Z13).
    pub input: InputFormat,
    /// JSON Schema of the single JSON content of a success.
    pub output_schema: Option<Value>,
    /// What the tool says of itself. Shown, never believed (L53).
    pub claims: Claims,
}

/// How the model passes input.
#[derive(Debug, Clone, PartialEq)]
pub enum InputFormat {
    /// A JSON value that fits this schema: the tool is a function.
    JsonSchema(Value),
    /// Raw text: the tool is a custom tool.
    Text,
    /// Raw text that fits a grammar: the tool is a custom tool.
    Grammar(Grammar),
}

impl InputFormat {
    /// True if the tool is offered as a custom tool (Z13).
    pub fn is_custom(&self) -> bool {
        match self {
            Self::JsonSchema(_) => false,
            Self::Text | Self::Grammar(_) => true,
        }
    }
}

/// A grammar for raw text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grammar {
    /// Its language.
    pub syntax: GrammarSyntax,
    /// Its text.
    pub definition: String,
}

/// The language of a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrammarSyntax {
    /// Lark.
    Lark,
    /// A regular expression over the whole input.
    Regex,
}

impl GrammarSyntax {
    /// The word for it on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lark => "lark",
            Self::Regex => "regex",
        }
    }
}

/// What a tool says of itself; each is false unless said (Z11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claims {
    /// It changes nothing outside the call.
    pub read_only: bool,
    /// A second run has no further effect.
    pub idempotent: bool,
    /// It may destroy something.
    pub destructive: bool,
    /// It talks to places that the operator does not run.
    pub open_world: bool,
}

/// One part of a successful result.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text.
    Text(String),
    /// A JSON value, kept as text so that number spelling and member order survive. Valid JSON by construction of whoever
    /// makes one; what does not parse is shown as a string.
    Json(String),
    /// Bytes with a type.
    Blob(Blob),
}

/// Bytes with a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// For example `image/png`.
    pub media_type: String,
    /// A file name, if there is one.
    pub name: Option<String>,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where they are kept.
    pub digest: BlobDigest,
}

impl Blob {
    /// True if it is a picture.
    pub fn is_image(&self) -> bool {
        self.media_type.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("image/"))
    }
}

/// Why a call failed, for a model to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The input is wrong.
    InvalidInput,
    /// What the input names does not exist.
    NotFound,
    /// Refused by policy or by a service.
    Denied,
    /// A service is down or busy.
    Unavailable,
    /// It took too long.
    TimedOut,
    /// Somebody cancelled.
    Cancelled,
    /// The state of the world does not fit.
    Conflict,
    /// Anything else, kinds that this version does not know included.
    Failed,
}

impl FailureKind {
    /// The word for it in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid-input",
            Self::NotFound => "not-found",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

/// A failed call: a result for the model, not an error of the session.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Why.
    pub kind: FailureKind,
    /// What failed and how to mend it.
    pub message: String,
    /// When a new try makes sense.
    pub retry_after_ms: Option<u64>,
    /// Anything more.
    pub details: Option<Value>,
}

impl Failure {
    /// A failure without more to say.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, details: None }
    }
}

/// The text that is delivered for a finished call: JSON with the members `result`, `error` and `images` (Q5, Q18).
///
/// One JSON value is the result as it is, one text is a string, several contents are a list; image blobs go to `images`,
/// other blobs are references. A failure gives a null result and an error with kind and message.
///
/// ```
/// use wharf_core::tool::{envelope, Content, Failure, FailureKind};
/// assert_eq!(envelope(Ok(&[Content::Text("hi".into())])), r#"{"result":"hi","error":null,"images":[]}"#);
/// let failure = Failure::new(FailureKind::NotFound, "no such file");
/// assert_eq!(
///     envelope(Err(&failure)),
///     r#"{"result":null,"error":{"kind":"not-found","message":"no such file"},"images":[]}"#
/// );
/// ```
pub fn envelope(outcome: Result<&[Content], &Failure>) -> String {
    let (result, error, images) = match outcome {
        Ok(contents) => {
            let mut images = Vec::new();
            let mut parts = Vec::new();
            for content in contents {
                match content {
                    Content::Text(text) => parts.push(Value::String(text.clone()).to_string()),
                    Content::Json(text) => parts.push(json_text(text)),
                    Content::Blob(blob) if blob.is_image() => images.push(blob_reference(blob)),
                    Content::Blob(blob) => parts.push(blob_reference(blob).to_string()),
                }
            }
            let result = match parts.len() {
                0 => "null".to_owned(),
                1 => parts.remove(0),
                _ => format!("[{}]", parts.join(",")),
            };
            (result, "null".to_owned(), images)
        }
        Err(failure) => {
            let mut error = json!({ "kind": failure.kind.as_str(), "message": failure.message });
            if let Some(after) = failure.retry_after_ms {
                error["retry_after_ms"] = after.into();
            }
            if let Some(details) = &failure.details {
                error["details"] = details.clone();
            }
            ("null".to_owned(), error.to_string(), Vec::new())
        }
    };
    format!(r#"{{"result":{result},"error":{error},"images":{}}}"#, Value::Array(images))
}

/// The short form of [`envelope`] for what the host itself says in a call's place: the member `error` alone (Q18).
///
/// ```
/// assert_eq!(wharf_core::tool::error_output("cancelled"), r#"{"error":"cancelled"}"#);
/// ```
pub fn error_output(message: &str) -> String {
    json!({ "error": message }).to_string()
}

fn json_text(text: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        text.trim().to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

fn blob_reference(blob: &Blob) -> Value {
    json!({
        "media_type": blob.media_type, "name": blob.name, "digest": blob.digest.as_str(), "length": blob.bytes.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(media_type: &str, name: Option<&str>) -> Content {
        let bytes = vec![1, 2, 3];
        let digest = crate::digest::Digest::of(&bytes).to_string().into();
        Content::Blob(Blob { media_type: media_type.into(), name: name.map(str::to_owned), bytes, digest })
    }

    fn text(text: &str) -> Content {
        Content::Text(text.into())
    }

    #[test]
    fn a_success_is_json_text_with_result_error_and_images() {
        // covers Q5, Q18
        let digest = "sha256:039058c6f2c0cb492c533b0a4d14ef77cc0f78abccced5287d84a1a2011cfb81";
        for (contents, expected) in [
            (vec![], r#"{"result":null,"error":null,"images":[]}"#.to_owned()),
            (vec![text("a\n\"b\"")], r#"{"result":"a\n\"b\"","error":null,"images":[]}"#.to_owned()),
            (vec![text("7")], r#"{"result":"7","error":null,"images":[]}"#.to_owned()),
            // One JSON value is the result as it is: number spelling and member order survive.
            (
                vec![Content::Json(r#" {"b": 1.0, "a": 18446744073709551616} "#.into())],
                r#"{"result":{"b": 1.0, "a": 18446744073709551616},"error":null,"images":[]}"#.to_owned(),
            ),
            (vec![Content::Json("null".into())], r#"{"result":null,"error":null,"images":[]}"#.to_owned()),
            // What only claims to be JSON cannot break the envelope.
            (
                vec![Content::Json(r#"1,"error":"x"#.into())],
                r#"{"result":"1,\"error\":\"x","error":null,"images":[]}"#.to_owned(),
            ),
            (
                vec![text("a"), Content::Json("[1]".into())],
                r#"{"result":["a",[1]],"error":null,"images":[]}"#.to_owned(),
            ),
            (
                vec![text("a"), blob("image/png", None)],
                format!(
                    r#"{{"result":"a","error":null,"images":[{{"media_type":"image/png","name":null,"digest":"{digest}","length":3}}]}}"#
                ),
            ),
            (
                vec![blob("Image/PNG", None)],
                format!(
                    r#"{{"result":null,"error":null,"images":[{{"media_type":"Image/PNG","name":null,"digest":"{digest}","length":3}}]}}"#
                ),
            ),
            (
                vec![blob("application/pdf", Some("a.pdf"))],
                format!(
                    r#"{{"result":{{"media_type":"application/pdf","name":"a.pdf","digest":"{digest}","length":3}},"error":null,"images":[]}}"#
                ),
            ),
        ] {
            let written = envelope(Ok(&contents));
            assert_eq!(written, expected);
            let read: Value = serde_json::from_str(&written).expect("it is JSON");
            assert_eq!(
                read.as_object().map(|members| members.keys().collect::<Vec<_>>()),
                Some(vec![&"result".into(), &"error".into(), &"images".into()])
            );
        }
    }

    #[test]
    fn a_failure_gives_null_and_an_error_with_kind_and_message() {
        // covers Q5, Q18
        let kinds = [
            (FailureKind::InvalidInput, "invalid-input"),
            (FailureKind::NotFound, "not-found"),
            (FailureKind::Denied, "denied"),
            (FailureKind::Unavailable, "unavailable"),
            (FailureKind::TimedOut, "timed-out"),
            (FailureKind::Cancelled, "cancelled"),
            (FailureKind::Conflict, "conflict"),
            (FailureKind::Failed, "failed"),
        ];
        for (kind, word) in kinds {
            assert_eq!(
                envelope(Err(&Failure::new(kind, "no \"x\""))),
                format!(r#"{{"result":null,"error":{{"kind":"{word}","message":"no \"x\""}},"images":[]}}"#)
            );
        }
        let failure = Failure {
            retry_after_ms: Some(500),
            details: Some(json!({ "b": 1 })),
            ..Failure::new(FailureKind::Unavailable, "busy")
        };
        assert_eq!(
            envelope(Err(&failure)),
            r#"{"result":null,"error":{"kind":"unavailable","message":"busy","retry_after_ms":500,"details":{"b":1}},"images":[]}"#
        );
    }

    #[test]
    fn what_the_host_itself_says_is_the_short_form() {
        // covers Q18, H1
        assert_eq!(error_output("cancelled"), r#"{"error":"cancelled"}"#);
        assert_eq!(error_output("a \"b\"\n"), r#"{"error":"a \"b\"\n"}"#);
    }

    #[test]
    fn the_input_format_decides_between_function_and_custom_tool() {
        // covers Z11, Z13
        let grammar = |syntax| InputFormat::Grammar(Grammar { syntax, definition: "a".into() });
        assert!(!InputFormat::JsonSchema(json!({ "type": "string" })).is_custom());
        for custom in [InputFormat::Text, grammar(GrammarSyntax::Lark), grammar(GrammarSyntax::Regex)] {
            assert!(custom.is_custom());
        }
        assert_eq!(
            Claims::default(),
            Claims { read_only: false, idempotent: false, destructive: false, open_world: false }
        );
    }
}
