//! The stored form of records: `kind`, `version`, and a JSON body of its own, converted by hand so that a renamed type
//! never changes what is on disk (STATE-7).

use std::fmt;

use serde_json::{Map, Value, json};

use super::{Begun, Closed, FlightFate, HarnessFacts, PauseReason, Reconcile, Record, ResponseFacts, Settlement};
use crate::call::{Call, kind_of};
use crate::digest::Digest;
use crate::error::Error;
use crate::ids::{BlobDigest, CallId, ResponseId};
use crate::limits;
use crate::model::{Item, Outcome, Role, Usage};
use crate::policy::{Hold, RefusalReason, ReplayClass};
use crate::schema::depth;
use crate::tool::error_output;

/// A record in its stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// What kind.
    pub kind: &'static str,
    /// Version of that kind's form.
    pub version: u16,
    /// JSON text.
    pub body: String,
    /// An output that is too large to stand in the body; has to be durable before the record is.
    pub blob: Option<(BlobDigest, Vec<u8>)>,
}

impl Record {
    /// The kind's name in the journal.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::HarnessBound(_) => "harness.bound",
            Self::TurnStarted { .. } => "turn.started",
            Self::TurnEnded { .. } => "turn.ended",
            Self::CallAccepted { .. } => "call.accepted",
            Self::CallRejected { .. } => "call.rejected",
            Self::CallStarted { .. } => "call.started",
            Self::CallSettled { .. } => "call.settled",
            Self::CallRequeued { .. } => "call.requeued",
            Self::ReplayNarrowed { .. } => "call.narrowed",
            Self::HoldReleased { .. } => "call.released",
            Self::CallsOrphaned { .. } => "call.orphaned",
            Self::ResponseBegun(_) => "response.begun",
            Self::ResponseStarted { .. } => "response.started",
            Self::ResponseCompleted { .. } => "response.completed",
            Self::DeliveryPrepared { .. } => "delivery.prepared",
            Self::DeliveryAcknowledged { .. } => "delivery.acknowledged",
            Self::ResponseRecorded(_) => "response.recorded",
            Self::FlightCleared => "flight.cleared",
            Self::FlightSettled { .. } => "flight.settled",
            Self::SummaryStaged { .. } => "summary.staged",
            Self::TranscriptCommitted { .. } => "transcript.committed",
            Self::TranscriptDropped => "transcript.dropped",
            Self::OutcomeStored { .. } => "outcome.stored",
            Self::Paused { .. } => "turn.paused",
            Self::Resumed { .. } => "turn.resumed",
            Self::Reconciled { .. } => "turn.reconciled",
            Self::InboxConsumed { .. } => "inbox.consumed",
            Self::Parked { .. } => "turn.parked",
        }
    }

    /// The stored form. An output over [`limits::INLINE_OUTPUT_BYTES_MAX`] goes to a blob that the body names.
    ///
    /// # Errors
    /// A store error for what could not be stored, or not be read again: a body over [`limits::RECORD_BYTES_MAX`] or nested
    /// deeper than [`limits::RECORD_DEPTH_MAX`], a blob over [`limits::BLOB_BYTES_MAX`].
    pub fn encode(&self) -> Result<Encoded, Error> {
        let mut blob = None;
        let body = match self {
            Self::HarnessBound(facts) => json!({
                "name": facts.name, "component": facts.component, "authority": facts.authority,
                "conversation": facts.conversation, "authority_value": facts.authority_value,
            }),
            Self::TurnStarted { turn, input, closes } => json!({
                "turn": turn.as_str(), "input": input.iter().map(item_to_json).collect::<Vec<_>>(),
                "closes": closes.iter().map(closed_to_json).collect::<Vec<_>>(),
            }),
            Self::TurnEnded { turn, status } => json!({ "turn": turn.as_str(), "status": status }),
            Self::CallAccepted { call, wire_call_id, replay, hold, idempotency_key } => json!({
                "call": call.to_json(), "wire_call_id": wire_call_id.as_ref().map(CallId::as_str),
                "replay": replay.as_str(), "hold": hold.as_ref().map(Hold::as_str), "idempotency_key": idempotency_key,
            }),
            Self::CallRejected { call, wire_call_id, reason, output } => json!({
                "call": call.to_json(), "wire_call_id": wire_call_id.as_ref().map(CallId::as_str),
                "reason": reason.as_str(), "output": output,
            }),
            Self::CallStarted { id, attempt, idempotency_key, approval } => json!({
                "id": id.as_str(), "attempt": attempt, "idempotency_key": idempotency_key, "approval": approval,
            }),
            Self::CallSettled { id, output, how } if output.len() > limits::INLINE_OUTPUT_BYTES_MAX => {
                let digest = BlobDigest::new(Digest::of(output.as_bytes()).to_string());
                let body = json!({
                    "id": id.as_str(), "how": how.as_str(), "blob": digest.as_str(), "length": output.len(),
                });
                blob = Some((digest, output.clone().into_bytes()));
                body
            }
            Self::CallSettled { id, output, how } => {
                json!({ "id": id.as_str(), "how": how.as_str(), "output": output })
            }
            Self::CallRequeued { id } | Self::ReplayNarrowed { id } => json!({ "id": id.as_str() }),
            Self::HoldReleased { id, approval } => json!({ "id": id.as_str(), "approval": approval }),
            Self::CallsOrphaned { ids } => json!({ "ids": texts(ids) }),
            Self::ResponseBegun(begun) => json!({
                "ordinal": begun.ordinal, "message_id": begun.message_id,
                "continues": begun.continues.as_ref().map(ResponseId::as_str), "whole_history": begun.whole_history,
                "told": texts(&begun.told), "notice": begun.notice, "maker": begun.maker,
            }),
            Self::ResponseStarted { id } | Self::ResponseCompleted { id } => json!({ "id": id.as_str() }),
            Self::DeliveryPrepared { previous_response_id, call_ids, after } => json!({
                "previous_response_id": previous_response_id.as_str(), "call_ids": texts(call_ids),
                "after": after.iter().map(item_to_json).collect::<Vec<_>>(),
            }),
            Self::DeliveryAcknowledged { receipt } => json!({ "receipt": receipt.as_str() }),
            Self::ResponseRecorded(facts) => facts_to_json(facts),
            Self::FlightCleared | Self::TranscriptDropped => json!({}),
            Self::FlightSettled { fate, why, orphans } => {
                json!({ "fate": fate.as_str(), "why": why, "orphans": texts(orphans) })
            }
            Self::SummaryStaged { summary } => json!({ "summary": summary }),
            Self::TranscriptCommitted { message_id } => json!({ "message_id": message_id }),
            Self::OutcomeStored { outcome } => json!({ "outcome": outcome }),
            Self::Paused { reason } => match reason {
                PauseReason::LostResponse { calls } => json!({ "reason": "lost_response", "calls": texts(calls) }),
                PauseReason::Held { calls } => json!({ "reason": "held", "calls": texts(calls) }),
                PauseReason::Incomplete { reason } => json!({ "reason": "incomplete", "why": reason }),
                PauseReason::UnknownTools { count } => json!({ "reason": "unknown_tools", "count": count }),
                PauseReason::Shutdown => json!({ "reason": "shutdown" }),
            },
            Self::Resumed { why } | Self::Parked { why } => json!({ "why": why }),
            Self::Reconciled { command, who } => match command {
                Reconcile::Receipt(id) => json!({ "command": "receipt", "id": id.as_str(), "who": who }),
                Reconcile::Resend => json!({ "command": "resend", "who": who }),
                Reconcile::Abandon => json!({ "command": "abandon", "who": who }),
            },
            Self::InboxConsumed { id, kind, target, who, refused } => {
                json!({ "id": id, "kind": kind, "target": target, "who": who, "refused": refused })
            }
        };
        let unfit = |what: String| Err(Error::store(format!("a {:?} record {what}", self.kind())));
        if depth(&body) > limits::RECORD_DEPTH_MAX {
            return unfit(format!("is nested deeper than {} levels", limits::RECORD_DEPTH_MAX));
        }
        let body = body.to_string();
        if body.len() > limits::RECORD_BYTES_MAX {
            return unfit(format!("has {} bytes, over the limit of {}", body.len(), limits::RECORD_BYTES_MAX));
        }
        if let Some((_, bytes)) = blob.as_ref().filter(|(_, bytes)| bytes.len() > limits::BLOB_BYTES_MAX) {
            return unfit(format!(
                "has an output of {} bytes, over the limit of {}",
                bytes.len(),
                limits::BLOB_BYTES_MAX
            ));
        }
        Ok(Encoded { kind: self.kind(), version: 1, body, blob })
    }

    /// The blob that a stored record names, if any.
    pub fn named_blob(kind: &str, body: &str) -> Option<BlobDigest> {
        if kind != "call.settled" {
            return None;
        }
        let body: Value = serde_json::from_str(body).ok()?; // a body that is not JSON is reported by `decode`
        body.get("blob").and_then(Value::as_str).map(BlobDigest::new)
    }

    /// Reads the stored form. `blob` gives the bytes of a blob; one that is missing or damaged harms that output alone,
    /// which is then an error text that names it.
    ///
    /// # Errors
    /// A corruption error that names the kind and the member; a store error for a version that is newer than this code.
    pub fn decode(
        kind: &str,
        version: u16,
        body: &str,
        blob: impl FnOnce(&BlobDigest) -> Option<Vec<u8>>,
    ) -> Result<Self, Error> {
        if version == 0 {
            return Err(Error::corruption(format!("record {kind:?} has version 0, and versions count from 1")));
        }
        if version > 1 {
            return Err(Error::store(format!(
                "record {kind:?} has version {version}; this version of wharf reads version 1"
            ))
            .hint("use the newer wharf that wrote it"));
        }
        let value: Value = serde_json::from_str(body)
            .map_err(|e| Error::corruption(format!("the body of a {kind:?} record is not JSON: {e}")))?;
        let Value::Object(members) = &value else {
            return Err(Error::corruption(format!(
                "the body of a {kind:?} record is {}, not an object",
                kind_of(&value)
            )));
        };
        let read = Body { of: Of::Record(kind), members };
        Ok(match kind {
            "harness.bound" => Self::HarnessBound(HarnessFacts {
                name: read.text("name")?,
                component: read.text("component")?,
                authority: read.text("authority")?,
                conversation: read.text("conversation")?,
                authority_value: read.value("authority_value")?,
            }),
            "turn.started" => Self::TurnStarted {
                turn: read.text("turn")?.into(),
                input: read.items("input")?,
                closes: match read.members.get("closes") {
                    None => Vec::new(), // records of before there was such a thing
                    Some(_) => read.parts("closes", closed_from_json)?,
                },
            },
            "turn.ended" => Self::TurnEnded { turn: read.text("turn")?.into(), status: read.text("status")? },
            "call.accepted" => Self::CallAccepted {
                call: read.call()?,
                wire_call_id: read.optional("wire_call_id")?.map(CallId::from),
                replay: read.word("replay", ReplayClass::parse)?,
                hold: match read.optional("hold")?.as_deref() {
                    None => None,
                    Some("approval") => Some(Hold::Approval),
                    Some("output") => Some(Hold::Output),
                    Some(word) => return Err(read.bad("hold", word)),
                },
                idempotency_key: read.optional("idempotency_key")?,
            },
            "call.rejected" => Self::CallRejected {
                call: read.call()?,
                wire_call_id: read.optional("wire_call_id")?.map(CallId::from),
                reason: read.word("reason", RefusalReason::parse)?,
                output: read.text("output")?,
            },
            "call.started" => Self::CallStarted {
                id: read.call_id("id")?,
                attempt: u32::try_from(read.count("attempt")?).unwrap_or(u32::MAX),
                idempotency_key: read.optional("idempotency_key")?,
                approval: read.optional("approval")?,
            },
            "call.settled" => Self::CallSettled {
                id: read.call_id("id")?,
                how: read.word("how", Settlement::parse)?,
                output: match read.optional("blob")? {
                    None if !members.contains_key("output") => {
                        return Err(Error::corruption(format!(
                            "{} has neither member output nor member blob",
                            read.of
                        )));
                    }
                    None => read.text("output")?,
                    Some(digest) => read_blob(&digest, blob),
                },
            },
            "call.requeued" => Self::CallRequeued { id: read.call_id("id")? },
            "call.narrowed" => Self::ReplayNarrowed { id: read.call_id("id")? },
            "call.released" => Self::HoldReleased { id: read.call_id("id")?, approval: read.text("approval")? },
            "call.orphaned" => Self::CallsOrphaned { ids: read.call_ids("ids")? },
            "response.begun" => Self::ResponseBegun(Begun {
                ordinal: read.count("ordinal")?,
                message_id: read.optional("message_id")?,
                continues: read.optional("continues")?.map(ResponseId::from),
                whole_history: read.flag("whole_history")?,
                told: read.call_ids("told")?,
                notice: read.optional("notice")?,
                maker: read.optional("maker")?,
            }),
            "response.started" => Self::ResponseStarted { id: read.text("id")?.into() },
            "response.completed" => Self::ResponseCompleted { id: read.text("id")?.into() },
            "delivery.prepared" => Self::DeliveryPrepared {
                previous_response_id: read.text("previous_response_id")?.into(),
                call_ids: read.call_ids("call_ids")?,
                after: read.items("after")?,
            },
            "delivery.acknowledged" => Self::DeliveryAcknowledged { receipt: read.text("receipt")?.into() },
            "response.recorded" => Self::ResponseRecorded(facts_from_json(&read)?),
            "flight.cleared" => Self::FlightCleared,
            "flight.settled" => Self::FlightSettled {
                fate: read.word("fate", FlightFate::parse)?,
                why: read.text("why")?,
                orphans: read.call_ids("orphans")?,
            },
            "summary.staged" => Self::SummaryStaged { summary: read.value("summary")? },
            "transcript.committed" => Self::TranscriptCommitted { message_id: read.text("message_id")? },
            "transcript.dropped" => Self::TranscriptDropped,
            "outcome.stored" => Self::OutcomeStored { outcome: read.value("outcome")? },
            "turn.paused" => Self::Paused {
                reason: match read.text("reason")?.as_str() {
                    "lost_response" => PauseReason::LostResponse { calls: read.call_ids("calls")? },
                    "held" => PauseReason::Held { calls: read.call_ids("calls")? },
                    "incomplete" => PauseReason::Incomplete { reason: read.text("why")? },
                    "unknown_tools" => PauseReason::UnknownTools { count: read.count("count")? },
                    "shutdown" => PauseReason::Shutdown,
                    word => return Err(read.bad("reason", word)),
                },
            },
            "turn.resumed" => Self::Resumed { why: read.text("why")? },
            "turn.reconciled" => Self::Reconciled {
                command: match read.text("command")?.as_str() {
                    "receipt" => Reconcile::Receipt(read.text("id")?.into()),
                    "resend" => Reconcile::Resend,
                    "abandon" => Reconcile::Abandon,
                    word => return Err(read.bad("command", word)),
                },
                who: read.text("who")?,
            },
            "inbox.consumed" => Self::InboxConsumed {
                id: read.text("id")?,
                kind: read.text("kind")?,
                target: read.text("target")?,
                who: read.text("who")?,
                refused: read.optional("refused")?,
            },
            "turn.parked" => Self::Parked { why: read.text("why")? },
            other => {
                return Err(Error::corruption(format!("record kind {other:?} of version {version} is unknown"))
                    .hint("if a newer wharf wrote it, use that one"));
            }
        })
    }
}

