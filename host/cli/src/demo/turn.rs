//! The demo's turn: two async calls overlap with the text and come back out of order, a custom tool gets raw text, policy
//! refuses one call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::bail;
use wharf::core::CallId;
use wharf::core::model::Completion;
use wharf::core::record::Record;
use wharf::{Observer, TurnOptions};
use wharf_simulate::{Options, Script, Server};

use super::screen::{Screen, Who, preview};
use crate::timeline::{self, Row};

/// The question of the demo.
const QUESTION: &str = "How big is the simulated provider, and which traits are there?";

/// Where the script waits: named after a call id, without its prefix, and what it waits for.
const GATES: [&str; 3] = ["stats-started", "search-settled", "stats-settled"];

pub(super) async fn run() -> anyhow::Result<()> {
    let folder = super::folder()?;
    let script = Script::load(folder.join("script.toml"))?;
    let server = Arc::new(Server::start(script, Options::default()).await?);
    let show = Arc::new(Mutex::new(Show::new(server.clone())));
    let file = folder.join("harness.toml");
    lock(&show).screen.line(Who::Host, "provider", &format!("a scripted model on {}", server.base_url()));
    let compiling = show.clone();
    let agent = super::load(&file, &server.base_url(), move |text| {
        lock(&compiling).screen.line(Who::Host, "compile", text);
    })
    .await?;
    let names: Vec<&str> = agent.reports().iter().map(|report| report.name.as_str()).collect();
    let loaded = format!("{}: {}, each component in the sandbox", file.display(), names.join(", "));
    lock(&show).screen.line(Who::Host, "harness", &loaded);
    lock(&show).screen.line(Who::Host, "user", QUESTION);
    lock(&show).begin();

    let session = agent.new_session();
    let records = show.clone();
    let options = TurnOptions {
        records: Some(Box::new(move |_, record| lock(&records).record(record))),
        ..TurnOptions::default()
    };
    let result = session.turn(QUESTION, options, &mut Text(show.clone())).await?;

    let mut show = lock(&show);
    let summary = format!(
        "{} responses, {} calls, {} tokens",
        result.llm_calls,
        result.tool_calls,
        result.usage.get("total").and_then(serde_json::Value::as_u64).unwrap_or(0)
    );
    show.screen.line(Who::Host, "done", &summary);
    show.screen.plain("");
    let rows = std::mem::take(&mut show.rows);
    show.screen.plain(&timeline::draw(&rows, 78));
    let data = file.with_file_name(".wharf");
    show.screen.plain(&format!("journal  {}", data.join("wharf.db").display()));
    show.screen.plain(&format!("look     cargo run -- session show {} -H {}", session.id(), file.display()));
    let violations = server.violations();
    if !violations.is_empty() {
        bail!("the provider saw {} unlawful requests: {}", violations.len(), violations[0]);
    }
    Ok(())
}

fn lock(show: &Mutex<Show>) -> MutexGuard<'_, Show> {
    show.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes the model's text on.
struct Text(Arc<Mutex<Show>>);

impl Observer for Text {
    fn text(&mut self, text: &str) {
        lock(&self.0).screen.text(text);
    }

    fn completed(&mut self, _completion: &Completion) {
        lock(&self.0).screen.end_text();
    }
}

/// What is shown and what is remembered for the timeline, from durable records alone.
struct Show {
    screen: Screen,
    server: Arc<Server>,
    start: Instant,
    rows: Vec<Row>,
    names: HashMap<CallId, String>,
    inputs: HashMap<CallId, String>,
    begun: HashMap<CallId, f64>,
    request: f64,
}

impl Show {
    fn new(server: Arc<Server>) -> Self {
        Self {
            screen: Screen::new(),
            server,
            start: Instant::now(),
            rows: Vec::new(),
            names: HashMap::new(),
            inputs: HashMap::new(),
            begun: HashMap::new(),
            request: 0.0,
        }
    }

    fn begin(&mut self) {
        self.start = Instant::now();
    }

    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn name(&self, id: &CallId) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Lets the script go on that waits for this.
    fn release(&self, id: &CallId, what: &str) {
        let gate = format!("{}-{what}", id.as_str().trim_start_matches("call_"));
        if GATES.contains(&gate.as_str()) {
            self.server.release(&gate);
        }
    }

    fn record(&mut self, record: &Record) {
        let now = self.now();
        match record {
            Record::ResponseBegun(_) => self.request = now,
            Record::ResponseRecorded(facts) => {
                self.rows.push(Row::response(facts.id.as_str(), self.request, now));
            }
            Record::CallAccepted { call, .. } => {
                self.names.insert(call.id.clone(), call.name.to_string());
                let how = if call.is_async { "async" } else { "sync" };
                self.inputs.insert(call.id.clone(), format!("{how}  {}", preview(call.text().trim())));
            }
            Record::CallStarted { id, .. } => {
                let name = self.name(id);
                let input = self.inputs.remove(id).unwrap_or_default();
                self.begun.insert(id.clone(), now);
                self.screen.line(Who::Call, "start", &format!("{name} ({id}) {input}"));
                self.release(id, "started");
            }
            Record::CallSettled { id, output, .. } => {
                let name = self.name(id);
                let begun = self.begun.get(id).copied().unwrap_or(now);
                self.rows.push(Row::call(&name, begun, now));
                let took = now - begun;
                self.screen.line(Who::Call, "result", &format!("{name} after {took:.2} s  {}", preview(output)));
                self.release(id, "settled");
            }
            Record::CallRejected { call, output, .. } => {
                self.names.insert(call.id.clone(), call.name.to_string());
                self.rows.push(Row::refused(call.name.as_str(), now));
                self.screen.line(Who::Refuse, "refuse", &format!("{} ({})  {}", call.name, call.id, preview(output)));
            }
            Record::DeliveryPrepared { previous_response_id, call_ids, .. } => {
                let names: Vec<String> = call_ids.iter().map(|id| self.name(id)).collect();
                for name in &names {
                    if let Some(row) = self.rows.iter_mut().rev().find(|row| row.is_call_named(name)) {
                        row.delivered = Some(now);
                    }
                }
                self.screen.line(
                    Who::Deliver,
                    "deliver",
                    &format!("{} on {previous_response_id}, the latest response", names.join(" and ")),
                );
            }
            Record::HarnessBound(_)
            | Record::TurnStarted { .. }
            | Record::TurnEnded { .. }
            | Record::CallRequeued { .. }
            | Record::ReplayNarrowed { .. }
            | Record::HoldReleased { .. }
            | Record::CallsOrphaned { .. }
            | Record::ResponseStarted { .. }
            | Record::ResponseCompleted { .. }
            | Record::DeliveryAcknowledged { .. }
            | Record::FlightCleared
            | Record::FlightSettled { .. }
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
}
