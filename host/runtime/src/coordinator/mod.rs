//! The coordinator: runs calls beside the stream, journals each step before it is taken, and delivers outputs (conformance
//! L). It carries out what [`wharf_core::step`] decides, and decides nothing itself.
//!
//! It is usable by itself: an [`Executor`] of one's own, any [`Store`], a [`Requester`] (or a closure, see
//! [`request_fn`]), a limit of responses and an [`Observer`]. Time, ids and tasks come through [`Seams`].
//!
//! A future of this type that is dropped in mid-work leaves the coordinator poisoned, as a crash would: the journal knows
//! what is so, and a new coordinator goes on from there.

mod drive;
mod letters;
mod open;
mod run;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::future::BoxFuture;
use serde_json::Value;
use wharf_core::model::{Completion, Delivery, Item, RequestError, Retrieved};
use wharf_core::policy::CallPolicy;
use wharf_core::record::{HarnessFacts, PauseReason, Reconcile};
use wharf_core::session::Session;
use wharf_core::step::{Decision, Event, JobOutcome, Launch, Machine, Next, Settings};
use wharf_core::{Call, CallId, CallState, Checkpoint, Error, ErrorKind, Record, ResponseId, Seq, TurnId};
use wharf_provider::EventStream;
use wharf_store::{Acquire, JournalKey, Owner, Store};

use crate::journal::Journal;
use crate::seams::{Seams, Task};

use letters::Bell;
pub use run::request_fn;

/// Who says what a call may do, and runs it.
pub trait Executor: Send + Sync + 'static {
    /// The policy of a call (L7). A refusal is a policy, not an error: an error stops the coordinator's operation.
    ///
    /// # Errors
    /// Only where no answer can be given at all.
    fn authorize(&self, call: &Call) -> Result<CallPolicy, Error>;

    /// Runs a call whose start is durable. `Ok` is the output, unchanged (L65); `Err` becomes `{"error": message}` (L28).
    /// Dropping the future cancels the call.
    fn execute(&self, launch: Launch) -> BoxFuture<'static, Result<String, String>>;
}

/// Who asks the model.
pub trait Requester: Send {
    /// Reads what the request needs, before it is planned. Nothing, unless this is written.
    ///
    /// # Errors
    /// Store and corruption errors.
    fn prepare<'a>(&'a mut self, ask: &'a Ask) -> BoxFuture<'a, Result<(), Error>> {
        let _ = ask; // what is asked is all that the request is made of
        Box::pin(async { Ok(()) })
    }

    /// What the request will carry, before anything is journaled or sent.
    ///
    /// # Errors
    /// Config errors: the request cannot be made like this.
    fn plan(&mut self, ask: &Ask) -> Result<Plan, Error>;

    /// Sends it, once.
    fn send(&mut self, ask: Ask) -> BoxFuture<'static, Result<EventStream, RequestError>>;
}

/// What the model is asked with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    /// Outputs to deliver; none on the first request (L42).
    pub delivery: Option<Delivery>,
    /// The session's latest response id; none on the first request (L42).
    pub latest: Option<ResponseId>,
    /// `provider/model` that made it, where the journal says so.
    pub latest_maker: Option<String>,
    /// What stands first where the request goes on from a stored response: outputs of calls that an abandoned turn left
    /// open, then the turn's input.
    pub input: Vec<Item>,
    /// What the model has to be told beside its input, where there is no delivery that carries it (L59).
    pub notice: Option<Item>,
    /// True while a call is open at the provider, or in the delivery (O9).
    pub async_open: bool,
}

/// What a request carries, as it is journaled (G19).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The stored response that it goes on from.
    pub continues: Option<ResponseId>,
    /// True if it carries the whole history and continues nothing stored.
    pub whole_history: bool,
    /// `provider/model` that is asked (O20). The response can be asked for and continued there alone.
    pub maker: Option<String>,
}

/// Who can ask what became of a response (G15). `maker` is the [`Plan::maker`] of its request.
pub trait Retriever: Send + Sync + 'static {
    /// Whether responses of this maker can be asked for at all.
    fn reaches(&self, maker: Option<&str>) -> bool {
        let _ = maker; // there is one provider only, unless this is written
        true
    }

    /// Asks.
    fn retrieve(&self, maker: Option<&str>, id: &ResponseId) -> BoxFuture<'static, Result<Retrieved, RequestError>>;
}