fn read_blob(digest: &str, blob: impl FnOnce(&BlobDigest) -> Option<Vec<u8>>) -> String {
    match blob(&BlobDigest::new(digest)) {
        None => error_output(&format!("the stored output {digest} is missing")),
        Some(bytes) if Digest::of(&bytes).to_string() != digest => {
            error_output(&format!("the stored output {digest} is damaged"))
        }
        Some(bytes) => String::from_utf8(bytes)
            .unwrap_or_else(|_| error_output(&format!("the stored output {digest} is not text"))),
    }
}

/// An item of history in its stored form.
pub fn item_to_json(item: &Item) -> Value {
    match item {
        Item::Message { role, text } => json!({ "type": "message", "role": role.as_str(), "text": text }),
        Item::Call(call) => json!({ "type": "call", "call": call.to_json() }),
        Item::Output { call, output } => json!({ "type": "output", "call": call.to_json(), "output": output }),
        Item::Opaque { maker, raw } => json!({ "type": "opaque", "maker": maker, "raw": raw }),
    }
}

/// Reads [`item_to_json`]'s form.
///
/// # Errors
/// A corruption error that names the member.
pub fn item_from_json(value: &Value) -> Result<Item, Error> {
    let Value::Object(members) = value else {
        return Err(Error::corruption(format!("an item is {}, not an object", kind_of(value))));
    };
    let read = Body { of: Of::Part("an item"), members };
    Ok(match read.text("type")?.as_str() {
        "message" => Item::Message {
            role: read.word("role", |word| {
                [Role::System, Role::User, Role::Assistant].into_iter().find(|r| r.as_str() == word)
            })?,
            text: read.text("text")?,
        },
        "call" => Item::Call(read.call()?),
        "output" => Item::Output { call: read.call()?, output: read.text("output")? },
        "opaque" => Item::Opaque { maker: read.text("maker")?, raw: read.value("raw")? },
        word => return Err(read.bad("type", word)),
    })
}

