//! Reinvocation of webhooks and policies after the object has changed (`reinvocationPolicy: IfNeeded`).

use std::collections::BTreeSet;

/// Reinvocation state of webhooks or policies (`webhookReinvokeContext`).
pub(super) struct Reinvocation<K> {
    /// Invoked since the last change, with `reinvocationPolicy: IfNeeded`.
    previously_invoked: BTreeSet<K>,
    /// To invoke again.
    reinvoke: BTreeSet<K>,
}

impl<K> Default for Reinvocation<K> {
    fn default() -> Self {
        Self { previously_invoked: BTreeSet::new(), reinvoke: BTreeSet::new() }
    }
}

impl<K: Ord> Reinvocation<K> {
    /// Adds one that was invoked and has `reinvocationPolicy: IfNeeded`.
    pub(super) fn add_invoked(&mut self, key: K) {
        self.previously_invoked.insert(key);
    }

    /// Requires the reinvocation of all previously invoked ones, after a change of the object.
    pub(super) fn require(&mut self) {
        self.reinvoke.append(&mut self.previously_invoked);
    }

    pub(super) fn should_reinvoke(&self, key: &K) -> bool {
        self.reinvoke.contains(key)
    }
}
