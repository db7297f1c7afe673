//! The parts of these tests: a folder with a journal, a desk of tools that a test holds by the hand, and one line of text
//! for each thing that happened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use wharf::core::harness::Harness;
use wharf::core::record::{PauseReason, Reconcile, Record};
use wharf::core::session::Session as Fold;
use wharf::core::tool::{Claims, Content, Definition, InputFormat, envelope};
use wharf::core::{CallId, CallState, Error, ErrorKind};
use wharf::native::{About, NativeCall, NativeCapability, NativeError};
use wharf::provider::{Drivers, ProviderConfig};
use wharf::seams::{Seams, Task, TokioSeams};
use wharf::store::{JournalKey, SqliteStore, Store};
use wharf::{Observer, Session, TurnOptions, TurnResult, Wharf, limits, records};
use wharf_simulate::{Answer, Options, RequestEntry, Script, Server};

/// The session of every test: each has a journal of its own.
const SESSION: &str = "s1";

/// What the user says in every test.
pub(super) const INPUT: &str = "start";

/// Nothing here takes this long; a test that waits for what never comes ends all the same.
const WAIT_MAX: Duration = Duration::from_secs(90);

/// Bounds a whole test.
pub(super) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, work).await.unwrap_or_else(|_| panic!("{what} did not come to an end"))
}

/// Lines in the order in which they came, from whatever task.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<watch::Sender<Vec<String>>>);

impl Lines {
    fn push(&self, line: impl Into<String>) {
        self.0.send_modify(|lines| lines.push(line.into()));
    }

    /// Pieces of text that follow each other are one line.
    fn push_text(&self, text: &str) {
        self.0.send_modify(|lines| match lines.last_mut() {
            Some(last) if last.starts_with("text ") => last.push_str(text),
            Some(_) | None => lines.push(format!("text {text}")),
        });
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits until a line is there, at once if it is.
    pub(super) async fn wait_for(&self, line: &str) {
        self.wait_until(line, |have| have == line).await;
    }

    /// Waits until a line that begins like this is there.
    pub(super) async fn wait_for_start(&self, start: &str) {
        self.wait_until(start, |have| have.starts_with(start)).await;
    }

    async fn wait_until(&self, what: &str, is_it: impl Fn(&str) -> bool) {
        let mut lines = self.0.subscribe();
        let there = lines.wait_for(|lines| lines.iter().any(|have| is_it(have)));
        if tokio::time::timeout(WAIT_MAX, there).await.is_err() {
            panic!("{what:?} did not come; there is {:#?}", self.all());
        }
    }
}

/// What a process says: the model's text, and each record once it is durable.
impl Observer for Lines {
    fn text(&mut self, text: &str) {
        self.push_text(text);
    }
}

/// A folder with a journal, and what the processes over it have in common.
pub(super) struct World {
    folder: TempDir,
    /// The coordinator's view: text and records. Its order is the order in which one task saw them.
    pub(super) seen: Lines,
    /// Each run of a tool, from within the tool.
    pub(super) runs: Lines,
    open: Arc<watch::Sender<BTreeSet<String>>>,
}

/// How a process is set up.
pub(super) struct Setup {
    pub(super) base_url: String,
    /// Lines of the table `[harness]`.
    pub(super) harness: &'static str,
    /// Whether the driver may ask for a response by its id.
    pub(super) retrieval: bool,
    /// The store in the place of the folder's.
    pub(super) store: Option<Arc<dyn Store>>,
}

impl Setup {
    pub(super) fn on(server: &Server) -> Self {
        Self::at(server.base_url())
    }

    pub(super) fn at(base_url: String) -> Self {
        Self { base_url, harness: "", retrieval: true, store: None }
    }

    pub(super) fn without_retrieval(mut self) -> Self {
        self.retrieval = false;
        self
    }

    pub(super) fn harness(mut self, lines: &'static str) -> Self {
        self.harness = lines;
        self
    }

    pub(super) fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }
}

