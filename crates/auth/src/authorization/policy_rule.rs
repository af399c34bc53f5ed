//! RBAC policy rules, and the requests that they allow (`pkg/apis/rbac/v1/evaluation_helpers.go`).

use request::{Attributes, RequestTarget, ResourceAttributes, non_resource_url_matches};
use serde::{Deserialize, Serialize};

const ALL: &str = "*";

/// `rbac.authorization.k8s.io/v1` `PolicyRule`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicyRule {
    /// Allowed verbs; `*` is any.
    pub verbs: Vec<String>,
    /// API groups of the resources; `*` is any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources and subresources, for example `pods` and `pods/log`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are not resources; may end in `*`.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// Whether a list contains a value or `*`.
fn matches(list: &[String], requested: &str) -> bool {
    list.iter().any(|value| value == ALL || value == requested)
}

impl PolicyRule {
    /// Whether the rule allows a request (`RuleAllows`).
    pub fn allows(&self, attributes: &Attributes) -> bool {
        matches(&self.verbs, &attributes.verb)
            && match &attributes.target {
                RequestTarget::NonResource(path) => {
                    self.non_resource_urls.iter().any(|url| non_resource_url_matches(url, path))
                }
                RequestTarget::Resource(resource) => {
                    matches(&self.api_groups, &resource.group)
                        && self.resource_matches(resource)
                        && (self.resource_names.is_empty() || self.resource_names.contains(&resource.name))
                }
            }
    }

    fn resource_matches(&self, requested: &ResourceAttributes) -> bool {
        let combined = requested.combined_resource();
        let subresource = requested.subresource.as_str();
        let matches_any_resource =
            |rule: &str| !subresource.is_empty() && rule.strip_prefix("*/").is_some_and(|p| p == subresource);
        self.resources.iter().any(|rule| rule == ALL || *rule == combined || matches_any_resource(rule))
    }

    /// Returns the rules that allow every request.
    pub fn full_authority() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), non_resource_urls: all(), ..Self::default() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> PolicyRule {
        serde_json::from_str(json).unwrap()
    }

    #[track_caller]
    fn check(json: &str, verb: &str, group: &str, resource: &str, name: &str, expected: bool) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let [group, resource, subresource, name] = [group, resource, subresource, name].map(str::to_owned);
        let resource = ResourceAttributes {
            group,
            resource,
            subresource,
            name,
            namespace: "n".to_owned(),
            field_requirements: Vec::new(),
        };
        assert_eq!(rule(json).allows(&Attributes::for_resource(verb, resource)), expected, "{json} {verb}");
    }

    #[test]
    fn rule_allows_its_verbs_on_its_resources() {
        let pods = r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["pods","pods/log"]}"#;
        check(pods, "get", "", "pods", "a", true);
        check(pods, "get", "", "pods/log", "a", true);
        check(pods, "watch", "", "pods", "", false);
        check(pods, "get", "apps", "pods", "a", false);
        check(pods, "get", "", "pods/exec", "a", false);
        check(pods, "get", "", "po", "a", false);
        check(r#"{"verbs":["get"],"resources":["pods"]}"#, "get", "", "pods", "a", false);
    }

    #[test]
    fn star_matches_all_values() {
        let all = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#;
        check(all, "escalate", "any.io", "things/part", "x", true);
        let scale = r#"{"verbs":["get"],"apiGroups":["*"],"resources":["*/scale"]}"#;
        check(scale, "get", "apps", "deployments/scale", "x", true);
        check(scale, "get", "apps", "deployments/status", "x", false);
        check(scale, "get", "apps", "deployments", "x", false);
        let parts = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods/*"]}"#;
        check(parts, "get", "", "pods/log", "x", false);
    }

    #[test]
    fn rule_with_names_denies_requests_without_a_name() {
        let one = r#"{"verbs":["*"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["a"]}"#;
        check(one, "get", "", "secrets", "a", true);
        check(one, "get", "", "secrets", "b", false);
        check(one, "list", "", "secrets", "", false);
    }

    #[test]
    fn non_resource_url_may_end_in_a_star() {
        let allows = |rule: &str, path: &str| {
            let rule =
                PolicyRule { verbs: vec!["get".into()], non_resource_urls: vec![rule.into()], ..PolicyRule::default() };
            rule.allows(&Attributes { verb: "get".into(), target: RequestTarget::NonResource(path.into()) })
        };
        assert!(allows("/metrics", "/metrics") && allows("*", "/x") && allows("/api/*", "/api/v1"));
        assert!(!allows("/api/*", "/api") && !allows("/metrics", "/metrics/slis") && !allows("/*/a", "/b/a"));
        // URL rules do not allow resource requests, and resource rules do not allow non-resource requests.
        let resource = ResourceAttributes { resource: "pods".into(), ..ResourceAttributes::default() };
        let urls = rule(r#"{"verbs":["*"],"nonResourceURLs":["*"]}"#);
        assert!(!urls.allows(&Attributes::for_resource("get", resource)));
        let [resources, _] = PolicyRule::full_authority();
        assert!(!resources.allows(&Attributes { verb: "get".into(), target: RequestTarget::NonResource("/x".into()) }));
    }
}
