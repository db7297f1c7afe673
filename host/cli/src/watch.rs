//! Tells what happens in a turn while it happens, on standard error: from records once they are durable, and from what
//! running tools say. It decides nothing about the turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;
use wharf::core::model::Completion;
use wharf::core::record::Settlement;
use wharf::core::{CallId, Error, Record};
use wharf::{Observer, ToolNote};

use crate::limits;
use crate::say::{duration, plain, short, size};
use crate::screen::{BAD, DIM, GOOD, NAME, NOTE, Screen};
use crate::story::Story;

/// Watches one turn. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Watch {
    screen: Arc<Screen>,
    calls: Arc<Mutex<HashMap<CallId, Known>>>,
}

/// What is remembered of a call for later lines.
#[derive(Default)]
struct Known {
    tool: String,
    input: String,
    is_async: bool,
    started: Option<Instant>,
}

impl Watch {
    /// Watches a turn of a session that has this story already.
    pub(crate) fn new(screen: Arc<Screen>, story: &Story) -> Self {
        let known = story.calls.iter().map(|call| {
            let known = Known { tool: call.tool.clone(), is_async: call.is_async, ..Known::default() };
            (CallId::new(&call.id), known)
        });
        Self { screen, calls: Arc::new(Mutex::new(known.collect())) }
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, HashMap<CallId, Known>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner) // each change is one insertion
    }

    /// `read_file (call_1)`.
    fn name(&self, id: &CallId) -> String {
        let calls = self.calls();
        let tool = calls.get(id).map_or("a call", |known| known.tool.as_str());
        format!("{NAME}{}{NAME:#} ({})", plain(tool), plain(id.as_str()))
    }

    fn names(&self, ids: &[CallId]) -> String {
        ids.iter().map(|id| self.name(id)).collect::<Vec<_>>().join(", ")
    }

    fn line(&self, style: anstyle::Style, word: &str, text: &str) {
        self.screen.talk(&format!("{style}{word:>9}{style:#}  {text}"));
    }

    /// A record that is durable now.
    pub(crate) fn record(&self, record: &Record) {
        match record {
            Record::CallAccepted { call, hold, .. } => {
                let known = Known {
                    tool: call.name.to_string(),
                    input: short(call.text(), limits::TALK_CHARS_MAX),
                    is_async: call.is_async,
                    started: None,
                };
                self.calls().insert(call.id.clone(), known);
                if let Some(hold) = hold {
                    self.line(NOTE, "held", &format!("{}: waits for {}", self.name(&call.id), hold.as_str()));
                }
            }
            Record::CallRejected { call, output, .. } => {
                self.calls().insert(call.id.clone(), Known { tool: call.name.to_string(), ..Known::default() });
                let why = failure(output).unwrap_or_else(|| short(output, limits::TALK_CHARS_MAX));
                self.line(NOTE, "refused", &format!("{}: {why}", self.name(&call.id)));
            }
            Record::CallStarted { id, attempt, .. } => {
                let (input, is_async) = {
                    let mut calls = self.calls();
                    let known = calls.entry(id.clone()).or_default();
                    known.started = Some(Instant::now());
                    (known.input.clone(), known.is_async)
                };
                let mode = if is_async { ", async" } else { "" };
                let again = if *attempt > 1 { format!(", run {attempt}") } else { String::new() };
                self.line(DIM, "started", &format!("{}{mode}{again}  {DIM}{input}{DIM:#}", self.name(id)));
            }
            Record::CallSettled { id, output, how } => self.settled(id, output, *how),
            Record::CallRequeued { id } => {
                self.line(
                    NOTE,
                    "again",
                    &format!("{}: its host stopped while it ran; policy lets it run again", self.name(id)),
                );
            }
            Record::CallsOrphaned { ids } => {
                self.line(NOTE, "orphaned", &format!("{}: its response was never accepted", self.names(ids)));
            }
            Record::DeliveryPrepared { call_ids, previous_response_id, .. } => self.line(
                DIM,
                "delivers",
                &format!("{} {DIM}on {}{DIM:#}", self.names(call_ids), plain(previous_response_id.as_str())),
            ),
            Record::FlightSettled { fate, why, .. } => {
                self.line(NOTE, "dropped", &format!("a response ({}): {}", fate.as_str(), plain(why)));
            }
            Record::HarnessBound(_)
            | Record::TurnStarted { .. }
            | Record::TurnEnded { .. }
            | Record::ReplayNarrowed { .. }
            | Record::HoldReleased { .. }
            | Record::ResponseBegun(_)
            | Record::ResponseStarted { .. }
            | Record::ResponseCompleted { .. }
            | Record::DeliveryAcknowledged { .. }
            | Record::ResponseRecorded(_)
            | Record::FlightCleared
            | Record::SummaryStaged { .. }
            | Record::TranscriptCommitted { .. }
            | Record::TranscriptDropped
            | Record::OutcomeStored { .. }
            | Record::Paused { .. }
            | Record::Resumed { .. }
            | Record::Reconciled { .. }
            | Record::InboxConsumed { .. }
            | Record::Parked { .. } => {}
        }
    }

    fn settled(&self, id: &CallId, output: &str, how: Settlement) {
        let started = self.calls().get(id).and_then(|known| known.started);
        let after = started.map(|at| format!(" after {}", duration(at.elapsed()))).unwrap_or_default();
        let name = self.name(id);
        let told = match (how, failure(output)) {
            (Settlement::Done, None) => {
                return self.line(GOOD, "done", &format!("{name}{after}  {DIM}{}{DIM:#}", size(output.len() as u64)));
            }
            (_, Some(why)) => why,
            (how, None) => how.as_str().to_owned(),
        };
        self.line(BAD, how_word(how), &format!("{name}{after}: {told}"));
    }

    /// What a running tool says.
    pub(crate) fn note(&self, note: &ToolNote) {
        match note {
            ToolNote::Progress { call, message, done, total } => {
                let so_far = match (done, total) {
                    (Some(done), Some(total)) => format!(" ({done}/{total})"),
                    (Some(done), None) => format!(" ({done})"),
                    (None, _) => String::new(),
                };
                let message = short(message, limits::TALK_CHARS_MAX);
                self.line(DIM, "progress", &format!("{}: {message}{so_far}", self.name(call)));
            }
            ToolNote::Output { call, is_error, text } => {
                let stream = if *is_error { "stderr" } else { "stdout" };
                for line in text.lines() {
                    let line = short(line, limits::TALK_CHARS_MAX);
                    self.line(DIM, stream, &format!("{}: {line}", self.name(call)));
                }
            }
        }
    }
}

