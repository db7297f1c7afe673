//! What opening a journal does to its calls (conformance G1 to G12). What it does to an uncertain request (G13 to G20) is
//! decided before, in [`crate::reconcile`].

use std::collections::HashSet;

use super::{CallState, Checkpoint};
use crate::error::Error;
use crate::policy::ReplayClass;
use crate::reconcile::RECONCILE_HINT;
use crate::record::{Record, Settlement};
use crate::tool::error_output;

/// What the model is told of a call that was running when its host stopped and must not be run again (G5).
pub const INTERRUPTED: &str = "this call was interrupted: the host stopped while it ran, its outcome is uncertain, and it \
     must not be retried automatically";

impl Checkpoint {
    /// Checks for damage: order and calls agree (G2), and each stored call is valid unless it was rejected (G11).
    ///
    /// # Errors
    /// A corruption error that names the first contradiction (B11).
    pub fn check_damage(&self) -> Result<(), Error> {
        if self.order.len() != self.calls.len() {
            return Err(Error::corruption(format!(
                "the checkpoint lists {} calls in order and holds {}",
                self.order.len(),
                self.calls.len()
            )));
        }
        let mut seen = HashSet::new();
        for id in &self.order {
            if !seen.insert(id) {
                return Err(Error::corruption(format!("call {:?} stands twice in the order", id.as_str())));
            }
            let Some(pending) = self.calls.get(id) else {
                return Err(Error::corruption(format!("call {:?} stands in the order and is not stored", id.as_str())));
            };
            if pending.call.id != *id {
                return Err(Error::corruption(format!(
                    "call {:?} is stored under the key {:?}",
                    pending.call.id.as_str(),
                    id.as_str()
                )));
            }
            if !pending.rejected {
                pending.call.validate().map_err(|fault| {
                    Error::corruption(format!("stored call {:?} is damaged: {}", id.as_str(), fault.message))
                })?;
            }
        }
        if let Some(id) = self.orphans.iter().find(|id| !self.calls.contains_key(id)) {
            return Err(Error::corruption(format!("call {:?} is an orphan and is not stored", id.as_str())));
        }
        Ok(())
    }

    /// What recovery does to calls that were running (G4, G5, G12); nothing else changes (G6). Empty if there are none (G7,
    /// G8).
    ///
    /// # Errors
    /// A corruption error for damage (G2, G11); a store error while a transcript message is pending, or a delivery or a
    /// response is uncertain (G1). Nothing is decided then (G3).
    pub fn recover(&self) -> Result<Vec<Record>, Error> {
        self.check_damage()?;
        if let Some(id) = &self.transcript_message_id {
            return Err(Error::store(format!("transcript message {id:?} was begun and not committed")));
        }
        if self.delivery.is_some() {
            return Err(Error::store("a delivery is open and it is not known whether the provider accepted it")
                .hint(RECONCILE_HINT));
        }
        if self.response_in_flight {
            return Err(Error::store(
                "a response is in flight and it is not known whether the provider accepted the request",
            )
            .hint(RECONCILE_HINT));
        }
        Ok(self
            .live_calls()
            .filter(|p| p.state == CallState::Running)
            .map(|p| match (p.replay, self.is_orphan(&p.call.id)) {
                (ReplayClass::Safe | ReplayClass::Keyed, false) => Record::CallRequeued { id: p.call.id.clone() },
                (ReplayClass::Never, _) | (ReplayClass::Safe | ReplayClass::Keyed, true) => Record::CallSettled {
                    id: p.call.id.clone(),
                    output: error_output(INTERRUPTED),
                    how: Settlement::Interrupted,
                },
            })
            .collect())
    }
}