/// One process: a store that it opened itself, an agent, a session. Dropping it is its end.
pub(super) struct Process {
    pub(super) session: Session,
    seen: Lines,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            seen: Lines::default(),
            runs: Lines::default(),
            open: Arc::default(),
        }
    }

    /// Lets every run of a tool end, those that have begun and those that will.
    pub(super) fn release(&self, tool: &str) {
        self.open.send_modify(|open| {
            open.insert(tool.to_owned());
        });
    }

    /// Opens the folder's journal.
    pub(super) fn open_store(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(self.folder.path()).unwrap())
    }

    /// Starts a process.
    pub(super) async fn process(&self, setup: Setup) -> Process {
        let store = setup.store.unwrap_or_else(|| self.open_store());
        let mut config = ProviderConfig::new("sim", "openai-responses");
        config.base_url = Some(setup.base_url);
        config.options.insert("models".to_owned(), json!({ "m": { "async": "on", "retrieval": setup.retrieval } }));
        let wharf = Wharf::builder()
            .store(store)
            .provider("sim", Drivers::builtin().connect(config).unwrap())
            .native(Desk { runs: self.runs.clone(), open: self.open.clone() })
            .seams(Arc::new(Hasty::new()))
            .build()
            .unwrap();
        let harness = HARNESS.replace("HARNESS_LINES", setup.harness);
        let harness = Harness::parse("harness.toml", &harness).unwrap();
        let agent = wharf.load(harness, Default::default()).await.unwrap();
        Process { session: agent.session(SESSION), seen: self.seen.clone() }
    }

    /// The journal as a process finds it that opens it now.
    pub(super) async fn journal(&self) -> Journal {
        let store = self.open_store();
        let records = records(&*store, &JournalKey::local(SESSION)).await.unwrap();
        Journal { fold: Fold::fold(&records).unwrap(), records }
    }
}

impl Process {
    /// Options that write down each record.
    pub(super) fn options(&self) -> TurnOptions {
        let seen = self.seen.clone();
        TurnOptions {
            records: Some(Box::new(move |_, record| {
                if let Some(line) = line(record) {
                    seen.push(line);
                }
            })),
            ..TurnOptions::default()
        }
    }

    /// The same for a process that follows one which was killed: its lease has not ended yet.
    pub(super) fn after_a_crash(&self) -> TurnOptions {
        TurnOptions { take_over: true, ..self.options() }
    }

    pub(super) async fn turn(&self, options: TurnOptions) -> Result<TurnResult, Error> {
        within("the turn", self.session.turn(INPUT, options, &mut self.seen.clone())).await
    }

    pub(super) async fn resume(&self, options: TurnOptions) -> Result<TurnResult, Error> {
        within("the resumed turn", self.session.resume(options, &mut self.seen.clone())).await
    }

    pub(super) async fn reconcile(&self, command: Reconcile, options: TurnOptions) -> Result<TurnResult, Error> {
        within("the reconciled turn", self.session.reconcile(command, "op", options, &mut self.seen.clone())).await
    }
}

/// A journal that was read without a lease.
pub(super) struct Journal {
    pub(super) records: Vec<Record>,
    pub(super) fold: Fold,
}

impl Journal {
    /// One line for each record that is not mere bookkeeping.
    pub(super) fn lines(&self) -> Vec<String> {
        self.records.iter().filter_map(line).collect()
    }

    /// The lines from the first one of a kind on.
    pub(super) fn lines_from(&self, start: &str) -> Vec<String> {
        let lines = self.lines();
        let at = lines.iter().position(|line| line.starts_with(start));
        lines[at.unwrap_or_else(|| panic!("{start:?} is not in {lines:#?}"))..].to_vec()
    }

    /// Each call with its state, in the order of the calls; orphans are marked.
    pub(super) fn calls(&self) -> Value {
        let checkpoint = &self.fold.turn().unwrap().checkpoint;
        let state = |call: &wharf::core::PendingCall| match &call.state {
            CallState::Queued => json!("queued"),
            CallState::Running => json!("running"),
            CallState::Ready { output } => json!({ "ready": output }),
            CallState::Delivered => json!("delivered"),
        };
        let calls = checkpoint.calls().map(|call| {
            let orphan = if checkpoint.is_orphan(&call.call.id) { "orphan" } else { "call" };
            json!([orphan, call.call.id.as_str(), state(call)])
        });
        calls.collect()
    }

    /// What else an opening goes by: delivery, request in flight, latest response, whether all is done.
    pub(super) fn rest(&self) -> Value {
        let turn = self.fold.turn().unwrap();
        let checkpoint = &turn.checkpoint;
        json!({
            "delivery": checkpoint.delivery().map(|d| d.call_ids.iter().map(CallId::as_str).collect::<Vec<_>>()),
            "in_flight": checkpoint.response_in_flight(),
            "latest": self.fold.latest_response_id().map(|id| id.as_str()),
            "may_complete": checkpoint.may_complete(),
            "ended": turn.ended,
        })
    }
}

