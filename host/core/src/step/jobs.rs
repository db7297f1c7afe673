//! Which call runs when: the cap, the concurrency classes, and what a job's end does (L2 to L6, L10 to L14, L20, L27 to L29,
//! L31, L61).

use std::collections::{HashMap, VecDeque};

use super::{Class, Decision, Effect, Launch, Machine};
use crate::checkpoint::{CallState, Checkpoint, Registration};
use crate::error::Error;
use crate::ids::CallId;
use crate::model::FinishedCall;
use crate::policy::{Admission, CallPolicy, Hold, RefusalReason, ReplayClass};
use crate::record::{Record, Settlement};
use crate::tool::error_output;

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobOutcome {
    /// The executor's output, unchanged (L65).
    Output(String),
    /// The executor's error; becomes `{"error": message}` (L28).
    Error(String),
    /// The job crashed (L29).
    Crashed,
}

impl JobOutcome {
    fn into_settlement(self) -> (String, Settlement) {
        match self {
            Self::Output(output) => (output, Settlement::Done),
            Self::Error(message) => (error_output(&message), Settlement::Failed),
            Self::Crashed => (error_output("cancelled: the tool's job crashed"), Settlement::Crashed),
        }
    }
}

/// Calls that run or wait for their turn to run. Only a living process has this.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    cap: usize,
    waiting: VecDeque<CallId>,
    running: HashMap<CallId, ()>,
    classes: HashMap<CallId, Class>,
    /// Who holds a class's lock.
    locks: HashMap<Class, CallId>,
}

impl Jobs {
    pub(super) fn new(cap: usize) -> Self {
        Self { cap, ..Self::default() }
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    pub(super) fn has(&self, id: &CallId) -> bool {
        self.running.contains_key(id) || self.waiting.contains(id)
    }

    /// Remembers the class of a call that may be started later.
    fn classify(&mut self, id: &CallId, class: Option<Class>) {
        if let Some(class) = class {
            self.classes.insert(id.clone(), class);
        }
    }

    fn enqueue(&mut self, id: CallId) {
        if !self.has(&id) {
            self.waiting.push_back(id);
        }
    }

    /// Forgets everything; answers which jobs ran.
    pub(super) fn clear(&mut self) -> Vec<CallId> {
        self.waiting.clear();
        self.classes.clear();
        self.locks.clear();
        let mut ran: Vec<CallId> = self.running.drain().map(|(id, ())| id).collect();
        ran.sort();
        ran
    }

    fn end(&mut self, id: &CallId) {
        self.running.remove(id);
        self.waiting.retain(|waiting| waiting != id);
        if let Some(class) = self.classes.remove(id)
            && self.locks.get(&class) == Some(id)
        {
            self.locks.remove(&class);
        }
    }

    /// Takes the calls that may start now. A call takes its class's lock before a permit of the cap (L6), locks go in the
    /// order in which they were asked for (L5).
    fn take_startable(&mut self) -> Vec<CallId> {
        let mut startable = Vec::new();
        let mut still_waiting = VecDeque::new();
        for id in std::mem::take(&mut self.waiting) {
            if let Some(class) = self.classes.get(&id) {
                let holder = self.locks.entry(class.clone()).or_insert_with(|| id.clone());
                if *holder != id {
                    still_waiting.push_back(id);
                    continue;
                }
            }
            if self.running.len() < self.cap {
                self.running.insert(id.clone(), ());
                startable.push(id);
            } else {
                still_waiting.push_back(id);
            }
        }
        self.waiting = still_waiting;
        startable
    }
}

impl Machine {
    /// Starts what may start: folds and adds the start records, and gives the launches.
    pub(super) fn schedule(&mut self, records: &mut Vec<Record>) -> Result<Vec<Launch>, Error> {
        if self.broken || self.stopping || self.session.open_turn().is_none() {
            return Ok(Vec::new());
        }
        let mut launches = Vec::new();
        for id in self.jobs.take_startable() {
            let turn = self.turn()?;
            let attempt = turn.attempts(&id).saturating_add(1);
            let start = turn.checkpoint.start(&id, attempt, turn.approval_of(&id).map(str::to_owned))?;
            let Some(pending) = turn.checkpoint.call(&id) else { continue };
            launches.push(Launch {
                call: pending.call.clone(),
                attempt,
                idempotency_key: pending.idempotency_key.clone(),
                replay: pending.replay,
            });
            self.fold(std::slice::from_ref(&start))?;
            records.push(start);
        }
        Ok(launches)
    }