impl Observer for Watch {
    fn text(&mut self, text: &str) {
        self.screen.text(text);
    }

    fn refusal(&mut self, text: &str) {
        self.screen.text(text);
    }

    fn broken(&mut self, error: &Error) {
        self.screen.end_text();
        self.line(NOTE, "broke", &format!("{}; finding out what became of it", plain(&error.message)));
    }

    fn completed(&mut self, _completion: &Completion) {
        self.screen.end_text();
    }
}

fn how_word(how: Settlement) -> &'static str {
    match how {
        Settlement::Done | Settlement::Outside => "failed",
        Settlement::Failed
        | Settlement::Crashed
        | Settlement::Cancelled
        | Settlement::Interrupted
        | Settlement::Declined => how.as_str(),
    }
}

/// The error that an output carries, in one line; none for a result.
fn failure(output: &str) -> Option<String> {
    let output: Value = serde_json::from_str(output).ok()?; // another form than the envelope: no error of ours
    let text = match output.get("error")? {
        Value::String(text) => text.clone(),
        Value::Object(error) => {
            let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{}: {}", word("kind"), word("message"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    Some(short(&text, 4 * limits::TALK_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_tells_its_error_and_a_result_tells_none() {
        assert_eq!(failure(r#"{"result":1,"error":null,"images":[]}"#), None);
        assert_eq!(failure(r#"{"error":"cancelled"}"#).as_deref(), Some("cancelled"));
        let envelope = r#"{"result":null,"error":{"kind":"not-found","message":"no\nfile"},"images":[]}"#;
        assert_eq!(failure(envelope).as_deref(), Some("not-found: no\\nfile"));
        assert_eq!(failure("plain"), None);
    }
}
