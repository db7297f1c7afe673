//! `step(machine, event) -> effects`: everything that the coordinator decides, as a function.
//!
//! A driver feeds events and carries out effects in order; an effect behind an [`Effect::Append`] may be carried out only
//! once the append is durable (design promise 1). If an append fails for good the machine is poisoned by
//! [`Event::JournalFailed`]; its checkpoint then shows the last change that was tried. Nothing here knows a future, a
//! clock, a store or a socket.

mod jobs;
mod letters;
mod next;
mod open;
mod response;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use crate::call::Call;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind};
use crate::ids::{CallId, ResponseId, TurnId};
use crate::inbox::Letter;
use crate::model::{Completion, FinishedCall, Item, RequestError};
use crate::policy::{CallPolicy, ReplayClass};
use crate::reconcile::{Evidence, UncertaintyRules};
use crate::record::{Begun, HarnessFacts, PauseReason, Reconcile, Record};
use crate::session::{Session, Turn};

pub use jobs::JobOutcome;
pub use next::Next;

use jobs::Jobs;

/// What a harness says about a turn beside its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Most calls that run at once; 0 counts as 1 (L2).
    pub calls_at_once: usize,
    /// Whether calls may overlap at all (L4).
    pub parallel: bool,
    /// What to do about uncertain requests.
    pub uncertainty: UncertaintyRules,
    /// Most calls of one turn that may name unknown tools (L51).
    pub unknown_tools_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            calls_at_once: crate::limits::CALLS_AT_ONCE,
            parallel: true,
            uncertainty: UncertaintyRules::default(),
            unknown_tools_max: crate::limits::UNKNOWN_TOOLS_MAX,
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// The harness that is in force (X14).
    HarnessBound(HarnessFacts),
    /// A user's input opens a turn.
    TurnStarted {
        /// Fresh.
        turn: TurnId,
        /// What the user said.
        input: Vec<Item>,
    },
    /// What became of the uncertain request is asked for; see [`crate::reconcile::resolve`].
    Resolve(Evidence),
    /// The journal was read, uncertainty is settled, and policy says this of each call that is not settled (L1, L15).
    Opened {
        /// In any order.
        policies: Vec<(CallId, CallPolicy)>,
    },
    /// A request is about to be sent.
    RequestBegun {
        /// The transcript message that its answer will be, if the caller keeps a transcript.
        message_id: Option<String>,
        /// The stored response that it goes on from.
        continues: Option<ResponseId>,
        /// Whether it carries the whole history and continues nothing stored.
        whole_history: bool,
        /// `provider/model` that is asked, where the caller says so.
        maker: Option<String>,
    },
    /// It failed before a stream was there.
    RequestFailed(RequestError),
    /// The first event of the stream that carries the response's id.
    ResponseStarted(ResponseId),
    /// A complete call item, during a stream or outside of one.
    Called {
        /// The call under the provider's id.
        finished: FinishedCall,
        /// What policy says of it.
        policy: CallPolicy,
        /// A fresh text, unique over all time; becomes the idempotency key of a keyed call (L56).
        fresh: String,
    },
    /// The terminal event of the stream.
    Completed {
        /// What it says.
        completion: Completion,
        /// From the request to the first piece of text.
        first_token_ms: Option<u64>,
    },
    /// The stream ended without a terminal event (L21).
    StreamBroken,
    /// A job came to an end.
    JobEnded {
        /// Whose.
        id: CallId,
        /// How.
        outcome: JobOutcome,
    },
    /// Put what is ready into a delivery.
    Prepare,
    /// Somebody decided about a held call (L61).
    Decided {
        /// Which.
        id: CallId,
        /// What.
        decision: Decision,
    },
    /// Settle everything that has no result as cancelled (H, L31).
    Cancel,
    /// The same, when these jobs had ended already: their results stay, and nothing starts in their place.
    CancelAfter(Vec<(CallId, JobOutcome)>),
    /// Start nothing new (L62).
    Stop,
    /// The time that a shutdown gives what runs is over (L57, L62): calls that may run again are queued to do so, the others
    /// are settled as cancelled, and nothing starts any more. The results of these jobs, which had ended by then, stay.
    CutOff(Vec<(CallId, JobOutcome)>),
    /// A command that was read in the inbox (M8). Where it is a cancel, the results of these jobs, which had ended by then,
    /// stay. One that no longer fits is consumed with the reason and is an [`Effect::Fail`].
    Letter {
        /// The command.
        letter: Letter,
        /// Jobs that have ended.
        ended: Vec<(CallId, JobOutcome)>,
    },
    /// The same, and it cannot be done for this reason.
    LetterRefused {
        /// The command.
        letter: Letter,
        /// Why.
        why: Error,
    },
    /// The turn goes on after a pause.
    Resume {
        /// Why it may.
        why: String,
    },
    /// The turn stops for this reason until it is resumed.
    Pause(PauseReason),
    /// An operator's answer (G17).
    Reconcile {
        /// What.
        command: Reconcile,
        /// By whom.
        who: String,
    },
    /// An operator said that this response took the request in flight, and it was read: its calls and its completion are
    /// the next events (G17).
    ReceiptRead {
        /// Which.
        id: ResponseId,
        /// By whom.
        who: String,
    },
    /// The summary of the response that was just accepted (L38).
    SummaryStaged(Value),
    /// The pending transcript message is final (L39).
    TranscriptCommitted(String),
    /// The turn's outcome (L40).
    OutcomeStored(Value),
    /// The turn is over.
    TurnEnded {
        /// `completed` or `failed`.
        status: String,
    },
    /// The lease is given up with work pending (L40).
    Parked {
        /// Why.
        why: String,
    },
    /// An append or a renewal failed for good (L11, L36, L63).
    JournalFailed(Error),
}

