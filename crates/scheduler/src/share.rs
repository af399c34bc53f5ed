//! Values of which many are equal, each kept once: of thousands of Pods few have labels of their own.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// Of a Pod.
pub(crate) type Labels = BTreeMap<String, String>;

/// What is shared.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    known: HashSet<Arc<T>>,
    /// With so many, those that nobody uses any more are dropped.
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), sweep_at: 64 }
    }
}

impl<T: Hash + Eq + Clone> Pool<T> {
    pub(crate) fn share(&mut self, value: &T) -> Arc<T> {
        if let Some(known) = self.known.get(value) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = (self.known.len() * 2).max(64);
        }
        let value = Arc::new(value.clone());
        self.known.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_is_kept_once_and_no_longer_than_it_is_used() {
        let mut pool = Pool::default();
        let kept = pool.share(&"kept".to_owned());
        assert!(Arc::ptr_eq(&kept, &pool.share(&"kept".to_owned())));
        for i in 0..1000 {
            pool.share(&i.to_string());
        }
        assert!(pool.known.len() <= 64, "{}", pool.known.len());
        assert!(Arc::ptr_eq(&kept, &pool.share(&"kept".to_owned())));
    }
}
