//! The calls of one response, by the ids that the provider gave them. It must never know a call's state.

use std::collections::HashMap;

use crate::ids::CallId;

/// The provider's id of each call of a response with the host's key for it, in the order in which they came. Finding one
/// takes the same time however many there are. Where an id came twice the first one counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    in_order: Vec<(CallId, CallId)>,
    by_wire: HashMap<CallId, CallId>,
}

impl Scope {
    /// The host's key for the call that the provider names so.
    pub fn key(&self, wire: &CallId) -> Option<&CallId> {
        self.by_wire.get(wire)
    }

    /// The provider's ids and the host's keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&CallId, &CallId)> {
        self.in_order.iter().map(|(wire, key)| (wire, key))
    }

    /// How many calls came.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// True if no call came yet.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    pub(super) fn push(&mut self, wire: CallId, key: CallId) {
        self.by_wire.entry(wire.clone()).or_insert_with(|| key.clone());
        self.in_order.push((wire, key));
    }

    pub(super) fn clear(&mut self) {
        self.in_order.clear();
        self.by_wire.clear();
    }
}

impl FromIterator<(CallId, CallId)> for Scope {
    fn from_iter<T: IntoIterator<Item = (CallId, CallId)>>(calls: T) -> Self {
        let mut scope = Self::default();
        for (wire, key) in calls {
            scope.push(wire, key);
        }
        scope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_call_of_an_id_counts_and_all_stay_in_order() {
        let pairs = [("b", "b"), ("a", "a~r2.1"), ("b", "b~r2.2")];
        let scope: Scope = pairs.iter().map(|(wire, key)| (CallId::new(*wire), CallId::new(*key))).collect();
        assert_eq!(scope.key(&"b".into()), Some(&"b".into()));
        assert_eq!(scope.key(&"a".into()), Some(&"a~r2.1".into()));
        assert_eq!(scope.key(&"c".into()), None);
        let seen: Vec<_> = scope.iter().map(|(wire, key)| (wire.as_str(), key.as_str())).collect();
        assert_eq!((seen, scope.len(), scope.is_empty()), (pairs.to_vec(), 3, false));
    }
}
