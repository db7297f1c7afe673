//! What a response that was asked for by its id says of its fate (G20). Nothing here asks.

use serde_json::Value;
use wharf_core::model::{FinishedCall, Retrieved, StreamEvent};

use super::decode::{DecodeError, Decoder};

/// Reads a retrieved response. One that has ended has the outcome that it would have had streamed (P21).
///
/// # Errors
/// If it is no response at all.
pub fn read(response: &Value) -> Result<Retrieved, DecodeError> {
    let mut completion = None;
    let mut native: Vec<FinishedCall> = Vec::new();
    let mut sync: Vec<FinishedCall> = Vec::new();
    let events = match Decoder::new().whole(response) {
        Err(DecodeError::NotEnded { .. }) => return Ok(Retrieved::InProgress),
        events => events?,
    };
    for event in events {
        match event {
            StreamEvent::Call(call) => native.push(call),
            StreamEvent::SyncCalls(set) => sync = set,
            StreamEvent::Completed(end) => completion = Some(end),
            StreamEvent::Started { .. }
            | StreamEvent::Text(_)
            | StreamEvent::Reasoning(_)
            | StreamEvent::Refusal(_)
            | StreamEvent::Opaque(_) => {}
        }
    }
    let completion = completion.ok_or(DecodeError::NotAResponse)?;
    let mut calls = native;
    calls.append(&mut sync);
    let place = |call: &FinishedCall| {
        completion.items.iter().position(|item| item["call_id"].as_str() == Some(call.call.id.as_str()))
    };
    calls.sort_by_key(place);
    Ok(Retrieved::Ended { completion, calls })
}
