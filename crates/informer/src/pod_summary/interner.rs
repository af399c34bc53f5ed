//! Values that many Pods have in common, kept once.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
    ops::Deref,
    sync::{Arc, LazyLock},
};

/// Labels, tolerations and similar values: the summaries of one process share them, whichever informer they belong to.
static BYTES: LazyLock<Mutex<Interner<[u8]>>> = LazyLock::new(Mutex::default);
static LABELS: LazyLock<Mutex<Interner<BTreeMap<String, String>>>> = LazyLock::new(Mutex::default);

/// A shared value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Interned<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Clone for Interned<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Default for Interned<[u8]> {
    fn default() -> Self {
        static EMPTY: LazyLock<Interned<[u8]>> = LazyLock::new(|| Interned(Arc::default()));
        EMPTY.clone()
    }
}

impl Default for Interned<BTreeMap<String, String>> {
    fn default() -> Self {
        static EMPTY: LazyLock<Interned<BTreeMap<String, String>>> = LazyLock::new(|| Interned(Arc::default()));
        EMPTY.clone()
    }
}

impl From<BTreeMap<String, String>> for Interned<BTreeMap<String, String>> {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Self(LABELS.lock().intern(Arc::new(labels)))
    }
}

impl<const N: usize> From<[(String, String); N]> for Interned<BTreeMap<String, String>> {
    fn from(labels: [(String, String); N]) -> Self {
        BTreeMap::from(labels).into()
    }
}

impl FromIterator<(String, String)> for Interned<BTreeMap<String, String>> {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        BTreeMap::from_iter(labels).into()
    }
}

/// Returns the shared copy of a text.
pub(super) fn intern(text: Box<[u8]>) -> Interned<[u8]> {
    Interned(BYTES.lock().intern(text.into()))
}

/// Set of shared values. Unused ones are removed when it has doubled.
struct Interner<T: ?Sized> {
    shared: HashSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { shared: HashSet::new(), sweep_at: 1024 }
    }
}

impl<T: ?Sized + Hash + Eq> Interner<T> {
    fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(shared) = self.shared.get(&value) {
            return Arc::clone(shared);
        }
        if self.shared.len() >= self.sweep_at {
            self.shared.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = (self.shared.len() * 2).max(1024);
        }
        self.shared.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_kept_once_and_unused_ones_removed() {
        let mut interner = Interner::<[u8]>::default();
        let first = interner.intern(Arc::from(*b"a"));
        assert!(Arc::ptr_eq(&first, &interner.intern(Arc::from(*b"a"))));
        for i in 0..2000_u32 {
            interner.intern(Arc::from(i.to_le_bytes()));
        }
        assert!(interner.shared.len() < 2000, "{}", interner.shared.len());
        assert!(Arc::ptr_eq(&first, &interner.intern(Arc::from(*b"a"))));
    }
}
