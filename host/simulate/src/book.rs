//! The responses that were begun, what may continue them, and which steps are used up.
//! It must never know sockets, streams or time.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokio::sync::watch;

use crate::expect::{RequestView, mismatches};
use crate::pairing::{self, MadeCall};
use crate::plan::{Beat, Plan, Subject};
use crate::script::{Answer, Order, PairingRule, Reply, Retrieved, Script, Step};
use crate::violation::ViolationKind;
use crate::wire::ResponseObject;

/// Everything that the server remembers of its responses.
pub(crate) struct Book {
    responses: HashMap<String, Stored>,
    /// Ids in the order in which they were begun.
    begun: Vec<String>,
    used: Vec<bool>,
}

struct Stored {
    parent: Option<String>,
    /// Every call of the response and of its input, for telling a repeated output from an invented one.
    made: HashSet<String>,
    /// What is open on this response, its own calls included.
    open: Vec<MadeCall>,
    object: ResponseObject,
    state: Retrieved,
    retrieve: Vec<Retrieved>,
    gets: usize,
    if_broken: Retrieved,
    cancel: watch::Sender<bool>,
}

/// The step that answers a request.
pub(crate) struct Chosen<'s> {
    pub(crate) index: usize,
    pub(crate) step: &'s Step,
    pub(crate) begun: Option<Begun>,
}

/// A response that has begun.
pub(crate) struct Begun {
    pub(crate) id: String,
    pub(crate) beats: Vec<Beat>,
    pub(crate) cancelled: watch::Receiver<bool>,
}

/// What a cancel comes to.
pub(crate) enum Cancelled {
    /// The response is cancelled now, or was before.
    Done(Value),
    /// It is over.
    TooLate(&'static str),
    /// There is none.
    NotFound,
}

impl Book {
    pub(crate) fn new(script: &Script) -> Self {
        Self { responses: HashMap::new(), begun: Vec::new(), used: vec![false; script.steps.len()] }
    }

