//! What has to be true of a round, seen from outside: the witness's lines, the journal as `wharf session show` tells it, and
//! the requests that the provider received.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use wharf_simulate::Violation;

use crate::books::{Post, chain};
use crate::program::Ran;

/// A promise that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Breach {
    pub(crate) kind: Kind,
    pub(crate) why: String,
}

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An effect that never repeats happened twice.
    NeverTwice,
    /// A result that the journal has did not reach the model.
    ResultLost,
    /// A turn does not end.
    Stuck,
    /// An output was sent twice.
    SentTwice,
    Other,
}

impl Breach {
    pub(crate) fn stuck(why: String) -> Self {
        Self { kind: Kind::Stuck, why }
    }

    pub(crate) fn with(self, more: &str) -> Self {
        Self { why: format!("{}\n{more}", self.why), ..self }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.why)
    }
}

impl From<String> for Breach {
    fn from(why: String) -> Self {
        let kind = if why.starts_with("a process is stuck") { Kind::Stuck } else { Kind::Other };
        Self { kind, why }
    }
}

/// What `wharf session show --json` says.
pub(crate) struct Journal(Value);

impl Journal {
    pub(crate) fn new(shown: Value) -> Self {
        Self(shown)
    }

    fn rows(&self, member: &str) -> &[Value] {
        self.0[member].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// Bodies of the records of a kind.
    fn records<'j>(&'j self, kind: &'j str) -> impl Iterator<Item = &'j Value> {
        self.rows("records").iter().filter(move |record| record["kind"] == kind).map(|record| &record["body"])
    }

    pub(crate) fn has_turn(&self) -> bool {
        !self.rows("turns").is_empty()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0["open"] == true
    }

    /// When the last request was about to be sent.
    pub(crate) fn last_begun(&self) -> Result<SystemTime, String> {
        let begun =
            self.rows("responses").last().and_then(|row| row["begun"].as_str()).ok_or("no request was begun")?;
        let moment: jiff::Timestamp = begun.parse().map_err(|error| format!("{begun:?}: {error}"))?;
        let millis = u64::try_from(moment.as_millisecond()).map_err(|error| error.to_string())?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
    }

    /// Attempts that the journal has of a call, with their keys.
    fn started(&self, call: &str) -> Vec<(u64, Option<&str>)> {
        let of_call = self.records("call.started").filter(|body| body["id"] == call);
        of_call.map(|body| (body["attempt"].as_u64().unwrap_or(0), body["idempotency_key"].as_str())).collect()
    }

    /// The responses that were accepted, in order.
    fn accepted(&self) -> Vec<&str> {
        let accepted = |record: &Value| match record["kind"].as_str() {
            Some("response.completed") => Some("id"),
            Some("delivery.acknowledged") => Some("receipt"),
            _ => None,
        };
        let records = self.rows("records").iter();
        records.filter_map(|record| record["body"][accepted(record)?].as_str()).collect()
    }

    /// What the journal tells as the text of an accepted response.
    fn text(&self, response: &str) -> Option<&str> {
        let row = self.rows("responses").iter().find(|row| row["id"] == response && row["state"] == "completed");
        row.and_then(|row| row["text"].as_str())
    }
}

/// Every run that left a line was durable before (promise 1), and no `never` call left two (promise 2).
pub(crate) fn durable_before(witness: &[Ran], journal: Option<&Journal>) -> Result<(), Breach> {
    for ran in witness {
        let starts = journal.map(|journal| journal.started(&ran.call)).unwrap_or_default();
        let Some((_, key)) = starts.iter().find(|(attempt, _)| *attempt == ran.attempt) else {
            return Err(format!("{ran:?} ran, and the journal has no start of it").into());
        };
        if key.map_or(ran.tool == "book", |key| key != ran.key) {
            return Err(format!("{ran:?} ran with another key than the journal's, {key:?}").into());
        }
    }
    let mut keys: BTreeMap<&str, &Ran> = BTreeMap::new();
    let mut runs: BTreeSet<(&str, u64)> = BTreeSet::new();
    for ran in witness {
        if let Some(earlier) = keys.insert(&ran.call, ran) {
            if ran.tool == "pay" {
                return Err(Breach { kind: Kind::NeverTwice, why: format!("{earlier:?} and {ran:?}") });
            }
            if earlier.key != ran.key {
                return Err(format!("two keys for one call: {earlier:?} and {ran:?}").into());
            }
        }
        if !runs.insert((&ran.call, ran.attempt)) {
            return Err(format!("{ran:?} ran twice under one start").into());
        }
    }
    let distinct: BTreeSet<&str> = keys.values().map(|ran| ran.key.as_str()).collect();
    if distinct.len() != keys.len() {
        return Err(format!("two calls with one key: {witness:#?}").into());
    }
    Ok(())
}

/// A turn that is over: each call of the accepted answers has one output on the wire, which is its result, and the provider
/// saw nothing unlawful (promise 6). With `stops`, a `never` call may have been cut off by a host that was told to stop.
pub(crate) fn whole(
    journal: &Journal,
    witness: &[Ran],
    posts: &[Post],
    violations: &[Violation],
    stops: bool,
) -> Result<(), Breach> {
    if !violations.is_empty() {
        return Err(format!("the provider saw what it must not: {violations:#?}").into());
    }
    if posts.len() > journal.records("response.begun").count() {
        return Err("a request was sent without a record of it".to_owned().into());
    }
    let state = journal.rows("turns").last().map(|turn| turn["state"].clone()).unwrap_or_default();
    if state == "abandoned" {
        // What is left open then is for an operator.
        let is_left = |row: &&Value| row["state"] != "delivered" && row["state"] != "orphan";
        return match journal.rows("calls").iter().find(is_left) {
            Some(row) => Err(format!("the abandoned turn leaves a call at {row}").into()),
            None => Ok(()),
        };
    }
    if state != "completed" {
        return Err(format!("the turn ended as {state}").into());
    }
    let accepted = journal.accepted();
    let latest = accepted.last().ok_or_else(|| "no response was accepted".to_owned())?;
    let chain = chain(posts, latest)?;
    let in_order: Vec<&str> = chain.iter().rev().filter_map(|post| post.response()).collect();
    if in_order != accepted {
        return Err(format!("the journal accepted {accepted:?}, and the requests continue {in_order:?}").into());
    }
    for post in &chain {
        let (response, said) = (post.response().unwrap_or_default(), post.text());
        if journal.text(response).map(str::trim) != said.as_deref().map(str::trim) {
            return Err(format!("{response} said {said:?}, and the journal has {:?}", journal.text(response)).into());
        }
    }
    let calls: Vec<String> = chain.iter().flat_map(|post| post.calls()).collect();
    let outputs: Vec<(String, String)> = chain.iter().flat_map(|post| post.outputs()).collect();
    for call in &calls {
        let told: Vec<&str> = outputs.iter().filter(|(of, _)| of == call).map(|(_, text)| text.as_str()).collect();
        let [told] = told[..] else {
            let kind = if told.is_empty() { Kind::ResultLost } else { Kind::SentTwice };
            return Err(Breach { kind, why: format!("{call} has {} outputs: {told:#?}", told.len()) });
        };
        result(journal, witness, call, told, stops)?;
    }
    if let Some((call, _)) = outputs.iter().find(|(call, _)| !calls.contains(call)) {
        return Err(format!("an output of {call}, which no accepted answer called").into());
    }
    for row in journal.rows("calls") {
        let is_ours = row["id"].as_str().is_some_and(|id| calls.iter().any(|call| call == id));
        if row["state"] != if is_ours { "delivered" } else { "orphan" } {
            return Err(format!("the journal leaves a call at {row}").into());
        }
    }
    Ok(())
}

/// What the model was told of a call is its one result in the journal, and that is what a run of it gave.
fn result(journal: &Journal, witness: &[Ran], call: &str, told: &str, stops: bool) -> Result<(), Breach> {
    let settled: Vec<&Value> = journal.records("call.settled").filter(|body| body["id"] == call).collect();
    let [settled] = settled[..] else {
        return Err(format!("{call} was settled {} times", settled.len()).into());
    };
    if settled["output"] != told {
        let why = format!("{call}: the journal has {} and the model was told {told:?}", settled["output"]);
        return Err(Breach { kind: Kind::ResultLost, why });
    }
    let runs: Vec<&Ran> = witness.iter().filter(|ran| ran.call == call).collect();
    let fits = match settled["how"].as_str() {
        Some("done") => runs.iter().any(|ran| told.contains(&format!("{call} run {}", ran.attempt))),
        // Only what must not run again may be left so.
        Some("interrupted") => call.starts_with("call_pay"),
        Some("cancelled") => stops && call.starts_with("call_pay"),
        _ => false,
    };
    if !fits {
        return Err(format!("{call} is told as {settled} after the runs {runs:?}").into());
    }
    Ok(())
}
