//! What happened in a session, told from its records with their times: responses, calls, turns, and the timeline of them.
//! A fold for people; what is decided from records is decided in the library.

use std::collections::HashMap;

use serde_json::{Value, json};
use wharf::core::model::{Item, Outcome, Role};
use wharf::core::record::PauseReason;
use wharf::core::{CallId, Error, Record, Seq};
use wharf::store::{JournalKey, Store};

use crate::limits;
use crate::say;
use crate::timeline::Row;

/// One record with its place and time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Its position.
    pub(crate) seq: Seq,
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// What.
    pub(crate) record: Record,
}

/// Reads a journal without a lease.
///
/// # Errors
/// Store and corruption errors, with the number of the record.
pub(crate) async fn entries(store: &dyn Store, key: &JournalKey) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    read_on(store, key, &mut entries).await?;
    Ok(entries)
}

/// Adds the records that have come since these were read.
///
/// # Errors
/// As [`entries`].
pub(crate) async fn read_on(store: &dyn Store, key: &JournalKey, entries: &mut Vec<Entry>) -> Result<(), Error> {
    loop {
        let after = entries.last().map_or(Seq(0), |last| last.seq);
        let page = store.history(key, after, limits::RECORDS_PAGE).await?;
        if page.is_empty() {
            return Ok(());
        }
        for stored in page {
            let (seq, record) = (stored.seq, stored.record);
            let blob = match Record::named_blob(&record.kind, &record.body) {
                Some(digest) => store.blob(key, &digest).await?,
                None => None,
            };
            let decoded = Record::decode(&record.kind, record.version, &record.body, |_| blob).map_err(|e| Error {
                message: format!("record {seq} of session {:?}: {}", key.session.as_str(), e.message),
                ..e
            })?;
            entries.push(Entry { seq, at_ms: record.at_ms, record: decoded });
        }
        if entries.len() > limits::RECORDS_MAX {
            return Err(Error::store(format!(
                "session {:?} has more than {} records",
                key.session.as_str(),
                limits::RECORDS_MAX
            )));
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Story {
    /// In order.
    pub(crate) turns: Vec<TurnRow>,
    /// In order.
    pub(crate) responses: Vec<ResponseRow>,
    /// In the order of their arrival.
    pub(crate) calls: Vec<CallRow>,
    places: HashMap<CallId, usize>,
    prepared: Vec<CallId>,
    last_ms: u64,
}

/// One turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TurnRow {
    pub(crate) id: String,
    pub(crate) input: String,
    pub(crate) begun_ms: u64,
    /// `open`, `paused: …`, or how it ended.
    pub(crate) state: String,
    pub(crate) ended_ms: Option<u64>,
}

/// One response.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ResponseRow {
    /// From 1, over the session.
    pub(crate) number: u64,
    pub(crate) id: Option<String>,
    pub(crate) begun_ms: u64,
    pub(crate) ended_ms: Option<u64>,
    /// `in flight`, `completed`, `incomplete: …`, `dropped: …`.
    pub(crate) state: String,
    pub(crate) first_token_ms: Option<u64>,
    pub(crate) tokens: Option<u64>,
    pub(crate) text: String,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct CallRow {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) is_async: bool,
    pub(crate) replay: String,
    pub(crate) attempts: u32,
    /// `queued`, `held for …`, `running`, `ready`, `delivered`, `orphan`.
    pub(crate) state: String,
    /// How its result came about; `refused: …` for one that never ran.
    pub(crate) how: Option<String>,
    pub(crate) accepted_ms: u64,
    /// Begin and end of each run.
    pub(crate) runs: Vec<(u64, Option<u64>)>,
    pub(crate) settled_ms: Option<u64>,
    /// When its output was put into the last delivery.
    pub(crate) delivering_ms: Option<u64>,
    pub(crate) delivered_ms: Option<u64>,
}

impl CallRow {
    /// How long its runs took that have ended.
    pub(crate) fn ran_ms(&self) -> Option<u64> {
        let times = self.runs.iter().filter_map(|(begin, end)| Some(end.as_ref()?.saturating_sub(*begin)));
        (!self.runs.is_empty()).then(|| times.sum())
    }
}

impl Story {
    /// The story of these records.
    pub(crate) fn of<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Self {
        let mut story = Self::default();
        for entry in entries {
            story.tell(entry);
        }
        story
    }

    /// True while a turn is open.
    pub(crate) fn is_open(&self) -> bool {
        self.turns.last().is_some_and(|turn| turn.ended_ms.is_none())
    }

    /// Adds a record.
    pub(crate) fn tell(&mut self, entry: &Entry) {
        let at = entry.at_ms;
        self.last_ms = at;
        match &entry.record {
            Record::TurnStarted { turn, input, .. } => self.turns.push(TurnRow {
                id: turn.to_string(),
                input: question(input),
                begun_ms: at,
                state: "open".to_owned(),
                ended_ms: None,
            }),
            Record::TurnEnded { status, .. } => self.turn(|turn| {
                turn.state.clone_from(status);
                turn.ended_ms = Some(at);
            }),
            Record::Paused { reason } => self.turn(|turn| turn.state = format!("waits: {}", pause_text(reason))),
            Record::Resumed { .. } => self.turn(|turn| turn.state = "open".to_owned()),
            Record::ResponseBegun(begun) => self.responses.push(ResponseRow {
                number: begun.ordinal,
                begun_ms: at,
                state: "in flight".to_owned(),
                ..ResponseRow::default()
            }),
            Record::ResponseStarted { id } => self.response(|response| response.id = Some(id.to_string())),
            Record::ResponseCompleted { id } => self.response_ended(at, id.as_str()),
            Record::DeliveryAcknowledged { receipt } => {
                self.response_ended(at, receipt.as_str());
                for id in std::mem::take(&mut self.prepared) {
                    self.call(&id, |call| {
                        call.state = "delivered".to_owned();
                        call.delivered_ms = Some(at);
                    });
                }
            }
            Record::ResponseRecorded(facts) => self.response(|response| {
                response.state = match &facts.outcome {
                    Outcome::Completed => "completed".to_owned(),
                    Outcome::Incomplete { reason } => format!("incomplete: {reason}"),
                    Outcome::Failed { message, .. } => format!("failed: {message}"),
                    Outcome::Cancelled => "cancelled".to_owned(),
                };
                response.first_token_ms = facts.first_token_ms;
                response.tokens = facts.usage.as_ref().map(|usage| usage.total);
                response.text.clone_from(&facts.text);
            }),
            Record::FlightSettled { fate, why, orphans } => {
                for id in std::mem::take(&mut self.prepared) {
                    self.call(&id, |call| call.delivering_ms = None);
                }
                self.response(|response| {
                    if response.ended_ms.is_none() {
                        response.state = format!("dropped ({}): {why}", fate.as_str());
                        response.ended_ms = Some(at);
                    }
                });
                self.orphaned(orphans);
            }
            Record::CallAccepted { call, replay, hold, .. } => self.add(CallRow {
                id: call.id.to_string(),
                tool: call.name.to_string(),
                is_async: call.is_async,
                replay: replay.to_string(),
                state: match hold {
                    Some(hold) => format!("held for {}", hold.as_str()),
                    None => "queued".to_owned(),
                },
                accepted_ms: at,
                ..CallRow::default()
            }),
            Record::CallRejected { call, reason, .. } => self.add(CallRow {
                id: call.id.to_string(),
                tool: call.name.to_string(),
                is_async: call.is_async,
                replay: "never".to_owned(),
                state: "ready".to_owned(),
                how: Some(format!("refused: {}", reason.as_str())),
                accepted_ms: at,
                settled_ms: Some(at),
                ..CallRow::default()
            }),
            Record::CallStarted { id, attempt, .. } => self.call(id, |call| {
                call.attempts = *attempt;
                call.state = "running".to_owned();
                call.runs.push((at, None));
            }),
            Record::CallSettled { id, how, .. } => self.call(id, |call| {
                // An orphan stays one, whatever came of it.
                if call.state != "orphan" {
                    call.state = "ready".to_owned();
                }
                call.how = Some(how.as_str().to_owned());
                call.settled_ms = Some(at);
                call.end_run(at);
            }),
            Record::CallRequeued { id } => self.call(id, |call| {
                call.state = "queued".to_owned();
                call.end_run(at);
            }),
            Record::ReplayNarrowed { id } => self.call(id, |call| call.replay = "never".to_owned()),
            Record::HoldReleased { id, .. } => self.call(id, |call| call.state = "queued".to_owned()),
            Record::CallsOrphaned { ids } => self.orphaned(ids),
            Record::DeliveryPrepared { call_ids, .. } => {
                self.prepared.clone_from(call_ids);
                for id in call_ids {
                    self.call(id, |call| call.delivering_ms = Some(at));
                }
            }
            Record::HarnessBound(_)
            | Record::FlightCleared
            | Record::SummaryStaged { .. }
            | Record::TranscriptCommitted { .. }
            | Record::TranscriptDropped
            | Record::OutcomeStored { .. }
            | Record::Reconciled { .. }
            | Record::InboxConsumed { .. }
            | Record::Parked { .. } => {}
        }
    }

    /// The rows of a timeline; what has not ended reaches to the last record.
    pub(crate) fn timeline(&self) -> Vec<Row> {
        let begins = self.responses.iter().map(|response| response.begun_ms);
        let Some(zero) = begins.chain(self.calls.iter().map(|call| call.accepted_ms)).min() else { return Vec::new() };
        let seconds = |ms: u64| ms.saturating_sub(zero) as f64 / 1000.0;
        let end = |ms: Option<u64>| seconds(ms.unwrap_or(self.last_ms));
        let mut rows = Vec::new();
        for response in &self.responses {
            let label = match &response.id {
                Some(id) => say::plain(id),
                None => format!("response {}", response.number),
            };
            rows.push(Row::response(&label, seconds(response.begun_ms), end(response.ended_ms)));
        }
        for call in &self.calls {
            let tool = say::plain(&call.tool);
            for (at, (begin, ended)) in call.runs.iter().enumerate() {
                let mut row = Row::call(&tool, seconds(*begin), end(*ended));
                if at + 1 == call.runs.len() {
                    row.delivered = call.delivering_ms.map(seconds);
                }
                rows.push(row);
            }
            if call.runs.is_empty() {
                let mut row = match call.settled_ms {
                    Some(settled) => Row::refused(&tool, seconds(settled)),
                    None => continue,
                };
                row.delivered = call.delivering_ms.map(seconds);
                rows.push(row);
            }
        }
        rows
    }

    fn turn(&mut self, change: impl FnOnce(&mut TurnRow)) {
        if let Some(turn) = self.turns.last_mut() {
            change(turn);
        }
    }

    fn response(&mut self, change: impl FnOnce(&mut ResponseRow)) {
        if let Some(response) = self.responses.last_mut() {
            change(response);
        }
    }

    fn response_ended(&mut self, at: u64, id: &str) {
        self.response(|response| {
            response.id = Some(id.to_owned());
            response.ended_ms = Some(at);
            response.state = "completed".to_owned();
        });
    }

    fn call(&mut self, id: &CallId, change: impl FnOnce(&mut CallRow)) {
        if let Some(call) = self.places.get(id).and_then(|at| self.calls.get_mut(*at)) {
            change(call);
        }
    }

    fn add(&mut self, call: CallRow) {
        self.places.insert(CallId::new(&call.id), self.calls.len());
        self.calls.push(call);
    }

    fn orphaned(&mut self, ids: &[CallId]) {
        for id in ids {
            self.call(id, |call| call.state = "orphan".to_owned());
        }
    }
}

impl CallRow {
    fn end_run(&mut self, at: u64) {
        if let Some((_, end @ None)) = self.runs.last_mut() {
            *end = Some(at);
        }
    }
}

/// What a paused turn waits for, for people.
pub(crate) fn pause_text(reason: &PauseReason) -> String {
    let list = |calls: &[CallId]| calls.iter().map(|id| say::plain(id.as_str())).collect::<Vec<_>>().join(", ");
    match reason {
        PauseReason::LostResponse { calls } => {
            format!("an answer was lost after calls with effects had started: {}", list(calls))
        }
        PauseReason::Held { calls } => format!("calls wait for somebody: {}", list(calls)),
        PauseReason::Incomplete { reason } => format!("the answer was cut ({})", say::plain(reason)),
        PauseReason::UnknownTools { count } => format!("the model called {count} tools that do not exist"),
        PauseReason::Shutdown => "the host was told to stop".to_owned(),
    }
}

/// A pause as JSON.
pub(crate) fn pause_json(reason: &PauseReason) -> Value {
    let ids = |calls: &[CallId]| calls.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>();
    match reason {
        PauseReason::LostResponse { calls } => json!({ "reason": "lost_response", "calls": ids(calls) }),
        PauseReason::Held { calls } => json!({ "reason": "held", "calls": ids(calls) }),
        PauseReason::Incomplete { reason } => json!({ "reason": "incomplete", "why": reason }),
        PauseReason::UnknownTools { count } => json!({ "reason": "unknown_tools", "count": count }),
        PauseReason::Shutdown => json!({ "reason": "shutdown" }),
    }
}

fn question(input: &[Item]) -> String {
    let texts = input.iter().filter_map(|item| match item {
        Item::Message { role: Role::User, text } => Some(text.as_str()),
        Item::Message { .. } | Item::Call(_) | Item::Output { .. } | Item::Opaque { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
