//! Conversations that last: turns on them, their messages and their events (Q, Z7 to Z10).

use std::sync::Arc;

use serde_json::{Value, json};
use wharf_core::events::Event;
use wharf_core::harness::{AfterLost, ModelRef, OnUnknown};
use wharf_core::model::{Item, Role};
use wharf_core::reconcile::UncertaintyRules;
use wharf_core::record::{PauseReason, Reconcile};
use wharf_core::session::Session as Fold;
use wharf_core::step::Settings;
use wharf_core::transcript::{self, Message};
use wharf_core::{Error, ErrorKind, Record, Seq, SessionId};
use wharf_store::{Acquire, JournalKey, Owner, Store};

use crate::agent::Agent;
use crate::coordinator::{Coordinator, Handle, Observer, Options, RecordListener, Rest};
use crate::executor::{HarnessExecutor, ToolListener};
use crate::journal;
use crate::limits;
use crate::requester::{DriverRequester, DriverRetriever, HistoryReader};

/// A conversation of an agent. Holds no lease between turns.
#[derive(Clone)]
pub struct Session {
    agent: Agent,
    key: JournalKey,
    model: Option<ModelRef>,
}

/// What one turn is run with; the default changes nothing.
#[derive(Default)]
pub struct TurnOptions {
    /// Another model for this turn (Z5).
    pub model: Option<ModelRef>,
    /// Another limit of responses than the harness's.
    pub max_responses: Option<u64>,
    /// Told of records as they become durable.
    pub records: Option<RecordListener>,
    /// Told of what running tools say.
    pub tools: Option<ToolListener>,
    /// Given the handle by which the turn is cancelled or stopped, once this process has the session.
    pub on_start: Option<Box<dyn FnOnce(Handle) + Send>>,
    /// Go on although the harness grants more than before (X14).
    pub accept_wider: bool,
    /// Replace a live owner (M2).
    pub take_over: bool,
    /// Under whose name the session was [claimed](wharf_store::Store::claim), if it was.
    pub claimed: Option<Owner>,
    /// Ask for whole answers instead of streams.
    pub no_stream: bool,
}

/// How a turn ended or came to rest (Z8).
#[derive(Debug, Clone, PartialEq)]
pub struct TurnResult {
    /// Whether it is done, and if not, what it waits for.
    pub status: TurnStatus,
    /// The text of the last response.
    pub text: String,
    /// The model's refusal, if it declined (Q17).
    pub refusal: Option<String>,
    /// Tokens over all responses of the turn, in disjoint buckets.
    pub usage: Value,
    /// Accepted responses of the turn.
    pub llm_calls: u64,
    /// Calls of accepted responses.
    pub tool_calls: u64,
}

/// Whether a turn is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnStatus {
    /// Everything is delivered and the model has answered.
    Completed,
    /// An operator abandoned it.
    Abandoned,
    /// It waits; any process may open it later (L62).
    Paused(PauseReason),
}

impl TurnResult {
    /// True if the turn is completed and the model did not decline.
    pub fn is_success(&self) -> bool {
        self.status == TurnStatus::Completed && self.refusal.is_none()
    }
}

impl Agent {
    /// The session of this id, there already or not (Z7).
    pub fn session(&self, id: impl Into<SessionId>) -> Session {
        Session { agent: self.clone(), key: JournalKey::local(id), model: None }
    }

    /// A session with a fresh id.
    pub fn new_session(&self) -> Session {
        self.session(self.wharf.0.seams.fresh())
    }
}

