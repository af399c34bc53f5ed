//! Scheduler: selects a node for each Pod and writes the binding.
//!
//! A Pod without a node enters the scheduling [`queue`]. `scheduling_loop` takes it from there and runs its scheduling
//! cycle (`schedule_one`). [`schedule_pod`] runs the Filter and Score steps (`filter_and_score`) against the
//! scheduler's [`cache`]. The cache assumes the Pod on the selected node, and the binding is written while the next Pod
//! is scheduled. `pod_constraints` combines `inter_pod_affinity` and `pod_topology_spread`. An unschedulable Pod gets a
//! `FailedScheduling` event and a `PodScheduled` condition, and stays in the queue until the cluster changes.
//! `preemption` selects victims of lower priority, and `execute_preemption` deletes them; the preemptor is nominated to
//! their node until they have terminated.
//!
//! **Invariant:** [`schedule_pod`] is pure: the same Pod and the same cache give the same decision and the same
//! message.
//!
//! **Invariant:** an idle scheduler does no work: an event or an expired backoff precedes every attempt.
#![forbid(unsafe_code)]

mod affinity_term;
pub mod cache;
mod cache_updates;
mod disruption_budgets;
mod dynamic_resources;
mod execute_preemption;
mod filter_and_score;
mod fit_error;
mod inter_pod_affinity;
mod namespace_labels;
mod nominator;
mod pod_constraints;
mod pod_index;
mod pod_topology_spread;
mod preemption;
pub mod queue;
pub mod schedule_pod;
mod scheduling_loop;
#[cfg(test)]
mod test_cache;
mod victims;
pub mod volume_binding;
mod volume_informers;
mod writer;

use futures::{FutureExt, future::BoxFuture};
use informer::SharedInformerFactory;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// Default value of `spec.schedulerName`.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Configuration of the scheduler.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of this scheduler; Pods with another `spec.schedulerName` are ignored.
    pub scheduler_name: String,
    /// Maximum number of concurrent writes to the API server (bindings, conditions, events).
    pub writes_in_flight: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { scheduler_name: DEFAULT_SCHEDULER.into(), writes_in_flight: 64 }
    }
}

/// Scheduler of one cluster. Only one may run for each scheduler name.
pub struct Scheduler {
    client: Client,
    informers: SharedInformerFactory,
    options: Options,
}

impl Scheduler {
    /// Creates a scheduler that uses `client`.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Self {
        let informers = SharedInformerFactory::new(client.clone());
        Self { client, informers, options }
    }

    /// Reads from informers that other components use, too.
    #[must_use]
    pub fn with_informers(self, informers: SharedInformerFactory) -> Self {
        Self { informers, ..self }
    }

    /// Runs until `stop` is cancelled. Writes in flight are dropped; the next scheduler repeats them.
    pub fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        // Boxed, so that the future is compiled in this crate and not again in each caller.
        let Self { client, informers, options } = self;
        async move { scheduling_loop::SchedulingLoop::new(client, &informers, options).run(stop).await }.boxed()
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("options", &self.options).finish_non_exhaustive()
    }
}
