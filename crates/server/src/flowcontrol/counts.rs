//! How many requests there are and were of a schema.

use super::FlowControl;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

/// The requests of a schema.
#[derive(Debug, Default)]
pub(super) struct Counts {
    executing: AtomicI64,
    waiting: AtomicI64,
    dispatched: AtomicU64,
    rejected: AtomicU64,
}

impl Counts {
    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }
}

/// A request that is carried out until this is dropped.
pub(super) struct Executing(Arc<Counts>);

impl Executing {
    pub(super) fn begin(counts: Arc<Counts>) -> Self {
        counts.executing.fetch_add(1, Relaxed);
        counts.dispatched.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        self.0.executing.fetch_sub(1, Relaxed);
    }
}

/// A request that waits until this is dropped.
pub(super) struct Waiting<'a>(&'a Counts);

impl<'a> Waiting<'a> {
    pub(super) fn begin(counts: &'a Counts) -> Self {
        counts.waiting.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// What is known of requests by now.
pub(crate) struct Told {
    pub(crate) schemas: Vec<Counted>,
    /// The seats of each level.
    pub(crate) levels: BTreeMap<String, usize>,
}

/// The requests of one schema.
pub(crate) struct Counted {
    pub(crate) name: String,
    pub(crate) level: String,
    pub(crate) executing: i64,
    pub(crate) waiting: i64,
    pub(crate) dispatched: u64,
    pub(crate) rejected: u64,
}

impl FlowControl {
    pub(crate) fn told(&self) -> Told {
        let config = self.config();
        let counted = |schema: &super::Known| Counted {
            name: schema.name.clone(),
            level: schema.spec.priority_level_configuration.name.clone(),
            executing: schema.counts.executing.load(Relaxed),
            waiting: schema.counts.waiting.load(Relaxed),
            dispatched: schema.counts.dispatched.load(Relaxed),
            rejected: schema.counts.rejected.load(Relaxed),
        };
        Told { schemas: config.schemas.iter().map(counted).collect(), levels: config.seats.clone() }
    }
}
