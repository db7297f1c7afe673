//! Whether a call waits for a person, as a rule says it. Input that cannot be judged needs approval.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::{Schema, TextPattern};

/// When a call needs approval.
#[derive(Debug, Clone, PartialEq)]
pub enum Approval {
    /// Never.
    Never,
    /// Always.
    Always,
    /// Unless its JSON input fits this schema of harmless input.
    Unless(Arc<Schema>),
    /// Unless this pattern is found in its raw text.
    UnlessText(Arc<TextPattern>),
}

impl Approval {
    /// Whether a call with this text needs approval. `json` is the input if it is JSON; raw text is judged by a pattern
    /// only, and JSON by a schema only: what the rule cannot judge needs approval.
    pub fn needed(&self, text: &str, json: Option<&Value>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Unless(harmless) => json.is_none_or(|value| harmless.check(value).is_err()),
            Self::UnlessText(harmless) => json.is_some() || !harmless.is_found_in(text),
        }
    }

    /// The form in which it counts for the authority digest.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Never => json!("never"),
            Self::Always => json!("always"),
            Self::Unless(schema) => json!({ "unless": schema.source() }),
            Self::UnlessText(pattern) => json!({ "unless_text": pattern.as_str() }),
        }
    }
}
