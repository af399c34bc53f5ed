//! One file per controller, each a small reconciler over the API.
//!
//! A controller observes changes and says which of its keys they concern; a key carries no payload, so however many
//! changes concern it, it is reconciled once, against the newest state ([`worker`]). What fails is tried again with
//! a back-off. Watches are lists from time to time ([`watch`]), which repairs what an event lost.
//!
//! **Invariant:** nothing runs while nothing happens: a timer exists only for a key that waits for a moment.
#![forbid(unsafe_code)]
// Numbers of clients go into times: an operator that overflows would panic.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod backoff;
mod certificates;
mod clients;
mod clock;
mod cluster_roles;
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
mod in_use;
mod informer;
mod int_or_string;
mod job;
mod legacy_token_cleaner;
mod legacy_tokens;
mod load_balancer;
mod namespace;
mod node_lifecycle;
mod node_taints;
mod pending_deletions;
mod per_namespace;
mod persistent_volume;
mod pod_control;
mod pod_gc;
mod pod_summary;
mod replica_set;
mod resource_quota;
mod root_ca;
mod selector_format;
mod service_account;
mod service_cidrs;
mod stateful_set;
mod taint_eviction;
mod ttl_after_finished;
mod watch;
mod worker;

pub use certificates::{Order, Signer};
pub use clients::Clients;
pub use clock::Clock;
pub use legacy_tokens::{Bearer, TokenMaker};
pub use persistent_volume::{Directories, Provisioner};

use api::feature_gates::{FeatureGates, Gate};
use futures::{FutureExt, future::BoxFuture};
use informer::SharedInformer;
use ipnet::Ipv4Net;
use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ReplicationController, Service};
use kube::Api;
use pod_summary::PodSummary;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What can be set.
#[derive(Debug, Clone)]
pub struct Options {
    /// The certificates, in PEM, that Pods trust the API server by; nothing is published without them.
    pub root_ca_pem: Option<String>,
    /// Makes the tokens that are kept in Secrets; without one there are none.
    pub token_maker: Option<TokenMaker>,
    /// Signs requests for certificates of Kubernetes' own signers; without one nobody does.
    pub signer: Option<Signer>,
    /// Makes volumes for claims; without one, whoever else their classes name is waited for.
    pub provisioner: Option<Provisioner>,
    /// The addresses of Services of type LoadBalancer; without any, whoever else gives them some is waited for.
    pub load_balancer_pool: Option<Ipv4Net>,
    /// Above this number of ended Pods, the oldest are removed; 0 removes none (`--terminated-pod-gc-threshold`).
    pub terminated_pod_gc_threshold: usize,
    /// Which features are on.
    pub gates: FeatureGates,
    /// When CronJobs start Jobs, for how long Pods are ready, and how long nobody has used a token.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root_ca_pem: None,
            token_maker: None,
            signer: None,
            provisioner: None,
            load_balancer_pool: None,
            terminated_pod_gc_threshold: 12_500,
            gates: FeatureGates::default(),
            clock: Clock::system(),
        }
    }
}

/// Runs all controllers until they are cancelled; what is on its way then is given up, and done again next time.
pub fn run(clients: impl Into<Clients>, options: Options, stop: CancellationToken) -> BoxFuture<'static, ()> {
    boxed(clients.into(), options, stop)
}

/// A box, and no parameters of type: so all controllers are compiled here, and not once more in each crate that runs them.
fn boxed(clients: Clients, options: Options, stop: CancellationToken) -> BoxFuture<'static, ()> {
    run_all(clients, options, stop).boxed()
}

async fn run_all(clients: Clients, options: Options, stop: CancellationToken) {
    let mut controllers = JoinSet::new();
    controllers.spawn(service_account::run(clients.clone(), stop.clone()));
    if let Some(maker) = options.token_maker {
        controllers.spawn(legacy_tokens::run(clients.clone(), maker, options.root_ca_pem.clone(), stop.clone()));
    }
    if let Some(pem) = options.root_ca_pem {
        controllers.spawn(root_ca::run(clients.clone(), pem, stop.clone()));
    }
    let requests = SharedInformer::<CertificateSigningRequest>::new();
    if let Some(signer) = options.signer {
        controllers.spawn(certificates::signing(clients.clone(), signer, requests.clone(), stop.clone()));
    }
    controllers.spawn(certificates::approving(clients.clone(), requests.clone(), stop.clone()));
    controllers.spawn(certificates::cleaner(clients.clone(), requests.clone(), stop.clone()));
    controllers.spawn(namespace::run(clients.clone(), stop.clone()));
    controllers.spawn(garbage_collector::run(clients.clone(), stop.clone()));
    controllers.spawn(resource_quota::run(clients.clone(), stop.clone()));
    controllers.spawn(cluster_roles::run(clients.clone(), stop.clone()));
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
    controllers.spawn(in_use::claims(clients.clone(), pods.clone(), stop.clone()));
    controllers.spawn(in_use::volumes(clients.clone(), stop.clone()));
    controllers.spawn(in_use::classes(clients.clone(), stop.clone()));
    let claimed = SharedInformer::<PersistentVolumeClaim>::new();
    let (made, all) = (options.provisioner, claimed.clone());
    controllers.spawn(persistent_volume::run(clients.clone(), pods.clone(), all, made, stop.clone()));
    controllers.spawn(ephemeral_volume::run(clients.clone(), pods.clone(), claimed.clone(), stop.clone()));
    controllers.spawn(service_cidrs::run(clients.clone(), stop.clone()));
    controllers.spawn(legacy_token_cleaner::run(clients.clone(), options.clock, stop.clone()));
    controllers.spawn(taint_eviction::run(clients.clone(), pods.clone(), stop.clone()));
    // Whoever listens has begun to.
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
            tracing::error!("a controller ended: {e}");
        }
    }
}