/// What somebody decided about a held call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may run.
    Approve {
        /// The approval, used up when the call starts (X16, L67).
        approval: String,
    },
    /// It may not.
    Decline {
        /// The framed result for the model (X18).
        output: String,
    },
    /// Its output came from outside.
    Output {
        /// The output.
        output: String,
    },
}

/// Something to do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Make these records durable, in one append, before anything behind them is done.
    Append(Vec<Record>),
    /// Run a call.
    Run(Launch),
    /// Stop a call's job; its result, if one still comes, does not count.
    Abort(CallId),
    /// Ask the provider for a response (G15).
    Retrieve(ResponseId),
    /// The event leads to this error. What stands before it is done all the same.
    Fail(Error),
}

/// A call that may run now: its start is journaled before this effect is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The call under the host's key.
    pub call: Call,
    /// 1 for its first run.
    pub attempt: u32,
    /// Equal for each run of the call.
    pub idempotency_key: Option<String>,
    /// What it was registered with.
    pub replay: ReplayClass,
}

/// State with which [`step`] decides: the fold of the journal, and what only a living process has.
#[derive(Debug, Clone)]
pub struct Machine {
    session: Session,
    settings: Settings,
    jobs: Jobs,
    /// A stream broke; nothing starts and nothing is sent until its request is settled (L21).
    broken: bool,
    /// Nothing starts any more (L62).
    stopping: bool,
    /// A turn came with the journal and its calls are not mended yet: nothing starts before that (G1, L1).
    opening: bool,
    poisoned: Option<Error>,
}

impl Machine {
    /// A machine over what a journal folded into.
    pub fn new(session: Session, settings: Settings) -> Self {
        let cap = if settings.parallel { settings.calls_at_once.max(1) } else { 1 };
        let opening = session.open_turn().is_some();
        Self { session, settings, jobs: Jobs::new(cap), broken: false, stopping: false, opening, poisoned: None }
    }

