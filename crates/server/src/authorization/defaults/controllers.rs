//! The roles of upstream's controllers (`bootstrappolicy/controller_policy.go` of 1.35): each is bound to the service
//! account of its name in `kube-system`.

use super::{
    roles::EVENTS,
    text::{RuleText, named, on},
};

const READ: &str = "get list watch";
const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";

/// Name and rules; the role is `system:controller:NAME`.
pub(super) const ALL: &[(&str, &[RuleText])] = &[
    (
        "attachdetach-controller",
        &[
            on("list watch", "core", "persistentvolumes persistentvolumeclaims"),
            on(READ, "core", "nodes"),
            on("patch update", "core", "nodes/status"),
            on("list watch", "core", "pods"),
            EVENTS,
            on("get create delete list watch", STORAGE, "volumeattachments"),
            on(READ, STORAGE, "csidrivers"),
            on(READ, STORAGE, "csinodes"),
        ],
    ),
    (
        "certificate-controller",
        &[
            on("get list watch delete", CERTIFICATES, "certificatesigningrequests"),
            on("update", CERTIFICATES, "certificatesigningrequests/status certificatesigningrequests/approval"),
            named("approve", CERTIFICATES, "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
            named(
                "sign",
                CERTIFICATES,
                "signers",
                "kubernetes.io/legacy-unknown kubernetes.io/kubelet-serving kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet",
            ),
            on("create", "authorization.k8s.io", "subjectaccessreviews"),
            EVENTS,
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &[on("escalate get list watch update patch", "rbac.authorization.k8s.io", "clusterroles")],
    ),
    (
        "cronjob-controller",
        &[
            on("get list watch update", "batch", "cronjobs"),
            on("get list watch create update delete patch", "batch", "jobs"),
            on("update", "batch", "cronjobs/status"),
            on("update", "batch", "cronjobs/finalizers"),
            on("list watch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "daemon-set-controller",
        &[
            on(READ, "extensions apps", "daemonsets"),
            on("update", "extensions apps", "daemonsets/status"),
            on("update", "extensions apps", "daemonsets/finalizers"),
            on("list watch", "core", "nodes"),
            on("list watch create delete patch", "core", "pods"),
            on("create", "core", "pods/binding"),
            on("get list watch create delete update patch", "apps", "controllerrevisions"),
            EVENTS,
        ],
    ),
    (
        "deployment-controller",
        &[
            on("get list watch update", "extensions apps", "deployments"),
            on("update", "extensions apps", "deployments/status"),
            on("update", "extensions apps", "deployments/finalizers"),
            on("get list watch create update patch delete", "apps extensions", "replicasets"),
            on("get list watch update", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "disruption-controller",
        &[
            on(READ, "extensions apps", "deployments"),
            on(READ, "apps extensions", "replicasets"),
            on(READ, "core", "replicationcontrollers"),
            on(READ, "policy", "poddisruptionbudgets"),
            on(READ, "apps", "statefulsets"),
            on("update", "policy", "poddisruptionbudgets/status"),
            on("patch update", "core", "pods/status"),
            on("get", "*", "*/scale"),
            EVENTS,
        ],
    ),
    (
        "endpoint-controller",
        &[
            on(READ, "core", "services pods"),
            on("get list watch create update delete", "core", "endpoints"),
            on("create", "core", "endpoints/restricted"),
            EVENTS,
        ],
    ),
    (
        "endpointslice-controller",
        &[
            on(READ, "core", "services pods nodes"),
            on("update", "core", "services/finalizers"),
            on("get list watch create update delete", DISCOVERY, "endpointslices"),
            EVENTS,
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            on(READ, "core", "services endpoints"),
            on("update", "core", "services/finalizers"),
            on("update", "core", "endpoints/finalizers"),
            on("get list watch create update delete", DISCOVERY, "endpointslices"),
            EVENTS,
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            on(READ, "core", "pods"),
            on("update", "core", "pods/finalizers"),
            on("get list watch create", "core", "persistentvolumeclaims"),
            EVENTS,
        ],
    ),
    (
        "expand-controller",
        &[
            on("get list watch update patch", "core", "persistentvolumes"),
            on("update patch", "core", "persistentvolumeclaims/status"),
            on(READ, "core", "persistentvolumeclaims"),
            EVENTS,
            // For volumes of Portworx.
            on("get", "core", "services"),
        ],
    ),
    ("generic-garbage-collector", &[on("get list watch patch update delete", "*", "*"), EVENTS]),
    (
        "horizontal-pod-autoscaler",
        &[
            on(READ, "autoscaling", "horizontalpodautoscalers"),
            on("update", "autoscaling", "horizontalpodautoscalers/status"),
            on("get update", "*", "*/scale"),
            on("list watch", "core", "pods"),
            on("list watch", "metrics.k8s.io", "pods"),
            on(READ, "custom.metrics.k8s.io", "*"),
            on(READ, "external.metrics.k8s.io", "*"),
            EVENTS,
        ],
    ),
    (
        "job-controller",
        &[
            on("get list watch update patch", "batch", "jobs"),
            on("update", "batch", "jobs/status"),
            on("update", "batch", "jobs/finalizers"),
            on("list watch create delete patch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            named("get", "core", "configmaps", "kube-apiserver-legacy-service-account-token-tracking"),
            on("patch delete", "core", "secrets"),
        ],
    ),
    (
        "namespace-controller",
        &[
            on("get list watch delete", "core", "namespaces"),
            on("update", "core", "namespaces/finalize namespaces/status"),
            on("get list watch delete deletecollection", "*", "*"),
        ],
    ),
    (
        "node-controller",
        &[
            on("get list watch update delete patch", "core", "nodes"),
            on("patch update", "core", "nodes/status"),
            on("patch update", "core", "pods/status"),
            on("get list watch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            on("get list watch update create delete", "core", "persistentvolumes"),
            on("update", "core", "persistentvolumes/status"),
            on("get list watch update", "core", "persistentvolumeclaims"),
            on("update", "core", "persistentvolumeclaims/status"),
            on("list watch get create delete", "core", "pods"),
            on(READ, STORAGE, "storageclasses"),
            on("list watch", "core", "nodes"),
            EVENTS,
            on("watch", "core", "events"),
            // For volumes of Portworx.
            on("get", "core", "services"),
        ],
    ),
    (
        "pod-garbage-collector",
        &[on("list watch delete", "core", "pods"), on(READ, "core", "nodes"), on("patch", "core", "pods/status")],
    ),
    ("pv-protection-controller", &[on("get list watch update", "core", "persistentvolumes"), EVENTS]),
    (
        "pvc-protection-controller",
        &[on("get list watch update", "core", "persistentvolumeclaims"), on(READ, "core", "pods"), EVENTS],
    ),
    (
        "replicaset-controller",
        &[
            on("get list watch update", "apps extensions", "replicasets"),
            on("update", "apps extensions", "replicasets/status"),
            on("update", "apps extensions", "replicasets/finalizers"),
            on("list watch create delete patch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "replication-controller",
        &[
            on("get list watch update", "core", "replicationcontrollers"),
            on("update", "core", "replicationcontrollers/status"),
            on("update", "core", "replicationcontrollers/finalizers"),
            on("list watch create delete patch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "resource-claim-controller",
        &[
            on(READ, "core", "pods"),
            on("update", "core", "pods/finalizers"),
            on("get list watch create delete", RESOURCE, "resourceclaims"),
            on("update patch", RESOURCE, "resourceclaims resourceclaims/status"),
            on("update patch", "core", "pods/status"),
            EVENTS,
        ],
    ),
    ("resourcequota-controller", &[on("list watch", "*", "*"), on("update", "core", "resourcequotas/status"), EVENTS]),
    ("root-ca-cert-publisher", &[on("create update", "core", "configmaps"), EVENTS]),
    ("route-controller", &[on("list watch", "core", "nodes"), on("patch", "core", "nodes/status"), EVENTS]),
    (
        "selinux-warning-controller",
        &[
            EVENTS,
            on(READ, "core", "persistentvolumes"),
            on(READ, "core", "persistentvolumeclaims"),
            on(READ, "core", "pods"),
            on(READ, STORAGE, "csidrivers"),
        ],
    ),
    ("service-account-controller", &[on("create", "core", "serviceaccounts"), EVENTS]),
    (
        "service-cidrs-controller",
        &[
            on("get list watch patch update", NETWORKING, "servicecidrs"),
            on("patch update", NETWORKING, "servicecidrs/finalizers"),
            on("patch update", NETWORKING, "servicecidrs/status"),
            on(READ, NETWORKING, "ipaddresses"),
            EVENTS,
        ],
    ),
    (
        "service-controller",
        &[
            on(READ, "core", "services"),
            on("patch update", "core", "services/status"),
            on("list watch", "core", "nodes"),
            EVENTS,
        ],
    ),
    (
        "statefulset-controller",
        &[
            on("list watch", "core", "pods"),
            on(READ, "apps", "statefulsets"),
            on("update", "apps", "statefulsets/status"),
            on("update", "apps", "statefulsets/finalizers"),
            on("get create delete update patch", "core", "pods"),
            on("get list watch create delete update patch", "apps", "controllerrevisions"),
            on("get list watch create", "core", "persistentvolumeclaims"),
            on("update delete", "core", "persistentvolumeclaims"),
            on("update", "core", "pods/finalizers"),
            EVENTS,
        ],
    ),
    ("ttl-after-finished-controller", &[on("get list watch delete", "batch", "jobs"), EVENTS]),
    ("ttl-controller", &[on("update patch list watch", "core", "nodes"), EVENTS]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            on(READ, ADMISSION, "validatingadmissionpolicies"),
            on("get patch update", ADMISSION, "validatingadmissionpolicies/status"),
            EVENTS,
        ],
    ),
    (
        "volumeattributesclass-protection-controller",
        &[
            on(READ, "core", "persistentvolumeclaims"),
            on(READ, "core", "persistentvolumes"),
            on("get list watch update", STORAGE, "volumeattributesclasses"),
            EVENTS,
        ],
    ),
];
