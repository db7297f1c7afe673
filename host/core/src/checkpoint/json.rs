//! The exported document of a checkpoint (conformance B). How a journal stores the same facts is another matter: see
//! [`crate::record`].

use serde_json::{Map, Value, json};

use super::{CallState, Checkpoint, PendingCall};
use crate::call::{Call, kind_of};
use crate::error::Error;
use crate::ids::{CallId, ResponseId};
use crate::model::Delivery;
use crate::policy::{Hold, ReplayClass};
use crate::record::{item_from_json, item_to_json};

impl Checkpoint {
    /// The document. `background_response` and `orphans` are left out when there are none; other empty members are written
    /// (B5, B14).
    pub fn to_json(&self) -> Value {
        // Keys as they are stored and calls that the order lacks are written too: damage stays visible (G2, G9).
        let mut calls = Map::new();
        let mut unordered: Vec<&CallId> = self.calls.keys().filter(|id| !self.positions.contains_key(*id)).collect();
        unordered.sort();
        for id in self.order.iter().chain(unordered) {
            if let Some(pending) = self.calls.get(id) {
                calls.insert(id.as_str().to_owned(), pending_to_json(pending));
            }
        }
        let mut document = json!({
            "latest_response_id": self.latest_response_id.as_ref().map(ResponseId::as_str),
            "transcript_message_id": self.transcript_message_id,
            "host_outcome": self.host_outcome,
            "completed_responses": self.completed_responses,
            "host_responses": self.host_responses,
            "response_in_flight": self.response_in_flight,
            "calls": calls,
            "order": self.order.iter().map(CallId::as_str).collect::<Vec<_>>(),
            "delivery": self.delivery.as_ref().map(delivery_to_json),
        });
        if let Some(background) = &self.background_response {
            document["background_response"] = background.clone();
        }
        if !self.orphans.is_empty() {
            document["orphans"] = self.orphans.iter().map(CallId::as_str).collect::<Vec<_>>().into();
        }
        document
    }

    /// Reads the document. Members that were added later take their defaults (B3); `calls` and `order` have to be there
    /// (B4). What is read is not yet checked against itself: see [`Checkpoint::check_damage`].
    ///
    /// # Errors
    /// A corruption error that names the member.
    pub fn from_json(document: &Value) -> Result<Self, Error> {
        let members = document
            .as_object()
            .ok_or_else(|| Error::corruption(format!("a checkpoint is {}, not an object", kind_of(document))))?;
        let read = Members(members);
        let mut calls = std::collections::HashMap::new();
        for (key, value) in read.object("calls")? {
            calls.insert(CallId::new(key), pending_from_json(key, value)?);
        }
        let ids = |name: &str, list: &Vec<Value>| -> Result<Vec<CallId>, Error> {
            list.iter().map(|id| id.as_str().map(CallId::new).ok_or_else(|| bad(name, id, "a string"))).collect()
        };
        let mut checkpoint = Self {
            latest_response_id: read.optional_text("latest_response_id")?.map(ResponseId::from),
            transcript_message_id: read.optional_text("transcript_message_id")?,
            host_outcome: members.get("host_outcome").filter(|v| !v.is_null()).cloned(),
            completed_responses: match members.get("completed_responses") {
                None => 0,
                Some(n) => n.as_u64().ok_or_else(|| bad("completed_responses", n, "a count"))?,
            },
            host_responses: match members.get("host_responses") {
                None => Vec::new(),
                Some(Value::Array(list)) => list.clone(),
                Some(other) => return Err(bad("host_responses", other, "an array")),
            },
            response_in_flight: read.flag("response_in_flight")?,
            calls,
            order: ids("order", read.array("order")?)?,
            delivery: match members.get("delivery") {
                None | Some(Value::Null) => None,
                Some(value) => Some(delivery_from_json(value)?),
            },
            background_response: members.get("background_response").filter(|v| !v.is_null()).cloned(),
            orphans: match members.get("orphans") {
                None => Vec::new(),
                Some(Value::Array(list)) => ids("orphans", list)?,
                Some(other) => return Err(bad("orphans", other, "an array")),
            },
            ..Self::default()
        };
        checkpoint.derive();
        Ok(checkpoint)
    }
}

fn pending_to_json(pending: &PendingCall) -> Value {
    let mut value = json!({
        "call": pending.call.to_json(),
        "replay_safe": pending.replay == ReplayClass::Safe,
        "replay_class": pending.replay.as_str(),
        "state": match &pending.state {
            CallState::Ready { output } => json!({ "Ready": { "output": output } }),
            plain @ (CallState::Queued | CallState::Running | CallState::Delivered) => json!(plain.as_str()),
        },
    });
    if pending.rejected {
        value["rejected"] = true.into();
    }
    if let Some(hold) = &pending.hold {
        value["hold"] = hold.as_str().into();
    }
    if let Some(key) = &pending.idempotency_key {
        value["idempotency_key"] = key.as_str().into();
    }
    if let Some(id) = &pending.wire_call_id {
        value["wire_call_id"] = id.as_str().into();
    }
    value
}