    /// The fold of the journal.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The checkpoint of the open turn, or of the last one.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.session.turn().map(|turn| &turn.checkpoint)
    }

    /// How many calls run.
    pub fn running(&self) -> usize {
        self.jobs.running()
    }

    /// True while a job's end can be waited for (L27). Calls that wait for their class or for a permit wait for one that
    /// runs; where nothing starts any more (L62) they wait for nobody.
    pub fn has_jobs(&self) -> bool {
        self.jobs.running() > 0
    }

    /// True while nobody knows what became of the request in flight: its stream broke, or another process began it.
    pub fn is_uncertain(&self) -> bool {
        self.is_in_flight() && (self.broken || self.opening)
    }

    /// True while the request in flight is this process's own and its stream goes on.
    fn is_being_answered(&self) -> bool {
        self.is_in_flight() && !self.is_uncertain()
    }

    fn is_in_flight(&self) -> bool {
        self.session.open_turn().is_some_and(|turn| turn.flight.is_some())
    }

    /// True if nothing but reading the checkpoint works any more (L11).
    pub fn poisoned(&self) -> Option<&Error> {
        self.poisoned.as_ref()
    }

    fn turn(&self) -> Result<&Turn, Error> {
        self.session.open_turn().ok_or_else(|| Error::config("no turn is open"))
    }

    /// Folds what was decided. A contradiction here is our own mistake; it is reported like damage, and since part of it may
    /// be folded, nothing is done with this state any more.
    fn fold(&mut self, records: &[Record]) -> Result<(), Error> {
        records.iter().try_for_each(|record| self.session.apply(record)).inspect_err(|error| {
            self.poisoned = Some(Error::store(error.message.clone()));
        })
    }

    /// Folds records, starts whatever may start then, and gives one append with the starts in it (L10).
    fn commit(&mut self, mut records: Vec<Record>) -> Result<Vec<Effect>, Error> {
        self.fold(&records)?;
        let launches = self.schedule(&mut records)?;
        let mut effects = Vec::new();
        if !records.is_empty() {
            effects.push(Effect::Append(records));
        }
        effects.extend(launches.into_iter().map(Effect::Run));
        Ok(effects)
    }
}

