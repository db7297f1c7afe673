//! How a response ended, in neutral words: outcome, finish reason, code and message of a failure. It knows no stream.

use serde_json::Value;
use wharf_core::model::Outcome;

use super::slots::text;

/// How a response ended: by the event that says so where that is definite, else by its status.
pub(super) fn outcome_of(kind: &str, response: &Value) -> Outcome {
    let failed = || {
        let (code, message) = error_or_silence(response);
        Outcome::Failed { code, message }
    };
    let incomplete = || Outcome::Incomplete {
        reason: text(&response["incomplete_details"]["reason"]).unwrap_or("incomplete").to_owned(),
    };
    match (kind, response["status"].as_str()) {
        ("response.failed", _) => failed(),
        ("response.cancelled", _) => Outcome::Cancelled,
        (_, Some("failed")) => failed(),
        (_, Some("cancelled")) => Outcome::Cancelled,
        (_, Some("incomplete")) | ("response.incomplete", _) => incomplete(),
        (_, Some("completed")) => Outcome::Completed,
        _ if response["error"].is_object() => failed(),
        _ => Outcome::Completed,
    }
}

/// Code and message of an error, flat or nested (PROV-6).
pub(super) fn error_of(frame: &Value) -> Option<(String, String)> {
    let nested = &frame["error"];
    let holder = if nested.is_object() { nested } else { frame };
    let code = text(&holder["code"])
        .map(str::to_owned)
        .or_else(|| holder["code"].as_i64().map(|number| number.to_string()))
        .or_else(|| text(&holder["type"]).filter(|kind| *kind != "error").map(str::to_owned));
    let message = text(&holder["message"]).or(text(nested)).or(text(&frame["message"]));
    (code.is_some() || message.is_some()).then(|| (code.unwrap_or_default(), message.unwrap_or(NO_MESSAGE).to_owned()))
}

/// The same, for an error that says nothing too.
pub(super) fn error_or_silence(frame: &Value) -> (String, String) {
    error_of(frame).unwrap_or_else(|| (String::new(), NO_MESSAGE.to_owned()))
}

const NO_MESSAGE: &str = "the provider gave no message";

/// The finish reason in neutral words (P11).
pub(super) fn finish_reason(outcome: &Outcome, called: bool) -> String {
    match outcome {
        Outcome::Completed if called => "tool_calls",
        Outcome::Completed => "stop",
        Outcome::Incomplete { reason } if reason == "max_output_tokens" => "length",
        Outcome::Incomplete { reason } => reason,
        Outcome::Failed { .. } => "error",
        Outcome::Cancelled => "cancelled",
    }
    .to_owned()
}
