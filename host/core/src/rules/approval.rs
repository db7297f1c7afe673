//! Whether a call waits for a person, as a rule says it. Input that cannot be judged needs approval.

use std::sync::Arc;

use serde_json::{Value, json};

use super::input::Judged;
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
    /// Whether a call with this input needs approval. Text is judged by a pattern only, and JSON by a schema only: what the
    /// rule cannot judge needs approval.
    pub(super) fn is_needed(&self, input: &Judged<'_>) -> bool {
        match (self, input) {
            (Self::Never, _) => false,
            (Self::Always, _) => true,
            (Self::Unless(harmless), Judged::Json(value)) => harmless.check(value).is_err(),
            (Self::UnlessText(harmless), Judged::Text(text)) => !harmless.is_found_in(text),
            (Self::Unless(_), Judged::Text(_)) | (Self::UnlessText(_), Judged::Json(_)) => true,
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
