//! Default ClusterRoles and ClusterRoleBindings (`bootstrappolicy/policy.go` of 1.35, with
//! its default feature gates).

use super::rule_builder::{Role, RuleTemplate, Subject, group, named_rule, rule, url_rule, user};

const READ: &str = "get list watch";
const READ_UPDATE: &str = "get list watch update patch";
const WRITE: &str = "create update patch delete deletecollection";
const READ_WRITE: &str = "get list watch create update patch delete deletecollection";
/// Rule for Events of both API groups.
pub(super) const EVENTS: RuleTemplate = rule("create update patch", "core events.k8s.io", "events");
const TOKEN_REVIEWS: RuleTemplate = rule("create", "authentication.k8s.io", "tokenreviews");
const ACCESS_REVIEWS: RuleTemplate = rule("create", "authorization.k8s.io", "subjectaccessreviews");

const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// Roles for users.
pub(super) const USER_ROLES: &[Role] = &[
    Role { name: "cluster-admin", rules: &[rule("*", "*", "*"), url_rule("*", "*")], aggregate_to: "" },
    Role {
        name: "system:aggregate-to-admin",
        rules: &[
            rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            rule(READ_WRITE, "rbac.authorization.k8s.io", "roles rolebindings"),
        ],
        aggregate_to: "admin",
    },
    Role {
        name: "system:aggregate-to-edit",
        rules: &[
            rule(READ, "core", "pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy"),
            rule("impersonate", "core", "serviceaccounts"),
            rule(WRITE, "core", "pods pods/attach pods/proxy pods/exec pods/portforward"),
            rule("create", "core", "pods/eviction"),
            rule(
                WRITE,
                "core",
                "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/proxy persistentvolumeclaims configmaps secrets",
            ),
            rule(WRITE, "core events.k8s.io", "events"),
            rule("create", "core", "serviceaccounts/token"),
            rule(
                WRITE,
                "apps",
                "statefulsets statefulsets/scale daemonsets deployments deployments/scale deployments/rollback replicasets replicasets/scale",
            ),
            rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
            rule(WRITE, "batch", "jobs cronjobs"),
            rule(
                WRITE,
                "extensions",
                "daemonsets deployments deployments/scale deployments/rollback ingresses replicasets replicasets/scale replicationcontrollers/scale networkpolicies",
            ),
            rule(WRITE, "policy", "poddisruptionbudgets"),
            rule(WRITE, NETWORKING, "networkpolicies ingresses"),
            rule(READ_WRITE, COORDINATION, "leases"),
            rule(WRITE, RESOURCE, "resourceclaims resourceclaimtemplates"),
        ],
        aggregate_to: "edit",
    },
    Role {
        name: "system:aggregate-to-view",
        rules: &[
            rule(
                READ,
                "core",
                "pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status endpoints persistentvolumeclaims persistentvolumeclaims/status configmaps",
            ),
            rule(
                READ,
                "core",
                "limitranges resourcequotas bindings pods/status resourcequotas/status namespaces/status replicationcontrollers/status pods/log",
            ),
            rule(READ, "core events.k8s.io", "events"),
            rule(READ, "core", "namespaces"),
            rule(READ, DISCOVERY, "endpointslices"),
            rule(
                READ,
                "apps",
                "controllerrevisions statefulsets statefulsets/status statefulsets/scale daemonsets daemonsets/status deployments deployments/status deployments/scale replicasets replicasets/status replicasets/scale",
            ),
            rule(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
            rule(READ, "batch", "jobs cronjobs cronjobs/status jobs/status"),
            rule(
                READ,
                "extensions",
                "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status replicasets replicasets/scale replicasets/status replicationcontrollers/scale networkpolicies",
            ),
            rule(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            rule(READ, NETWORKING, "networkpolicies ingresses ingresses/status"),
            rule(READ, RESOURCE, "resourceclaims resourceclaims/status resourceclaimtemplates"),
        ],
        aggregate_to: "view",
    },
    // From the manifest of metrics-server (`manifests/base/rbac.yaml`), which this server replaces.
    Role {
        name: "system:aggregated-metrics-reader",
        rules: &[rule(READ, "metrics.k8s.io", "pods nodes")],
        aggregate_to: "view edit admin",
    },
    Role {
        name: "system:discovery",
        rules: &[url_rule(
            "get",
            "/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*",
        )],
        aggregate_to: "",
    },
    Role {
        name: "system:basic-user",
        rules: &[
            rule("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            rule("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:public-info-viewer",
        rules: &[url_rule("get", "/livez /readyz /healthz /version /version/")],
        aggregate_to: "",
    },
    Role {
        name: "system:monitoring",
        rules: &[
            url_rule("get", "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/*"),
            rule("get", "core", "nodes/metrics"),
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:service-account-issuer-discovery",
        rules: &[url_rule(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
        )],
        aggregate_to: "",
    },
];

/// Roles for components, except controllers.
pub(super) const COMPONENT_ROLES: &[Role] = &[
    Role {
        name: "system:heapster",
        rules: &[rule(READ, "core", "events pods nodes namespaces"), rule(READ, "extensions", "deployments")],
        aggregate_to: "",
    },
    Role {
        name: "system:node",
        rules: &[
            TOKEN_REVIEWS,
            rule("create", "authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews"),
            rule(READ, "core", "services"),
            rule("create get list watch", "core", "nodes"),
            rule("update patch", "core", "nodes/status"),
            rule("update patch", "core", "nodes"),
            EVENTS,
            rule(READ, "core", "pods"),
            rule("create delete", "core", "pods"),
            rule("update patch", "core", "pods/status"),
            rule("create", "core", "pods/eviction"),
            rule(READ, "core", "secrets configmaps"),
            rule("get", "core", "persistentvolumeclaims persistentvolumes"),
            rule("get", "core", "endpoints"),
            rule("create get list watch", CERTIFICATES, "certificatesigningrequests"),
            rule("get create update patch delete", COORDINATION, "leases"),
            rule("get", STORAGE, "volumeattachments"),
            rule("create", "core", "serviceaccounts/token"),
            rule("get update patch", "core", "persistentvolumeclaims/status"),
            rule(READ, STORAGE, "csidrivers"),
            rule("get create update patch delete", STORAGE, "csinodes"),
            rule(READ, "node.k8s.io", "runtimeclasses"),
            rule("get", RESOURCE, "resourceclaims"),
            rule("deletecollection", RESOURCE, "resourceslices"),
            rule("get", "core", "serviceaccounts"),
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:node-problem-detector",
        rules: &[rule("get", "core", "nodes"), rule("patch", "core", "nodes/status"), EVENTS],
        aggregate_to: "",
    },
    Role {
        name: "system:kubelet-api-admin",
        rules: &[
            rule(READ, "core", "nodes"),
            rule("proxy", "core", "nodes"),
            rule("*", "core", "nodes/proxy nodes/metrics nodes/stats nodes/log"),
            rule("*", "core", "nodes/configz nodes/healthz nodes/pods"),
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:node-bootstrapper",
        rules: &[rule("create get list watch", CERTIFICATES, "certificatesigningrequests")],
        aggregate_to: "",
    },
    Role { name: "system:auth-delegator", rules: &[TOKEN_REVIEWS, ACCESS_REVIEWS], aggregate_to: "" },
    Role { name: "system:kube-aggregator", rules: &[rule(READ, "core", "services endpoints")], aggregate_to: "" },
    Role {
        name: "system:kube-controller-manager",
        rules: &[
            EVENTS,
            rule("create", COORDINATION, "leases"),
            named_rule("get update", COORDINATION, "leases", "kube-controller-manager"),
            rule("create", "core", "secrets serviceaccounts"),
            rule("delete", "core", "secrets"),
            rule("get", "core", "namespaces secrets serviceaccounts configmaps"),
            rule("update", "core", "secrets serviceaccounts"),
            TOKEN_REVIEWS,
            ACCESS_REVIEWS,
            rule("list watch", "*", "*"),
            rule("create", "core", "serviceaccounts/token"),
        ],
        aggregate_to: "",
    },
    Role { name: "system:kube-dns", rules: &[rule("list watch", "core", "endpoints services")], aggregate_to: "" },
    Role {
        name: "system:kube-scheduler",
        rules: &[
            EVENTS,
            rule("create", COORDINATION, "leases"),
            named_rule("get list update watch", COORDINATION, "leases", "kube-scheduler"),
            rule("create delete deletecollection get list patch update watch", COORDINATION, "leasecandidates"),
            rule(READ, "core", "nodes"),
            rule("get list watch delete", "core", "pods"),
            rule("create", "core", "pods/binding bindings"),
            rule("update patch", "core", "pods/status"),
            rule(READ, "core", "services replicationcontrollers"),
            rule(READ, "apps extensions", "replicasets"),
            rule(READ, "apps", "statefulsets"),
            rule(READ, "policy", "poddisruptionbudgets"),
            rule(READ, "core", "persistentvolumeclaims persistentvolumes"),
            TOKEN_REVIEWS,
            ACCESS_REVIEWS,
            rule(READ, STORAGE, "csinodes"),
            rule(READ, STORAGE, "volumeattachments"),
            rule(READ, "core", "namespaces"),
            rule(READ, STORAGE, "csidrivers"),
            rule(READ, STORAGE, "csistoragecapacities"),
            rule(READ, RESOURCE, "deviceclasses"),
            rule(READ_UPDATE, RESOURCE, "resourceclaims"),
            rule(READ_UPDATE, RESOURCE, "resourceclaims/status"),
            rule("update", "core", "pods/finalizers"),
            rule(READ, RESOURCE, "resourceslices"),
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:persistent-volume-provisioner",
        rules: &[
            rule("get list watch create delete", "core", "persistentvolumes"),
            rule("get list watch update", "core", "persistentvolumeclaims"),
            rule(READ, STORAGE, "storageclasses"),
            rule("watch", "core", "events"),
            EVENTS,
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:node-proxier",
        rules: &[
            rule("list watch", "core", "services endpoints"),
            rule(READ, "core", "nodes"),
            EVENTS,
            rule("list watch", NETWORKING, "servicecidrs"),
            rule("list watch", DISCOVERY, "endpointslices"),
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:volume-scheduler",
        rules: &[
            rule(READ_UPDATE, "core", "persistentvolumes"),
            rule(READ, STORAGE, "storageclasses"),
            rule(READ_UPDATE, "core", "persistentvolumeclaims"),
        ],
        aggregate_to: "",
    },
    Role {
        name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        rules: &[rule("create", CERTIFICATES, "certificatesigningrequests/nodeclient")],
        aggregate_to: "",
    },
    Role {
        name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        rules: &[rule("create", CERTIFICATES, "certificatesigningrequests/selfnodeclient")],
        aggregate_to: "",
    },
    Role {
        name: "system:certificates.k8s.io:legacy-unknown-approver",
        rules: &[named_rule("approve", CERTIFICATES, "signers", "kubernetes.io/legacy-unknown")],
        aggregate_to: "",
    },
    Role {
        name: "system:certificates.k8s.io:kubelet-serving-approver",
        rules: &[named_rule("approve", CERTIFICATES, "signers", "kubernetes.io/kubelet-serving")],
        aggregate_to: "",
    },
    Role {
        name: "system:certificates.k8s.io:kube-apiserver-client-approver",
        rules: &[named_rule("approve", CERTIFICATES, "signers", "kubernetes.io/kube-apiserver-client")],
        aggregate_to: "",
    },
    Role {
        name: "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        rules: &[named_rule("approve", CERTIFICATES, "signers", "kubernetes.io/kube-apiserver-client-kubelet")],
        aggregate_to: "",
    },
];

/// ClusterRoleBindings as role and subjects. A binding has the name of its role.
pub(super) const CLUSTER_ROLE_BINDINGS: &[(&str, &[Subject])] = &[
    ("cluster-admin", &[group("system:masters")]),
    ("system:monitoring", &[group("system:monitoring")]),
    ("system:discovery", &[group("system:authenticated")]),
    ("system:basic-user", &[group("system:authenticated")]),
    ("system:public-info-viewer", &[group("system:authenticated"), group("system:unauthenticated")]),
    ("system:node-proxier", &[user("system:kube-proxy")]),
    ("system:kube-controller-manager", &[user("system:kube-controller-manager")]),
    ("system:kube-dns", &[Subject::ServiceAccount("kube-system", "kube-dns")]),
    ("system:kube-scheduler", &[user("system:kube-scheduler")]),
    ("system:volume-scheduler", &[user("system:kube-scheduler")]),
    ("system:service-account-issuer-discovery", &[group("system:serviceaccounts")]),
    // As upstream, without subjects: nodes have their own authorizer.
    ("system:node", &[]),
];
