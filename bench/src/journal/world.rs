//! Sessions to measure on: the whole library over a store, with a model that answers at once and a tool that gives its
//! input back. Neither costs anything worth naming, so what is measured is the journal and what is around it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use futures::future::BoxFuture;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wharf::core::harness::Harness;
use wharf::core::model::{Completion, FinishedCall, Outcome, Request, RequestError, Retrieved, StreamEvent};
use wharf::core::tool::{Claims, Content, Definition, InputFormat};
use wharf::core::{Call, Error, Record, ResponseId};
use wharf::native::{About, NativeCall, NativeCapability, NativeError};
use wharf::provider::{Driver, EventStream, Support};
use wharf::store::Store;
use wharf::{Agent, Surroundings, TurnOptions, TurnStatus, Wharf};

/// What the tool is given: a usual size of arguments.
const ARGUMENTS: &str = r#"{"path":"src/main.rs","from":1,"to":120,"why":"to see how the arguments are read"}"#;

const HARNESS: &str = r#"
[harness]
name = "bench"
model = "bench/m"
[models."bench/m"]
async = "on"
[capabilities.echo]
native = "echo"
[capabilities.echo.tools.echo]
replay = "never"
async = true
"#;

/// How the model asks for its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All in one response, each as soon as the one before has its result.
    OneResponse,
    /// One in each response, as an agent's loop mostly goes: request, call, delivery, request, …
    EachResponse,
}

/// A session's worth of library.
pub(crate) struct World {
    agent: Agent,
    model: Arc<Model>,
}

impl World {
    /// A session that asks for so many calls a turn.
    pub(crate) async fn new(store: Arc<dyn Store>, shape: Shape, calls: u64) -> Result<Self> {
        let model = Arc::new(Model {
            shape,
            calls,
            made: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            opened: Mutex::default(),
            settled: Arc::new(Semaphore::new(0)),
        });
        let driver: Arc<dyn Driver> = model.clone();
        let wharf = Wharf::builder().store(store).provider("bench", driver).native(Echo).build()?;
        let agent = wharf.load(Harness::parse("bench.toml", HARNESS)?, Surroundings::default()).await?;
        Ok(Self { agent, model })
    }

    /// Runs a turn to its end, or until so many responses were made, which is an error. `each` is told of every record once
    /// it is durable.
    pub(crate) async fn turn(
        &self,
        session: &str,
        responses: u64,
        mut each: impl FnMut(&Record) + Send + 'static,
    ) -> Result<TurnStatus> {
        let session = self.agent.session(session);
        let result =
            session.turn("Read the files.", self.options(responses, move |record| each(record)), &mut ()).await?;
        Ok(result.status)
    }

    /// Opens a session with an open turn, and answers how long it took until its next request was asked for.
    pub(crate) async fn recover(&self, session: &str, responses: u64) -> Result<std::time::Duration> {
        let session = self.agent.session(session);
        let before = self.model.requests.load(Ordering::SeqCst);
        let start = Instant::now();
        session.resume(self.options(responses, |_| {}), &mut ()).await?;
        ensure!(self.model.requests.load(Ordering::SeqCst) > before, "nothing was asked for");
        let opened = *self.model.opened.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(opened.map(|opened| opened.duration_since(start)).unwrap_or_default())
    }

    fn options(&self, responses: u64, mut each: impl FnMut(&Record) + Send + 'static) -> TurnOptions {
        let settled = self.model.settled.clone();
        TurnOptions {
            max_responses: Some(responses),
            records: Some(Box::new(move |_, record| {
                if matches!(record, Record::CallSettled { .. }) {
                    settled.add_permits(1);
                }
                each(record);
            })),
            ..TurnOptions::default()
        }
    }
}

/// Responses of all models here.
static RESPONSES: AtomicU64 = AtomicU64::new(0);

/// A model that asks for calls and answers at once.
struct Model {
    shape: Shape,
    calls: u64,
    /// Calls that it asked for.
    made: AtomicU64,
    requests: AtomicU64,
    /// When it was last asked.
    opened: Mutex<Option<Instant>>,
    settled: Arc<Semaphore>,
}

impl Model {
    fn call(&self) -> Call {
        let n = self.made.fetch_add(1, Ordering::SeqCst);
        Call::function(format!("call_{n}"), "echo", ARGUMENTS).asynchronous()
    }

    /// True for the answers that ask for a call.
    fn asks(&self, request: u64) -> bool {
        match self.shape {
            Shape::OneResponse => request == 0,
            Shape::EachResponse => request < self.calls,
        }
    }
}

impl Driver for Model {
    fn name(&self) -> &str {
        "bench"
    }

    fn protocol(&self) -> &str {
        "none"
    }

    fn support(&self, _model: &str) -> Support {
        Support { async_calls: true, continuation: true, retrieval: true, cancel: false, deferred_tools: false }
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn body(&self, request: &Request) -> Result<Value, Error> {
        Ok(json!({ "model": request.model }))
    }

    fn open(&self, _request: Request) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let n = self.requests.fetch_add(1, Ordering::SeqCst);
        // No two of this process are the same, as a provider has it.
        let id = format!("resp_{}", RESPONSES.fetch_add(1, Ordering::SeqCst));
        let calls: Vec<Call> = match self.shape {
            _ if !self.asks(n) => Vec::new(),
            Shape::OneResponse => (0..self.calls).map(|_| self.call()).collect(),
            Shape::EachResponse => vec![self.call()],
        };
        let items = calls.iter().map(Call::to_json).collect();
        let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        let completion = StreamEvent::Completed(Completion {
            id: Some(id.as_str().into()),
            outcome: Outcome::Completed,
            finish_reason: Some(reason.to_owned()),
            usage: None,
            items,
            text: String::new(),
            refusal: None,
            model: None,
        });
        let started = StreamEvent::Started { id: id.as_str().into() };
        let settled = self.settled.clone();
        let waits = self.shape == Shape::OneResponse;
        let events =
            std::iter::once(started).chain(calls.into_iter().map(|call| StreamEvent::Call(FinishedCall::from(call))));
        let events = events.chain([completion]).collect::<Vec<_>>().into_iter();
        // The first two (the id and the first call) come at once, each later one once the call before has its result.
        let stream = stream::unfold((events, 0_u64), move |(mut events, sent)| {
            let settled = settled.clone();
            async move {
                let event = events.next()?;
                if waits && sent >= 2 {
                    settled.acquire().await.ok()?.forget();
                }
                Some((Ok(event), (events, sent + 1)))
            }
        });
        Box::pin(async move { Ok(Box::pin(stream) as EventStream) })
    }

    fn retrieve(&self, _id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        Box::pin(async { Ok(Retrieved::NotFound) })
    }

    fn cancel(&self, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        self.retrieve(id)
    }
}

/// Gives its input back.
struct Echo;

impl NativeCapability for Echo {
    fn about(&self) -> About {
        About { id: "echo".into(), ..About::default() }
    }

    fn tools(&self, _config: &Value) -> Result<Vec<Definition>, Error> {
        Ok(vec![Definition {
            name: "echo".into(),
            title: None,
            category: None,
            description: "Gives its input back.".into(),
            input: InputFormat::JsonSchema(json!({ "type": "object" })),
            output_schema: None,
            claims: Claims::default(),
        }])
    }

    fn call(&self, call: NativeCall) -> BoxFuture<'static, Result<Vec<Content>, NativeError>> {
        Box::pin(async move { Ok(vec![Content::Json(call.input)]) })
    }
}