/// Who watches. Every method does nothing unless it is written.
pub trait Observer: Send {
    /// A piece of the assistant's text.
    fn text(&mut self, text: &str) {
        let _ = text; // an observer that does not write this is not interested
    }

    /// A piece of a reasoning summary.
    fn reasoning(&mut self, text: &str) {
        let _ = text; // as above
    }

    /// A piece of a refusal.
    fn refusal(&mut self, text: &str) {
        let _ = text; // as above
    }

    /// An answer broke off; what became of the request is found out next. Text of it that was told may be told again.
    fn broken(&mut self, error: &Error) {
        let _ = error; // as above
    }

    /// A response was accepted.
    fn completed(&mut self, completion: &Completion) {
        let _ = completion; // as above
    }
}

/// An observer of nothing.
impl Observer for () {}

/// Who is told of records once they are durable, with their positions.
pub type RecordListener = Box<dyn FnMut(Seq, &Record) + Send>;

/// How a run came to rest.
#[derive(Debug, Clone, PartialEq)]
pub enum Rest {
    /// Everything is delivered.
    Finished,
    /// Somebody has to act (L62).
    Paused(PauseReason),
}

/// What preparing a delivery gave (L30).
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// Send this.
    Delivery(Delivery),
    /// There is nothing to deliver.
    Nothing,
    /// Nothing may be sent before somebody acts.
    Paused(PauseReason),
}

/// What a coordinator is opened with.
pub struct Options {
    /// Where the journal is.
    pub store: Arc<dyn Store>,
    /// Which journal.
    pub key: JournalKey,
    /// Who opens it, for people.
    pub label: String,
    /// Whether a live owner is replaced.
    pub acquire: Acquire,
    /// Under whose name the session was [claimed](wharf_store::Store::claim), if it was.
    pub claimed: Option<Owner>,
    /// Who runs calls.
    pub executor: Arc<dyn Executor>,
    /// Time, ids, tasks.
    pub seams: Arc<dyn Seams>,
    /// What the harness says.
    pub settings: Settings,
    /// Who can retrieve responses, if anybody.
    pub retriever: Option<Arc<dyn Retriever>>,
    /// The harness in force, for the comparison of X14; none skips it.
    pub harness: Option<HarnessFacts>,
    /// Go on although the harness grants more than the journal says (X14).
    pub accept_wider: bool,
    /// Told of every record from here on.
    pub listener: Option<RecordListener>,
    /// Given the handle once the lease is held, before anything is settled or started.
    pub on_start: Option<Box<dyn FnOnce(Handle) + Send>>,
    /// An operator's answer that is journaled before anything uncertain is decided (G17), and who gave it.
    pub reconcile: Option<(Reconcile, String)>,
    /// The caller is about to start a turn: where one is open, opening is an error before anything of it is settled or
    /// started.
    pub for_new_turn: bool,
}

impl Options {
    /// With everything at its default.
    pub fn new(store: Arc<dyn Store>, key: JournalKey, executor: Arc<dyn Executor>, seams: Arc<dyn Seams>) -> Self {
        Self {
            store,
            key,
            label: format!("pid {}", std::process::id()),
            acquire: Acquire::IfFree,
            claimed: None,
            executor,
            seams,
            settings: Settings::default(),
            retriever: None,
            harness: None,
            accept_wider: false,
            listener: None,
            on_start: None,
            reconcile: None,
            for_new_turn: false,
        }
    }
}

/// What a delivery waits for while jobs run.
enum Waits {
    Job,
    Somebody(PauseReason),
    Nothing,
}

/// What is told to a coordinator from outside while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Cancel,
    Stop,
}

/// Tells a working coordinator to cancel or to stop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle(mpsc::UnboundedSender<Control>);

