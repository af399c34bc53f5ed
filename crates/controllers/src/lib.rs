//! Controllers: one file for each, a small reconciler over the API.
//!
//! A controller maps watch events to the keys that they affect. A key carries no payload: however many events affect
//! it, it is reconciled once, against the newest state ([`worker`]). A failed reconcile is requeued with a back-off.
//! Watches relist periodically ([`watch`]), which repairs missed events.
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
mod informer;
mod int_or_string;
mod job;
mod legacy_token_cleaner;
mod load_balancer;
mod namespace;
mod node_condition_taints;
mod node_lifecycle;
mod pending_deletions;
mod per_namespace;
mod persistent_volume;
mod pod_control;
mod pod_gc;
mod pod_summary;
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
mod watch;
mod worker;
mod workqueue;

pub use certificates::{CertificateOrder, Signer, SignerError};
pub use clients::Clients;
pub use clock::Clock;
pub use persistent_volume::{Provisioner, VolumeDirectories};
pub use token_controller::{TokenIssuer, TokenSubject};

use api::feature_gates::{FeatureGates, Gate};
use futures::{FutureExt, future::BoxFuture};
use informer::SharedInformer;
use ipnet::Ipv4Net;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, ReplicaSet},
    batch::v1::Job,
    certificates::v1::CertificateSigningRequest,
    core::v1::{PersistentVolumeClaim, ReplicationController, Service},
};
use kube::Api;
use pod_summary::PodSummary;
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
    let mut controllers = JoinSet::new();
    controllers.spawn(service_account::run(clients.clone(), stop.clone()));
    if let Some(maker) = options.token_issuer {
        controllers.spawn(token_controller::run(clients.clone(), maker, options.root_ca_pem.clone(), stop.clone()));
    }
    if let Some(pem) = options.root_ca_pem {
        controllers.spawn(root_ca_cert_publisher::run(clients.clone(), pem, stop.clone()));
    }
    let requests = SharedInformer::<CertificateSigningRequest>::new();
    if let Some(signer) = options.signer {
        controllers.spawn(certificates::signer(clients.clone(), signer, requests.clone(), stop.clone()));
    }
    controllers.spawn(certificates::approver(clients.clone(), requests.clone(), stop.clone()));
    controllers.spawn(certificates::cleaner(clients.clone(), requests.clone(), stop.clone()));
    controllers.spawn(namespace::run(clients.clone(), stop.clone()));
    controllers.spawn(garbage_collector::run(clients.clone(), stop.clone()));
    controllers.spawn(resource_quota::run(clients.clone(), stop.clone()));
    controllers.spawn(cluster_role_aggregation::run(clients.clone(), stop.clone()));
    let (sets, pods) = (SharedInformer::<ReplicaSet>::new(), SharedInformer::<PodSummary>::new());
    controllers.spawn(replica_set::run(clients.clone(), sets.clone(), pods.clone(), stop.clone()));
    let replicated = SharedInformer::<ReplicationController>::new();
    controllers.spawn(replica_set::run(clients.clone(), replicated.clone(), pods.clone(), stop.clone()));
    controllers.spawn(deployment::run(clients.clone(), sets.clone(), pods.clone(), stop.clone()));
    let revisions = SharedInformer::<ControllerRevision>::new();
    controllers.spawn(daemon_set::run(clients.clone(), revisions.clone(), pods.clone(), stop.clone()));
    let several = options.gates.enabled(Gate::MaxUnavailableStatefulSet);
    controllers.spawn(stateful_set::run(clients.clone(), revisions.clone(), pods.clone(), several, stop.clone()));
    let jobs = SharedInformer::<Job>::new();
    controllers.spawn(job::run(clients.clone(), jobs.clone(), pods.clone(), stop.clone()));
    controllers.spawn(ttl_after_finished::run(clients.clone(), jobs.clone(), stop.clone()));
    controllers.spawn(cron_job::run(clients.clone(), jobs.clone(), options.clock.clone(), stop.clone()));
    let services = SharedInformer::<Service>::new();
    controllers.spawn(endpoints::run(clients.clone(), services.clone(), pods.clone(), stop.clone()));
    if let Some(pool) = options.load_balancer_pool {
        controllers.spawn(load_balancer::run(clients.clone(), services.clone(), pool, stop.clone()));
    }
    controllers.spawn(disruption::run(clients.clone(), sets.clone(), pods.clone(), stop.clone()));
    let (gates, clock) = (&options.gates, options.clock.clone());
    controllers.spawn(horizontal_pod_autoscaler::run(clients.clone(), pods.clone(), gates, clock, stop.clone()));
    let threshold = options.terminated_pod_gc_threshold;
    controllers.spawn(pod_gc::run(clients.clone(), pods.clone(), threshold, stop.clone()));
    controllers.spawn(protection::pvc_protection(clients.clone(), pods.clone(), stop.clone()));
    controllers.spawn(protection::pv_protection(clients.clone(), stop.clone()));
    controllers.spawn(protection::vac_protection(clients.clone(), stop.clone()));
    let claimed = SharedInformer::<PersistentVolumeClaim>::new();
    let (made, all) = (options.provisioner, claimed.clone());
    controllers.spawn(persistent_volume::run(clients.clone(), pods.clone(), all, made, stop.clone()));
    controllers.spawn(ephemeral_volume::run(clients.clone(), pods.clone(), claimed.clone(), stop.clone()));
    controllers.spawn(service_cidr::run(clients.clone(), stop.clone()));
    controllers.spawn(legacy_token_cleaner::run(clients.clone(), options.clock, stop.clone()));
    controllers.spawn(taint_eviction::run(clients.clone(), pods.clone(), stop.clone()));
    // Start the informers after all controllers have subscribed.
    controllers.spawn(requests.run(Api::all(clients.shared()), |request| request, stop.clone()));
    controllers.spawn(revisions.run(Api::all(clients.shared()), |revision| revision, stop.clone()));
    controllers.spawn(jobs.run(Api::all(clients.shared()), |job| job, stop.clone()));
    controllers.spawn(replicated.run(Api::all(clients.shared()), |set| set, stop.clone()));
    controllers.spawn(claimed.run(Api::all(clients.shared()), |claim| claim, stop.clone()));
    controllers.spawn(services.run(Api::all(clients.shared()), |service| service, stop.clone()));
    controllers.spawn(sets.run(Api::all(clients.shared()), |set| set, stop.clone()));
    controllers.spawn(pods.run(Api::all(clients.shared()), PodSummary::from_pod, stop.clone()));
    controllers.spawn(node_lifecycle::run(clients, stop));
    while let Some(ended) = controllers.join_next().await {
        if let Err(e) = ended {
            tracing::error!(error = %e, "controller task failed");
        }
    }
}
