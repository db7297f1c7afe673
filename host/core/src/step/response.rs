//! What the events of a response do (L17 to L23, L55, L58, L66) and what becomes of an uncertain one (G13 to G20).

use serde_json::Value;

use super::{Effect, Machine};
use crate::error::Error;
use crate::ids::ResponseId;
use crate::limits;
use crate::model::{Completion, Fate, Outcome, RequestError};
use crate::reconcile::{self, Evidence, Resolution};
use crate::record::{FlightFate, PauseReason, Reconcile, Record, ResponseFacts};
use crate::schema::depth;
use crate::session::Ending;

impl Machine {
    /// A request that brought no stream. What is proven not to have been accepted is rolled back (G14); the rest is
    /// uncertain.
    pub(super) fn request_failed(&mut self, failure: &RequestError) -> Result<Vec<Effect>, Error> {
        let turn = self.turn()?;
        if turn.flight.is_none() {
            return Err(Error::store("no request is in flight that could have failed"));
        }
        let fate = match failure.fate {
            Fate::NotSent => FlightFate::NotSent,
            Fate::Refused => FlightFate::Refused,
            Fate::Unknown => {
                self.broken = true;
                return Ok(vec![Effect::Fail(failure.error.clone())]);
            }
        };
        let records = reconcile::settle_flight(turn, self.settings.uncertainty, fate, &failure.error.message);
        let mut effects = self.settle_flight(records)?;
        effects.push(Effect::Fail(failure.error.clone()));
        Ok(effects)
    }

    /// The response's id is journaled at once (L55), one time.
    pub(super) fn response_started(&mut self, id: ResponseId) -> Result<Vec<Effect>, Error> {
        let Some(flight) = &self.turn()?.flight else {
            return Err(Error::store("an event of a response came, and none was begun"));
        };
        if flight.id.is_some() || id.is_blank() || is_too_long(&id) {
            return Ok(Vec::new());
        }
        self.commit(vec![Record::ResponseStarted { id }])
    }

    /// The terminal event settles the response at once (L66): completed or incomplete is accepted, failed or cancelled is
    /// not.
    pub(super) fn completed(
        &mut self,
        completion: Completion,
        first_token_ms: Option<u64>,
    ) -> Result<Vec<Effect>, Error> {
        let turn = self.turn()?;
        if turn.flight.is_none() {
            return Err(Error::store("a response ended, and none was begun"));
        }
        let finish = completion.finish_reason.as_deref();
        let refused = match (&completion.outcome, finish) {
            (Outcome::Failed { code, message }, _) => Some(match (code.as_str(), message.as_str()) {
                ("", message) => format!("the response failed: {message}"),
                (code, message) => format!("the response failed: {message} ({code})"),
            }),
            (Outcome::Cancelled, _) | (Outcome::Completed | Outcome::Incomplete { .. }, Some("cancelled")) => {
                Some("the response was cancelled at the provider".to_owned())
            }
            (Outcome::Completed | Outcome::Incomplete { .. }, Some("error")) => {
                Some("the response ended with an error".to_owned())
            }
            (Outcome::Completed | Outcome::Incomplete { .. }, _) => None,
        };
        if let Some(why) = refused {
            return self.not_accepted(Error::provider(why));
        }
        let id = completion.id.clone().unwrap_or_else(|| ResponseId::new(""));
        if self.session.latest_response_id() == Some(&id) {
            // Counted as a repeat (F4) it would be asked again and again.
            return self.not_accepted(Error::provider(format!(
                "response {:?} was accepted before, and the provider gives it again as the answer to another request",
                id.as_str()
            )));
        }
        let accepted = match id.is_blank() {
            true => Err(Error::provider("a response was completed without a response id")),
            false if is_too_long(&id) => Err(Error::provider(format!(
                "a response was completed with an id of {} bytes, over the limit of {}",
                id.as_str().len(),
                limits::ID_BYTES_MAX
            ))),
            false => reconcile::accept(&turn.checkpoint, &id),
        };
        // Without a receipt the stream is over and its request is not settled: as if it had broken (L21).
        self.broken = accepted.is_err();
        let mut records: Vec<Record> = accepted?.into_iter().collect();
        let (ending, facts) = (Ending::of(&completion.outcome, finish), storable(id, completion, first_token_ms));
        let recorded = match facts {
            Ok(recorded) => recorded,
            Err(unfit) => return self.not_accepted(unfit),
        };
        let pause = match ending {
            Ending::Cut { reason } => Some(reason),
            Ending::Whole | Ending::Superseded => None,
        };
        records.push(recorded);
        records.push(Record::FlightCleared);
        if let Some(reason) = pause {
            records.push(Record::Paused { reason: PauseReason::Incomplete { reason } });
        }
        self.fold(&records)?;
        self.enqueue_waiting()?;
        let launches = self.schedule(&mut records)?;
        Ok(std::iter::once(Effect::Append(records)).chain(launches.into_iter().map(Effect::Run)).collect())
    }

