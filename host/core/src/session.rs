//! The fold of a whole journal: which turn is open, what its calls are, and what a later turn has to know of earlier ones
//! (N1). Knows no store; [`Session::apply`] is the only way in which it changes.

mod scope;
mod snapshot;

use std::collections::{HashMap, HashSet};

use crate::call::Call;
use crate::checkpoint::{CallState, Checkpoint};
use crate::error::Error;
use crate::ids::{CallId, ResponseId, Seq, TurnId};
use crate::limits;
use crate::model::{Item, Outcome};
use crate::policy::{RefusalReason, ReplayClass};
use crate::record::{Begun, Closed, FlightFate, HarnessFacts, PauseReason, Record, ResponseFacts, Settlement};
use crate::tool::error_output;

pub use self::scope::Scope;

/// What a session's records fold into.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Session {
    harness: Option<HarnessFacts>,
    turn: Option<Turn>,
    latest_response_id: Option<ResponseId>,
    latest_maker: Option<String>,
    requests: u64,
    used_ids: HashSet<CallId>,
    turns_ended: u64,
    letters_read: u64,
}

/// The open turn, or the last one that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Its id.
    pub id: TurnId,
    /// What the user said.
    pub input: Vec<Item>,
    /// Its calls, delivery and responses.
    pub checkpoint: Checkpoint,
    /// The request in flight.
    pub flight: Option<Flight>,
    /// Calls of the response in flight, or of the last one: the provider's id and the host's key, in order.
    pub scope: Scope,
    /// Calls of a lost response that the model has to be told of (L59).
    pub untold: Vec<CallId>,
    /// The same of earlier turns, which ended before the model was told. Told once a response of this turn is accepted.
    pub untold_before: Vec<LostCall>,
    /// Calls of accepted responses that this turn, or one before it, left without output when it was abandoned.
    pub unanswered: Vec<Unanswered>,
    /// Outputs of such calls, on their wire ids; they stand before the input until a response of the session is accepted.
    pub closing: Vec<Item>,
    /// Calls that were cancelled while they ran: nobody knows what they did.
    pub cut_off: HashSet<CallId>,
    /// Requests that were lost since the last accepted response (G19).
    pub lost_in_a_row: u32,
    /// Calls that named unknown tools (L51).
    pub unknown_tools: u64,
    /// What it waits for.
    pub paused: Option<PauseReason>,
    /// True while the last response's finish reason withholds its sync calls (L18, L66).
    pub withheld: bool,
    /// What the last accepted response held.
    pub last_response: Option<ResponseFacts>,
    /// Approvals that were given and are not used up yet.
    pub approvals: Vec<(CallId, String)>,
    /// How often each call was started; absent means never.
    pub attempts: HashMap<CallId, u32>,
    /// How it ended, once it did.
    pub ended: Option<String>,
}

/// A call of a lost response that the model was not told of in its own turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostCall {
    /// Which, as the host calls it.
    pub id: CallId,
    /// Its line of the notice.
    pub line: String,
}

/// A call of an accepted response that has no output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// The host's key.
    pub id: CallId,
    /// The call as the provider knows it.
    pub call: Call,
    /// The output of its settlement; none where the host has to say what is known instead.
    pub settled: Option<String>,
    /// True if it was ever started.
    pub started: bool,
}

impl Unanswered {
    /// The output that it gets in place of the one that was never sent.
    pub fn close(&self) -> Closed {
        let said = match (&self.settled, self.started) {
            (Some(_), _) => None,
            (None, false) => Some(error_output(NOT_EXECUTED)),
            (None, true) => Some(error_output(OUTCOME_UNKNOWN)),
        };
        Closed { id: self.id.clone(), output: said }
    }
}

/// What the model is told of a call that an abandoned turn never started.
pub const NOT_EXECUTED: &str = "this call was not executed: its turn was abandoned before it could start";

/// What the model is told of a call that ran when its turn was abandoned (PROV-13).
pub const OUTCOME_UNKNOWN: &str = "this call was cut off when its turn was abandoned: its outcome is unknown, and it must \
     not be retried automatically";

