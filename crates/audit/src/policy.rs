//! Audit policy: the level and the stages that are logged of a request. Does no I/O.
//!
//! Upstream's `k8s.io/apiserver/pkg/audit/policy` and `pkg/apis/audit/validation`.

use kinds::{FieldErrors, FieldPath};
use request::{Attributes, RequestTarget, ResourceAttributes, UserInfo, non_resource_url_matches};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Audit level: how much of a request is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    /// Nothing is logged.
    None,
    /// Metadata: user, time, resource, verb.
    Metadata,
    /// Metadata and the body of the request.
    Request,
    /// Metadata, and the bodies of request and response.
    RequestResponse,
}

/// Audit stage: when a request is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

const LEVELS: [(&str, Level); 4] = [
    ("None", Level::None),
    ("Metadata", Level::Metadata),
    ("Request", Level::Request),
    ("RequestResponse", Level::RequestResponse),
];
const STAGES: [(&str, Stage); 4] = [
    ("RequestReceived", Stage::RequestReceived),
    ("ResponseStarted", Stage::ResponseStarted),
    ("ResponseComplete", Stage::ResponseComplete),
    ("Panic", Stage::Panic),
];

/// Error of an audit policy.
#[derive(Debug, thiserror::Error)]
pub enum AuditPolicyError {
    /// It is not YAML, or has unknown fields.
    #[error("failed decoding: {0}")]
    Decode(#[source] Box<serde_saphyr::Error>),
    /// It has another kind or API version.
    #[error("unknown group version field {0} in policy")]
    Kind(String),
    /// It has invalid values.
    #[error("{}", .0.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Invalid(FieldErrors),
    /// It has no rules.
    #[error("loaded illegal policy with 0 rules")]
    Empty,
}

/// `audit.k8s.io/v1` `Policy`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditPolicy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    /// Accepted and ignored.
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<PolicyRule>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PolicyRule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// The audit configuration of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestAuditConfig {
    pub(super) level: Level,
    pub(super) omit_stages: Vec<Stage>,
    pub(super) omit_managed_fields: bool,
}

impl AuditPolicy {
    /// Parses a policy in YAML or JSON.
    ///
    /// # Errors
    /// When the policy cannot be decoded or is invalid.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let policy: Self = serde_saphyr::from_str(text).map_err(|e| AuditPolicyError::Decode(Box::new(e)))?;
        if (policy.api_version.as_str(), policy.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            return Err(AuditPolicyError::Kind(format!("{}, Kind={}", policy.api_version, policy.kind)));
        }
        let mut errors = FieldErrors::default();
        for (i, rule) in policy.rules.iter().enumerate() {
            rule.validate(&FieldPath::new("rules").index(i), &mut errors);
        }
        validate_stages(&policy.omit_stages, &FieldPath::new("omitStages"), &mut errors);
        if !errors.is_empty() {
            return Err(AuditPolicyError::Invalid(errors));
        }
        if policy.rules.is_empty() { Err(AuditPolicyError::Empty) } else { Ok(policy) }
    }

    /// Evaluates the policy for a request: the first matching rule decides (`EvaluatePolicyRule`).
    pub(super) fn evaluate(&self, user: &UserInfo, attributes: &Attributes) -> RequestAuditConfig {
        let rule = self.rules.iter().find(|rule| rule.matches(user, attributes));
        let stages = self.omit_stages.iter().chain(rule.into_iter().flat_map(|r| &r.omit_stages));
        RequestAuditConfig {
            level: rule.and_then(|r| by_name(&LEVELS, &r.level)).unwrap_or(Level::None),
            omit_stages: stages.filter_map(|s| by_name(&STAGES, s)).collect(),
            omit_managed_fields: rule.and_then(|r| r.omit_managed_fields).unwrap_or(self.omit_managed_fields),
        }
    }
}

fn by_name<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
}

