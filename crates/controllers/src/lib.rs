//! Controllers: one file for each, a small reconciler over the API.
//!
//! [`controller_descriptor`] lists them. A controller maps watch events to the keys that they affect. A key carries no
//! payload: however many events affect it, it is reconciled once, against the newest state ([`worker`]). Different keys
//! are reconciled concurrently. A failed reconcile is requeued with a back-off ([`workqueue`]).
//! Watches relist periodically (`informer::reflector`), which repairs missed events.
//!
//! **Invariant:** an idle controller does nothing: a timer exists only for a key that is requeued for a later time.
#![forbid(unsafe_code)]
// Client-supplied numbers are used in time arithmetic, which must saturate.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod backoff;
mod certificates;
mod clients;
mod clock;
mod cluster_role_aggregation;
mod controller_descriptor;
mod controller_history;
mod controller_revisions;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoints;
mod ephemeral_volume;
mod event_recorder;
mod expectations;
mod garbage_collector;
mod horizontal_pod_autoscaler;
mod int_or_string;
mod job;
mod legacy_token_cleaner;
mod load_balancer;
mod names;
mod namespace;
mod node_condition_taints;
mod node_lifecycle;
mod pending_deletions;
mod per_namespace;
mod persistent_volume;
mod pod_control;
mod pod_gc;
mod protection;
mod replica_set;
mod resource_quota;
mod root_ca_cert_publisher;
mod selector_format;
mod service_account;
mod service_cidr;
mod stateful_set;
mod taint_eviction;
mod token_controller;
mod ttl_after_finished;
mod worker;
mod workqueue;

pub use certificates::{CertificateOrder, Signer, SignerError};
pub use clients::Clients;
pub use clock::Clock;
pub use persistent_volume::{Provisioner, VolumeDirectories};
pub use token_controller::{TokenIssuer, TokenSubject};

use api::feature_gates::FeatureGates;
use controller_descriptor::{CONTROLLERS, ControllerContext};
use futures::{FutureExt, future::BoxFuture};
use informer::pod_summary;
use ipnet::Ipv4Net;
use std::collections::HashMap;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Options of the controllers.
#[derive(Debug, Clone)]
pub struct Options {
    /// CA certificates in PEM by which Pods verify the API server. `None` publishes no `kube-root-ca.crt`.
    pub root_ca_pem: Option<String>,
    /// Issues service account tokens for Secrets. `None` disables the token controller.
    pub token_issuer: Option<TokenIssuer>,
    /// Signs CertificateSigningRequests of Kubernetes' own signers. `None` disables signing.
    pub signer: Option<Signer>,
    /// Provisions volumes for claims. `None` leaves claims to an external provisioner.
    pub provisioner: Option<Provisioner>,
    /// Address pool for Services of type LoadBalancer. `None` leaves them to an external controller.
    pub load_balancer_pool: Option<Ipv4Net>,
    /// Number of terminated Pods above which the oldest are deleted; 0 deletes none
    /// (`--terminated-pod-gc-threshold`).
    pub terminated_pod_gc_threshold: usize,
    /// Enabled feature gates.
    pub gates: FeatureGates,
    /// Clock for CronJob schedules, metrics and the expiry of legacy tokens.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root_ca_pem: None,
            token_issuer: None,
            signer: None,
            provisioner: None,
            load_balancer_pool: None,
            terminated_pod_gc_threshold: 12_500,
            gates: FeatureGates::default(),
            clock: Clock::system(),
        }
    }
}

/// Runs all controllers until cancelled. A reconcile that is in progress then is abandoned and repeated after the
/// next start.
pub fn run(clients: impl Into<Clients>, options: Options, stop: CancellationToken) -> BoxFuture<'static, ()> {
    boxed(clients.into(), options, stop)
}

/// Boxes the future. It has no type parameters, so the controllers are compiled in this crate only.
fn boxed(clients: Clients, options: Options, stop: CancellationToken) -> BoxFuture<'static, ()> {
    run_all(clients, options, stop).boxed()
}

async fn run_all(clients: Clients, options: Options, stop: CancellationToken) {
    let (context, mut tasks) = (ControllerContext::new(clients, options, stop), JoinSet::new());
    let mut names = HashMap::new();
    for controller in CONTROLLERS {
        if let Some(task) = (controller.start)(&context) {
            names.insert(tasks.spawn(task).id(), controller.name);
        }
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(controller = names.get(&error.id()), %error, "controller task failed");
        }
    }
}
