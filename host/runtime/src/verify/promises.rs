//! The promises of the design as a journal shows them: each a small function over what a ledger of the records before knows.
//! It is kept apart from the fold on purpose, so that a fault of the fold cannot hide what it did.

use std::collections::{HashMap, HashSet};

use wharf_core::policy::{Hold, ReplayClass};
use wharf_core::record::Closed;
use wharf_core::{Call, CallId, Record};

use super::Invariant;

/// What a promise says of a record after those in the ledger.
type Promise = fn(&Ledger, &Record) -> Result<(), String>;

/// The list. The first that a record breaks is the one that is told.
pub(super) const PROMISES: &[(Invariant, Promise)] = &[
    (Invariant::CallOnce, call_is_registered_once),
    (Invariant::AcceptedFirst, start_follows_acceptance),
    (Invariant::NeverTwice, never_runs_once),
    (Invariant::OneKey, each_run_has_the_key_of_its_call),
    (Invariant::OneKey, key_is_of_one_call),
    (Invariant::ApprovalOnce, approval_is_used_once),
    (Invariant::ApprovalOnce, held_call_starts_by_an_approval),
    (Invariant::SettledOnce, call_is_settled_once),
    (Invariant::OneOutput, call_gets_one_output),
    (Invariant::InboxOnce, inbox_item_is_consumed_once),
];

/// What the records so far say of calls, keys, approvals and inbox items, over all turns of the session.
#[derive(Default)]
pub(super) struct Ledger {
    calls: HashMap<CallId, Known>,
    keys: HashMap<String, CallId>,
    approvals: HashMap<String, CallId>,
    letters: HashSet<String>,
    /// The calls of the delivery that is open.
    carried: Vec<CallId>,
    /// A record before could not be read: what seems not to have happened may have.
    pub(super) has_gaps: bool,
}

#[derive(Default)]
struct Known {
    rejected: bool,
    never: bool,
    key: Option<String>,
    needs_approval: bool,
    starts: u32,
    settled: bool,
    answered: bool,
}

impl Ledger {
    /// Takes a record in.
    pub(super) fn note(&mut self, record: &Record) {
        match record {
            Record::CallAccepted { call, replay, hold, idempotency_key, wire_call_id: _ } => {
                if let Some(key) = idempotency_key {
                    self.keys.entry(key.clone()).or_insert_with(|| call.id.clone());
                }
                let known = Known {
                    never: *replay == ReplayClass::Never,
                    key: idempotency_key.clone(),
                    needs_approval: *hold == Some(Hold::Approval),
                    ..Known::default()
                };
                self.calls.entry(call.id.clone()).or_insert(known);
            }
            Record::CallRejected { call, .. } => {
                let known = Known { rejected: true, settled: true, ..Known::default() };
                self.calls.entry(call.id.clone()).or_insert(known);
            }
            Record::CallStarted { id, approval, .. } => {
                if let Some(approval) = approval {
                    self.approvals.entry(approval.clone()).or_insert_with(|| id.clone());
                }
                self.change(id, |known| known.starts = known.starts.saturating_add(1));
            }
            Record::ReplayNarrowed { id } => self.change(id, |known| known.never = true),
            Record::CallSettled { id, .. } => self.change(id, |known| known.settled = true),
            Record::DeliveryPrepared { call_ids, .. } => self.carried.clone_from(call_ids),
            Record::DeliveryAcknowledged { .. } => {
                for id in std::mem::take(&mut self.carried) {
                    self.change(&id, |known| known.answered = true);
                }
            }
            Record::FlightSettled { .. } => self.carried.clear(),
            Record::TurnStarted { closes, .. } => {
                for closed in closes {
                    self.change(&closed.id, |known| known.answered = true);
                }
            }
            Record::InboxConsumed { id, .. } => {
                self.letters.insert(id.clone());
            }
            Record::HarnessBound(_)
            | Record::TurnEnded { .. }
            | Record::CallRequeued { .. }
            | Record::HoldReleased { .. }
            | Record::CallsOrphaned { .. }
            | Record::ResponseBegun(_)
            | Record::ResponseStarted { .. }
            | Record::ResponseCompleted { .. }
            | Record::ResponseRecorded(_)
            | Record::FlightCleared
            | Record::SummaryStaged { .. }
            | Record::TranscriptCommitted { .. }
            | Record::TranscriptDropped
            | Record::OutcomeStored { .. }
            | Record::Paused { .. }
            | Record::Resumed { .. }
            | Record::Reconciled { .. }
            | Record::Parked { .. } => {}
        }
    }

