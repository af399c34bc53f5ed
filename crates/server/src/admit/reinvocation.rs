//! Who is asked again, for an object has changed since (`reinvocationPolicy: IfNeeded`).

use std::collections::BTreeSet;

/// Those that want to see what becomes of an object after them, and of these the ones after which it has changed.
pub(super) struct Reinvocation<K> {
    past: BTreeSet<K>,
    wanted: BTreeSet<K>,
}

impl<K> Default for Reinvocation<K> {
    fn default() -> Self {
        Self { past: BTreeSet::new(), wanted: BTreeSet::new() }
    }
}

impl<K: Ord> Reinvocation<K> {
    /// One was asked that wants to see what comes after it.
    pub(super) fn note(&mut self, who: K) {
        self.past.insert(who);
    }

    /// The object has changed.
    pub(super) fn changed(&mut self) {
        self.wanted.append(&mut self.past);
    }

    pub(super) fn wants(&self, who: &K) -> bool {
        self.wanted.contains(who)
    }
}