impl Session {
    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.key.session
    }

    /// The same session with another model (Z5).
    #[must_use]
    pub fn with_model(mut self, model: ModelRef) -> Self {
        self.model = Some(model);
        self
    }

    /// Its messages (Z9). Reads without a lease.
    ///
    /// # Errors
    /// Store and corruption errors.
    pub async fn messages(&self) -> Result<Vec<Message>, Error> {
        Ok(transcript::messages(&records(&*self.agent.wharf.0.store, &self.key).await?))
    }

    /// Its events after a record (Z10). Reads without a lease; ask again with the last number to follow it.
    ///
    /// # Errors
    /// Store and corruption errors.
    pub async fn events(&self, after: Seq) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        let store = &*self.agent.wharf.0.store;
        journal::records_after(store, &self.key, after, |seq, record| events.extend(Event::of(seq, &record))).await?;
        Ok(events)
    }

    /// Runs a turn with this input.
    ///
    /// # Errors
    /// Busy, if another process has the session; a store error if a turn is open (resume it); config, provider, store and
    /// cancelled errors. Whatever was gained is journaled, and [`Session::resume`] goes on from there.
    pub async fn turn(
        &self,
        input: &str,
        options: TurnOptions,
        observer: &mut dyn Observer,
    ) -> Result<TurnResult, Error> {
        let input = vec![Item::Message { role: Role::User, text: input.to_owned() }];
        self.drive(Some(input), None, options, observer).await
    }

    /// Goes on with the open turn. The outcome of a turn that is over is returned without a request (Q8).
    ///
    /// # Errors
    /// As [`Session::turn`]; a config error if the session never had a turn.
    pub async fn resume(&self, options: TurnOptions, observer: &mut dyn Observer) -> Result<TurnResult, Error> {
        self.drive(None, None, options, observer).await
    }

    /// Gives an operator's answer for an uncertain request or a pause (G17), and goes on with the turn unless it is
    /// abandoned.
    ///
    /// # Errors
    /// As [`Session::resume`]; a store error where nothing waits for this answer.
    pub async fn reconcile(
        &self,
        command: Reconcile,
        who: &str,
        options: TurnOptions,
        observer: &mut dyn Observer,
    ) -> Result<TurnResult, Error> {
        self.drive(None, Some((command, who.to_owned())), options, observer).await
    }

    async fn drive(
        &self,
        input: Option<Vec<Item>>,
        reconcile: Option<(Reconcile, String)>,
        options: TurnOptions,
        observer: &mut dyn Observer,
    ) -> Result<TurnResult, Error> {
        let agent = &self.agent;
        let parts = &agent.wharf.0;
        let model = agent.model(options.model.as_ref(), self.model.as_ref())?;
        let driver = agent.driver(&model)?;
        let mut open = Options::new(
            parts.store.clone(),
            self.key.clone(),
            Arc::new(HarnessExecutor {
                table: agent.table.clone(),
                sources: agent.sources.clone(),
                seams: parts.seams.clone(),
                session: self.key.session.clone(),
                listener: options.tools,
            }),
            parts.seams.clone(),
        );
        let facts = agent.facts(&model);
        open.label.clone_from(&parts.label);
        open.claimed = options.claimed;
        open.acquire = if options.take_over { Acquire::TakeOver } else { Acquire::IfFree };
        open.settings = self.settings();
        open.retriever = Some(Arc::new(DriverRetriever::new(agent.clone(), driver.clone(), &model.model)));
        open.harness = Some(facts.clone());
        open.accept_wider = options.accept_wider;
        open.reconcile = reconcile;
        open.for_new_turn = input.is_some();
        open.listener = options.records;
        open.on_start = options.on_start;
        let mut coordinator = Coordinator::open(open).await?;
        let limit = options.max_responses.unwrap_or_else(|| u64::from(agent.harness.turn().max_responses));
        let mut requester = DriverRequester {
            driver,
            model: model.model.clone(),
            instructions: agent.instructions.to_string(),
            tools: agent.table.offers(),
            options: agent.harness.options().clone(),
            history: HistoryReader::new(parts.store.clone(), self.key.clone()),
            stream: !options.no_stream,
            planned: None,
        };
        let done = run_turn(&mut coordinator, input, facts, limit, &mut requester, observer).await;
        match done {
            Ok(result) => Ok(result),
            Err(error) => {
                // A socket that drops, or a request that is refused, must not kill a payment half way (L57).
                if let Err(failure) = coordinator.wind_down().await {
                    tracing::debug!(%failure, "what ran could not be waited for");
                }
                // Whatever is pending is journaled; the lease must not stand in the next opener's way.
                coordinator.failed_with(&error);
                coordinator.abort().await;
                match finished(coordinator.session()) {
                    // Somebody ended it through the inbox.
                    Some(result) if error.kind == ErrorKind::Cancelled && result.status == TurnStatus::Abandoned => {
                        Ok(result)
                    }
                    Some(_) | None => Err(error),
                }
            }
        }
    }

    fn settings(&self) -> Settings {
        let turn = self.agent.harness.turn();
        Settings {
            calls_at_once: usize::try_from(turn.jobs_at_once).unwrap_or(usize::MAX),
            parallel: turn.parallel,
            uncertainty: UncertaintyRules {
                resend_lost: turn.resend_lost,
                resend_unknown: turn.on_unknown == OnUnknown::Resend,
                continue_after_lost: turn.after_lost_response == AfterLost::Continue,
            },
            unknown_tools_max: u64::from(turn.unknown_tool_limit),
        }
    }
}

