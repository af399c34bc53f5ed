//! The roles and bindings of the cluster that upstream makes at its first start (`bootstrappolicy/policy.go` of 1.35, with
//! its default feature gates).

use super::text::{Role, RuleText, Subject, group, named, on, urls, user};

const READ: &str = "get list watch";
const READ_UPDATE: &str = "get list watch update patch";
const WRITE: &str = "create update patch delete deletecollection";
const READ_WRITE: &str = "get list watch create update patch delete deletecollection";
/// Both groups that have events.
pub(super) const EVENTS: RuleText = on("create update patch", "core events.k8s.io", "events");
const TOKEN_REVIEWS: RuleText = on("create", "authentication.k8s.io", "tokenreviews");
const ACCESS_REVIEWS: RuleText = on("create", "authorization.k8s.io", "subjectaccessreviews");

const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// Roles that users are given.
pub(super) const FOR_USERS: &[Role] = &[
    Role { name: "cluster-admin", rules: &[on("*", "*", "*"), urls("*", "*")], label: "" },
    Role {
        name: "system:aggregate-to-admin",
        rules: &[
            on("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            on(READ_WRITE, "rbac.authorization.k8s.io", "roles rolebindings"),
        ],
        label: "admin",
    },
    Role {
        name: "system:aggregate-to-edit",
        rules: &[
            on(READ, "core", "pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy"),
            on("impersonate", "core", "serviceaccounts"),
            on(WRITE, "core", "pods pods/attach pods/proxy pods/exec pods/portforward"),
            on("create", "core", "pods/eviction"),
            on(
                WRITE,
                "core",
                "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/proxy persistentvolumeclaims configmaps secrets",
            ),
            on(WRITE, "core events.k8s.io", "events"),
            on("create", "core", "serviceaccounts/token"),
            on(
                WRITE,
                "apps",
                "statefulsets statefulsets/scale daemonsets deployments deployments/scale deployments/rollback replicasets replicasets/scale",
            ),
            on(WRITE, "autoscaling", "horizontalpodautoscalers"),
            on(WRITE, "batch", "jobs cronjobs"),
            on(
                WRITE,
                "extensions",
                "daemonsets deployments deployments/scale deployments/rollback ingresses replicasets replicasets/scale replicationcontrollers/scale networkpolicies",
            ),
            on(WRITE, "policy", "poddisruptionbudgets"),
            on(WRITE, NETWORKING, "networkpolicies ingresses"),
            on(READ_WRITE, COORDINATION, "leases"),
            on(WRITE, RESOURCE, "resourceclaims resourceclaimtemplates"),
        ],
        label: "edit",
    },
    Role {
        name: "system:aggregate-to-view",
        rules: &[
            on(
                READ,
                "core",
                "pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status endpoints persistentvolumeclaims persistentvolumeclaims/status configmaps",
            ),
            on(
                READ,
                "core",
                "limitranges resourcequotas bindings pods/status resourcequotas/status namespaces/status replicationcontrollers/status pods/log",
            ),
            on(READ, "core events.k8s.io", "events"),
            on(READ, "core", "namespaces"),
            on(READ, DISCOVERY, "endpointslices"),
            on(
                READ,
                "apps",
                "controllerrevisions statefulsets statefulsets/status statefulsets/scale daemonsets daemonsets/status deployments deployments/status deployments/scale replicasets replicasets/status replicasets/scale",
            ),
            on(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
            on(READ, "batch", "jobs cronjobs cronjobs/status jobs/status"),
            on(
                READ,
                "extensions",
                "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status replicasets replicasets/scale replicasets/status replicationcontrollers/scale networkpolicies",
            ),
            on(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            on(READ, NETWORKING, "networkpolicies ingresses ingresses/status"),
            on(READ, RESOURCE, "resourceclaims resourceclaims/status resourceclaimtemplates"),
        ],
        label: "view",
    },
    // Of metrics-server's manifest (`manifests/base/rbac.yaml`), for which this server stands in.
    Role {
        name: "system:aggregated-metrics-reader",
        rules: &[on(READ, "metrics.k8s.io", "pods nodes")],
        label: "view edit admin",
    },
    Role {
        name: "system:discovery",
        rules: &[urls(
            "get",
            "/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*",
        )],
        label: "",
    },
    Role {
        name: "system:basic-user",
        rules: &[
            on("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            on("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
        label: "",
    },
    Role {
        name: "system:public-info-viewer",
        rules: &[urls("get", "/livez /readyz /healthz /version /version/")],
        label: "",
    },
    Role {
        name: "system:monitoring",
        rules: &[
            urls("get", "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/*"),
            on("get", "core", "nodes/metrics"),
        ],
        label: "",
    },
    Role {
        name: "system:service-account-issuer-discovery",
        rules: &[urls(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
        )],
        label: "",
    },
];

/// Roles of programs, those of the cluster's own controllers apart.
pub(super) const FOR_PROGRAMS: &[Role] = &[
    Role {
        name: "system:heapster",
        rules: &[on(READ, "core", "events pods nodes namespaces"), on(READ, "extensions", "deployments")],
        label: "",
    },
    Role {
        name: "system:node",
        rules: &[
            TOKEN_REVIEWS,
            on("create", "authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews"),
            on(READ, "core", "services"),
            on("create get list watch", "core", "nodes"),
            on("update patch", "core", "nodes/status"),
            on("update patch", "core", "nodes"),
            EVENTS,
            on(READ, "core", "pods"),
            on("create delete", "core", "pods"),
            on("update patch", "core", "pods/status"),
            on("create", "core", "pods/eviction"),
            on(READ, "core", "secrets configmaps"),
            on("get", "core", "persistentvolumeclaims persistentvolumes"),
            on("get", "core", "endpoints"),
            on("create get list watch", CERTIFICATES, "certificatesigningrequests"),
            on("get create update patch delete", COORDINATION, "leases"),
            on("get", STORAGE, "volumeattachments"),
            on("create", "core", "serviceaccounts/token"),
            on("get update patch", "core", "persistentvolumeclaims/status"),
            on(READ, STORAGE, "csidrivers"),
            on("get create update patch delete", STORAGE, "csinodes"),
            on(READ, "node.k8s.io", "runtimeclasses"),
            on("get", RESOURCE, "resourceclaims"),
            on("deletecollection", RESOURCE, "resourceslices"),
            on("get", "core", "serviceaccounts"),
        ],
        label: "",
    },
    Role {
        name: "system:node-problem-detector",
        rules: &[on("get", "core", "nodes"), on("patch", "core", "nodes/status"), EVENTS],
        label: "",
    },
    Role {
        name: "system:kubelet-api-admin",
        rules: &[
            on(READ, "core", "nodes"),
            on("proxy", "core", "nodes"),
            on("*", "core", "nodes/proxy nodes/metrics nodes/stats nodes/log"),
            on("*", "core", "nodes/configz nodes/healthz nodes/pods"),
        ],
        label: "",
    },
    Role {
        name: "system:node-bootstrapper",
        rules: &[on("create get list watch", CERTIFICATES, "certificatesigningrequests")],
        label: "",
    },
    Role { name: "system:auth-delegator", rules: &[TOKEN_REVIEWS, ACCESS_REVIEWS], label: "" },
    Role { name: "system:kube-aggregator", rules: &[on(READ, "core", "services endpoints")], label: "" },
    Role {
        name: "system:kube-controller-manager",
        rules: &[
            EVENTS,
            on("create", COORDINATION, "leases"),
            named("get update", COORDINATION, "leases", "kube-controller-manager"),
            on("create", "core", "secrets serviceaccounts"),
            on("delete", "core", "secrets"),
            on("get", "core", "namespaces secrets serviceaccounts configmaps"),
            on("update", "core", "secrets serviceaccounts"),
            TOKEN_REVIEWS,
            ACCESS_REVIEWS,
            on("list watch", "*", "*"),
            on("create", "core", "serviceaccounts/token"),
        ],
        label: "",
    },
    Role { name: "system:kube-dns", rules: &[on("list watch", "core", "endpoints services")], label: "" },
    Role {
        name: "system:kube-scheduler",
        rules: &[
            EVENTS,
            on("create", COORDINATION, "leases"),
            named("get list update watch", COORDINATION, "leases", "kube-scheduler"),
            on("create delete deletecollection get list patch update watch", COORDINATION, "leasecandidates"),
            on(READ, "core", "nodes"),
            on("get list watch delete", "core", "pods"),
            on("create", "core", "pods/binding bindings"),
            on("update patch", "core", "pods/status"),
            on(READ, "core", "services replicationcontrollers"),
            on(READ, "apps extensions", "replicasets"),
            on(READ, "apps", "statefulsets"),
            on(READ, "policy", "poddisruptionbudgets"),
            on(READ, "core", "persistentvolumeclaims persistentvolumes"),
            TOKEN_REVIEWS,
            ACCESS_REVIEWS,
            on(READ, STORAGE, "csinodes"),
            on(READ, STORAGE, "volumeattachments"),
            on(READ, "core", "namespaces"),
            on(READ, STORAGE, "csidrivers"),
            on(READ, STORAGE, "csistoragecapacities"),
            on(READ, RESOURCE, "deviceclasses"),
            on(READ_UPDATE, RESOURCE, "resourceclaims"),
            on(READ_UPDATE, RESOURCE, "resourceclaims/status"),
            on("update", "core", "pods/finalizers"),
            on(READ, RESOURCE, "resourceslices"),
        ],
        label: "",
    },
    Role {
        name: "system:persistent-volume-provisioner",
        rules: &[
            on("get list watch create delete", "core", "persistentvolumes"),
            on("get list watch update", "core", "persistentvolumeclaims"),
            on(READ, STORAGE, "storageclasses"),
            on("watch", "core", "events"),
            EVENTS,
        ],
        label: "",
    },
    Role {
        name: "system:node-proxier",
        rules: &[
            on("list watch", "core", "services endpoints"),
            on(READ, "core", "nodes"),
            EVENTS,
            on("list watch", NETWORKING, "servicecidrs"),
            on("list watch", DISCOVERY, "endpointslices"),
        ],
        label: "",
    },
    Role {
        name: "system:volume-scheduler",
        rules: &[
            on(READ_UPDATE, "core", "persistentvolumes"),
            on(READ, STORAGE, "storageclasses"),
            on(READ_UPDATE, "core", "persistentvolumeclaims"),
        ],
        label: "",
    },
    Role {
        name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        rules: &[on("create", CERTIFICATES, "certificatesigningrequests/nodeclient")],
        label: "",
    },
    Role {
        name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        rules: &[on("create", CERTIFICATES, "certificatesigningrequests/selfnodeclient")],
        label: "",
    },
    Role {
        name: "system:certificates.k8s.io:legacy-unknown-approver",
        rules: &[named("approve", CERTIFICATES, "signers", "kubernetes.io/legacy-unknown")],
        label: "",
    },
    Role {
        name: "system:certificates.k8s.io:kubelet-serving-approver",
        rules: &[named("approve", CERTIFICATES, "signers", "kubernetes.io/kubelet-serving")],
        label: "",
    },
    Role {
        name: "system:certificates.k8s.io:kube-apiserver-client-approver",
        rules: &[named("approve", CERTIFICATES, "signers", "kubernetes.io/kube-apiserver-client")],
        label: "",
    },
    Role {
        name: "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        rules: &[named("approve", CERTIFICATES, "signers", "kubernetes.io/kube-apiserver-client-kubelet")],
        label: "",
    },
];

/// Which role is bound to whom; a binding is called like its role.
pub(super) const BINDINGS: &[(&str, &[Subject])] = &[
    ("cluster-admin", &[group("system:masters")]),
    ("system:monitoring", &[group("system:monitoring")]),
    ("system:discovery", &[group("system:authenticated")]),
    ("system:basic-user", &[group("system:authenticated")]),
    ("system:public-info-viewer", &[group("system:authenticated"), group("system:unauthenticated")]),
    ("system:node-proxier", &[user("system:kube-proxy")]),
    ("system:kube-controller-manager", &[user("system:kube-controller-manager")]),
    ("system:kube-dns", &[Subject::Account("kube-system", "kube-dns")]),
    ("system:kube-scheduler", &[user("system:kube-scheduler")]),
    ("system:volume-scheduler", &[user("system:kube-scheduler")]),
    ("system:service-account-issuer-discovery", &[group("system:serviceaccounts")]),
    // Nodes have their own authorizer upstream; the binding is there for those who want it.
    ("system:node", &[]),
];
