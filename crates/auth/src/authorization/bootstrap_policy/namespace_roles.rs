//! Default Roles and RoleBindings of the system namespaces (`bootstrappolicy/namespace_policy.go` of 1.35).

use super::{
    cluster_roles::EVENTS,
    rule_builder::{RuleTemplate, Subject, named_rule, rule, user},
};

/// Rules for leader election with Leases.
const LEADER_LOCKING: &[RuleTemplate] = &[
    rule("get watch list create update", "coordination.k8s.io", "leases"),
    rule("get watch list create update", "coordination.k8s.io", "leasecandidates"),
];

/// A default Role and its RoleBinding.
pub(super) struct NamespaceRole {
    pub(super) namespace: &'static str,
    pub(super) role: &'static str,
    pub(super) binding: &'static str,
    pub(super) rules: &'static [RuleTemplate],
    pub(super) subjects: &'static [Subject],
}

const SYSTEM: &str = "kube-system";
const READ: &str = "get list watch";

pub(super) const NAMESPACE_ROLES: &[NamespaceRole] = &[
    NamespaceRole {
        namespace: SYSTEM,
        role: "extension-apiserver-authentication-reader",
        binding: "system::extension-apiserver-authentication-reader",
        rules: &[named_rule(READ, "core", "configmaps", "extension-apiserver-authentication")],
        subjects: &[user("system:kube-controller-manager"), user("system:kube-scheduler")],
    },
    NamespaceRole {
        namespace: SYSTEM,
        role: "system:controller:bootstrap-signer",
        binding: "system:controller:bootstrap-signer",
        rules: &[rule(READ, "core", "secrets")],
        subjects: &[Subject::ServiceAccount(SYSTEM, "bootstrap-signer")],
    },
    NamespaceRole {
        namespace: SYSTEM,
        role: "system:controller:cloud-provider",
        binding: "system:controller:cloud-provider",
        rules: &[rule("create get list watch", "core", "configmaps")],
        subjects: &[Subject::ServiceAccount(SYSTEM, "cloud-provider")],
    },
    NamespaceRole {
        namespace: SYSTEM,
        role: "system:controller:token-cleaner",
        binding: "system:controller:token-cleaner",
        rules: &[rule("get list watch delete", "core", "secrets"), EVENTS],
        subjects: &[Subject::ServiceAccount(SYSTEM, "token-cleaner")],
    },
    NamespaceRole {
        namespace: SYSTEM,
        role: "system::leader-locking-kube-controller-manager",
        binding: "system::leader-locking-kube-controller-manager",
        rules: LEADER_LOCKING,
        subjects: &[
            user("system:kube-controller-manager"),
            Subject::ServiceAccount(SYSTEM, "kube-controller-manager"),
            Subject::ServiceAccount(SYSTEM, "leader-election-controller"),
        ],
    },
    NamespaceRole {
        namespace: SYSTEM,
        role: "system::leader-locking-kube-scheduler",
        binding: "system::leader-locking-kube-scheduler",
        rules: LEADER_LOCKING,
        subjects: &[user("system:kube-scheduler"), Subject::ServiceAccount(SYSTEM, "kube-scheduler")],
    },
    NamespaceRole {
        namespace: "kube-public",
        role: "system:controller:bootstrap-signer",
        binding: "system:controller:bootstrap-signer",
        rules: &[rule(READ, "core", "configmaps"), named_rule("update", "core", "configmaps", "cluster-info"), EVENTS],
        subjects: &[Subject::ServiceAccount(SYSTEM, "bootstrap-signer")],
    },
];
