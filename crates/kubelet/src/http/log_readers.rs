//! Limits on concurrent log readers.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Limit of concurrent readers. Each holds some blocks of memory while its client is slow.
const TOTAL: usize = 1024;
/// Limit of concurrent readers of one namespace, so that it cannot exhaust the total.
const PER_NAMESPACE: usize = 128;

/// Counts of open log readers by namespace.
pub(crate) struct LogReaders(Arc<Mutex<Open>>);

struct Open {
    total: usize,
    per_namespace: usize,
    by_namespace: HashMap<String, usize>,
}

impl Default for LogReaders {
    fn default() -> Self {
        Self::with_bounds(TOTAL, PER_NAMESPACE)
    }
}

impl LogReaders {
    fn with_bounds(total: usize, per_namespace: usize) -> Self {
        Self(Arc::new(Mutex::new(Open { total, per_namespace, by_namespace: HashMap::new() })))
    }

    /// Acquires a permit to read a log; `None` if a limit is reached.
    pub(super) fn begin(&self, namespace: &str) -> Option<LogReader> {
        let mut open = self.0.lock();
        let all: usize = open.by_namespace.values().sum();
        let in_namespace = open.by_namespace.get(namespace).copied().unwrap_or_default();
        if all >= open.total || in_namespace >= open.per_namespace {
            return None;
        }
        open.by_namespace.insert(namespace.to_owned(), in_namespace + 1);
        Some(LogReader { open: Arc::clone(&self.0), namespace: namespace.to_owned() })
    }
}

/// Permit to read a log, released on drop.
pub(super) struct LogReader {
    open: Arc<Mutex<Open>>,
    namespace: String,
}

impl Drop for LogReader {
    fn drop(&mut self) {
        let by_namespace = &mut self.open.lock().by_namespace;
        match by_namespace.get_mut(&self.namespace) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_namespace.remove(&self.namespace)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_readers_are_limited_per_namespace_and_in_total() {
        let readers = LogReaders::with_bounds(5, 3);
        let mut held: Vec<_> = (0..3).map(|n| readers.begin("a").unwrap_or_else(|| panic!("reader {n}"))).collect();
        assert!(readers.begin("a").is_none(), "a namespace has a bound");
        held.extend((0..2).map(|n| readers.begin("b").unwrap_or_else(|| panic!("reader {n} of another"))));
        assert!(readers.begin("c").is_none(), "there is a bound in all");
        held.remove(0);
        assert!(readers.begin("c").is_some() && readers.begin("a").is_some(), "who ends makes room");
        drop(held);
        assert!(readers.0.lock().by_namespace.is_empty(), "nothing is kept of namespaces without readers");
    }
}
