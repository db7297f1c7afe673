//! The provider: answers requests as the script says, keeps books of what it was sent and of what it made, and tells what
//! became of a response if it is one that does.

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wharf::coordinator::{Ask, Plan, Requester, Retriever};
use wharf::provider::EventStream;
use wharf::seams::Seams;
use wharf::testing::{Step, completion, started, stream};
use wharf_core::history::History;
use wharf_core::model::{Completion, Fate, FinishedCall, Item, Outcome, RequestError, Retrieved, Role};
use wharf_core::{Call, Error, ResponseId};

use crate::outside::{Event, Line, Owner, Rules, mark, marked};
use crate::plan::{Fault, RequestWay, RetrievalWay, StreamWay};
use crate::script::{CallPlan, Ending, Goes, HoldPlan, Says};
use crate::world::World;

/// Time between two events of a stream.
const BEAT: Duration = Duration::from_millis(200);

/// A request that takes longer than a renewal.
const LATE: Duration = Duration::from_secs(25);

/// What was made, in order.
#[derive(Default)]
pub struct Book(Vec<Made>);

/// A response as the provider keeps it.
struct Made {
    /// The conversation with the answer.
    lines: Vec<Line>,
    completion: Completion,
    calls: Vec<FinishedCall>,
    ready_at: Duration,
    /// Nobody will ever know.
    vanished: bool,
}

impl Book {
    /// Whether it tells what became of a response.
    pub fn tells(&self, id: &ResponseId) -> bool {
        self.get(id.as_str()).is_some_and(|made| !made.vanished)
    }

    fn get(&self, id: &str) -> Option<&Made> {
        self.0.iter().find(|made| made.completion.id.as_ref().is_some_and(|made| made.as_str() == id))
    }
}

/// One process's way to the provider.
pub struct Client {
    pub world: World,
    pub owner: Owner,
    /// What the journal says that was said, where a request has to carry it.
    pub history: History,
}

impl Client {
    /// The kept response that a request goes on from; without one it carries everything.
    fn previous(&self, ask: &Ask) -> Option<ResponseId> {
        ask.latest.clone().filter(|_| self.world.script().keeps)
    }
}

impl Requester for Client {
    fn prepare<'a>(&'a mut self, ask: &'a Ask) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if self.previous(ask).is_none() {
                let records = wharf::records(&**self.world.store(), &self.world.key()).await?;
                self.history = History::new();
                records.iter().for_each(|record| self.history.apply(record));
            }
            Ok(())
        })
    }

    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error> {
        let continues = self.previous(ask);
        Ok(Plan { whole_history: continues.is_none(), continues, maker: None })
    }

    fn send(&mut self, ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>> {
        let previous = self.previous(&ask);
        // As the library's own requester puts a request together.
        let mut items = match (&previous, &ask.delivery) {
            (Some(_), Some(_)) => Vec::new(),
            (Some(_), None) => ask.input.clone(),
            (None, _) => self.history.items().to_vec(),
        };
        items.extend(ask.notice.clone());
        let mut lines: Vec<Line> = items.iter().map(line).collect();
        if let Some(delivery) = &ask.delivery {
            lines.extend(delivery.input.iter().map(output));
            lines.extend(delivery.after.iter().map(line));
        }
        let (world, owner) = (self.world.clone(), self.owner);
        Box::pin(async move { world.receive(owner, previous, lines).await })
    }
}

fn line(item: &Item) -> Line {
    match item {
        Item::Message { role: Role::Assistant, text } => Line::Answer(text.clone()),
        Item::Message { text, .. } if text.starts_with("[host]") => Line::Host(text.clone()),
        Item::Message { text, .. } => Line::User(text.trim_end().to_owned()),
        Item::Call(call) => Line::Call(marked(call.text())),
        Item::Output { call, output } => Line::Output(marked(call.text()), output.clone()),
        Item::Opaque { raw, .. } => Line::User(raw.to_string()),
    }
}

/// An output under the provider's name of its call.
fn output(item: &Value) -> Line {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    Line::Output(text("call_id"), text("output"))
}

