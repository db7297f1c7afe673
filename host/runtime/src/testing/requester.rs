//! Answers from a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use wharf_core::model::{Completion, FinishedCall, Outcome, RequestError, Retrieved, StreamEvent};
use wharf_core::{Call, Error, ResponseId};
use wharf_provider::EventStream;

use super::{Gate, SimSeams, Timeline};
use crate::coordinator::{Ask, Observer, Plan, Requester, Retriever};
use crate::seams::Seams;

/// One step of a scripted stream.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a script has a handful, and writing one should be plain")]
pub enum Step {
    /// This event comes.
    Event(StreamEvent),
    /// The stream ends with this error.
    Fail(RequestError),
    /// Nothing comes before the gate is open.
    Gate(Gate),
    /// Nothing comes for this time.
    Wait(Duration),
}

impl Step {
    /// Text.
    pub fn text(text: &str) -> Self {
        Self::Event(StreamEvent::Text(text.to_owned()))
    }

    /// A native call: an async function, or a custom tool.
    pub fn call(call: Call) -> Self {
        Self::Event(StreamEvent::Call(FinishedCall::from(call)))
    }

    /// The accumulated set, with this sync call alone in it.
    pub fn sync_call(call: Call) -> Self {
        Self::sync_calls([call])
    }

    /// The accumulated set of sync calls.
    pub fn sync_calls(calls: impl IntoIterator<Item = Call>) -> Self {
        Self::Event(StreamEvent::SyncCalls(calls.into_iter().map(FinishedCall::from).collect()))
    }

    /// The terminal event.
    pub fn completed(completion: Completion) -> Self {
        Self::Event(StreamEvent::Completed(completion))
    }
}

/// The first event that carries the response's id.
pub fn started(id: &str) -> Step {
    Step::Event(StreamEvent::Started { id: ResponseId::new(id) })
}

/// The terminal event of a whole response.
pub fn finished(id: &str, finish_reason: &str) -> Step {
    Step::completed(completion(id, finish_reason))
}

/// The end of a whole response, without items, text and usage.
pub fn completion(id: &str, finish_reason: &str) -> Completion {
    Completion {
        id: Some(ResponseId::new(id)),
        outcome: Outcome::Completed,
        finish_reason: Some(finish_reason.to_owned()),
        usage: None,
        items: Vec::new(),
        text: String::new(),
        refusal: None,
        model: None,
    }
}

/// A stream of these steps, which then ends.
pub fn stream(sim: &SimSeams, steps: impl IntoIterator<Item = Step>) -> EventStream {
    let steps: VecDeque<Step> = steps.into_iter().collect();
    let sim = sim.clone();
    futures::stream::unfold(steps, move |mut steps| {
        let sim = sim.clone();
        async move {
            loop {
                match steps.pop_front()? {
                    Step::Event(event) => return Some((Ok(event), steps)),
                    Step::Fail(error) => return Some((Err(error), steps)),
                    Step::Gate(gate) => gate.passed().await,
                    Step::Wait(time) => sim.sleep(time).await,
                }
            }
        }
    })
    .boxed()
}

/// Answers requests from a queue. Clones are the same one.
#[derive(Clone)]
pub struct ScriptedRequester {
    sim: SimSeams,
    state: Arc<Mutex<Requests>>,
}

/// An answer, perhaps behind a gate.
type Answer = (Option<Gate>, Result<Vec<Step>, RequestError>);

#[derive(Default)]
struct Requests {
    answers: VecDeque<Answer>,
    asks: Vec<Ask>,
    plan: Option<Result<Plan, Error>>,
    timeline: Timeline,
}

impl ScriptedRequester {
    /// Without answers. A request that finds none waits for ever.
    pub fn new(sim: &SimSeams) -> Self {
        Self { sim: sim.clone(), state: Arc::default() }
    }

    /// The same with requests noted on a timeline.
    #[must_use]
    pub fn on(self, timeline: &Timeline) -> Self {
        self.lock().timeline = timeline.clone();
        self
    }