/// A turn that is over, with nothing open.
pub(super) fn over(latest: &str) -> Value {
    json!({ "delivery": null, "in_flight": false, "latest": latest, "may_complete": true, "ended": "completed" })
}

/// A turn that rests between two requests, with calls that are not delivered.
pub(super) fn at_rest(latest: &str) -> Value {
    json!({ "delivery": null, "in_flight": false, "latest": latest, "may_complete": false, "ended": null })
}

/// A turn of which nothing was accepted and nothing is in flight.
pub(super) fn at_its_beginning() -> Value {
    json!({ "delivery": null, "in_flight": false, "latest": null, "may_complete": true, "ended": null })
}

/// A turn whose last request went out and may have been accepted.
pub(super) fn uncertain(delivery: Option<&str>, latest: Option<&str>) -> Value {
    let delivery = delivery.map(|id| [id]);
    json!({ "delivery": delivery, "in_flight": true, "latest": latest, "may_complete": false, "ended": null })
}

/// An operator has to say what became of the last request (G16).
pub(super) fn asks_an_operator(error: &Error, what: &str) {
    assert_eq!(error.kind, ErrorKind::Store, "{error}");
    let message = format!("it is not known whether the provider accepted {what}");
    assert!(error.message.starts_with(&message), "{error}");
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("wharf session reconcile")), "{error:?}");
}

/// What a record says, in a few words; none for bookkeeping.
pub(super) fn line(record: &Record) -> Option<String> {
    let list = |ids: &[CallId]| ids.iter().map(CallId::as_str).collect::<Vec<_>>().join(" ");
    Some(match record {
        Record::TurnStarted { .. } => "turn".to_owned(),
        Record::CallAccepted { call, hold: None, .. } => format!("accept {}", call.id),
        Record::CallAccepted { call, hold: Some(hold), .. } => {
            format!("accept {}, held for {}", call.id, hold.as_str())
        }
        Record::CallRejected { call, reason, .. } => format!("reject {} {}", call.id, reason.as_str()),
        Record::CallStarted { id, attempt, .. } => format!("start {id} #{attempt}"),
        Record::CallSettled { id, how, .. } => format!("settle {id} {}", how.as_str()),
        Record::CallRequeued { id } => format!("requeue {id}"),
        Record::ResponseBegun(begun) => match &begun.continues {
            Some(id) => format!("ask {} on {id}", begun.ordinal),
            None => format!("ask {}", begun.ordinal),
        },
        Record::ResponseStarted { id } => format!("begun {id}"),
        Record::ResponseCompleted { id } => format!("accepted {id}"),
        Record::DeliveryPrepared { previous_response_id, call_ids, .. } => {
            format!("deliver {} on {previous_response_id}", list(call_ids))
        }
        Record::DeliveryAcknowledged { receipt } => format!("acknowledged by {receipt}"),
        Record::FlightSettled { fate, orphans, .. } => format!("dropped as {} [{}]", fate.as_str(), list(orphans)),
        Record::Paused { reason } => match reason {
            PauseReason::LostResponse { calls } => format!("pause for the lost [{}]", list(calls)),
            PauseReason::Held { calls } => format!("pause for the held [{}]", list(calls)),
            PauseReason::Incomplete { reason } => format!("pause for {reason}"),
            PauseReason::UnknownTools { count } => format!("pause for {count} unknown tools"),
            PauseReason::Shutdown => "pause for a shutdown".to_owned(),
        },
        Record::Resumed { .. } => "resume".to_owned(),
        Record::Reconciled { command, .. } => match command {
            Reconcile::Receipt(id) => format!("op says receipt {id}"),
            Reconcile::Resend => "op says resend".to_owned(),
            Reconcile::Abandon => "op says abandon".to_owned(),
        },
        Record::TurnEnded { status, .. } => format!("end {status}"),
        Record::HarnessBound(_)
        | Record::ReplayNarrowed { .. }
        | Record::HoldReleased { .. }
        | Record::CallsOrphaned { .. }
        | Record::ResponseRecorded(_)
        | Record::FlightCleared
        | Record::SummaryStaged { .. }
        | Record::TranscriptCommitted { .. }
        | Record::TranscriptDropped
        | Record::OutcomeStored { .. }
        | Record::InboxConsumed { .. }
        | Record::Parked { .. } => return None,
    })
}