fn closed_to_json(closed: &Closed) -> Value {
    json!({ "id": closed.id.as_str(), "output": closed.output })
}

fn closed_from_json(value: &Value) -> Result<Closed, Error> {
    let Value::Object(members) = value else {
        return Err(Error::corruption(format!("a closed call is {}, not an object", kind_of(value))));
    };
    let read = Body { of: Of::Part("a closed call"), members };
    Ok(Closed { id: read.call_id("id")?, output: read.optional("output")? })
}

fn facts_to_json(facts: &ResponseFacts) -> Value {
    json!({
        "id": facts.id.as_str(),
        "outcome": match &facts.outcome {
            Outcome::Completed => json!({ "status": "completed" }),
            Outcome::Incomplete { reason } => json!({ "status": "incomplete", "reason": reason }),
            Outcome::Failed { code, message } => json!({ "status": "failed", "code": code, "message": message }),
            Outcome::Cancelled => json!({ "status": "cancelled" }),
        },
        "finish_reason": facts.finish_reason, "items": facts.items, "text": facts.text, "refusal": facts.refusal,
        "usage": facts.usage.as_ref().map(usage_to_json), "model": facts.model, "first_token_ms": facts.first_token_ms,
    })
}

fn outcome_from_json(value: &Value) -> Result<Outcome, Error> {
    let Value::Object(members) = value else {
        return Err(Error::corruption(format!("an outcome is {}, not an object", kind_of(value))));
    };
    let read = Body { of: Of::Part("an outcome"), members };
    Ok(match read.text("status")?.as_str() {
        "completed" => Outcome::Completed,
        "incomplete" => Outcome::Incomplete { reason: read.text("reason")? },
        "failed" => Outcome::Failed { code: read.text("code")?, message: read.text("message")? },
        "cancelled" => Outcome::Cancelled,
        word => return Err(read.bad("status", word)),
    })
}