/// A failure of a request or a stream.
fn failure(fate: Fate) -> RequestError {
    RequestError::new(fate, Error::provider("the line broke, as the plan says"))
}

impl World {
    async fn receive(
        self,
        owner: Owner,
        previous: Option<ResponseId>,
        new: Vec<Line>,
    ) -> Result<EventStream, RequestError> {
        let request = {
            let mut state = self.lock();
            state.requests += 1;
            state.requests
        };
        let way = match self.take(|fault| matches!(fault, Fault::Request { request: at, .. } if *at == request)) {
            Some(Fault::Request { way, .. }) => Some(way),
            _ => None,
        };
        match way {
            Some(RequestWay::NotSent) => return Err(failure(Fate::NotSent)),
            Some(RequestWay::Lost) => return Err(failure(Fate::Unknown)),
            Some(RequestWay::Refused | RequestWay::Taken | RequestWay::Late) | None => {}
        }
        let lines = match &previous {
            Some(id) => match self.lock().book.get(id.as_str()) {
                Some(made) => made.lines.iter().cloned().chain(new).collect(),
                None => return Err(failure(Fate::Refused)),
            },
            None => new,
        };
        let lines = self.called(lines);
        self.saw(Event::Sent { owner, request, lines: lines.clone() });
        if way == Some(RequestWay::Refused) {
            return Err(failure(Fate::Refused));
        }
        let steps = self.make(request, lines);
        if way == Some(RequestWay::Taken) {
            return Err(failure(Fate::Unknown));
        }
        if way == Some(RequestWay::Late) {
            self.sim().sleep(LATE).await;
        }
        self.sim().sleep(BEAT).await;
        Ok(stream(self.sim(), steps))
    }

    /// Outputs under their calls: of those that have this name and no output yet, the first.
    fn called(&self, mut lines: Vec<Line>) -> Vec<Line> {
        let state = self.lock();
        let mut open: Vec<(&str, &str)> = Vec::new();
        for line in &mut lines {
            match line {
                Line::Call(call) => open.extend(state.wires.get_key_value(call).map(|(c, w)| (c.as_str(), w.as_str()))),
                Line::Output(name, _) => {
                    if let Some(at) = open.iter().position(|(call, wire)| [*call, *wire].contains(&name.as_str())) {
                        open.remove(at).0.clone_into(name);
                    }
                }
                _ => {}
            }
        }
        lines
    }

    /// Makes the response, and answers the steps of its stream.
    fn make(&self, request: usize, mut lines: Vec<Line>) -> Vec<Step> {
        let plan = self.script().response(request);
        let id = format!("r{request}");
        // Two open calls of one name nobody could tell apart; only a superseded response leaves a sync call open.
        let superseded = self.script().responses.iter().any(|response| response.ending == Ending::Superseded);
        let alike = self.script().says.contains(&Says::SameIds) && !superseded;
        let calls: Vec<(Call, CallPlan)> = (1..)
            .zip(&plan.calls)
            .map(|(at, call)| {
                let name = format!("{id}c{at}");
                let wire = if alike && !call.is_async { format!("c{at}") } else { name.clone() };
                (call_of(&name, &wire, call), *call)
            })
            .collect();
        let mut steps = vec![started(&id)];
        let mut sync = Vec::new();
        for (call, _) in &calls {
            steps.push(Step::Wait(self.beat()));
            match call.is_async {
                true => steps.push(Step::call(call.clone())),
                false => {
                    sync.push(call.clone());
                    steps.push(Step::sync_calls(sync.clone()));
                }
            }
        }
        steps.push(Step::Wait(self.beat()));
        let lost = self.take(|fault| matches!(fault, Fault::Stream { request: at, .. } if *at == request));
        let lost = match lost {
            Some(Fault::Stream { events, way, .. }) => Some((events, way)),
            _ => None,
        };
        let ending = if matches!(lost, Some((_, StreamWay::Failed))) { Ending::Failed } else { plan.ending };
        let completion = completed(&id, &calls, ending);
        steps.push(Step::completed(completion.clone()));
        if let Some((events, way)) = lost {
            let mut left = events;
            steps.retain(|step| match step {
                Step::Event(_) if left == 0 => false,
                Step::Event(_) => {
                    left -= 1;
                    true
                }
                _ => left > 0,
            });
            if way != StreamWay::Ends {
                steps.push(Step::Fail(failure(Fate::Unknown)));
            }
        }
        let vanished = matches!(lost, Some((_, StreamWay::Vanished)));
        let accepted = matches!(completion.outcome, Outcome::Completed | Outcome::Incomplete { .. });
        lines.push(Line::Answer(id.clone()));
        let names: Vec<String> = calls.iter().map(|(call, _)| marked(call.text())).collect();
        lines.extend(names.iter().cloned().map(Line::Call));
        {
            let mut state = self.lock();
            for (name, (call, plan)) in names.iter().zip(&calls) {
                state.wires.insert(name.clone(), call.id.to_string());
                state.calls.insert(name.clone(), *plan);
                state.seen.rules.insert(name.clone(), rules(plan));
            }
            let whole = BEAT * u32::try_from(calls.len() + 3).unwrap_or(3) * 2;
            let calls = calls.into_iter().map(|(call, _)| FinishedCall::from(call)).collect();
            let ready_at = self.sim().now() + whole;
            state.book.0.push(Made { lines, completion, calls, ready_at, vanished });
        }
        self.saw(Event::Made { request, response: id, calls: names, accepted });
        steps
    }