impl PolicyRule {
    fn matches(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let listed = |list: &[String], value: &str| list.is_empty() || list.iter().any(|v| v == value);
        listed(&self.users, &user.name)
            && (self.user_groups.is_empty() || self.user_groups.iter().any(|g| user.is_in(g)))
            && listed(&self.verbs, &attributes.verb)
            && match &attributes.target {
                RequestTarget::Resource(resource) if self.has_resource_rules() => {
                    listed(&self.namespaces, &resource.namespace)
                        && (self.resources.is_empty() || self.resources.iter().any(|r| r.matches(resource)))
                }
                RequestTarget::NonResource(path) if !self.has_resource_rules() && !self.urls.is_empty() => {
                    self.urls.iter().any(|url| non_resource_url_matches(url, path))
                }
                _ => !self.has_resource_rules() && self.urls.is_empty(),
            }
    }

    fn has_resource_rules(&self) -> bool {
        !self.namespaces.is_empty() || !self.resources.is_empty()
    }

    fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if self.level.is_empty() {
            errors.required(&path.child("level"), "");
        } else if by_name(&LEVELS, &self.level).is_none() {
            errors.not_supported(&path.child("level"), &json!(self.level), &LEVELS.map(|(name, _)| name));
        }
        let urls = path.child("nonResourceURLs");
        for (i, url) in self.urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            if !url.starts_with('/') {
                errors.invalid(&urls.index(i), &json!(url), "non-resource URL rules must begin with a '/' character");
            }
            if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
                let message = "non-resource URL wildcards '*' must be the final character of the rule";
                errors.invalid(&urls.index(i), &json!(url), message);
            }
        }
        for resources in &self.resources {
            resources.validate(&path.child("resources"), errors);
        }
        validate_stages(&self.omit_stages, &path.child("omitStages"), errors);
        if !self.urls.is_empty() && self.has_resource_rules() {
            let message = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&urls, &json!(self.urls), message);
        }
    }
}

impl GroupResources {
    fn matches(&self, resource: &ResourceAttributes) -> bool {
        let named = self.resource_names.is_empty() || self.resource_names.contains(&resource.name);
        let (combined_resource, subresource) = (resource.combined_resource(), resource.subresource.as_str());
        let is_one = |rule: &String| {
            rule == "*"
                || *rule == combined_resource
                || rule.strip_prefix("*/").is_some_and(|p| !subresource.is_empty() && p == subresource)
                || rule.strip_suffix("/*").is_some_and(|parent| parent == resource.resource)
        };
        self.group == resource.group && (self.resources.is_empty() || (named && self.resources.iter().any(is_one)))
    }

    fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let problems = api::names::dns1123_subdomain(&self.group);
        if !self.group.is_empty() && !problems.is_empty() {
            errors.invalid(&path.child("group"), &json!(self.group), &problems.join(","));
        }
        if !self.resource_names.is_empty() && self.resources.is_empty() {
            let message = "using resourceNames requires at least one resource";
            errors.invalid(&path.child("resourceNames"), &json!(self.resource_names), message);
        }
    }
}