fn facts_from_json(read: &Body<'_>) -> Result<ResponseFacts, Error> {
    Ok(ResponseFacts {
        id: read.text("id")?.into(),
        outcome: read.part("outcome", outcome_from_json)?,
        finish_reason: read.optional("finish_reason")?,
        items: read.array("items")?.clone(),
        text: read.text("text")?,
        refusal: read.optional("refusal")?,
        usage: match read.members.get("usage") {
            None | Some(Value::Null) => None,
            Some(usage) => Some(usage_from_json(usage)),
        },
        model: read.optional("model")?,
        first_token_ms: read.members.get("first_token_ms").and_then(Value::as_u64),
    })
}

/// Usage in its stored form, which is also the one that is exported.
pub(crate) fn usage_to_json(usage: &Usage) -> Value {
    json!({
        "fresh_input": usage.fresh_input, "cache_read": usage.cache_read, "cache_write": usage.cache_write,
        "visible_output": usage.visible_output, "reasoning": usage.reasoning, "total": usage.total, "raw": usage.raw,
    })
}

fn usage_from_json(value: &Value) -> Usage {
    // Counts that are missing or odd read as none: usage decides nothing, and a session must not be stranded by it.
    let count = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        fresh_input: count("fresh_input"),
        cache_read: count("cache_read"),
        cache_write: count("cache_write"),
        visible_output: count("visible_output"),
        reasoning: count("reasoning"),
        total: count("total"),
        raw: value.get("raw").filter(|raw| !raw.is_null()).cloned(),
    }
}