    /// Settles the request in flight as not accepted, for this reason.
    fn not_accepted(&mut self, error: Error) -> Result<Vec<Effect>, Error> {
        let (rules, fate) = (self.settings.uncertainty, FlightFate::NotAccepted);
        let records = reconcile::settle_flight(self.turn()?, rules, fate, &error.message);
        let mut effects = self.settle_flight(records)?;
        effects.push(Effect::Fail(error));
        Ok(effects)
    }

    /// Decides about an uncertain request by the table of [`crate::reconcile`].
    pub(super) fn resolve(&mut self, evidence: Evidence) -> Result<Vec<Effect>, Error> {
        self.check_damage_on_opening()?;
        match reconcile::resolve(&self.session, self.settings.uncertainty, evidence) {
            Resolution::Clear => Ok(Vec::new()),
            Resolution::Retrieve(id) => Ok(vec![Effect::Retrieve(id)]),
            Resolution::Settle(records) => self.settle_flight(records),
            Resolution::Refuse(error) => Err(error),
        }
    }

    /// An operator's answer (G17). Abandoning stops what runs (L60).
    pub(super) fn reconciled(&mut self, command: &Reconcile, who: &str) -> Result<Vec<Effect>, Error> {
        self.check_damage_on_opening()?;
        let records = reconcile::reconcile(&self.session, command, who)?;
        match command {
            Reconcile::Abandon => {
                let aborts = self.jobs.clear();
                let mut effects = self.commit(records)?;
                effects.extend(aborts.into_iter().map(Effect::Abort));
                Ok(effects)
            }
            Reconcile::Receipt(_) | Reconcile::Resend => self.settle_flight(records),
        }
    }

    /// Folds records that settle a flight; calls that were withdrawn by it leave the queue, others may start again, and the
    /// sync calls of a response that counts as accepted are released.
    fn settle_flight(&mut self, mut records: Vec<Record>) -> Result<Vec<Effect>, Error> {
        self.fold(&records)?;
        self.broken = false;
        self.drop_withdrawn();
        self.enqueue_waiting()?;
        let launches = self.schedule(&mut records)?;
        Ok(std::iter::once(Effect::Append(records)).chain(launches.into_iter().map(Effect::Run)).collect())
    }
}

/// The record of a response. What is nested too deep to be read back is left out where nothing depends on it: the
/// provider's own form of the usage, and items that are neither messages nor calls (PROV-5).
///
/// # Errors
/// A provider error for a response that no journal could hold. It counts as not accepted, by us: it would be refused in the
/// same way each time that somebody asks for it.
fn storable(id: ResponseId, completion: Completion, first_token_ms: Option<u64>) -> Result<Record, Error> {
    let too_deep = |value: &Value| depth(value) > limits::RECORD_DEPTH_MAX - FACTS_DEPTH;
    let is_ours = |item: &Value| {
        matches!(
            item.get("type").and_then(Value::as_str),
            None | Some("message" | "function_call" | "custom_tool_call")
        )
    };
    let mut facts = ResponseFacts {
        id,
        outcome: completion.outcome,
        finish_reason: completion.finish_reason,
        items: completion.items,
        text: completion.text,
        refusal: completion.refusal,
        usage: completion.usage,
        model: completion.model,
        first_token_ms,
    };
    facts.items.retain(|item| is_ours(item) || !too_deep(item));
    if let Some(usage) = &mut facts.usage {
        usage.raw.take_if(|raw| too_deep(raw));
    }
    let named = facts.id.clone();
    let record = Record::ResponseRecorded(facts);
    match record.encode() {
        Ok(_) => Ok(record),
        Err(unfit) => Err(Error::provider(format!(
            "response {:?} cannot be kept, so it is not accepted: {}",
            named.as_str(),
            unfit.message
        ))
        .hint("ask for a shorter answer, or let fewer things be made in one")),
    }
}

/// Whether an id is none that anybody could have meant.
fn is_too_long(id: &ResponseId) -> bool {
    id.as_str().len() > limits::ID_BYTES_MAX
}

/// How deep a record's facts stand around an item or a usage object.
const FACTS_DEPTH: usize = 2;
