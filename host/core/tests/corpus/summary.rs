//! What a journal folds into, as JSON that can be compared whole and read by people.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wharf_core::history::History;
use wharf_core::record::{Closed, HarnessFacts, item_to_json};
use wharf_core::session::{Flight, LostCall, Session, Turn, Unanswered};
use wharf_core::{CallId, Record};

/// The session, its turn with the checkpoint's document (conformance B), and the conversation as a model is sent it.
pub(crate) fn summary(session: &Session, history: &History, records: &[Record]) -> Value {
    json!({
        "harness": session.harness().map(harness),
        "latest_response_id": session.latest_response_id().map(|id| id.as_str()),
        "latest_maker": session.latest_maker(),
        "requests": session.requests(),
        "turns_ended": session.turns_ended(),
        "letters_read": session.letters_read(),
        "keys": keys(session, records),
        "closes": session.closes().iter().map(closed).collect::<Vec<_>>(),
        "turn": session.turn().map(turn),
        "open": session.open_turn().is_some(),
        "history": history.items().iter().map(item_to_json).collect::<Vec<_>>(),
    })
}

fn turn(turn: &Turn) -> Value {
    let stored = |record: Record| -> Value { serde_json::from_str(&record.encode().unwrap().body).unwrap() };
    let last_response = turn.last_response.as_ref().map(|facts| {
        let mut facts = facts.clone();
        let items = Value::Array(std::mem::take(&mut facts.items)); // may be too deep for a record of today
        let mut facts = stored(Record::ResponseRecorded(facts));
        facts["items"] = items;
        facts
    });
    json!({
        "id": turn.id.as_str(),
        "input": turn.input.iter().map(item_to_json).collect::<Vec<_>>(),
        "checkpoint": turn.checkpoint.to_json(),
        "may_complete": turn.checkpoint.may_complete(),
        "deliverable": turn.checkpoint.deliverable().map(|pending| pending.call.id.as_str()).collect::<Vec<_>>(),
        "flight": turn.flight.as_ref().map(|Flight { begun, id }| {
            json!({ "begun": stored(Record::ResponseBegun(begun.clone())), "id": id.as_ref().map(|id| id.as_str()) })
        }),
        "scope": turn.scope.iter().map(|(wire, key)| [wire.as_str(), key.as_str()]).collect::<Vec<_>>(),
        "untold": texts(&turn.untold),
        "untold_before": turn.untold_before.iter().map(lost).collect::<Vec<_>>(),
        "lost_notice": turn.lost_notice(),
        "unanswered": turn.unanswered.iter().map(unanswered).collect::<Vec<_>>(),
        "closing": turn.closing.iter().map(item_to_json).collect::<Vec<_>>(),
        "cut_off": texts(&turn.cut_off.iter().cloned().collect::<BTreeSet<_>>()),
        "lost_in_a_row": turn.lost_in_a_row,
        "unknown_tools": turn.unknown_tools,
        "paused": turn.paused.clone().map(|reason| stored(Record::Paused { reason })),
        "withheld": turn.withheld,
        "last_response": last_response,
        "approvals": turn.approvals.iter().map(|(id, text)| [id.as_str(), text.as_str()]).collect::<Vec<_>>(),
        "attempts": turn.attempts.iter().map(|(id, times)| (id.as_str(), times)).collect::<BTreeMap<_, _>>(),
        "ended": turn.ended,
    })
}

/// The host's key that a call would get whose provider names it by an id that the journal knows (B13).
fn keys(session: &Session, records: &[Record]) -> BTreeMap<String, String> {
    let ids = records.iter().filter_map(|record| match record {
        Record::CallAccepted { call, .. } | Record::CallRejected { call, .. } => Some(&call.id),
        _ => None,
    });
    ids.map(|id| (id.as_str().to_owned(), session.key_for(id).id.as_str().to_owned())).collect()
}

fn harness(facts: &HarnessFacts) -> Value {
    let HarnessFacts { name, component, authority, conversation, authority_value } = facts;
    json!({
        "name": name, "component": component, "authority": authority, "conversation": conversation,
        "authority_value": authority_value,
    })
}

fn closed(Closed { id, output }: &Closed) -> Value {
    json!({ "id": id.as_str(), "output": output })
}

fn lost(LostCall { id, line }: &LostCall) -> Value {
    json!({ "id": id.as_str(), "line": line })
}

fn unanswered(Unanswered { id, call, settled, started }: &Unanswered) -> Value {
    json!({ "id": id.as_str(), "call": call.to_json(), "settled": settled, "started": started })
}

fn texts<'a>(ids: impl IntoIterator<Item = &'a CallId>) -> Vec<&'a str> {
    ids.into_iter().map(CallId::as_str).collect()
}