    /// Finds the step for a request, judges the request, uses the step up and begins its response.
    /// A refused request uses up nothing.
    pub(crate) fn take<'s>(&mut self, script: &'s Script, body: &Value) -> Result<Chosen<'s>, ViolationKind> {
        let request = RequestView::new(body);
        let (index, step) = self.choose(script, &request)?;
        let open = match step.pairing {
            PairingRule::Checked => self.judge(&request)?,
            PairingRule::Unchecked => Vec::new(),
        };
        if let Some(used) = self.used.get_mut(index) {
            *used = true;
        }
        let begun = match &step.reply {
            Reply::Answer(answer) => Some(self.begin(script, answer, &request, open)),
            Reply::Http(_) | Reply::Drop => None,
        };
        Ok(Chosen { index, step, begun })
    }

    fn choose<'s>(&self, script: &'s Script, request: &RequestView<'_>) -> Result<(usize, &'s Step), ViolationKind> {
        let latest = self.latest();
        let mut unused = script.steps.iter().enumerate().filter(|(index, _)| self.used.get(*index) == Some(&false));
        match script.order {
            Order::InOrder => {
                let Some((index, step)) = unused.next() else {
                    return Err(out_of_steps(script));
                };
                let reasons = mismatches(&step.expect, request, latest);
                if reasons.is_empty() {
                    Ok((index, step))
                } else {
                    Err(ViolationKind::Unexpected { step: label(index, step), reasons })
                }
            }
            Order::FirstMatch => {
                let mut reasons = Vec::new();
                for (index, step) in unused {
                    let found = mismatches(&step.expect, request, latest);
                    if found.is_empty() {
                        return Ok((index, step));
                    }
                    reasons.push(format!("{} ({})", label(index, step), found.join(", ")));
                }
                if reasons.is_empty() {
                    Err(out_of_steps(script))
                } else {
                    Err(ViolationKind::NoStepMatches { reasons })
                }
            }
        }
    }

    fn latest(&self) -> Option<&str> {
        let continuable = |id: &&String| self.responses.get(*id).is_some_and(|stored| can_be_continued(stored.state));
        self.begun.iter().rev().find(continuable).map(String::as_str)
    }

    fn judge(&self, request: &RequestView<'_>) -> Result<Vec<MadeCall>, ViolationKind> {
        let previous = request.previous();
        let open = match previous {
            None => Vec::new(),
            Some(id) => match self.responses.get(id) {
                Some(stored) if can_be_continued(stored.state) => stored.open.clone(),
                Some(_) | None => {
                    return Err(ViolationKind::PreviousNotFound { id: id.to_owned() });
                }
            },
        };
        Ok(pairing::judge(open, request.input, |call| self.chain_made(previous, call))?)
    }

    fn chain_made(&self, from: Option<&str>, call: &str) -> bool {
        // A parent was begun before its child, so the walk ends.
        let first = from.and_then(|id| self.responses.get(id));
        let mut chain =
            std::iter::successors(first, |stored| stored.parent.as_deref().and_then(|id| self.responses.get(id)));
        chain.any(|stored| stored.made.contains(call))
    }

    fn begin(&mut self, script: &Script, answer: &Answer, request: &RequestView<'_>, mut open: Vec<MadeCall>) -> Begun {
        let number = self.begun.len() as u64 + 1;
        let id = format!("{}{number}", script.id_prefix);
        let plan = Plan::new(answer, &Subject { id: &id, number, request: request.body });
        let mut made: HashSet<String> = request.input.iter().filter_map(pairing::call_of).map(|call| call.id).collect();
        made.extend(plan.calls.iter().map(|call| call.id.clone()));
        open.extend(plan.calls);
        let (cancel, cancelled) = watch::channel(false);
        let stored = Stored {
            parent: request.previous().map(str::to_owned),
            made,
            open,
            object: plan.object,
            state: Retrieved::InProgress,
            retrieve: answer.retrieve.clone(),
            gets: 0,
            if_broken: answer.if_broken,
            cancel,
        };
        self.responses.insert(id.clone(), stored);
        self.begun.push(id.clone());
        Begun { id, beats: plan.beats, cancelled }
    }

    /// The response has ended in this state. A state that is reached stays.
    pub(crate) fn settle(&mut self, id: &str, state: Retrieved) {
        if let Some(stored) = self.responses.get_mut(id)
            && stored.state == Retrieved::InProgress
        {
            stored.state = state;
        }
    }

    /// The stream broke before the response ended.
    pub(crate) fn settle_broken(&mut self, id: &str) {
        if let Some(state) = self.responses.get(id).map(|stored| stored.if_broken) {
            self.settle(id, state);
        }
    }

    /// The response as it stands, whatever a GET is scripted to say.
    pub(crate) fn current(&self, id: &str) -> Option<Value> {
        self.responses.get(id).map(|stored| stored.object.at(stored.state))
    }

    pub(crate) fn cancelled_event(&self, id: &str) -> Option<Value> {
        self.responses.get(id).map(|stored| Plan::cancelled_event(&stored.object))
    }

    /// What a GET says; `None` is 404.
    pub(crate) fn retrieve(&mut self, id: &str) -> Option<Value> {
        let stored = self.responses.get_mut(id)?;
        let scripted = stored.retrieve.get(stored.gets).or(stored.retrieve.last()).copied();
        stored.gets += 1;
        match scripted.unwrap_or(stored.state) {
            Retrieved::NotFound => None,
            state @ (Retrieved::Queued
            | Retrieved::InProgress
            | Retrieved::Completed
            | Retrieved::Incomplete
            | Retrieved::Failed
            | Retrieved::Cancelled) => Some(stored.object.at(state)),
        }
    }

    /// Cancels a response that is not over. Repeating it changes nothing.
    pub(crate) fn cancel(&mut self, id: &str) -> Cancelled {
        let Some(stored) = self.responses.get_mut(id) else {
            return Cancelled::NotFound;
        };
        match stored.state {
            Retrieved::Queued | Retrieved::InProgress | Retrieved::Cancelled => {
                stored.state = Retrieved::Cancelled;
                stored.cancel.send_replace(true);
                Cancelled::Done(stored.object.at(Retrieved::Cancelled))
            }
            Retrieved::Completed => Cancelled::TooLate("completed"),
            Retrieved::Incomplete => Cancelled::TooLate("incomplete"),
            Retrieved::Failed => Cancelled::TooLate("failed"),
            Retrieved::NotFound => Cancelled::NotFound,
        }
    }
}

fn can_be_continued(state: Retrieved) -> bool {
    match state {
        Retrieved::Completed | Retrieved::Incomplete => true,
        Retrieved::NotFound | Retrieved::Queued | Retrieved::InProgress | Retrieved::Failed | Retrieved::Cancelled => {
            false
        }
    }
}

fn out_of_steps(script: &Script) -> ViolationKind {
    ViolationKind::OutOfSteps { script: script.name.clone(), steps: script.steps.len() }
}

fn label(index: usize, step: &Step) -> String {
    match &step.name {
        Some(name) => format!("step {} ({name})", index + 1),
        None => format!("step {}", index + 1),
    }
}
