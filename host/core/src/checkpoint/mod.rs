//! The state of one turn's calls, deliveries and responses: what the turn's records fold into.
//!
//! Each transition comes in two halves. A *decision* ([`Checkpoint::register`] and its neighbours) looks at the state,
//! changes nothing, and answers with the record that says what happens, with `None` for "nothing", or with an error.
//! [`Checkpoint::apply`] folds a record. Live state changes by folding alone, so what a journal folds into and what the
//! host works with cannot differ. This module knows no store and no job.

mod apply;
mod decide;
mod json;
mod recover;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use crate::call::Call;
use crate::ids::{CallId, ResponseId};
use crate::model::Delivery;
use crate::policy::{Hold, ReplayClass};

pub use decide::{CANCELLED, Registration};
pub use recover::INTERRUPTED;

/// The state of one turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checkpoint {
    pub(crate) latest_response_id: Option<ResponseId>,
    pub(crate) transcript_message_id: Option<String>,
    pub(crate) host_outcome: Option<Value>,
    pub(crate) completed_responses: u64,
    pub(crate) host_responses: Vec<Value>,
    pub(crate) response_in_flight: bool,
    pub(crate) calls: HashMap<CallId, PendingCall>,
    pub(crate) order: Vec<CallId>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) background_response: Option<Value>,
    pub(crate) orphans: Vec<CallId>,
    /// The same as a set. Derived.
    pub(crate) orphan_set: HashSet<CallId>,
    /// Positions in `order` of calls that are not finished: neither Delivered nor an orphan that does not run. Derived; kept
    /// so that a step's cost does not grow with the number of tombstones.
    pub(crate) live: BTreeSet<usize>,
    /// Position of each call in `order`. Derived.
    pub(crate) positions: HashMap<CallId, usize>,
}

/// A call with what the host knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// The call, under the host's key.
    pub call: Call,
    /// What policy said when it was registered.
    pub replay: ReplayClass,
    /// Where it is.
    pub state: CallState,
    /// True if it was refused and never ran (B12).
    pub rejected: bool,
    /// What it waits for, while it waits (L61).
    pub hold: Option<Hold>,
    /// Recorded for a keyed call; equal for each of its runs (L56).
    pub idempotency_key: Option<String>,
    /// The provider's id, where it differs from the host's key (B13).
    pub wire_call_id: Option<CallId>,
}

impl PendingCall {
    /// The call as the provider knows it.
    pub fn wire_call(&self) -> Call {
        match &self.wire_call_id {
            Some(id) => self.call.clone().with_id(id.clone()),
            None => self.call.clone(),
        }
    }
}

/// Where a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallState {
    /// Known, not started. With a hold it waits for somebody; as an orphan it is withdrawn (B14).
    Queued,
    /// Started, not settled.
    Running,
    /// Settled, not delivered.
    Ready {
        /// The output as the provider will get it.
        output: String,
    },
    /// Its output was accepted by the provider: a tombstone.
    Delivered,
}

impl CallState {
    /// The word for it, as the exported document writes it (B1).
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Running => "Running",
            Self::Ready { .. } => "Ready",
            Self::Delivered => "Delivered",
        }
    }
}

impl Checkpoint {
    /// The checkpoint of a new turn in a session whose latest response is known (N1).
    pub fn new_turn(latest_response_id: Option<ResponseId>) -> Self {
        Self { latest_response_id, ..Self::default() }
    }

    /// The id of the latest accepted response.
    pub fn latest_response_id(&self) -> Option<&ResponseId> {
        self.latest_response_id.as_ref()
    }

    /// The transcript message that was begun and is not committed.
    pub fn transcript_message_id(&self) -> Option<&str> {
        self.transcript_message_id.as_deref()
    }

    /// The outcome, once stored.
    pub fn host_outcome(&self) -> Option<&Value> {
        self.host_outcome.as_ref()
    }

    /// How many responses were accepted in this turn.
    pub fn completed_responses(&self) -> u64 {
        self.completed_responses
    }

    /// The staged summaries of accepted responses.
    pub fn host_responses(&self) -> &[Value] {
        &self.host_responses
    }

    /// True from the begin of a response until it is settled.
    pub fn response_in_flight(&self) -> bool {
        self.response_in_flight
    }

    /// The open delivery.
    pub fn delivery(&self) -> Option<&Delivery> {
        self.delivery.as_ref()
    }

    /// A call by the host's key.
    pub fn call(&self, id: &CallId) -> Option<&PendingCall> {
        self.calls.get(id)
    }

    /// All calls in the order of their arrival (C11), tombstones included.
    pub fn calls(&self) -> impl Iterator<Item = &PendingCall> {
        self.order.iter().filter_map(|id| self.calls.get(id))
    }

    /// The calls that are not finished, in the order of their arrival: Delivered ones are left out, and orphans that do not
    /// run.
    pub fn live_calls(&self) -> impl Iterator<Item = &PendingCall> {
        self.live.iter().filter_map(|at| self.calls.get(self.order.get(*at)?))
    }

    /// True if the call's response was never accepted.
    pub fn is_orphan(&self, id: &CallId) -> bool {
        self.orphan_set.contains(id)
    }

    /// The orphans, in the order in which they became that.
    pub fn orphans(&self) -> &[CallId] {
        &self.orphans
    }

    /// True exactly when no transcript message is pending, nothing is in flight, no delivery is open and every call is
    /// Delivered; an orphan counts as finished unless it is Running (K1). A stored outcome and a background record have no
    /// influence (K2).
    pub fn may_complete(&self) -> bool {
        self.transcript_message_id.is_none()
            && !self.response_in_flight
            && self.delivery.is_none()
            && self.live.is_empty()
    }

    /// Calls whose outputs wait to be delivered, in order (I5, I6).
    pub fn deliverable(&self) -> impl Iterator<Item = &PendingCall> {
        self.live_calls().filter(|p| matches!(p.state, CallState::Ready { .. }) && !self.is_orphan(&p.call.id))
    }

    /// Derives what is derived; used after a document was read.
    pub(crate) fn derive(&mut self) {
        self.positions = self.order.iter().cloned().enumerate().map(|(at, id)| (id, at)).collect();
        self.orphan_set = self.orphans.iter().cloned().collect();
        self.live.clear();
        for id in self.order.clone() {
            self.derive_live(&id);
        }
    }

    /// Keeps `live` up to date after one call changed.
    pub(crate) fn derive_live(&mut self, id: &CallId) {
        let (Some(pending), Some(at)) = (self.calls.get(id), self.positions.get(id)) else { return };
        let live = match pending.state {
            CallState::Running => true,
            CallState::Queued | CallState::Ready { .. } => !self.is_orphan(id),
            CallState::Delivered => false,
        };
        if live {
            self.live.insert(*at);
        } else {
            self.live.remove(at);
        }
    }
}