fn pending_from_json(key: &str, value: &Value) -> Result<PendingCall, Error> {
    let members = value.as_object().ok_or_else(|| bad(&format!("calls.{key}"), value, "an object"))?;
    let read = Members(members);
    let call = Call::from_json(members.get("call").unwrap_or(&Value::Null))
        .map_err(|fault| Error::corruption(format!("calls.{key}.call: {}", fault.message)))?;
    let replay = match read.optional_text("replay_class")? {
        Some(word) => ReplayClass::parse(&word).ok_or_else(|| {
            Error::corruption(format!("calls.{key}.replay_class is {word:?}, which is no replay class"))
        })?,
        None if read.flag("replay_safe")? => ReplayClass::Safe,
        None => ReplayClass::Never,
    };
    let state = match members.get("state") {
        Some(Value::String(word)) if word == "Queued" => CallState::Queued,
        Some(Value::String(word)) if word == "Running" => CallState::Running,
        Some(Value::String(word)) if word == "Delivered" => CallState::Delivered,
        Some(Value::Object(ready)) if ready.len() == 1 => {
            let output = ready.get("Ready").and_then(|r| r.get("output")).and_then(Value::as_str);
            let output = output.ok_or_else(|| Error::corruption(format!("calls.{key}.state has no output")))?;
            CallState::Ready { output: output.to_owned() }
        }
        other => {
            return Err(Error::corruption(format!(
                "calls.{key}.state is {}, which is no state",
                other.unwrap_or(&Value::Null)
            )));
        }
    };
    Ok(PendingCall {
        call,
        replay,
        state,
        rejected: read.flag("rejected")?,
        hold: match read.optional_text("hold")?.as_deref() {
            None => None,
            Some("approval") => Some(Hold::Approval),
            Some("output") => Some(Hold::Output),
            Some(word) => return Err(Error::corruption(format!("calls.{key}.hold is {word:?}, which is no hold"))),
        },
        idempotency_key: read.optional_text("idempotency_key")?,
        wire_call_id: read.optional_text("wire_call_id")?.map(CallId::from),
    })
}

pub(crate) fn delivery_to_json(delivery: &Delivery) -> Value {
    let mut value = json!({
        "previous_response_id": delivery.previous_response_id.as_str(),
        "call_ids": delivery.call_ids.iter().map(CallId::as_str).collect::<Vec<_>>(),
        "input": delivery.input,
    });
    if !delivery.after.is_empty() {
        value["after"] = delivery.after.iter().map(item_to_json).collect::<Vec<_>>().into();
    }
    value
}

pub(crate) fn delivery_from_json(value: &Value) -> Result<Delivery, Error> {
    let members = value.as_object().ok_or_else(|| bad("delivery", value, "an object"))?;
    let read = Members(members);
    Ok(Delivery {
        previous_response_id: read
            .optional_text("previous_response_id")?
            .ok_or_else(|| Error::corruption("delivery has no previous_response_id"))?
            .into(),
        call_ids: read
            .array("call_ids")?
            .iter()
            .map(|id| id.as_str().map(CallId::new).ok_or_else(|| bad("delivery.call_ids", id, "a string")))
            .collect::<Result<_, _>>()?,
        input: read.array("input")?.clone(),
        after: match members.get("after") {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(item_from_json).collect::<Result<_, _>>()?,
            Some(other) => return Err(bad("delivery.after", other, "an array")),
        },
    })
}

struct Members<'a>(&'a Map<String, Value>);

impl<'a> Members<'a> {
    fn optional_text(&self, name: &str) -> Result<Option<String>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(bad(name, other, "a string")),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, Error> {
        match self.0.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(bad(name, other, "a boolean")),
        }
    }

    fn array(&self, name: &str) -> Result<&'a Vec<Value>, Error> {
        match self.0.get(name) {
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(bad(name, other, "an array")),
            None => Err(Error::corruption(format!("member {name} is missing"))),
        }
    }

    fn object(&self, name: &str) -> Result<&'a Map<String, Value>, Error> {
        match self.0.get(name) {
            Some(Value::Object(map)) => Ok(map),
            Some(other) => Err(bad(name, other, "an object")),
            None => Err(Error::corruption(format!("member {name} is missing"))),
        }
    }
}

fn bad(name: &str, value: &Value, expected: &str) -> Error {
    Error::corruption(format!("member {name} is {}, not {expected}", kind_of(value)))
}
