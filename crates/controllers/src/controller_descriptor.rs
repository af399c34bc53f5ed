//! Table of the controllers (`cmd/kube-controller-manager/app/controller_descriptor.go`), and their shared context.

use crate::{
    Options, certificates, clients::Clients, cluster_role_aggregation, cron_job, daemon_set, deployment, disruption,
    endpoints, ephemeral_volume, garbage_collector, horizontal_pod_autoscaler, job, legacy_token_cleaner,
    load_balancer, names, namespace, node_lifecycle, persistent_volume, pod_gc, pod_summary::PodSummary, protection,
    replica_set, resource_quota, root_ca_cert_publisher, service_account, service_cidr, stateful_set, taint_eviction,
    token_controller, ttl_after_finished,
};
use api::feature_gates::Gate;
use futures::{FutureExt, future::BoxFuture};
use informer::SharedInformer;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, ReplicaSet},
    batch::v1::Job,
    certificates::v1::CertificateSigningRequest,
    core::v1::{PersistentVolumeClaim, ReplicationController, Service},
};
use tokio_util::sync::CancellationToken;

/// A controller, and how it is started.
pub(crate) struct ControllerDescriptor {
    pub(crate) name: &'static str,
    /// Subscribes to the informers and returns the controller's task, `None` if the options disable it.
    pub(crate) start: fn(&ControllerContext) -> Option<BoxFuture<'static, ()>>,
}

/// Clients, options and informers that the controllers share (`ControllerContext`).
pub(crate) struct ControllerContext {
    clients: Clients,
    options: Options,
    stop: CancellationToken,
    requests: SharedInformer<CertificateSigningRequest>,
    sets: SharedInformer<ReplicaSet>,
    replication_controllers: SharedInformer<ReplicationController>,
    revisions: SharedInformer<ControllerRevision>,
    jobs: SharedInformer<Job>,
    services: SharedInformer<Service>,
    claims: SharedInformer<PersistentVolumeClaim>,
    pods: SharedInformer<PodSummary>,
}

impl ControllerContext {
    /// Starts the informers. A controller that subscribes later begins with a resync.
    pub(crate) fn new(clients: Clients, options: Options, stop: CancellationToken) -> Self {
        let informers = clients.informers().clone();
        Self {
            clients,
            options,
            stop,
            requests: informers.informer(),
            sets: informers.informer(),
            replication_controllers: informers.informer(),
            revisions: informers.informer(),
            jobs: informers.informer(),
            services: informers.informer(),
            claims: informers.informer(),
            pods: informers.informer(),
        }
    }
}