/// A request in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    /// As it was journaled before it was sent.
    pub begun: Begun,
    /// The response's id, once it is known (L55).
    pub id: Option<ResponseId>,
}

impl Session {
    /// The fold of these records.
    ///
    /// # Errors
    /// A corruption error that names the number of the first record that contradicts those before it (B11).
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<Self, Error> {
        Self::default().fold_on(Seq(0), records)
    }

    /// The fold of what came before, up to and with this position, and of these records, which follow it.
    ///
    /// # Errors
    /// As [`Session::fold`].
    pub fn fold_on<'a>(mut self, after: Seq, records: impl IntoIterator<Item = &'a Record>) -> Result<Self, Error> {
        let mut seq = after;
        for record in records {
            seq = seq.next();
            self.apply(record).map_err(|e| {
                Error::corruption(format!("record {seq} ({}) contradicts the journal: {}", record.kind(), e.message))
            })?;
        }
        Ok(self)
    }

    /// The harness that the session ran under last.
    pub fn harness(&self) -> Option<&HarnessFacts> {
        self.harness.as_ref()
    }

    /// The open turn, or the last one that ended.
    pub fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref()
    }

    /// The open turn.
    pub fn open_turn(&self) -> Option<&Turn> {
        self.turn.as_ref().filter(|turn| turn.ended.is_none())
    }

    /// The latest accepted response of the session (N1).
    pub fn latest_response_id(&self) -> Option<&ResponseId> {
        self.latest_response_id.as_ref()
    }

    /// `provider/model` that made the latest accepted response: only at this provider it can be continued. None where the
    /// journal does not say.
    pub fn latest_maker(&self) -> Option<&str> {
        self.latest_maker.as_deref()
    }

    /// How many requests were begun.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// True if a call of this id was ever registered in the session.
    pub(crate) fn knows(&self, id: &CallId) -> bool {
        self.used_ids.contains(id)
    }

    /// How many turns ended.
    pub fn turns_ended(&self) -> u64 {
        self.turns_ended
    }

    /// How many items of the inbox were consumed.
    pub fn letters_read(&self) -> u64 {
        self.letters_read
    }

    /// The host's key for a call that the provider names by this id, and whether the id was seen in the same response
    /// (B13). A fresh key is the provider's id where the session never used it, else that id with a suffix made from
    /// response and position.
    pub fn key_for(&self, wire: &CallId) -> Key {
        let scope = self.turn.as_ref().map(|turn| &turn.scope);
        if let Some(key) = scope.and_then(|scope| scope.key(wire)) {
            return Key { id: key.clone(), wire: (key != wire).then(|| wire.clone()) };
        }
        if !self.used_ids.contains(wire) {
            return Key { id: wire.clone(), wire: None };
        }
        let mut id = format!("{}~r{}.{}", wire, self.requests, scope.map_or(0, Scope::len));
        while self.used_ids.contains(&CallId::new(&id)) {
            id.push('\''); // a provider that uses our own suffixes gets a longer one
        }
        Key { id: id.into(), wire: Some(wire.clone()) }
    }

    /// The outputs with which the next turn closes what abandoned turns left open.
    pub fn closes(&self) -> Vec<Closed> {
        self.turn.as_ref().map(|turn| turn.unanswered.iter().map(Unanswered::close).collect()).unwrap_or_default()
    }

    /// What is still unanswered once these calls are closed, and the outputs that were not accepted by then.
    fn closed(&self, closes: &[Closed]) -> Result<(Vec<Unanswered>, Vec<Item>), Error> {
        let (mut unanswered, mut closing) =
            self.turn.as_ref().map(|turn| (turn.unanswered.clone(), turn.closing.clone())).unwrap_or_default();
        for Closed { id, output } in closes {
            let Some(at) = unanswered.iter().position(|call| call.id == *id) else {
                return Err(Error::corruption(format!("call {:?} was closed, and no turn left it open", id.as_str())));
            };
            let Unanswered { call, settled, .. } = unanswered.remove(at);
            let Some(output) = output.clone().or(settled) else {
                return Err(Error::corruption(format!("call {:?} was closed without an output", id.as_str())));
            };
            closing.push(Item::Output { call, output });
        }
        Ok((unanswered, closing))
    }

    /// Folds one record.
    ///
    /// # Errors
    /// A corruption error if it contradicts what came before.
    pub fn apply(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::HarnessBound(facts) => {
                self.harness = Some(facts.clone());
                return Ok(());
            }
            Record::TurnStarted { turn, input, closes } => {
                if self.open_turn().is_some() {
                    return Err(Error::corruption("a turn was started while another one was open"));
                }
                let (unanswered, closing) = self.closed(closes)?;
                let untold_before = self.turn.as_ref().map(Turn::untold_by_now).unwrap_or_default();
                self.turn = Some(Turn {
                    id: turn.clone(),
                    input: input.clone(),
                    checkpoint: Checkpoint::new_turn(self.latest_response_id.clone()),
                    flight: None,
                    scope: Scope::default(),
                    untold: Vec::new(),
                    untold_before,
                    unanswered,
                    closing,
                    cut_off: HashSet::new(),
                    lost_in_a_row: 0,
                    unknown_tools: 0,
                    paused: None,
                    withheld: false,
                    last_response: None,
                    approvals: Vec::new(),
                    attempts: HashMap::new(),
                    ended: None,
                });
                return Ok(());
            }
            Record::InboxConsumed { .. } => {
                self.letters_read = self.letters_read.saturating_add(1);
                return Ok(());
            }
            Record::Parked { .. } => return Ok(()),
            Record::TurnEnded { .. }
            | Record::CallAccepted { .. }
            | Record::CallRejected { .. }
            | Record::CallStarted { .. }
            | Record::CallSettled { .. }
            | Record::CallRequeued { .. }
            | Record::ReplayNarrowed { .. }
            | Record::HoldReleased { .. }
            | Record::CallsOrphaned { .. }
            | Record::ResponseBegun(_)
            | Record::ResponseStarted { .. }
            | Record::ResponseCompleted { .. }
            | Record::DeliveryPrepared { .. }
            | Record::DeliveryAcknowledged { .. }
            | Record::ResponseRecorded(_)
            | Record::FlightCleared
            | Record::FlightSettled { .. }
            | Record::SummaryStaged { .. }
            | Record::TranscriptCommitted { .. }
            | Record::TranscriptDropped
            | Record::OutcomeStored { .. }
            | Record::Paused { .. }
            | Record::Resumed { .. }
            | Record::Reconciled { .. } => {}
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.ended.is_none()) else {
            return Err(Error::corruption("it is about a turn, and none is open"));
        };
        turn.check(record, self.requests)?;
        // Each of the other fates is followed by another request, which has the outputs.
        let abandons = matches!(record, Record::FlightSettled { fate: FlightFate::Abandoned, .. });
        let left = if abandons { turn.left_unanswered() } else { Vec::new() };
        turn.checkpoint.apply(record)?;
        match record {
            Record::CallAccepted { call, wire_call_id, .. } => {
                note_id(&mut self.used_ids, &mut turn.scope, call, wire_call_id.as_ref());
            }
            Record::CallRejected { call, wire_call_id, reason, .. } => {
                note_id(&mut self.used_ids, &mut turn.scope, call, wire_call_id.as_ref());
                turn.unknown_tools += u64::from(*reason == RefusalReason::UnknownTool);
            }
            Record::ResponseBegun(begun) => {
                self.requests = self.requests.saturating_add(1);
                turn.flight = Some(Flight { begun: begun.clone(), id: None });
                turn.scope.clear();
                turn.untold.retain(|id| !begun.told.contains(id));
            }
            Record::ResponseStarted { id } => {
                if let Some(flight) = &mut turn.flight {
                    flight.id = Some(id.clone());
                }
            }
            Record::ResponseCompleted { id } | Record::DeliveryAcknowledged { receipt: id } => {
                self.latest_response_id = Some(id.clone());
                self.latest_maker = turn.flight.as_ref().and_then(|flight| flight.begun.maker.clone());
                turn.lost_in_a_row = 0;
                // What it held comes with its own record; where it never came, a receipt that an operator gave say, nothing
                // withholds anything.
                turn.withheld = false;
                turn.last_response = None;
                turn.untold_before.clear();
                turn.closing.clear();
            }
            Record::ResponseRecorded(facts) => {
                turn.withheld = facts.ending() != Ending::Whole;
                turn.last_response = Some(facts.clone());
            }
            Record::HoldReleased { id, approval } => turn.approvals.push((id.clone(), approval.clone())),
            Record::CallStarted { id, attempt, .. } => {
                turn.approvals.retain(|(call, _)| call != id);
                turn.attempts.insert(id.clone(), *attempt);
            }
            Record::FlightCleared => turn.flight = None,
            Record::FlightSettled { fate, orphans, .. } => {
                turn.lost_in_a_row += u32::from(*fate == FlightFate::Lost);
                // What the lost request told the model was not read: it has to be told again.
                let told = turn.flight.take().map(|flight| flight.begun.told).unwrap_or_default();
                turn.untold.splice(0..0, told);
                for id in orphans {
                    // The model is told of those by their outputs.
                    let answered = left.iter().any(|call| call.id == *id);
                    if turn.attempts(id) > 0 && !answered && !turn.untold.contains(id) {
                        turn.untold.push(id.clone());
                    }
                }
                turn.unanswered.extend(left);
            }
            Record::CallSettled { id, how: Settlement::Cancelled, .. } if turn.attempts(id) > 0 => {
                turn.cut_off.insert(id.clone());
            }
            Record::Paused { reason } => {
                turn.paused = Some(reason.clone());
                return Ok(());
            }
            Record::Resumed { .. } => {
                if matches!(turn.paused.take(), Some(PauseReason::UnknownTools { .. })) {
                    turn.unknown_tools = 0;
                }
                // A superseded response's sync calls wait for its successor, whoever resumes the turn (L18).
                turn.withheld &= turn.ending() == Ending::Superseded;
            }
            Record::TurnEnded { status, .. } => {
                turn.ended = Some(status.clone());
                self.turns_ended = self.turns_ended.saturating_add(1);
            }
            Record::HarnessBound(_)
            | Record::TurnStarted { .. }
            | Record::CallSettled { .. }
            | Record::CallRequeued { .. }
            | Record::ReplayNarrowed { .. }
            | Record::CallsOrphaned { .. }
            | Record::DeliveryPrepared { .. }
            | Record::SummaryStaged { .. }
            | Record::TranscriptCommitted { .. }
            | Record::TranscriptDropped
            | Record::OutcomeStored { .. }
            | Record::Reconciled { .. }
            | Record::InboxConsumed { .. }
            | Record::Parked { .. } => {}
        }
        turn.end_held_pause();
        Ok(())
    }
}