fn texts(ids: &[CallId]) -> Vec<&str> {
    ids.iter().map(CallId::as_str).collect()
}

/// What members are read from, for messages.
#[derive(Clone, Copy)]
enum Of<'a> {
    /// The body of a record of this kind.
    Record(&'a str),
    /// Something inside of one.
    Part(&'static str),
}

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(kind) => write!(f, "a {kind:?} record"),
            Self::Part(what) => f.write_str(what),
        }
    }
}

struct Body<'a> {
    of: Of<'a>,
    members: &'a Map<String, Value>,
}

impl<'a> Body<'a> {
    fn bad(&self, name: &str, found: &str) -> Error {
        Error::corruption(format!("member {name} of {} is {found:?}, which is not known", self.of))
    }

    fn wrong(&self, name: &str, expected: &str) -> Error {
        Error::corruption(match self.members.get(name) {
            None => format!("{} has no member {name}", self.of),
            Some(found) => format!("member {name} of {} is {}, not {expected}", self.of, kind_of(found)),
        })
    }

    fn damaged(&self, name: &str, fault: &Error) -> Error {
        Error::corruption(format!("member {name} of {} is damaged: {}", self.of, fault.message))
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        self.members.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| self.wrong(name, "a string"))
    }

    fn optional(&self, name: &str) -> Result<Option<String>, Error> {
        match self.members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.text(name).map(Some),
        }
    }

    fn count(&self, name: &str) -> Result<u64, Error> {
        self.members.get(name).and_then(Value::as_u64).ok_or_else(|| self.wrong(name, "a count"))
    }

    fn flag(&self, name: &str) -> Result<bool, Error> {
        self.members.get(name).and_then(Value::as_bool).ok_or_else(|| self.wrong(name, "a boolean"))
    }

    /// Somebody else's JSON; what was none is there as null.
    fn value(&self, name: &str) -> Result<Value, Error> {
        self.members.get(name).cloned().ok_or_else(|| self.wrong(name, "there"))
    }

    fn part<T>(&self, name: &str, read: impl FnOnce(&Value) -> Result<T, Error>) -> Result<T, Error> {
        let value = self.members.get(name).ok_or_else(|| self.wrong(name, "an object"))?;
        read(value).map_err(|fault| self.damaged(name, &fault))
    }

    fn parts<T>(&self, name: &str, read: impl Fn(&Value) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        self.array(name)?.iter().map(|value| read(value).map_err(|fault| self.damaged(name, &fault))).collect()
    }

    fn array(&self, name: &str) -> Result<&'a Vec<Value>, Error> {
        self.members.get(name).and_then(Value::as_array).ok_or_else(|| self.wrong(name, "an array"))
    }

    fn word<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
        let word = self.text(name)?;
        parse(&word).ok_or_else(|| self.bad(name, &word))
    }

    fn call_id(&self, name: &str) -> Result<CallId, Error> {
        self.text(name).map(CallId::from)
    }

    fn call_ids(&self, name: &str) -> Result<Vec<CallId>, Error> {
        self.array(name)?
            .iter()
            .map(|id| id.as_str().map(CallId::new).ok_or_else(|| self.wrong(name, "an array of strings")))
            .collect()
    }

    fn call(&self) -> Result<Call, Error> {
        self.part("call", Call::from_json)
    }

    fn items(&self, name: &str) -> Result<Vec<Item>, Error> {
        self.parts(name, item_from_json)
    }
}