    /// A complete call item. Refused ones are settled at once; async ones start at once; sync ones start at once outside of
    /// a response and wait for its acceptance within one (L8, L12 to L14, L46, L47, L50).
    pub(super) fn called(
        &mut self,
        finished: FinishedCall,
        policy: &CallPolicy,
        fresh: String,
    ) -> Result<Vec<Effect>, Error> {
        let turn = self.turn()?;
        if finished.call.id.is_blank() || finished.call.name.is_blank() {
            finished.call.validate()?;
        }
        let key = self.session.key_for(&finished.call.id);
        let in_response = turn.flight.is_some();
        let call = finished.call.with_id(key.id);
        let malformed = if finished.malformed { call.check_arguments().err() } else { None };
        let refusal = match (&policy.admission, malformed) {
            (Admission::Refuse(refusal), _) => Some((refusal.reason, refusal.message.clone())),
            (Admission::Start | Admission::Hold(_), Some(fault)) => Some((
                RefusalReason::MalformedArguments,
                format!("{}; send the call again with valid JSON", fault.message),
            )),
            (Admission::Start | Admission::Hold(_), None) if call.is_async && !policy.async_allowed => Some((
                RefusalReason::NotAsync,
                format!("tool {:?} may not run async here; call it again without async", call.name.as_str()),
            )),
            (Admission::Start | Admission::Hold(_), None) => None,
        };
        if let Some((reason, message)) = refusal {
            return match turn.checkpoint.reject(&call, key.wire, reason, &message)? {
                Some(record) => self.commit(vec![record]),
                None => Ok(Vec::new()),
            };
        }
        let hold = match &policy.admission {
            Admission::Hold(hold) => Some(hold.clone()),
            Admission::Start | Admission::Refuse(_) => None,
        };
        let registration = Registration {
            idempotency_key: (policy.replay == ReplayClass::Keyed).then_some(fresh),
            replay: policy.replay,
            hold: hold.clone(),
            wire_call_id: key.wire,
            call,
        };
        let Some(record) = turn.checkpoint.register(&registration)? else { return Ok(Vec::new()) };
        let id = registration.call.id.clone();
        self.jobs.classify(&id, policy.class.clone());
        if hold.is_none() && (registration.call.is_async || !in_response) {
            self.enqueue(id);
        }
        self.commit(vec![record])
    }

    /// A job's end settles its call, frees its class and its permit, and starts what waited for them. A result that comes
    /// after the call was settled another way does not count (E3).
    pub(super) fn job_ended(&mut self, id: &CallId, outcome: JobOutcome) -> Result<Vec<Effect>, Error> {
        let (output, how) = outcome.into_settlement();
        self.jobs.end(id);
        let Ok(turn) = self.turn() else { return Ok(Vec::new()) };
        if turn.checkpoint.call(id).is_none() && self.session.knows(id) {
            return Ok(Vec::new()); // of an earlier turn, which was abandoned
        }
        let record = turn.checkpoint.settle(id, &output, how)?;
        self.commit(record.into_iter().collect())
    }

    /// A decision about a held call (L61). An output never stands in for an approval (X7).
    pub(super) fn decided(&mut self, id: &CallId, decision: Decision) -> Result<Vec<Effect>, Error> {
        let turn = self.turn()?;
        let released = turn.flight.is_none() && !turn.withheld;
        let pending =
            turn.checkpoint.call(id).ok_or_else(|| Error::config(format!("call {:?} is unknown", id.as_str())))?;
        let Some(hold) = pending.hold.clone() else {
            return Err(Error::config(format!("call {:?} is not held", id.as_str())));
        };
        if turn.checkpoint.is_orphan(id) {
            return Err(Error::config(format!(
                "call {:?} was withdrawn: its response was never accepted",
                id.as_str()
            )));
        }
        let is_async = pending.call.is_async;
        let settled = || Error::config(format!("call {:?} has its result", id.as_str()));
        let record = match (decision, hold) {
            (Decision::Approve { approval }, Hold::Approval) => {
                if is_async || released {
                    self.enqueue(id.clone());
                }
                Record::HoldReleased { id: id.clone(), approval }
            }
            (Decision::Decline { output }, Hold::Approval | Hold::Output) => {
                turn.checkpoint.settle(id, &output, Settlement::Declined)?.ok_or_else(settled)?
            }
            (Decision::Output { output }, Hold::Output) => {
                turn.checkpoint.settle(id, &output, Settlement::Outside)?.ok_or_else(settled)?
            }
            (Decision::Output { .. }, Hold::Approval) => {
                return Err(Error::config(format!(
                    "call {:?} waits for an approval; an output cannot stand in for it",
                    id.as_str()
                )));
            }
            (Decision::Approve { .. }, Hold::Output) => {
                return Err(Error::config(format!(
                    "call {:?} waits for an output from outside; an approval does not give one",
                    id.as_str()
                )));
            }
        };
        self.commit(vec![record])
    }