    fn change(&mut self, id: &CallId, with: impl FnOnce(&mut Known)) {
        if let Some(known) = self.calls.get_mut(id) {
            with(known);
        }
    }
}

fn call_is_registered_once(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let (Record::CallAccepted { call, .. } | Record::CallRejected { call, .. }) = record else { return Ok(()) };
    refuse(ledger.calls.contains_key(&call.id), || format!("call {} was registered before", quoted(&call.id)))
}

fn start_follows_acceptance(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let Record::CallStarted { id, .. } = record else { return Ok(()) };
    match ledger.calls.get(id) {
        Some(known) => refuse(known.rejected, || format!("call {} was started, and it was refused", quoted(id))),
        None => refuse(!ledger.has_gaps, || format!("call {} was started before it was accepted", quoted(id))),
    }
}

fn never_runs_once(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let Record::CallStarted { id, .. } = record else { return Ok(()) };
    let again = ledger.calls.get(id).is_some_and(|known| known.never && known.starts > 0);
    refuse(again, || format!("call {} must not run again and was started again", quoted(id)))
}

fn each_run_has_the_key_of_its_call(ledger: &Ledger, record: &Record) -> Result<(), String> {
    if let Record::CallAccepted { call, replay: ReplayClass::Keyed, idempotency_key: None, .. } = record {
        return Err(format!("call {} may run again with its key, and has none", quoted(&call.id)));
    }
    let Record::CallStarted { id, idempotency_key, .. } = record else { return Ok(()) };
    let other = ledger.calls.get(id).is_some_and(|known| known.key != *idempotency_key);
    refuse(other, || format!("call {} was started with another key than it was accepted with", quoted(id)))
}

fn key_is_of_one_call(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let (Record::CallAccepted { call: Call { id, .. }, idempotency_key: Some(key), .. }
    | Record::CallStarted { id, idempotency_key: Some(key), .. }) = record
    else {
        return Ok(());
    };
    match ledger.keys.get(key) {
        Some(first) if first != id => Err(format!("call {} has the key of call {}", quoted(id), quoted(first))),
        Some(_) | None => Ok(()),
    }
}

fn approval_is_used_once(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let Record::CallStarted { id, approval: Some(approval), .. } = record else { return Ok(()) };
    match ledger.approvals.get(approval) {
        Some(first) => Err(format!(
            "call {} was started by approval {approval:?}, which the start of call {} used up",
            quoted(id),
            quoted(first)
        )),
        None => Ok(()),
    }
}

fn held_call_starts_by_an_approval(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let Record::CallStarted { id, approval: None, .. } = record else { return Ok(()) };
    let held = ledger.calls.get(id).is_some_and(|known| known.needs_approval && known.starts == 0);
    refuse(held && !ledger.has_gaps, || {
        format!("call {} waited for an approval and was started without one", quoted(id))
    })
}

fn call_is_settled_once(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let Record::CallSettled { id, .. } = record else { return Ok(()) };
    let again = ledger.calls.get(id).is_some_and(|known| known.settled);
    refuse(again, || format!("call {} has its result already", quoted(id)))
}

fn call_gets_one_output(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let delivered: &[CallId] = if let Record::DeliveryPrepared { call_ids, .. } = record { call_ids } else { &[] };
    let closed: &[Closed] = if let Record::TurnStarted { closes, .. } = record { closes } else { &[] };
    let mut ids = delivered.iter().chain(closed.iter().map(|closed| &closed.id));
    let mut seen = HashSet::new();
    let answered = |id: &CallId| ledger.calls.get(id).is_some_and(|known| known.answered);
    match ids.find(|id| answered(id) || !seen.insert(*id)) {
        Some(id) => Err(format!("call {} gets a second output", quoted(id))),
        None => Ok(()),
    }
}

fn inbox_item_is_consumed_once(ledger: &Ledger, record: &Record) -> Result<(), String> {
    let Record::InboxConsumed { id, .. } = record else { return Ok(()) };
    refuse(ledger.letters.contains(id), || format!("item {id:?} of the inbox was consumed before"))
}

fn refuse(broken: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if broken { Err(what()) } else { Ok(()) }
}

/// As it stands in messages: an id is a stranger's text.
fn quoted(id: &CallId) -> String {
    format!("{:?}", id.as_str())
}
