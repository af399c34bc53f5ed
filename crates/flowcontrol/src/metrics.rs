//! Metrics of API priority and fairness.

use super::FlowControl;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

/// Counts of the requests of a FlowSchema.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    executing: AtomicI64,
    waiting: AtomicI64,
    dispatched: AtomicU64,
    rejected: AtomicU64,
}

impl RequestCounts {
    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }
}

/// Counts a request as executing until it is dropped.
pub(super) struct ExecutingGuard(Arc<RequestCounts>);

impl ExecutingGuard {
    pub(super) fn begin(counts: Arc<RequestCounts>) -> Self {
        counts.executing.fetch_add(1, Relaxed);
        counts.dispatched.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for ExecutingGuard {
    fn drop(&mut self) {
        self.0.executing.fetch_sub(1, Relaxed);
    }
}

/// Counts a request as waiting until it is dropped.
pub(super) struct WaitingGuard<'a>(&'a RequestCounts);

impl<'a> WaitingGuard<'a> {
    pub(super) fn begin(counts: &'a RequestCounts) -> Self {
        counts.waiting.fetch_add(1, Relaxed);
        Self(counts)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// A snapshot of the metrics.
pub struct FlowControlMetrics {
    /// Counts of each FlowSchema.
    pub flow_schemas: Vec<FlowSchemaMetrics>,
    /// Seats of each priority level.
    pub priority_level_seats: BTreeMap<String, usize>,
}

/// Counts of one FlowSchema.
pub struct FlowSchemaMetrics {
    /// Name of the FlowSchema.
    pub name: String,
    /// Its priority level.
    pub priority_level: String,
    /// Requests that are executing.
    pub executing: i64,
    /// Requests that wait for a seat.
    pub waiting: i64,
    /// Requests that got a seat, in total.
    pub dispatched: u64,
    /// Requests that were refused, in total.
    pub rejected: u64,
}

impl FlowControl {
    /// Returns the current counts.
    #[must_use]
    pub fn metrics(&self) -> FlowControlMetrics {
        let config = self.config();
        let count = |schema: &super::FlowSchema| FlowSchemaMetrics {
            name: schema.name.clone(),
            priority_level: schema.spec.priority_level_configuration.name.clone(),
            executing: schema.counts.executing.load(Relaxed),
            waiting: schema.counts.waiting.load(Relaxed),
            dispatched: schema.counts.dispatched.load(Relaxed),
            rejected: schema.counts.rejected.load(Relaxed),
        };
        FlowControlMetrics {
            flow_schemas: config.flow_schemas.iter().map(count).collect(),
            priority_level_seats: config.seats.clone(),
        }
    }
}
