//! Rules and subjects in few words: lists with blanks between, `core` for the group without a name.

use crate::authorization::rule::Rule;
use serde_json::{Value, json};

/// A role of the cluster.
pub(super) struct Role {
    pub(super) name: &'static str,
    pub(super) rules: &'static [RuleText],
    /// The role that its rules become part of (`rbac.authorization.k8s.io/aggregate-to-…`), if there is one.
    pub(super) label: &'static str,
}

/// A rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleText {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    urls: &'static str,
}

/// Verbs on the resources of groups.
pub(super) const fn on(verbs: &'static str, groups: &'static str, resources: &'static str) -> RuleText {
    named(verbs, groups, resources, "")
}

/// The same, of these names only.
pub(super) const fn named(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
) -> RuleText {
    RuleText { verbs, groups, resources, names, urls: "" }
}

/// Verbs on paths.
pub(super) const fn urls(verbs: &'static str, urls: &'static str) -> RuleText {
    RuleText { verbs, groups: "", resources: "", names: "", urls }
}

impl RuleText {
    /// The rule, its lists in order.
    pub(super) fn rule(&self) -> Rule {
        Rule {
            verbs: list(self.verbs),
            api_groups: list(self.groups),
            resources: list(self.resources),
            resource_names: list(self.names),
            urls: list(self.urls),
        }
    }
}

fn list(text: &str) -> Vec<String> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    let mut all: Vec<String> = words.map(|word| if word == "core" { "" } else { word }.to_owned()).collect();
    all.sort();
    all
}

/// Who a role is bound to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject {
    /// `User` or `Group`, and the name.
    Named(&'static str, &'static str),
    /// Namespace and name of a service account.
    Account(&'static str, &'static str),
}

pub(super) const fn user(name: &'static str) -> Subject {
    Subject::Named("User", name)
}

pub(super) const fn group(name: &'static str) -> Subject {
    Subject::Named("Group", name)
}

impl Subject {
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Named(kind, name) => json!({"apiGroup": super::GROUP, "kind": kind, "name": name}),
            Self::Account(namespace, name) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
        }
    }
}
