//! A session's fold as one text, so that opening a long journal does not begin at its first record (design section 8).
//!
//! A snapshot saves time and holds nothing that the records do not. One that cannot be read, or has another form than this
//! version writes, is passed over for the records; so its form may change at any time, with another [`FORM`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Flight, LostCall, Session, Turn, Unanswered};
use crate::call::Call;
use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::ids::{CallId, ResponseId};
use crate::model::Item;
use crate::record::{Record, item_from_json, item_to_json};

/// Another one for each change of what is written here, and for each change of what records fold into: a snapshot of an
/// older fold would bring that fold back.
const FORM: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionForm {
    form: u32,
    harness: Option<RecordForm>,
    turn: Option<TurnForm>,
    latest_response_id: Option<String>,
    latest_maker: Option<String>,
    requests: u64,
    used_ids: Vec<String>,
    turns_ended: u64,
    letters_read: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnForm {
    id: String,
    input: Vec<Value>,
    checkpoint: Value,
    flight: Option<FlightForm>,
    scope: Vec<(String, String)>,
    untold: Vec<String>,
    untold_before: Vec<(String, String)>,
    unanswered: Vec<UnansweredForm>,
    closing: Vec<Value>,
    cut_off: Vec<String>,
    lost_in_a_row: u32,
    unknown_tools: u64,
    paused: Option<RecordForm>,
    withheld: bool,
    last_response: Option<RecordForm>,
    approvals: Vec<(String, String)>,
    attempts: Vec<(String, u32)>,
    ended: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlightForm {
    begun: RecordForm,
    id: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnansweredForm {
    id: String,
    call: Value,
    settled: Option<String>,
    started: bool,
}

/// What stands in a record of its own has that record's stored form here too.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordForm {
    kind: String,
    version: u16,
    body: Value,
}

impl Session {
    /// The fold as JSON text. Its size grows with the calls of the open turn and with the number of call ids that the session
    /// ever saw.
    ///
    /// # Errors
    /// A store error for what no record could hold; then there is no snapshot.
    pub fn to_snapshot(&self) -> Result<String, Error> {
        let Self { harness, turn, latest_response_id, latest_maker, requests, used_ids, turns_ended, letters_read } =
            self;
        let form = SessionForm {
            form: FORM,
            harness: harness.clone().map(Record::HarnessBound).as_ref().map(stored).transpose()?,
            turn: turn.as_ref().map(turn_form).transpose()?,
            latest_response_id: latest_response_id.as_ref().map(ToString::to_string),
            latest_maker: latest_maker.clone(),
            requests: *requests,
            used_ids: sorted(used_ids),
            turns_ended: *turns_ended,
            letters_read: *letters_read,
        };
        serde_json::to_string(&form).map_err(|error| Error::store(format!("a snapshot cannot be written: {error}")))
    }

    /// Reads [`Session::to_snapshot`]'s text.
    ///
    /// # Errors
    /// A corruption error for one of another form, or that is damaged: read the records instead.
    pub fn from_snapshot(text: &str) -> Result<Self, Error> {
        let bad = |error: serde_json::Error| Error::corruption(format!("the snapshot cannot be read: {error}"));
        #[derive(Deserialize)]
        struct Head {
            form: u32,
        }
        let Head { form } = serde_json::from_str(text).map_err(bad)?;
        if form != FORM {
            return Err(Error::corruption(format!("the snapshot has form {form}; this version reads {FORM}")));
        }
        let form: SessionForm = serde_json::from_str(text).map_err(bad)?;
        Ok(Self {
            harness: match form.harness.map(read).transpose()? {
                None => None,
                Some(Record::HarnessBound(facts)) => Some(facts),
                Some(other) => return Err(misplaced(&other)),
            },
            turn: form.turn.map(turn_of).transpose()?,
            latest_response_id: form.latest_response_id.map(ResponseId::from),
            latest_maker: form.latest_maker,
            requests: form.requests,
            used_ids: form.used_ids.into_iter().map(CallId::from).collect(),
            turns_ended: form.turns_ended,
            letters_read: form.letters_read,
        })
    }
}

fn turn_form(turn: &Turn) -> Result<TurnForm, Error> {
    let Turn {
        id,
        input,
        checkpoint,
        flight,
        scope,
        untold,
        untold_before,
        unanswered,
        closing,
        cut_off,
        lost_in_a_row,
        unknown_tools,
        paused,
        withheld,
        last_response,
        approvals,
        attempts,
        ended,
    } = turn;
    let mut attempts: Vec<(String, u32)> = attempts.iter().map(|(id, n)| (id.to_string(), *n)).collect();
    attempts.sort();
    Ok(TurnForm {
        id: id.to_string(),
        input: input.iter().map(item_to_json).collect(),
        checkpoint: checkpoint.to_json(),
        flight: match flight {
            None => None,
            Some(Flight { begun, id }) => Some(FlightForm {
                begun: stored(&Record::ResponseBegun(begun.clone()))?,
                id: id.as_ref().map(ToString::to_string),
            }),
        },
        scope: scope.iter().map(|(wire, key)| (wire.to_string(), key.to_string())).collect(),
        untold: untold.iter().map(ToString::to_string).collect(),
        untold_before: untold_before.iter().map(|lost| (lost.id.to_string(), lost.line.clone())).collect(),
        unanswered: unanswered
            .iter()
            .map(|Unanswered { id, call, settled, started }| UnansweredForm {
                id: id.to_string(),
                call: call.to_json(),
                settled: settled.clone(),
                started: *started,
            })
            .collect(),
        closing: closing.iter().map(item_to_json).collect(),
        cut_off: sorted(cut_off),
        lost_in_a_row: *lost_in_a_row,
        unknown_tools: *unknown_tools,
        paused: match paused {
            None => None,
            Some(reason) => Some(stored(&Record::Paused { reason: reason.clone() })?),
        },
        withheld: *withheld,
        last_response: match last_response {
            None => None,
            Some(facts) => Some(stored(&Record::ResponseRecorded(facts.clone()))?),
        },
        approvals: approvals.iter().map(|(id, approval)| (id.to_string(), approval.clone())).collect(),
        attempts,
        ended: ended.clone(),
    })
}

fn turn_of(form: TurnForm) -> Result<Turn, Error> {
    let ids = |texts: Vec<String>| texts.into_iter().map(CallId::from);
    let items = |values: Vec<Value>| values.iter().map(item_from_json).collect::<Result<Vec<Item>, Error>>();
    Ok(Turn {
        id: form.id.into(),
        input: items(form.input)?,
        checkpoint: Checkpoint::from_json(&form.checkpoint)?,
        flight: match form.flight {
            None => None,
            Some(FlightForm { begun, id }) => match read(begun)? {
                Record::ResponseBegun(begun) => Some(Flight { begun, id: id.map(ResponseId::from) }),
                other => return Err(misplaced(&other)),
            },
        },
        scope: form.scope.into_iter().map(|(wire, key)| (wire.into(), key.into())).collect(),
        untold: ids(form.untold).collect(),
        untold_before: form.untold_before.into_iter().map(|(id, line)| LostCall { id: id.into(), line }).collect(),
        unanswered: form
            .unanswered
            .into_iter()
            .map(|UnansweredForm { id, call, settled, started }| {
                Ok(Unanswered { id: id.into(), call: Call::from_json(&call)?, settled, started })
            })
            .collect::<Result<_, Error>>()?,
        closing: items(form.closing)?,
        cut_off: ids(form.cut_off).collect(),
        lost_in_a_row: form.lost_in_a_row,
        unknown_tools: form.unknown_tools,
        paused: match form.paused.map(read).transpose()? {
            None => None,
            Some(Record::Paused { reason }) => Some(reason),
            Some(other) => return Err(misplaced(&other)),
        },
        withheld: form.withheld,
        last_response: match form.last_response.map(read).transpose()? {
            None => None,
            Some(Record::ResponseRecorded(facts)) => Some(facts),
            Some(other) => return Err(misplaced(&other)),
        },
        approvals: form.approvals.into_iter().map(|(id, approval)| (id.into(), approval)).collect(),
        attempts: form.attempts.into_iter().map(|(id, n)| (id.into(), n)).collect(),
        ended: form.ended,
    })
}

fn stored(record: &Record) -> Result<RecordForm, Error> {
    let encoded = record.encode()?;
    let body = serde_json::from_str(&encoded.body)
        .map_err(|error| Error::store(format!("a snapshot cannot be written: {error}")))?;
    Ok(RecordForm { kind: encoded.kind.to_owned(), version: encoded.version, body })
}

fn read(form: RecordForm) -> Result<Record, Error> {
    Record::decode(&form.kind, form.version, &form.body.to_string(), |_| None)
}

fn misplaced(record: &Record) -> Error {
    Error::corruption(format!("a {:?} record stands in the wrong place of the snapshot", record.kind()))
}

fn sorted<'a>(ids: impl IntoIterator<Item = &'a CallId>) -> Vec<String> {
    let mut ids: Vec<String> = ids.into_iter().map(ToString::to_string).collect();
    ids.sort();
    ids
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    // covers M6
    #[test]
    fn a_snapshot_that_is_no_snapshot_of_this_version_is_an_error_that_says_so() {
        let whole = Session::default().to_snapshot().unwrap();
        assert_eq!(Session::from_snapshot(&whole), Ok(Session::default()));
        let error = |text: &str| Session::from_snapshot(text).unwrap_err().message;
        let newer = whole.replace("\"form\":1", "\"form\":2");
        assert_eq!(error(&newer), "the snapshot has form 2; this version reads 1");
        assert!(error(&whole[..whole.len() - 1]).starts_with("the snapshot cannot be read: EOF"));
        assert!(error(&whole.replace("requests", "questions")).contains("unknown field `questions`"));
        let misplaced =
            whole.replace(r#""harness":null"#, r#""harness":{"kind":"turn.parked","version":1,"body":{"why":"x"}}"#);
        assert_eq!(error(&misplaced), "a \"turn.parked\" record stands in the wrong place of the snapshot");
    }
}