    fn beat(&self) -> Duration {
        BEAT + Duration::from_millis(self.sim().random(200))
    }

    fn look_up(&self, id: &ResponseId) -> Result<Retrieved, RequestError> {
        let n = {
            let mut state = self.lock();
            state.retrievals += 1;
            state.retrievals
        };
        match self.take(|fault| matches!(fault, Fault::Retrieval { n: at, .. } if *at == n)) {
            Some(Fault::Retrieval { way: RetrievalWay::Fails, .. }) => return Err(failure(Fate::Unknown)),
            Some(Fault::Retrieval { way: RetrievalWay::NotFound, .. }) => return Ok(Retrieved::NotFound),
            Some(Fault::Retrieval { way: RetrievalWay::Slow, .. }) => return Ok(Retrieved::InProgress),
            _ => {}
        }
        let now = self.sim().now();
        Ok(match self.lock().book.get(id.as_str()) {
            Some(made) if made.vanished => Retrieved::NotFound,
            Some(made) if made.ready_at > now => Retrieved::InProgress,
            Some(made) => Retrieved::Ended { completion: made.completion.clone(), calls: made.calls.clone() },
            None => Retrieved::NotFound,
        })
    }
}

impl Retriever for World {
    fn retrieve(&self, _maker: Option<&str>, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>> {
        let (world, id) = (self.clone(), id.clone());
        Box::pin(async move { world.look_up(&id) })
    }
}

fn call_of(name: &str, wire: &str, plan: &CallPlan) -> Call {
    let close = if plan.goes == Goes::Malformed { "" } else { "}" };
    let call = Call::function(wire, plan.to_string(), format!("{{\"call\":\"{}\"{close}", mark(name)));
    if plan.is_async { call.asynchronous() } else { call }
}

fn rules(plan: &CallPlan) -> Rules {
    Rules {
        class: plan.class,
        is_async: plan.is_async,
        held: plan.hold != HoldPlan::Nothing,
        refused: matches!(plan.goes, Goes::Refused | Goes::Malformed),
    }
}

fn completed(id: &str, calls: &[(Call, CallPlan)], ending: Ending) -> Completion {
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    let (outcome, reason) = match ending {
        Ending::Whole => (Outcome::Completed, reason),
        Ending::Cut => (Outcome::Incomplete { reason: "max_output_tokens".to_owned() }, "length"),
        Ending::Failed => (Outcome::Failed { code: String::new(), message: "it broke".to_owned() }, "error"),
        Ending::Cancelled => (Outcome::Cancelled, "cancelled"),
        Ending::Superseded => (Outcome::Completed, "steered"),
    };
    let said = json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": id }] });
    let items = std::iter::once(said).chain(calls.iter().map(|(call, _)| call.to_json())).collect();
    Completion { outcome, items, text: id.to_owned(), ..completion(id, reason) }
}
