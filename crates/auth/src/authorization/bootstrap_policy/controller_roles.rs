//! Default roles of upstream's controllers (`bootstrappolicy/controller_policy.go` of 1.35). Each is bound to the
//! service account of the same name in `kube-system`.

use super::{
    cluster_roles::EVENTS,
    rule_builder::{RuleTemplate, named_rule, rule},
};

const READ: &str = "get list watch";
const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";

/// Name and rules; the role is `system:controller:NAME`.
pub(super) const CONTROLLER_ROLES: &[(&str, &[RuleTemplate])] = &[
    (
        "attachdetach-controller",
        &[
            rule("list watch", "core", "persistentvolumes persistentvolumeclaims"),
            rule(READ, "core", "nodes"),
            rule("patch update", "core", "nodes/status"),
            rule("list watch", "core", "pods"),
            EVENTS,
            rule("get create delete list watch", STORAGE, "volumeattachments"),
            rule(READ, STORAGE, "csidrivers"),
            rule(READ, STORAGE, "csinodes"),
        ],
    ),
    (
        "certificate-controller",
        &[
            rule("get list watch delete", CERTIFICATES, "certificatesigningrequests"),
            rule("update", CERTIFICATES, "certificatesigningrequests/status certificatesigningrequests/approval"),
            named_rule("approve", CERTIFICATES, "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
            named_rule(
                "sign",
                CERTIFICATES,
                "signers",
                "kubernetes.io/legacy-unknown kubernetes.io/kubelet-serving kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet",
            ),
            rule("create", "authorization.k8s.io", "subjectaccessreviews"),
            EVENTS,
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &[rule("escalate get list watch update patch", "rbac.authorization.k8s.io", "clusterroles")],
    ),
    (
        "cronjob-controller",
        &[
            rule("get list watch update", "batch", "cronjobs"),
            rule("get list watch create update delete patch", "batch", "jobs"),
            rule("update", "batch", "cronjobs/status"),
            rule("update", "batch", "cronjobs/finalizers"),
            rule("list watch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "daemon-set-controller",
        &[
            rule(READ, "extensions apps", "daemonsets"),
            rule("update", "extensions apps", "daemonsets/status"),
            rule("update", "extensions apps", "daemonsets/finalizers"),
            rule("list watch", "core", "nodes"),
            rule("list watch create delete patch", "core", "pods"),
            rule("create", "core", "pods/binding"),
            rule("get list watch create delete update patch", "apps", "controllerrevisions"),
            EVENTS,
        ],
    ),
    (
        "deployment-controller",
        &[
            rule("get list watch update", "extensions apps", "deployments"),
            rule("update", "extensions apps", "deployments/status"),
            rule("update", "extensions apps", "deployments/finalizers"),
            rule("get list watch create update patch delete", "apps extensions", "replicasets"),
            rule("get list watch update", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "disruption-controller",
        &[
            rule(READ, "extensions apps", "deployments"),
            rule(READ, "apps extensions", "replicasets"),
            rule(READ, "core", "replicationcontrollers"),
            rule(READ, "policy", "poddisruptionbudgets"),
            rule(READ, "apps", "statefulsets"),
            rule("update", "policy", "poddisruptionbudgets/status"),
            rule("patch update", "core", "pods/status"),
            rule("get", "*", "*/scale"),
            EVENTS,
        ],
    ),
    (
        "endpoint-controller",
        &[
            rule(READ, "core", "services pods"),
            rule("get list watch create update delete", "core", "endpoints"),
            rule("create", "core", "endpoints/restricted"),
            EVENTS,
        ],
    ),
    (
        "endpointslice-controller",
        &[
            rule(READ, "core", "services pods nodes"),
            rule("update", "core", "services/finalizers"),
            rule("get list watch create update delete", DISCOVERY, "endpointslices"),
            EVENTS,
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            rule(READ, "core", "services endpoints"),
            rule("update", "core", "services/finalizers"),
            rule("update", "core", "endpoints/finalizers"),
            rule("get list watch create update delete", DISCOVERY, "endpointslices"),
            EVENTS,
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            rule(READ, "core", "pods"),
            rule("update", "core", "pods/finalizers"),
            rule("get list watch create", "core", "persistentvolumeclaims"),
            EVENTS,
        ],
    ),
    (
        "expand-controller",
        &[
            rule("get list watch update patch", "core", "persistentvolumes"),
            rule("update patch", "core", "persistentvolumeclaims/status"),
            rule(READ, "core", "persistentvolumeclaims"),
            EVENTS,
            // For Portworx volumes.
            rule("get", "core", "services"),
        ],
    ),
    ("generic-garbage-collector", &[rule("get list watch patch update delete", "*", "*"), EVENTS]),
    (
        "horizontal-pod-autoscaler",
        &[
            rule(READ, "autoscaling", "horizontalpodautoscalers"),
            rule("update", "autoscaling", "horizontalpodautoscalers/status"),
            rule("get update", "*", "*/scale"),
            rule("list watch", "core", "pods"),
            rule("list watch", "metrics.k8s.io", "pods"),
            rule(READ, "custom.metrics.k8s.io", "*"),
            rule(READ, "external.metrics.k8s.io", "*"),
            EVENTS,
        ],
    ),
    (
        "job-controller",
        &[
            rule("get list watch update patch", "batch", "jobs"),
            rule("update", "batch", "jobs/status"),
            rule("update", "batch", "jobs/finalizers"),
            rule("list watch create delete patch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            named_rule("get", "core", "configmaps", "kube-apiserver-legacy-service-account-token-tracking"),
            rule("patch delete", "core", "secrets"),
        ],
    ),
    (
        "namespace-controller",
        &[
            rule("get list watch delete", "core", "namespaces"),
            rule("update", "core", "namespaces/finalize namespaces/status"),
            rule("get list watch delete deletecollection", "*", "*"),
        ],
    ),
    (
        "node-controller",
        &[
            rule("get list watch update delete patch", "core", "nodes"),
            rule("patch update", "core", "nodes/status"),
            rule("patch update", "core", "pods/status"),
            rule("get list watch delete", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            rule("get list watch update create delete", "core", "persistentvolumes"),
            rule("update", "core", "persistentvolumes/status"),
            rule("get list watch update", "core", "persistentvolumeclaims"),
            rule("update", "core", "persistentvolumeclaims/status"),
            rule("list watch get create delete", "core", "pods"),
            rule(READ, STORAGE, "storageclasses"),
            rule("list watch", "core", "nodes"),
            EVENTS,
            rule("watch", "core", "events"),
            // For Portworx volumes.
            rule("get", "core", "services"),
        ],
    ),
    (
        "pod-garbage-collector",
        &[rule("list watch delete", "core", "pods"), rule(READ, "core", "nodes"), rule("patch", "core", "pods/status")],
    ),
    ("pv-protection-controller", &[rule("get list watch update", "core", "persistentvolumes"), EVENTS]),
    (
        "pvc-protection-controller",
        &[rule("get list watch update", "core", "persistentvolumeclaims"), rule(READ, "core", "pods"), EVENTS],
    ),
    (
        "replicaset-controller",
        &[
            rule("get list watch update", "apps extensions", "replicasets"),
            rule("update", "apps extensions", "replicasets/status"),
            rule("update", "apps extensions", "replicasets/finalizers"),
            rule("list watch create delete patch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "replication-controller",
        &[
            rule("get list watch update", "core", "replicationcontrollers"),
            rule("update", "core", "replicationcontrollers/status"),
            rule("update", "core", "replicationcontrollers/finalizers"),
            rule("list watch create delete patch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "resource-claim-controller",
        &[
            rule(READ, "core", "pods"),
            rule("update", "core", "pods/finalizers"),
            rule("get list watch create delete", RESOURCE, "resourceclaims"),
            rule("update patch", RESOURCE, "resourceclaims resourceclaims/status"),
            rule("update patch", "core", "pods/status"),
            EVENTS,
        ],
    ),
    (
        "resourcequota-controller",
        &[rule("list watch", "*", "*"), rule("update", "core", "resourcequotas/status"), EVENTS],
    ),
    ("root-ca-cert-publisher", &[rule("create update", "core", "configmaps"), EVENTS]),
    ("route-controller", &[rule("list watch", "core", "nodes"), rule("patch", "core", "nodes/status"), EVENTS]),
    (
        "selinux-warning-controller",
        &[
            EVENTS,
            rule(READ, "core", "persistentvolumes"),
            rule(READ, "core", "persistentvolumeclaims"),
            rule(READ, "core", "pods"),
            rule(READ, STORAGE, "csidrivers"),
        ],
    ),
    ("service-account-controller", &[rule("create", "core", "serviceaccounts"), EVENTS]),
    (
        "service-cidrs-controller",
        &[
            rule("get list watch patch update", NETWORKING, "servicecidrs"),
            rule("patch update", NETWORKING, "servicecidrs/finalizers"),
            rule("patch update", NETWORKING, "servicecidrs/status"),
            rule(READ, NETWORKING, "ipaddresses"),
            EVENTS,
        ],
    ),
    (
        "service-controller",
        &[
            rule(READ, "core", "services"),
            rule("patch update", "core", "services/status"),
            rule("list watch", "core", "nodes"),
            EVENTS,
        ],
    ),
    (
        "statefulset-controller",
        &[
            rule("list watch", "core", "pods"),
            rule(READ, "apps", "statefulsets"),
            rule("update", "apps", "statefulsets/status"),
            rule("update", "apps", "statefulsets/finalizers"),
            rule("get create delete update patch", "core", "pods"),
            rule("get list watch create delete update patch", "apps", "controllerrevisions"),
            rule("get list watch create", "core", "persistentvolumeclaims"),
            rule("update delete", "core", "persistentvolumeclaims"),
            rule("update", "core", "pods/finalizers"),
            EVENTS,
        ],
    ),
    ("ttl-after-finished-controller", &[rule("get list watch delete", "batch", "jobs"), EVENTS]),
    ("ttl-controller", &[rule("update patch list watch", "core", "nodes"), EVENTS]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            rule(READ, ADMISSION, "validatingadmissionpolicies"),
            rule("get patch update", ADMISSION, "validatingadmissionpolicies/status"),
            EVENTS,
        ],
    ),
    (
        "volumeattributesclass-protection-controller",
        &[
            rule(READ, "core", "persistentvolumeclaims"),
            rule(READ, "core", "persistentvolumes"),
            rule("get list watch update", STORAGE, "volumeattributesclasses"),
            EVENTS,
        ],
    ),
];