async fn run_turn(
    coordinator: &mut Coordinator,
    input: Option<Vec<Item>>,
    facts: wharf_core::record::HarnessFacts,
    limit: u64,
    requester: &mut DriverRequester,
    observer: &mut dyn Observer,
) -> Result<TurnResult, Error> {
    match (input, coordinator.session().open_turn()) {
        // No turn is open then: the coordinator was opened for a new one.
        (Some(input), _) => {
            coordinator.bind_harness(facts).await?;
            coordinator.start_turn(input).await?;
        }
        (None, Some(turn)) => match turn.paused {
            // These wait for an answer, not for somebody to go on.
            None | Some(PauseReason::LostResponse { .. } | PauseReason::Held { .. }) => {}
            Some(_) => coordinator.resume("resumed").await?,
        },
        (None, None) => {
            let result = finished(coordinator.session());
            coordinator.release().await?;
            return result.ok_or_else(|| Error::config("this session has no turn to resume"));
        }
    }
    let made = |coordinator: &Coordinator| coordinator.checkpoint().map_or(0, |c| c.completed_responses());
    let mut settled = 0;
    loop {
        let left = limit.saturating_sub(made(coordinator));
        match coordinator.run(left, requester, observer).await {
            Ok(Rest::Finished) => break,
            Ok(Rest::Paused(reason)) => {
                let result = result(coordinator.session(), TurnStatus::Paused(reason))
                    .ok_or_else(|| Error::config("no turn is open"))?;
                coordinator.park("the turn waits").await?;
                return Ok(result);
            }
            Err(error) => {
                let uncertain = coordinator.checkpoint().is_some_and(|c| c.response_in_flight());
                let may_settle =
                    error.kind == ErrorKind::Provider && uncertain && settled < limits::SETTLE_ATTEMPTS_MAX;
                if !may_settle {
                    return Err(error);
                }
                settled += 1;
                tracing::debug!(kind = %error.kind, "a response broke off; finding out what became of it");
                observer.broken(&error);
                // Where it stays uncertain, what broke is half of the story.
                match coordinator.settle_uncertain().await {
                    Err(_) if coordinator.is_cut_off() => {} // nothing can be found out any more; the next run says so
                    settled => settled
                        .map_err(|open| Error { message: format!("{}: {}", open.message, error.message), ..open })?,
                }
            }
        }
    }
    let result =
        result(coordinator.session(), TurnStatus::Completed).ok_or_else(|| Error::config("no turn is open"))?;
    coordinator.store_outcome(outcome_json(&result)).await?;
    coordinator.end_turn("completed").await?;
    coordinator.release().await?;
    Ok(result)
}

/// The result of a turn that is over, from its stored outcome (Q8).
fn finished(session: &Fold) -> Option<TurnResult> {
    let turn = session.turn()?;
    let status = match turn.ended.as_deref() {
        Some("abandoned") => TurnStatus::Abandoned,
        Some(_) | None => TurnStatus::Completed,
    };
    result(session, status)
}

fn result(session: &Fold, status: TurnStatus) -> Option<TurnResult> {
    let turn = session.turn()?;
    let checkpoint = &turn.checkpoint;
    let summaries = checkpoint.host_responses();
    let sum = |name: &str| -> u64 {
        summaries.iter().filter_map(|s| s.get("usage")?.get(name)?.as_u64()).fold(0, u64::saturating_add)
    };
    let last = turn.last_response.as_ref();
    Some(TurnResult {
        status,
        text: last.map(|facts| facts.text.clone()).unwrap_or_default(),
        refusal: last.and_then(|facts| facts.refusal.clone()),
        usage: json!({
            "fresh_input": sum("fresh_input"), "cache_read": sum("cache_read"), "cache_write": sum("cache_write"),
            "visible_output": sum("visible_output"), "reasoning": sum("reasoning"), "total": sum("total"),
        }),
        llm_calls: checkpoint.completed_responses(),
        tool_calls: checkpoint.calls().filter(|p| !checkpoint.is_orphan(&p.call.id)).count() as u64,
    })
}

/// The outcome as it is stored (Q4).
fn outcome_json(result: &TurnResult) -> Value {
    json!({
        "status": "completed",
        "text": result.text,
        "refusal": result.refusal,
        "usage": result.usage,
        "native_counts": { "llm_calls": result.llm_calls, "tool_calls": result.tool_calls },
    })
}

/// All records of a journal, read without a lease.
///
/// # Errors
/// Store and corruption errors.
pub async fn records(store: &dyn Store, key: &JournalKey) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    journal::records_after(store, key, Seq(0), |_, record| records.push(record)).await?;
    Ok(records)
}

#[cfg(test)]
mod tests;
