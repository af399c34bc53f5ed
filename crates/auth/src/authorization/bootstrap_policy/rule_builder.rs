//! Short notation of default rules and subjects: lists are separated by blanks, and `core` is the legacy API group.

use crate::authorization::policy_rule::PolicyRule;
use serde_json::{Value, json};

/// A default ClusterRole.
pub(super) struct Role {
    pub(super) name: &'static str,
    pub(super) rules: &'static [RuleTemplate],
    /// The roles to which its rules are aggregated (`rbac.authorization.k8s.io/aggregate-to-…`).
    pub(super) aggregate_to: &'static str,
}

/// A policy rule in short notation.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleTemplate {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    non_resource_urls: &'static str,
}

/// Returns a rule for resources.
pub(super) const fn rule(verbs: &'static str, groups: &'static str, resources: &'static str) -> RuleTemplate {
    named_rule(verbs, groups, resources, "")
}

/// Returns a rule for resources with these names.
pub(super) const fn named_rule(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
) -> RuleTemplate {
    RuleTemplate { verbs, groups, resources, names, non_resource_urls: "" }
}

/// Returns a rule for non-resource URLs.
pub(super) const fn url_rule(verbs: &'static str, non_resource_urls: &'static str) -> RuleTemplate {
    RuleTemplate { verbs, groups: "", resources: "", names: "", non_resource_urls }
}

impl RuleTemplate {
    /// Returns the policy rule, with sorted lists.
    pub(super) fn rule(&self) -> PolicyRule {
        PolicyRule {
            verbs: list(self.verbs),
            api_groups: list(self.groups),
            resources: list(self.resources),
            resource_names: list(self.names),
            non_resource_urls: list(self.non_resource_urls),
        }
    }
}

fn list(text: &str) -> Vec<String> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    let mut all: Vec<String> = words.map(|word| if word == "core" { "" } else { word }.to_owned()).collect();
    all.sort();
    all
}

/// The subject of a default binding.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject {
    /// Kind (`User` or `Group`) and name.
    Named(&'static str, &'static str),
    /// Namespace and name of a service account.
    ServiceAccount(&'static str, &'static str),
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
            Self::ServiceAccount(namespace, name) => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
        }
    }
}