fn validate_stages(stages: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    for (i, stage) in stages.iter().enumerate().filter(|(_, stage)| by_name(&STAGES, stage).is_none()) {
        let message = format!("allowed stages are {}", STAGES.map(|(name, _)| name).join(","));
        errors.invalid(&path.index(i), &json!(stage), &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    const HEAD: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

    /// Checks the level of `METHOD PATH USER [GROUP]`.
    #[track_caller]
    fn check(rules: &str, request: &str, expected: Level) {
        let policy = AuditPolicy::parse(&format!("{HEAD}rules: {rules}")).unwrap();
        let words: Vec<&str> = request.split(' ').collect();
        let method = Method::from_bytes(words[0].as_bytes()).unwrap();
        let attributes = request::RequestInfo::new(&method, &words[1].parse().unwrap()).attributes;
        let groups = words[3..].iter().map(|g| (*g).to_owned()).collect();
        let user = UserInfo { name: words[2].to_owned(), groups, ..UserInfo::default() };
        assert_eq!(policy.evaluate(&user, &attributes).level, expected, "{request}");
    }

    #[test]
    fn first_matching_rule_decides() {
        let rules = "[{level: None, users: [ann], verbs: [get]}, {level: Request, userGroups: [ops]}, {level: Metadata, namespaces: [a]}]";
        check(rules, "GET /api/v1/namespaces/a/pods/p ann ops", Level::None);
        check(rules, "PUT /api/v1/namespaces/a/pods/p ann ops", Level::Request);
        check(rules, "PUT /api/v1/namespaces/a/pods/p bob", Level::Metadata);
        check(rules, "PUT /api/v1/namespaces/b/pods/p bob", Level::None);
        check(rules, "GET /version bob", Level::None);
    }

    #[test]
    fn rule_matches_resources_and_subresources() {
        let rules =
            "[{level: Request, resources: [{group: '', resources: [pods, '*/log', 'services/*']}, {group: apps}]}]";
        check(rules, "GET /api/v1/namespaces/a/pods/p u", Level::Request);
        check(rules, "GET /api/v1/namespaces/a/pods/p/log u", Level::Request);
        check(rules, "GET /api/v1/namespaces/a/pods/p/status u", Level::None);
        check(rules, "GET /api/v1/namespaces/a/services/s/status u", Level::Request);
        check(rules, "GET /api/v1/namespaces/a/services/s u", Level::Request);
        check(rules, "GET /apis/apps/v1/deployments u", Level::Request);
        check(rules, "GET /apis/batch/v1/jobs u", Level::None);
        let names = "[{level: Request, resources: [{resources: [secrets], resourceNames: [one]}]}]";
        check(names, "GET /api/v1/namespaces/a/secrets/one u", Level::Request);
        check(names, "GET /api/v1/namespaces/a/secrets/two u", Level::None);
        check("[{level: Metadata, namespaces: ['']}]", "GET /api/v1/nodes u", Level::Metadata);
    }

    #[test]
    fn non_resource_url_may_end_in_a_star() {
        let rules = "[{level: None, nonResourceURLs: ['/healthz*', /version]}, {level: Metadata}]";
        check(rules, "GET /healthz/ping u", Level::None);
        check(rules, "GET /version u", Level::None);
        check(rules, "GET /version/x u", Level::Metadata);
        check(rules, "GET /api/v1/pods u", Level::Metadata);
    }

    #[test]
    fn policy_and_rule_omit_stages_and_managed_fields() {
        let text = "omitStages: [RequestReceived]\nomitManagedFields: true\nrules: [{level: Metadata, users: [a], omitStages: [Panic], omitManagedFields: false}, {level: Metadata}]";
        let policy = AuditPolicy::parse(&format!("{HEAD}{text}")).unwrap();
        let config = |name: &str| {
            let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
            let config = policy.evaluate(&user, &Attributes::default());
            (config.omit_stages, config.omit_managed_fields)
        };
        assert_eq!(config("a"), (vec![Stage::RequestReceived, Stage::Panic], false));
        assert_eq!(config("b"), (vec![Stage::RequestReceived], true));
    }

    #[track_caller]
    fn check_rejected(text: &str, expected: &str) {
        let error = AuditPolicy::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn invalid_policy_is_rejected_with_its_field() {
        check_rejected(
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy",
            "unknown group version field audit.k8s.io/v1beta1",
        );
        check_rejected(HEAD, "loaded illegal policy with 0 rules");
        let rules = |rules: &str, expected: &str| check_rejected(&format!("{HEAD}rules: {rules}"), expected);
        rules("[{level: Metadata, user: [a]}]", "unknown field");
        rules("[{users: [a]}]", "rules[0].level: Required value");
        rules("[{level: All}]", "rules[0].level: Unsupported value: \"All\"");
        rules("[{level: None, nonResourceURLs: [x]}]", "must begin with a '/' character");
        rules("[{level: None, nonResourceURLs: ['/a*b']}]", "wildcards '*' must be the final character");
        rules(
            "[{level: None, namespaces: [a], nonResourceURLs: [/a]}]",
            "both regular resources and non-resource URLs",
        );
        rules("[{level: None, resources: [{group: a/v1}]}]", "rules[0].resources.group: Invalid value: \"a/v1\"");
        rules("[{level: None, resources: [{resourceNames: [a]}]}]", "requires at least one resource");
        rules(
            "[{level: None, omitStages: [Now]}]",
            "rules[0].omitStages[0]: Invalid value: \"Now\": allowed stages are",
        );
    }
}
