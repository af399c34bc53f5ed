//! The roles and bindings in namespaces of the system (`bootstrappolicy/namespace_policy.go` of 1.35).

use super::{
    roles::EVENTS,
    text::{RuleText, Subject, named, on, user},
};

/// What it takes to be the leader, by Leases.
const LEADER_LOCKING: &[RuleText] = &[
    on("get watch list create update", "coordination.k8s.io", "leases"),
    on("get watch list create update", "coordination.k8s.io", "leasecandidates"),
];

/// A role of a namespace, and whom it is bound to.
pub(super) struct Namespaced {
    pub(super) namespace: &'static str,
    pub(super) role: &'static str,
    pub(super) binding: &'static str,
    pub(super) rules: &'static [RuleText],
    pub(super) subjects: &'static [Subject],
}

const SYSTEM: &str = "kube-system";
const READ: &str = "get list watch";

pub(super) const ALL: &[Namespaced] = &[
    Namespaced {
        namespace: SYSTEM,
        role: "extension-apiserver-authentication-reader",
        binding: "system::extension-apiserver-authentication-reader",
        rules: &[named(READ, "core", "configmaps", "extension-apiserver-authentication")],
        subjects: &[user("system:kube-controller-manager"), user("system:kube-scheduler")],
    },
    Namespaced {
        namespace: SYSTEM,
        role: "system:controller:bootstrap-signer",
        binding: "system:controller:bootstrap-signer",
        rules: &[on(READ, "core", "secrets")],
        subjects: &[Subject::Account(SYSTEM, "bootstrap-signer")],
    },
    Namespaced {
        namespace: SYSTEM,
        role: "system:controller:cloud-provider",
        binding: "system:controller:cloud-provider",
        rules: &[on("create get list watch", "core", "configmaps")],
        subjects: &[Subject::Account(SYSTEM, "cloud-provider")],
    },
    Namespaced {
        namespace: SYSTEM,
        role: "system:controller:token-cleaner",
        binding: "system:controller:token-cleaner",
        rules: &[on("get list watch delete", "core", "secrets"), EVENTS],
        subjects: &[Subject::Account(SYSTEM, "token-cleaner")],
    },
    Namespaced {
        namespace: SYSTEM,
        role: "system::leader-locking-kube-controller-manager",
        binding: "system::leader-locking-kube-controller-manager",
        rules: LEADER_LOCKING,
        subjects: &[
            user("system:kube-controller-manager"),
            Subject::Account(SYSTEM, "kube-controller-manager"),
            Subject::Account(SYSTEM, "leader-election-controller"),
        ],
    },
    Namespaced {
        namespace: SYSTEM,
        role: "system::leader-locking-kube-scheduler",
        binding: "system::leader-locking-kube-scheduler",
        rules: LEADER_LOCKING,
        subjects: &[user("system:kube-scheduler"), Subject::Account(SYSTEM, "kube-scheduler")],
    },
    Namespaced {
        namespace: "kube-public",
        role: "system:controller:bootstrap-signer",
        binding: "system:controller:bootstrap-signer",
        rules: &[on(READ, "core", "configmaps"), named("update", "core", "configmaps", "cluster-info"), EVENTS],
        subjects: &[Subject::Account(SYSTEM, "bootstrap-signer")],
    },
];