    /// The next request is answered with this stream.
    pub fn answer(&self, steps: impl IntoIterator<Item = Step>) {
        self.lock().answers.push_back((None, Ok(steps.into_iter().collect())));
    }

    /// The next request fails like this.
    pub fn fail(&self, error: RequestError) {
        self.lock().answers.push_back((None, Err(error)));
    }

    /// The next request is answered with this stream once the gate is open.
    pub fn answer_behind(&self, gate: &Gate, steps: impl IntoIterator<Item = Step>) {
        self.lock().answers.push_back((Some(gate.clone()), Ok(steps.into_iter().collect())));
    }

    /// What every request is planned as from now on; `None` for: it goes on from the latest response, and carries the whole
    /// history where there is none.
    pub fn set_plan(&self, plan: Option<Result<Plan, Error>>) {
        self.lock().plan = plan;
    }

    /// What was asked, in order.
    pub fn asks(&self) -> Vec<Ask> {
        self.lock().asks.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requester for ScriptedRequester {
    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error> {
        let natural = Plan { continues: ask.latest.clone(), whole_history: ask.latest.is_none(), maker: None };
        self.lock().plan.clone().unwrap_or(Ok(natural))
    }

    fn send(&mut self, ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let answer = {
            let mut state = self.lock();
            state.timeline.push("send");
            state.asks.push(ask);
            state.answers.pop_front()
        };
        let sim = self.sim.clone();
        Box::pin(async move {
            let Some((gate, answer)) = answer else { return futures::future::pending().await };
            if let Some(gate) = gate {
                gate.passed().await;
            }
            answer.map(|steps| stream(&sim, steps))
        })
    }
}

/// Says what became of responses, from a queue whose last answer stays. Clones are the same one.
#[derive(Clone, Default)]
pub struct ScriptedRetriever(Arc<Mutex<Retrievals>>);

#[derive(Default)]
struct Retrievals {
    answers: VecDeque<Result<Retrieved, RequestError>>,
    asked: Vec<ResponseId>,
}

impl ScriptedRetriever {
    /// With these answers. Without one it waits for ever.
    pub fn new(answers: impl IntoIterator<Item = Result<Retrieved, RequestError>>) -> Self {
        let retriever = Self::default();
        retriever.lock().answers = answers.into_iter().collect();
        retriever
    }

    /// For [`Options`](crate::coordinator::Options).
    pub fn shared(&self) -> Arc<dyn Retriever> {
        Arc::new(self.clone())
    }

    /// The responses that were asked for, in order.
    pub fn asked(&self) -> Vec<ResponseId> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Retrievals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Retriever for ScriptedRetriever {
    fn retrieve(&self, _maker: Option<&str>, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        let answer = {
            let mut state = self.lock();
            state.asked.push(id.clone());
            if state.answers.len() > 1 { state.answers.pop_front() } else { state.answers.front().cloned() }
        };
        match answer {
            Some(answer) => Box::pin(async move { answer }),
            None => Box::pin(futures::future::pending()),
        }
    }
}

/// What an observer saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A piece of text.
    Text(String),
    /// A piece of a reasoning summary.
    Reasoning(String),
    /// A piece of a refusal.
    Refusal(String),
    /// A response was accepted.
    Completed(Option<ResponseId>),
}

/// Remembers what it saw. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct RecordingObserver(Arc<Mutex<Vec<Seen>>>);

impl RecordingObserver {
    /// One that saw nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What it saw, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, seen: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

impl Observer for RecordingObserver {
    fn text(&mut self, text: &str) {
        self.push(Seen::Text(text.to_owned()));
    }

    fn reasoning(&mut self, text: &str) {
        self.push(Seen::Reasoning(text.to_owned()));
    }

    fn refusal(&mut self, text: &str) {
        self.push(Seen::Refusal(text.to_owned()));
    }

    fn completed(&mut self, completion: &Completion) {
        self.push(Seen::Completed(completion.id.clone()));
    }
}