    /// Settles everything without a result as cancelled (H1, L31). Results that came before stay.
    pub(super) fn cancel(&mut self) -> Result<Vec<Effect>, Error> {
        self.cancel_after(Vec::new())
    }

    /// The same, with the results of jobs that had ended by then. Nothing starts in their place.
    pub(super) fn cancel_after(&mut self, ended: Vec<(CallId, JobOutcome)>) -> Result<Vec<Effect>, Error> {
        self.end_all(ended, Checkpoint::cancel)
    }

    /// Ends what runs at the end of a shutdown's time: a call that may run again is queued to do so, another one is settled
    /// as cancelled, for nobody knows what it did. Calls that wait stay as they are.
    pub(super) fn cut_off(&mut self, ended: Vec<(CallId, JobOutcome)>) -> Result<Vec<Effect>, Error> {
        self.stopping = true;
        if self.session.open_turn().is_none() {
            return Ok(Vec::new());
        }
        self.end_all(ended, Checkpoint::cut_off)
    }

    /// Takes the results of jobs that have ended, then ends all others with what `settle` says of their calls.
    fn end_all(
        &mut self,
        ended: Vec<(CallId, JobOutcome)>,
        settle: impl FnOnce(&Checkpoint) -> Vec<Record>,
    ) -> Result<Vec<Effect>, Error> {
        self.turn()?;
        let mut records = Vec::new();
        for (id, outcome) in ended {
            self.jobs.end(&id);
            let checkpoint = &self.turn()?.checkpoint;
            let (output, how) = outcome.into_settlement();
            let settled = match checkpoint.call(&id) {
                Some(_) => checkpoint.settle(&id, &output, how)?,
                None => None, // of an earlier turn, which was abandoned
            };
            self.fold(settled.as_slice())?;
            records.extend(settled);
        }
        let aborts = self.jobs.clear();
        let settled = settle(&self.turn()?.checkpoint);
        self.fold(&settled)?;
        records.extend(settled);
        let mut effects = Vec::new();
        if !records.is_empty() {
            effects.push(Effect::Append(records));
        }
        effects.extend(aborts.into_iter().map(Effect::Abort));
        Ok(effects)
    }

    /// Calls that wait for nobody any more: sync ones whose response was accepted (L20) or whose turn was resumed (L66), and
    /// what an opened journal left queued (L1).
    pub(super) fn enqueue_waiting(&mut self) -> Result<(), Error> {
        let turn = self.turn()?;
        if turn.flight.is_some() {
            return Ok(());
        }
        let waiting: Vec<CallId> = turn
            .checkpoint
            .live_calls()
            .filter(|p| p.state == CallState::Queued && p.hold.is_none() && (p.call.is_async || !turn.withheld))
            .map(|p| p.call.id.clone())
            .collect();
        for id in waiting {
            self.enqueue(id);
        }
        Ok(())
    }

    /// Nothing is to start before an opened journal's calls are mended (G1); the opening itself then queues what waits, in
    /// call order (L1).
    fn enqueue(&mut self, id: CallId) {
        if !self.opening {
            self.jobs.enqueue(id);
        }
    }

    /// Forgets jobs that wait for calls which will never start: their response was settled as not accepted (L58).
    pub(super) fn drop_withdrawn(&mut self) {
        let Some(turn) = self.session.turn() else { return };
        let withdrawn: Vec<CallId> =
            self.jobs.waiting.iter().filter(|id| turn.checkpoint.is_orphan(id)).cloned().collect();
        for id in withdrawn {
            self.jobs.end(&id);
        }
    }

    /// The class of a call that an opened journal brought along.
    pub(super) fn classify(&mut self, id: &CallId, policy: &CallPolicy) {
        self.jobs.classify(id, policy.class.clone());
    }
}