impl Handle {
    /// Cancels the turn's calls; what runs is settled as cancelled, and the operation under way ends with a cancelled
    /// error (Q15).
    pub fn cancel(&self) {
        // The receiver is gone only when the coordinator is: then there is nothing to cancel.
        self.0.unbounded_send(Control::Cancel).ok();
    }

    /// Starts nothing new; a run comes to rest once what runs has ended (L62). What still runs after
    /// [`limits::SHUTDOWN_GRACE`](crate::limits::SHUTDOWN_GRACE) is ended: calls that may run again are queued to do so, others
    /// are settled as cancelled, and a request that is in flight then is left to the next opening, as after a crash.
    pub fn stop(&self) {
        self.0.unbounded_send(Control::Stop).ok(); // as above
    }
}

/// Runs the calls of one session's open turn. See the module's text.
pub struct Coordinator {
    machine: Machine,
    journal: Journal,
    executor: Arc<dyn Executor>,
    seams: Arc<dyn Seams>,
    retriever: Option<Arc<dyn Retriever>>,
    listener: Option<RecordListener>,
    tasks: HashMap<CallId, Task>,
    ended: mpsc::UnboundedReceiver<(CallId, JobOutcome)>,
    ended_sender: mpsc::UnboundedSender<(CallId, JobOutcome)>,
    control: mpsc::UnboundedReceiver<Control>,
    control_sender: mpsc::UnboundedSender<Control>,
    to_retrieve: Option<ResponseId>,
    /// True while effects are carried out: if it is still true at the next operation, a future was dropped in between.
    acting: bool,
    closed: bool,
    /// False until what an opened journal left is settled.
    opened: bool,
    /// When what runs is ended, once the host was told to stop.
    stop_at: Option<Duration>,
    /// That moment has passed.
    cut_off: bool,
    bell: Bell,
}