impl Turn {
    /// A turn waits for held calls as long as one of them is held (L61, X4).
    fn end_held_pause(&mut self) {
        let Some(PauseReason::Held { calls }) = &self.paused else { return };
        let is_held = |id: &CallId| {
            let held = self.checkpoint.call(id).is_some_and(|p| p.hold.is_some() && p.state == CallState::Queued);
            held && !self.checkpoint.is_orphan(id)
        };
        if !calls.iter().any(is_held) {
            self.paused = None;
        }
    }

    /// Calls of accepted responses without output, at the moment of abandoning: what the provider waits for. Those of the
    /// response in flight are not among them, and neither are those of lost ones.
    fn left_unanswered(&self) -> Vec<Unanswered> {
        let in_flight = if self.flight.is_some() { self.scope_calls() } else { Vec::new() };
        self.checkpoint
            .live_calls()
            .filter(|p| !self.checkpoint.is_orphan(&p.call.id) && !in_flight.contains(&p.call.id))
            .map(|p| Unanswered {
                id: p.call.id.clone(),
                call: p.wire_call(),
                settled: match &p.state {
                    CallState::Ready { output } if !self.cut_off.contains(&p.call.id) => Some(output.clone()),
                    CallState::Ready { .. } | CallState::Queued | CallState::Running | CallState::Delivered => None,
                },
                started: self.attempts(&p.call.id) > 0,
            })
            .collect()
    }

