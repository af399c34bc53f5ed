//! Decides which node a Pod goes to, and binds it.
//!
//! A Pod without a node enters the [`queue`]; [`fit`] compares what it asks for (`ask`) with what [`cluster`] knows of the
//! nodes; a node that fits is assumed to hold the Pod from then on, and the binding is written while the next Pod is
//! decided upon.
//! What the Pods that are placed mean to the next one is in `neighbours`, and its parts `company` and `spread`.
//! A Pod that fits nowhere gets an event and a condition, and waits until something changes. If it would fit where Pods of
//! lower priority are, `preempt` says which of them go, and the place is kept for it meanwhile.
//!
//! **Invariant:** [`fit`] is pure: the same Pod and the same cluster give the same decision and the same message.
//!
//! **Invariant:** nothing runs while nothing happens: every attempt has an event or the end of a back-off behind it.
#![forbid(unsafe_code)]

mod ask;
mod budgets;
pub mod cluster;
mod company;
mod crowd;
mod evict;
pub mod fit;
mod listing;
mod message;
mod missing;
mod namespaces;
mod neighbours;
mod nominations;
mod preempt;
pub mod queue;
mod run;
mod spread;
pub mod storage;
mod storage_watch;
mod term;
#[cfg(test)]
mod test_cluster;
mod victims;
mod write;

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use tokio_util::sync::CancellationToken;

/// The scheduler that Pods name when they name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What can be set.
#[derive(Debug, Clone)]
pub struct Options {
    /// Pods with another `spec.schedulerName` are left alone.
    pub scheduler_name: String,
    /// How many bindings and reports may be on their way to the API server at once.
    pub writes_in_flight: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { scheduler_name: DEFAULT_SCHEDULER.into(), writes_in_flight: 64 }
    }
}

/// The scheduler of one cluster. Only one may run for each scheduler name.
pub struct Scheduler {
    client: Client,
    options: Options,
}

impl Scheduler {
    /// A scheduler that reads and writes through `client`.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Self {
        Self { client, options }
    }

    /// Schedules until it is cancelled; what is on its way then is given up, and done again by the next scheduler.
    pub fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        // A box, so that it is compiled here and not once more in each crate that runs it.
        run::Loop::new(self.client, self.options).run(stop).boxed()
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("options", &self.options).finish_non_exhaustive()
    }
}