pub(super) async fn serve(script: Script) -> Server {
    Server::start(script, Options::default()).await.unwrap()
}

/// An answer whose connection breaks behind one call, once the gate is released.
pub(super) fn breaks_after_a_call(id: &str, tool: &str, gate: &str) -> Answer {
    Answer::new().async_function_call(id, tool, "{}").wait_for(gate).text("Nobody reads this.").abort_after(6)
}

/// Every request that reached the provider: what it continues and its whole input, or what it asks for.
pub(super) fn wire(server: &Server) -> Vec<Value> {
    server.requests().iter().map(wire_of).collect()
}

fn wire_of(request: &RequestEntry) -> Value {
    match request.json() {
        Some(body) => json!({ "on": body.get("previous_response_id"), "input": body["input"] }),
        None => json!(format!("{} {}", request.method, request.path)),
    }
}

pub(super) fn first_request() -> Value {
    json!({ "on": null, "input": [user(INPUT)] })
}

pub(super) fn get(id: &str) -> Value {
    json!(format!("GET /v1/responses/{id}"))
}

pub(super) fn user(text: &str) -> Value {
    json!({ "type": "message", "role": "user", "content": text })
}

/// The output item of a call of a function tool.
pub(super) fn output(id: &str, text: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": text })
}

/// What a tool of the desk gives for this input.
pub(super) fn did(tool: &str, input: &str) -> String {
    envelope(Ok(&[Content::Text(format!("{tool} did {input}"))]))
}

/// What the model is told of calls of a lost answer (L59), each given with its outcome.
pub(super) fn lost(calls: &[(&str, &str)]) -> Value {
    let mut text = "[host] An earlier answer of yours was lost on the way and is not part of this conversation. These \
                    calls of it were run; do not repeat them without need:"
        .to_owned();
    for (tool, outcome) in calls {
        text.push_str(&format!("\n- {tool} \"{{}}\": {}", Value::from(*outcome)));
    }
    user(&text)
}

const HARNESS: &str = r#"
[harness]
name = "desk"
instructions = "Use the desk."
model = "sim/m"
HARNESS_LINES

[providers.sim]
driver = "openai-responses"

[capabilities.desk]
native = "desk"

[capabilities.desk.tools]
slow = { replay = "safe", async = true }
fast = { replay = "safe", async = true }
pay = { replay = "never", async = true }
note = { replay = "never", async = false }
"#;

/// Tools whose runs end when the test says so.
struct Desk {
    runs: Lines,
    open: Arc<watch::Sender<BTreeSet<String>>>,
}

impl NativeCapability for Desk {
    fn about(&self) -> About {
        About { id: "desk".to_owned(), ..About::default() }
    }

    fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
        let tool = |name: &str| Definition {
            name: name.into(),
            title: None,
            category: None,
            description: format!("The tool {name}."),
            input: match name {
                "fast" => InputFormat::Text,
                _ => InputFormat::JsonSchema(json!({ "type": "object" })),
            },
            output_schema: None,
            claims: Claims::default(),
        };
        Ok(["slow", "fast", "pay", "note"].map(tool).to_vec())
    }

    fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
        self.runs.push(format!("{} {}", call.tool, call.call_id));
        let mut open = self.open.subscribe();
        Box::pin(async move {
            // An error means that the world is gone, and with it whoever waits for this.
            let _ = open.wait_for(|open| open.contains(call.tool.as_str())).await;
            Ok(vec![Content::Text(format!("{} did {}", call.tool, call.input))])
        })
    }
}

/// Tokio's seams, on which time passes only where a response that is in progress is waited for, and then at once.
struct Hasty {
    tokio: TokioSeams,
    now_ms: AtomicU64,
}

impl Hasty {
    fn new() -> Self {
        Self { tokio: TokioSeams::current(), now_ms: AtomicU64::new(0) }
    }
}

impl Seams for Hasty {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.tokio.spawn(name, task)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> u64 {
        self.tokio.wall_ms()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        if time == limits::RETRIEVE_EVERY {
            // The odd millisecond keeps other waits, which are what is left of a whole time, from looking like this one.
            let passed = u64::try_from(time.as_millis()).unwrap() + 1;
            self.now_ms.fetch_add(passed, Ordering::SeqCst);
            return Box::pin(std::future::ready(()));
        }
        self.tokio.sleep(time)
    }

    fn fresh(&self) -> String {
        self.tokio.fresh()
    }
}
