//! One rule of a role, and what it allows (`pkg/apis/rbac/v1/evaluation_helpers.go`).

use super::attributes::{About, Attributes, ResourceAbout};
use serde::{Deserialize, Serialize};

const ALL: &str = "*";

/// What may be done with what.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) urls: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|value| value == ALL || value == wanted)
}

impl Rule {
    pub(crate) fn allows(&self, wanted: &Attributes) -> bool {
        has(&self.verbs, &wanted.verb)
            && match &wanted.about {
                About::Path(path) => self.urls.iter().any(|url| url_covers(url, path)),
                About::Resource(about) => {
                    has(&self.api_groups, &about.group)
                        && self.allows_resource(about)
                        && (self.resource_names.is_empty() || self.resource_names.contains(&about.name))
                }
            }
    }

    fn allows_resource(&self, about: &ResourceAbout) -> bool {
        let combined = about.combined();
        let part = about.subresource.as_str();
        let of_all = |rule: &str| !part.is_empty() && rule.strip_prefix("*/").is_some_and(|p| p == part);
        self.resources.iter().any(|rule| rule == ALL || *rule == combined || of_all(rule))
    }

    /// Everything with all resources, and everything with all paths.
    pub(crate) fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), urls: all(), ..Self::default() },
        ]
    }
}

/// A `*` at the end of a rule's path stands for whatever follows.
pub(crate) fn url_covers(rule: &str, path: &str) -> bool {
    rule == ALL || rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> Rule {
        serde_json::from_str(json).unwrap()
    }

    #[track_caller]
    fn check(json: &str, verb: &str, group: &str, resource: &str, name: &str, expected: bool) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let [group, resource, subresource, name] = [group, resource, subresource, name].map(str::to_owned);
        let about =
            ResourceAbout { group, resource, subresource, name, namespace: "n".to_owned(), selects: Vec::new() };
        assert_eq!(rule(json).allows(&Attributes::to(verb, about)), expected, "{json} {verb}");
    }

    #[test]
    fn a_rule_allows_its_verbs_on_its_resources() {
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
    fn a_star_stands_for_everything() {
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
    fn a_rule_of_names_allows_nothing_that_has_none() {
        let one = r#"{"verbs":["*"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["a"]}"#;
        check(one, "get", "", "secrets", "a", true);
        check(one, "get", "", "secrets", "b", false);
        check(one, "list", "", "secrets", "", false);
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let allows = |rule: &str, path: &str| {
            let rule = Rule { verbs: vec!["get".into()], urls: vec![rule.into()], ..Rule::default() };
            rule.allows(&Attributes { verb: "get".into(), about: About::Path(path.into()) })
        };
        assert!(allows("/metrics", "/metrics") && allows("*", "/x") && allows("/api/*", "/api/v1"));
        assert!(!allows("/api/*", "/api") && !allows("/metrics", "/metrics/slis") && !allows("/*/a", "/b/a"));
        // Resources are none of these rules' business, and paths none of the others'.
        let about = ResourceAbout { resource: "pods".into(), ..ResourceAbout::default() };
        let urls = rule(r#"{"verbs":["*"],"nonResourceURLs":["*"]}"#);
        assert!(!urls.allows(&Attributes::to("get", about)));
        let [resources, _] = Rule::everything();
        assert!(!resources.allows(&Attributes { verb: "get".into(), about: About::Path("/x".into()) }));
    }
}