/// All controllers.
pub(crate) const CONTROLLERS: &[ControllerDescriptor] = &[
    ControllerDescriptor {
        name: names::SERVICE_ACCOUNT,
        start: |c| Some(service_account::run(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::SERVICE_ACCOUNT_TOKEN,
        start: |c| {
            let (issuer, pem) = (c.options.token_issuer.clone()?, c.options.root_ca_pem.clone());
            Some(token_controller::run(c.clients.clone(), issuer, pem, c.stop.clone()).boxed())
        },
    },
    ControllerDescriptor {
        name: names::ROOT_CA_CERTIFICATE_PUBLISHER,
        start: |c| {
            Some(root_ca_cert_publisher::run(c.clients.clone(), c.options.root_ca_pem.clone()?, c.stop.clone()).boxed())
        },
    },
    ControllerDescriptor {
        name: names::CERTIFICATE_SIGNING_REQUEST_SIGNING,
        start: |c| {
            Some(
                certificates::signer(c.clients.clone(), c.options.signer.clone()?, c.requests.clone(), c.stop.clone())
                    .boxed(),
            )
        },
    },
    ControllerDescriptor {
        name: names::CERTIFICATE_SIGNING_REQUEST_APPROVING,
        start: |c| Some(certificates::approver(c.clients.clone(), c.requests.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::CERTIFICATE_SIGNING_REQUEST_CLEANER,
        start: |c| Some(certificates::cleaner(c.clients.clone(), c.requests.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::NAMESPACE,
        start: |c| Some(namespace::run(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::GARBAGE_COLLECTOR,
        start: |c| Some(garbage_collector::run(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::RESOURCE_QUOTA,
        start: |c| Some(resource_quota::run(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::CLUSTER_ROLE_AGGREGATION,
        start: |c| Some(cluster_role_aggregation::run(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::REPLICA_SET,
        start: |c| Some(replica_set::run(c.clients.clone(), c.sets.clone(), c.pods.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::REPLICATION_CONTROLLER,
        start: |c| {
            Some(
                replica_set::run(c.clients.clone(), c.replication_controllers.clone(), c.pods.clone(), c.stop.clone())
                    .boxed(),
            )
        },
    },
    ControllerDescriptor {
        name: names::DEPLOYMENT,
        start: |c| Some(deployment::run(c.clients.clone(), c.sets.clone(), c.pods.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::DAEMON_SET,
        start: |c| {
            Some(daemon_set::run(c.clients.clone(), c.revisions.clone(), c.pods.clone(), c.stop.clone()).boxed())
        },
    },
    ControllerDescriptor {
        name: names::STATEFUL_SET,
        start: |c| {
            let max_unavailable_enabled = c.options.gates.enabled(Gate::MaxUnavailableStatefulSet);
            Some(
                stateful_set::run(
                    c.clients.clone(),
                    c.revisions.clone(),
                    c.pods.clone(),
                    max_unavailable_enabled,
                    c.stop.clone(),
                )
                .boxed(),
            )
        },
    },
    ControllerDescriptor {
        name: names::JOB,
        start: |c| Some(job::run(c.clients.clone(), c.jobs.clone(), c.pods.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::TTL_AFTER_FINISHED,
        start: |c| Some(ttl_after_finished::run(c.clients.clone(), c.jobs.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::CRON_JOB,
        start: |c| {
            Some(cron_job::run(c.clients.clone(), c.jobs.clone(), c.options.clock.clone(), c.stop.clone()).boxed())
        },
    },
    ControllerDescriptor {
        name: names::ENDPOINT_SLICE,
        start: |c| Some(endpoints::run(c.clients.clone(), c.services.clone(), c.pods.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::SERVICE_LB,
        start: |c| {
            Some(
                load_balancer::run(
                    c.clients.clone(),
                    c.services.clone(),
                    c.options.load_balancer_pool?,
                    c.stop.clone(),
                )
                .boxed(),
            )
        },
    },
    ControllerDescriptor {
        name: names::DISRUPTION,
        start: |c| Some(disruption::run(&c.clients, c.sets.clone(), c.pods.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::HORIZONTAL_POD_AUTOSCALER,
        start: |c| {
            let (gates, clock) = (&c.options.gates, c.options.clock.clone());
            Some(
                horizontal_pod_autoscaler::run(c.clients.clone(), c.pods.clone(), gates, clock, c.stop.clone()).boxed(),
            )
        },
    },
    ControllerDescriptor {
        name: names::POD_GARBAGE_COLLECTOR,
        start: |c| {
            Some(
                pod_gc::run(c.clients.clone(), c.pods.clone(), c.options.terminated_pod_gc_threshold, c.stop.clone())
                    .boxed(),
            )
        },
    },
    ControllerDescriptor {
        name: names::PERSISTENT_VOLUME_CLAIM_PROTECTION,
        start: |c| Some(protection::pvc_protection(c.clients.clone(), c.pods.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::PERSISTENT_VOLUME_PROTECTION,
        start: |c| Some(protection::pv_protection(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::VOLUME_ATTRIBUTES_CLASS_PROTECTION,
        start: |c| Some(protection::vac_protection(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::PERSISTENT_VOLUME_BINDER,
        start: |c| {
            let provisioner = c.options.provisioner.clone();
            Some(
                persistent_volume::run(&c.clients, c.pods.clone(), c.claims.clone(), provisioner, c.stop.clone())
                    .boxed(),
            )
        },
    },
    ControllerDescriptor {
        name: names::EPHEMERAL_VOLUME,
        start: |c| {
            Some(ephemeral_volume::run(c.clients.clone(), c.pods.clone(), c.claims.clone(), c.stop.clone()).boxed())
        },
    },
    ControllerDescriptor {
        name: names::SERVICE_CIDR,
        start: |c| Some(service_cidr::run(c.clients.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::LEGACY_SERVICE_ACCOUNT_TOKEN_CLEANER,
        start: |c| Some(legacy_token_cleaner::run(c.clients.clone(), c.options.clock.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::TAINT_EVICTION,
        start: |c| Some(taint_eviction::run(c.clients.clone(), c.pods.clone(), c.stop.clone()).boxed()),
    },
    ControllerDescriptor {
        name: names::NODE_LIFECYCLE,
        start: |c| Some(node_lifecycle::run(c.clients.clone(), c.stop.clone()).boxed()),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn controller_names_are_unique_and_like_upstreams() {
        let names: HashSet<&str> = CONTROLLERS.iter().map(|controller| controller.name).collect();
        assert_eq!(names.len(), CONTROLLERS.len());
        assert!(names.iter().all(|name| name.ends_with("-controller")), "{names:?}");
    }
}