impl Coordinator {
    /// The state of the open turn, or of the last one. Works on a poisoned coordinator too.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.machine.checkpoint()
    }

    /// The fold of the journal.
    pub fn session(&self) -> &Session {
        self.machine.session()
    }

    /// To cancel or stop from elsewhere.
    pub fn handle(&self) -> Handle {
        Handle(self.control_sender.clone())
    }

    /// How many calls run now.
    pub fn running(&self) -> usize {
        self.machine.running()
    }

    /// Opens a turn with this input.
    ///
    /// # Errors
    /// A store error while another turn is open.
    pub async fn start_turn(&mut self, input: Vec<Item>) -> Result<TurnId, Error> {
        let turn = TurnId::new(self.seams.fresh());
        self.act(Event::TurnStarted { turn: turn.clone(), input }).await?;
        Ok(turn)
    }

    /// Journals the harness in force.
    ///
    /// # Errors
    /// Store errors.
    pub async fn bind_harness(&mut self, facts: HarnessFacts) -> Result<(), Error> {
        if self.session().harness() == Some(&facts) {
            return Ok(());
        }
        self.act(Event::HarnessBound(facts)).await
    }

    /// Marks a response as in flight, before its request is sent.
    ///
    /// # Errors
    /// A store error while another one is in flight (L22), or while a transcript message is open (L37).
    pub async fn begin_response(&mut self, plan: Plan) -> Result<(), Error> {
        self.begin(plan, None).await
    }

    /// Begins a transcript message and marks its response as in flight, in one save (L37).
    ///
    /// # Errors
    /// As [`Coordinator::begin_response`].
    pub async fn begin_transcript_message(&mut self, message_id: &str, plan: Plan) -> Result<(), Error> {
        self.begin(plan, Some(message_id.to_owned())).await
    }

    async fn begin(&mut self, plan: Plan, message_id: Option<String>) -> Result<(), Error> {
        let Plan { continues, whole_history, maker } = plan;
        self.act(Event::RequestBegun { message_id, continues, whole_history, maker }).await
    }

    /// Stages the summary of the response that was just accepted (L38).
    ///
    /// # Errors
    /// Store errors of L38.
    pub async fn stage_summary(&mut self, summary: Value) -> Result<(), Error> {
        self.act(Event::SummaryStaged(summary)).await
    }

    /// Commits the pending transcript message (L39).
    ///
    /// # Errors
    /// Store errors of L39.
    pub async fn commit_transcript(&mut self, message_id: &str) -> Result<(), Error> {
        self.act(Event::TranscriptCommitted(message_id.to_owned())).await
    }

    /// Settles a held call, or lets it go (L61).
    ///
    /// # Errors
    /// Config errors for a call that is unknown or does not wait for this.
    pub async fn decide(&mut self, call: &CallId, decision: Decision) -> Result<(), Error> {
        self.act(Event::Decided { id: call.clone(), decision }).await
    }

    /// Lets a paused turn go on (L66).
    ///
    /// # Errors
    /// Store errors.
    pub async fn resume(&mut self, why: &str) -> Result<(), Error> {
        self.act(Event::Resume { why: why.to_owned() }).await
    }

    /// An operator's answer for an uncertain request or a pause (G17).
    ///
    /// # Errors
    /// A store error where there is nothing to answer.
    pub async fn reconcile(&mut self, command: Reconcile, who: &str) -> Result<(), Error> {
        if let Reconcile::Receipt(id) = command {
            return self.accept_receipt(id, who.to_owned()).await;
        }
        self.act(Event::Reconcile { command, who: who.to_owned() }).await
    }

    /// Settles what has no result as cancelled; results that came before stay (L31).
    ///
    /// # Errors
    /// Store errors.
    pub async fn cancel(&mut self) -> Result<(), Error> {
        let ended = self.take_ended();
        self.act(Event::CancelAfter(ended)).await
    }

    /// Waits for the next job. False if there is none (L27).
    ///
    /// # Errors
    /// Store errors; a cancelled error if the turn is cancelled meanwhile.
    pub async fn wait_job(&mut self) -> Result<bool, Error> {
        self.check_usable()?;
        if !self.machine.has_jobs() {
            return Ok(false);
        }
        self.drive_until_job().await?;
        Ok(true)
    }

    /// Starts nothing new, and lets what runs come to its end, so that its results are journaled: for a turn that stops with
    /// an error (L57). Each call has a time limit of its own.
    ///
    /// # Errors
    /// Store errors; a cancelled error if the turn is cancelled meanwhile.
    pub async fn wind_down(&mut self) -> Result<(), Error> {
        self.act(Event::Stop).await?;
        while self.wait_job().await? {}
        Ok(())
    }

    /// Waits for the sync calls that are not held, then puts what is ready into a delivery and saves it (L30).
    ///
    /// # Errors
    /// Store errors of I1, I2, I4, L30.
    pub async fn prepare_delivery(&mut self) -> Result<Prepared, Error> {
        loop {
            self.check_usable()?;
            match self.machine.next()? {
                Next::Resolve => {
                    return Err(Error::store(
                        "a delivery cannot be prepared while a response is in flight or a delivery is open",
                    ));
                }
                Next::Rest(reason) => return Ok(Prepared::Paused(reason)),
                Next::Finished | Next::Ask => return Ok(Prepared::Nothing),
                Next::WaitForJob => match self.waits() {
                    Waits::Job => self.drive_until_job().await?,
                    Waits::Somebody(reason) => return Ok(Prepared::Paused(reason)),
                    Waits::Nothing => return Ok(Prepared::Nothing),
                },
                Next::Deliver => {
                    self.act(Event::Prepare).await?;
                    let delivery = self.checkpoint().and_then(Checkpoint::delivery).cloned();
                    return Ok(delivery.map_or(Prepared::Nothing, Prepared::Delivery));
                }
            }
        }
    }

    /// What a delivery waits for while jobs run.
    fn waits(&self) -> Waits {
        let Some(turn) = self.session().open_turn() else { return Waits::Nothing };
        let (mut held, mut held_sync) = (Vec::new(), false);
        for pending in turn.checkpoint.live_calls() {
            let id = &pending.call.id;
            if turn.checkpoint.is_orphan(id) {
                if turn.untold.contains(id) {
                    return Waits::Job; // what became of it has to be told with the delivery (L59)
                }
                continue;
            }
            match pending.state {
                CallState::Running if !pending.call.is_async => return Waits::Job,
                CallState::Queued if pending.hold.is_some() => {
                    held.push(id.clone());
                    held_sync |= !pending.call.is_async;
                }
                CallState::Queued if !pending.call.is_async && turn.paused.is_none() && !turn.withheld => {
                    return Waits::Job;
                }
                CallState::Queued | CallState::Running | CallState::Ready { .. } | CallState::Delivered => {}
            }
        }
        match &turn.paused {
            Some(reason) => Waits::Somebody(reason.clone()),
            None if held_sync => Waits::Somebody(PauseReason::Held { calls: held }),
            None => Waits::Nothing,
        }
    }

    /// True if everything is delivered (K1).
    pub fn may_complete(&self) -> bool {
        self.checkpoint().is_some_and(Checkpoint::may_complete)
    }

    /// Stores the turn's outcome (L40).
    ///
    /// # Errors
    /// A store error while the checkpoint may not complete.
    pub async fn store_outcome(&mut self, outcome: Value) -> Result<(), Error> {
        self.act(Event::OutcomeStored(outcome)).await
    }

    /// Ends the turn.
    ///
    /// # Errors
    /// A store error while the checkpoint may not complete.
    pub async fn end_turn(&mut self, status: &str) -> Result<(), Error> {
        self.act(Event::TurnEnded { status: status.to_owned() }).await
    }

    /// Gives the lease up with everything done (L40). The coordinator is unusable then. What is durable stays so where the
    /// store fails now; the lease ends by itself.
    ///
    /// # Errors
    /// A store error while the checkpoint may not complete.
    pub async fn release(&mut self) -> Result<(), Error> {
        self.check_usable()?;
        if self.session().open_turn().is_some() && !self.may_complete() {
            return Err(Error::store(
                "the lease cannot be released while calls, deliveries or responses are open; park instead",
            ));
        }
        self.let_go().await;
        Ok(())
    }

    /// True once a shutdown's time is over: nothing runs, nothing starts, and the lease should be given up.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Gives the lease up with work pending (L40, L62). Nothing may run, and nothing may be in flight unless a shutdown cut it
    /// off: the next opening asks what became of it.
    ///
    /// # Errors
    /// A store error while calls run or a request is in flight.
    pub async fn park(&mut self, why: &str) -> Result<(), Error> {
        self.check_usable()?;
        if self.machine.running() > 0 {
            return Err(Error::store("a turn cannot be parked while calls run"));
        }
        if self.checkpoint().is_some_and(Checkpoint::response_in_flight) && !self.cut_off {
            return Err(Error::store("a turn cannot be parked while a request is in flight"));
        }
        self.act(Event::Parked { why: why.to_owned() }).await?;
        self.let_go().await;
        Ok(())
    }

    /// Says before the lease is given up that the turn ended here with this error. Where a person stopped it, or has to act,
    /// no worker goes on with it by itself.
    pub fn failed_with(&mut self, error: &Error) {
        let in_flight = self.checkpoint().is_some_and(Checkpoint::response_in_flight);
        let for_people = match error.kind {
            ErrorKind::Cancelled => !self.cut_off,
            ErrorKind::Store => in_flight,
            ErrorKind::Conflict | ErrorKind::Corruption => true,
            ErrorKind::Config | ErrorKind::Provider | ErrorKind::Tool => false,
        };
        if for_people {
            self.journal.hands_off();
        }
    }

    async fn let_go(&mut self) {
        self.closed = true;
        if self.machine.poisoned().is_none() && !self.acting {
            self.journal.tell_who_may_go_on(self.machine.session()).await;
        }
        self.journal.release_quietly().await;
    }

    /// Gives the lease up after an error, so that nobody has to wait for its end. What ran is aborted.
    pub async fn abort(&mut self) {
        self.tasks.clear();
        self.let_go().await;
    }

    fn check_usable(&self) -> Result<(), Error> {
        if let Some(first) = self.machine.poisoned() {
            return Err(first.clone());
        }
        if self.closed {
            return Err(Error::store("the coordinator gave its lease up"));
        }
        if self.acting {
            return Err(Error::store(
                "an operation of this coordinator was dropped in mid-work; open the session again",
            ));
        }
        Ok(())
    }
}