    /// What the next turn has to tell of lost responses of this one and those before it.
    fn untold_by_now(&self) -> Vec<LostCall> {
        let own = self.untold.iter().filter_map(|id| {
            let line = match self.cut_off.contains(id) {
                true => self.lost_line(id, Some("not known")),
                false => self.lost_line(id, None),
            };
            Some(LostCall { id: id.clone(), line: line? })
        });
        self.untold_before.iter().cloned().chain(own).collect()
    }

    /// How often a call was started.
    pub fn attempts(&self, id: &CallId) -> u32 {
        self.attempts.get(id).copied().unwrap_or(0)
    }

    /// The approval that a call was given and has not used up.
    pub fn approval_of(&self, id: &CallId) -> Option<&str> {
        self.approvals.iter().find(|(call, _)| call == id).map(|(_, approval)| approval.as_str())
    }

    /// How the last accepted response ended.
    pub fn ending(&self) -> Ending {
        self.last_response.as_ref().map_or(Ending::Whole, ResponseFacts::ending)
    }

    /// What the checkpoint alone cannot see: whether a record fits the request in flight, the approvals and the turn (B11).
    fn check(&self, record: &Record, requests: u64) -> Result<(), Error> {
        let contradiction = |what: String| Err(Error::corruption(what));
        match record {
            Record::ResponseBegun(begun) => {
                let next = requests.saturating_add(1);
                if begun.ordinal != next {
                    return contradiction(format!("request {next} was begun as number {}", begun.ordinal));
                }
            }
            Record::ResponseStarted { id } => match &self.flight {
                None => return contradiction(format!("response {:?} started, and none was begun", id.as_str())),
                Some(Flight { id: Some(known), .. }) => {
                    return contradiction(format!("response {:?} started as {:?} before", id.as_str(), known.as_str()));
                }
                Some(Flight { id: None, .. }) => {}
            },
            Record::ResponseRecorded(facts) => {
                if self.flight.is_none() {
                    return contradiction(format!(
                        "response {:?} was recorded, and none was in flight",
                        facts.id.as_str()
                    ));
                }
            }
            Record::CallStarted { id, attempt, approval, idempotency_key: _ } => {
                let before = self.attempts(id);
                if *attempt != before.saturating_add(1) {
                    return contradiction(format!("start {attempt} of call {:?} follows {before} starts", id.as_str()));
                }
                let never = self.checkpoint.call(id).is_some_and(|pending| pending.replay == ReplayClass::Never);
                if never && before > 0 {
                    return contradiction(format!("call {:?} must not run again and was started again", id.as_str()));
                }
                let has =
                    |approval: &String| self.approvals.iter().any(|(call, given)| call == id && given == approval);
                if approval.as_ref().is_some_and(|approval| !has(approval)) {
                    return contradiction(format!("call {:?} used an approval that it does not have", id.as_str()));
                }
            }
            Record::TurnEnded { turn, .. } => {
                if *turn != self.id {
                    return contradiction(format!(
                        "turn {:?} ended while {:?} was open",
                        turn.as_str(),
                        self.id.as_str()
                    ));
                }
                if !self.checkpoint.may_complete() {
                    return contradiction("the turn ended while calls, deliveries or responses were open".to_owned());
                }
            }
            Record::HarnessBound(_)
            | Record::TurnStarted { .. }
            | Record::CallAccepted { .. }
            | Record::CallRejected { .. }
            | Record::CallSettled { .. }
            | Record::CallRequeued { .. }
            | Record::ReplayNarrowed { .. }
            | Record::HoldReleased { .. }
            | Record::CallsOrphaned { .. }
            | Record::ResponseCompleted { .. }
            | Record::DeliveryPrepared { .. }
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
        Ok(())
    }

    /// Calls of the response in flight, by the host's keys.
    pub fn scope_calls(&self) -> Vec<CallId> {
        self.scope.iter().map(|(_, key)| key.clone()).collect()
    }

    /// The framed text that tells the model which calls of a lost answer ran and with what outcome (L59); `None` if there is
    /// nothing to tell.
    pub fn lost_notice(&self) -> Option<String> {
        if self.untold.is_empty() && self.untold_before.is_empty() {
            return None;
        }
        let mut lines = vec![
            "[host] An earlier answer of yours was lost on the way and is not part of this conversation. These calls of \
             it were run; do not repeat them without need:"
                .to_owned(),
        ];
        let before = self.untold_before.iter().map(|lost| lost.line.clone());
        let mut room = limits::NOTICE_BYTES_MAX;
        for line in before.chain(self.untold.iter().filter_map(|id| self.lost_line(id, None))) {
            // No call is left out: the model has to know of each effect.
            if line.len() > room {
                lines.push(format!("{} …", &line[..line.floor_char_boundary(limits::NOTICE_SHORT_LINE_BYTES)]));
                continue;
            }
            room -= line.len();
            lines.push(line);
        }
        Some(lines.join("\n"))
    }

    fn lost_line(&self, id: &CallId, outcome: Option<&str>) -> Option<String> {
        let pending = self.checkpoint.call(id)?;
        let outcome = match (outcome, &pending.state) {
            (Some(outcome), _) => outcome.to_owned(),
            // Quoted: an output is a stranger's text and must not look like lines of the host.
            (None, CallState::Ready { output }) => quoted(output),
            (None, CallState::Running) => "it still runs".to_owned(),
            (None, CallState::Queued | CallState::Delivered) => "not known".to_owned(),
        };
        Some(format!("- {} {}: {}", pending.call.name, quoted(pending.call.text()), outcome))
    }
}

/// A text in quotes, and only its beginning if it is long: a notice stands in a record and in a request.
fn quoted(text: &str) -> String {
    if text.len() <= limits::NOTICE_TEXT_BYTES_MAX {
        return serde_json::Value::from(text).to_string();
    }
    let head = &text[..text.floor_char_boundary(limits::NOTICE_TEXT_BYTES_MAX)];
    format!("{} (the first {} of {} bytes)", serde_json::Value::from(head), head.len(), text.len())
}

/// The host's key of a call (B13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub id: CallId,
    /// The provider's id, where it differs.
    pub wire: Option<CallId>,
}