/// Decides what follows from an event.
///
/// # Errors
/// The kinds of the conformance list. An error means that nothing was changed and nothing is to be done; an event that
/// changes something and is an error too gives [`Effect::Fail`]. A poisoned machine answers everything with its store
/// error.
pub fn step(machine: &mut Machine, event: Event) -> Result<Vec<Effect>, Error> {
    if let Some(first) = &machine.poisoned {
        return Err(first.clone());
    }
    match event {
        Event::HarnessBound(facts) => machine.commit(vec![Record::HarnessBound(facts)]),
        Event::TurnStarted { turn, input } => {
            if machine.session.open_turn().is_some() {
                return Err(Error::store("a turn is open; it has to end before another one starts"));
            }
            machine.jobs.clear();
            machine.broken = false;
            machine.opening = false;
            let closes = machine.session.closes();
            machine.commit(vec![Record::TurnStarted { turn, input, closes }])
        }
        Event::Resolve(evidence) => machine.resolve(evidence),
        Event::Opened { policies } => machine.opened(&policies),
        Event::RequestBegun { message_id, continues, whole_history, maker } => {
            machine.request_begun(message_id, continues, whole_history, maker)
        }
        Event::RequestFailed(failure) => machine.request_failed(&failure),
        Event::ResponseStarted(id) => machine.response_started(id),
        Event::Called { finished, policy, fresh } => machine.called(finished, &policy, fresh),
        Event::Completed { completion, first_token_ms } => machine.completed(completion, first_token_ms),
        Event::StreamBroken => {
            machine.broken = machine.turn()?.flight.is_some();
            Ok(Vec::new())
        }
        Event::JobEnded { id, outcome } => machine.job_ended(&id, outcome),
        Event::Prepare => machine.prepare(),
        Event::Decided { id, decision } => machine.decided(&id, decision),
        Event::Cancel => machine.cancel(),
        Event::CancelAfter(ended) => machine.cancel_after(ended),
        Event::Stop => {
            machine.stopping = true;
            Ok(Vec::new())
        }
        Event::CutOff(ended) => machine.cut_off(ended),
        Event::Letter { letter, ended } => machine.letter(letter, ended),
        Event::LetterRefused { letter, why } => machine.refuse_letter(letter, why),
        Event::Resume { why } => {
            if let Some(PauseReason::LostResponse { .. }) = machine.turn()?.paused {
                return Err(Error::store("the turn waits for an operator's answer: a call that must not run twice was started in a lost response")
                    .hint("answer with `wharf session reconcile SESSION --resend` to go on without its answer, or with \
                           `--abandon` to end the turn"));
            }
            let mut records = vec![Record::Resumed { why }];
            machine.fold(&records)?;
            machine.enqueue_waiting()?;
            let launches = machine.schedule(&mut records)?;
            Ok(std::iter::once(Effect::Append(records)).chain(launches.into_iter().map(Effect::Run)).collect())
        }
        Event::Pause(reason) => {
            let paused = machine.turn()?.paused.as_ref();
            // A shutdown does not take the place of what somebody has to answer.
            if paused == Some(&reason) || (paused.is_some() && reason == PauseReason::Shutdown) {
                return Ok(Vec::new());
            }
            machine.commit(vec![Record::Paused { reason }])
        }
        Event::Reconcile { command, who } => machine.reconciled(&command, &who),
        Event::ReceiptRead { id, who } => {
            machine.check_damage_on_opening()?;
            let records = crate::reconcile::receipt_read(&machine.session, &id, &who)?;
            machine.commit(records)
        }
        Event::SummaryStaged(summary) => {
            let record = machine.turn()?.checkpoint.stage_summary(summary)?;
            machine.commit(vec![record])
        }
        Event::TranscriptCommitted(id) => {
            let record = machine.turn()?.checkpoint.commit_transcript(&id)?;
            machine.commit(vec![record])
        }
        Event::OutcomeStored(outcome) => {
            let record = machine.turn()?.checkpoint.store_outcome(outcome)?;
            machine.commit(vec![record])
        }
        Event::TurnEnded { status } => {
            let turn = machine.turn()?;
            if !turn.checkpoint.may_complete() {
                return Err(Error::store("the turn cannot end while calls, deliveries or responses are open"));
            }
            let record = Record::TurnEnded { turn: turn.id.clone(), status };
            machine.commit(vec![record])
        }
        Event::Parked { why } => machine.commit(vec![Record::Parked { why }]),
        Event::JournalFailed(error) => {
            let aborts = machine.jobs.clear();
            machine.poisoned = Some(Error { kind: ErrorKind::Store, ..error });
            Ok(aborts.into_iter().map(Effect::Abort).collect())
        }
    }
}

impl Machine {
    fn prepare(&mut self) -> Result<Vec<Effect>, Error> {
        let turn = self.turn()?;
        let after: Vec<Item> =
            turn.lost_notice().map(|text| Item::Message { role: crate::model::Role::User, text }).into_iter().collect();
        match turn.checkpoint.prepare_delivery(after)? {
            Some(record) => self.commit(vec![record]),
            None => Ok(Vec::new()),
        }
    }

    fn request_begun(
        &mut self,
        message_id: Option<String>,
        continues: Option<ResponseId>,
        whole_history: bool,
        maker: Option<String>,
    ) -> Result<Vec<Effect>, Error> {
        let turn = self.turn()?;
        if turn.flight.is_some() {
            return Err(Error::store("a response cannot begin while another one is in flight"));
        }
        if message_id.is_some() && turn.checkpoint.transcript_message_id().is_some() {
            return Err(Error::store("a transcript message cannot begin while another one is open"));
        }
        let begun = Begun {
            ordinal: self.session.requests().saturating_add(1),
            message_id,
            continues,
            whole_history,
            told: turn.untold.clone(),
            // Beside a delivery it is part of that.
            notice: if turn.checkpoint.delivery().is_some() { None } else { turn.lost_notice() },
            maker,
        };
        self.commit(vec![Record::ResponseBegun(begun)])
    }
}

/// The text of a class, cheap to hand around.
pub(crate) type Class = Arc<str>;