/// What an accepted response's end means for its sync calls and for the turn (L18, L66).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It is whole: its sync calls are released.
    Whole,
    /// A successor follows (`steered`): its sync calls wait for that one, and the turn goes on.
    Superseded,
    /// It is incomplete: its sync calls wait for a resume, and the turn stops.
    Cut {
        /// Why.
        reason: String,
    },
}

impl Ending {
    /// Reads it from outcome and finish reason. Only no finish reason, `stop`, `tool_calls` and `end_turn` are those of a
    /// whole response.
    pub fn of(outcome: &Outcome, finish_reason: Option<&str>) -> Self {
        match (outcome, finish_reason) {
            (_, Some("steered")) => Self::Superseded,
            (Outcome::Incomplete { reason }, _) if reason == "steered" => Self::Superseded,
            (Outcome::Incomplete { reason }, _) => Self::Cut { reason: reason.clone() },
            (_, None | Some("stop" | "tool_calls" | "end_turn")) => Self::Whole,
            (_, Some(other)) => Self::Cut { reason: other.to_owned() },
        }
    }
}

impl ResponseFacts {
    /// How it ended.
    pub fn ending(&self) -> Ending {
        Ending::of(&self.outcome, self.finish_reason.as_deref())
    }
}

fn note_id(used: &mut HashSet<CallId>, scope: &mut Scope, call: &Call, wire: Option<&CallId>) {
    let wire = wire.unwrap_or(&call.id);
    used.insert(call.id.clone());
    used.insert(wire.clone());
    scope.push(wire.clone(), call.id.clone());
}
