//! FlowSchemas, and the requests that they match (`k8s.io/apiserver/pkg/util/flowcontrol/rule.go`). Does no I/O.

use request::{Attributes, RequestTarget, UserInfo, user};
use serde::Deserialize;

/// `spec` of a FlowSchema.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FlowSchemaSpec {
    pub(super) priority_level_configuration: NameReference,
    pub(super) matching_precedence: i64,
    distinguisher_method: Option<FlowDistinguisherMethod>,
    rules: Vec<PolicyRulesWithSubjects>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NameReference {
    pub(super) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct FlowDistinguisherMethod {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PolicyRulesWithSubjects {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourcePolicyRule>,
    non_resource_rules: Vec<NonResourcePolicyRule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Subject {
    kind: String,
    user: NameReference,
    group: NameReference,
    service_account: ServiceAccountSubject,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ServiceAccountSubject {
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourcePolicyRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NonResourcePolicyRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    urls: Vec<String>,
}

fn has(list: &[String], requested: &str) -> bool {
    list.iter().any(|value| value == "*" || value == requested)
}

impl FlowSchemaSpec {
    /// Whether any rule matches the request.
    pub(super) fn matches(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, attributes))
    }

    /// Returns the flow distinguisher of a request.
    pub(super) fn flow_distinguisher<'a>(&self, user: &'a UserInfo, attributes: &'a Attributes) -> &'a str {
        match self.distinguisher_method.as_ref().map(|d| d.kind.as_str()) {
            Some("ByUser") => &user.name,
            Some("ByNamespace") => attributes.namespace(),
            _ => "",
        }
    }
}

impl PolicyRulesWithSubjects {
    fn matches(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        self.subjects.iter().any(|subject| subject.matches(user))
            && match &attributes.target {
                RequestTarget::Resource(resource) => self.resource_rules.iter().any(|rule| {
                    has(&rule.verbs, &attributes.verb)
                        && has(&rule.resources, &resource.combined_resource())
                        && has(&rule.api_groups, &resource.group)
                        && if resource.namespace.is_empty() {
                            rule.cluster_scope
                        } else {
                            has(&rule.namespaces, &resource.namespace)
                        }
                }),
                RequestTarget::NonResource(path) => self
                    .non_resource_rules
                    .iter()
                    .any(|r| has(&r.verbs, &attributes.verb) && r.urls.iter().any(|u| url_matches(u, path))),
            }
    }
}

/// Whether a URL of a rule matches a path or a parent of it, with or without `*`.
fn url_matches(rule: &str, path: &str) -> bool {
    let prefix = rule.strip_suffix('*').unwrap_or(rule);
    let below = || path.strip_prefix(prefix.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'));
    rule == "*" || rule == path || below()
}

impl Subject {
    fn matches(&self, user: &UserInfo) -> bool {
        match self.kind.as_str() {
            "User" => self.user.name == "*" || self.user.name == user.name,
            "Group" => self.group.name == "*" || user.is_in(&self.group.name),
            "ServiceAccount" => user::parse_service_account(&user.name).is_some_and(|(namespace, name)| {
                let account = &self.service_account;
                account.namespace == namespace && (account.name == "*" || account.name == name)
            }),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use serde_json::{Value, json};

    /// Checks whether a FlowSchema with this rule matches `METHOD PATH USER [GROUP]`.
    #[track_caller]
    fn check(rule: &Value, request: &str, expected: bool) {
        let schema: FlowSchemaSpec = serde_json::from_value(json!({"rules": [rule]})).unwrap();
        let words: Vec<&str> = request.split(' ').collect();
        let method = Method::from_bytes(words[0].as_bytes()).unwrap();
        let attributes = request::RequestInfo::new(&method, &words[1].parse().unwrap()).attributes;
        let groups = words[3..].iter().map(|g| (*g).to_owned()).collect();
        let user = UserInfo { name: words[2].to_owned(), groups, ..UserInfo::default() };
        assert_eq!(schema.matches(&user, &attributes), expected, "{request}");
    }

    fn everything(subject: Value) -> Value {
        let all =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
        json!({"subjects": [subject], "resourceRules": [all], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]})
    }

    #[test]
    fn schema_matches_by_subject() {
        let user = everything(json!({"kind": "User", "user": {"name": "ann"}}));
        check(&user, "GET /api/v1/pods ann", true);
        check(&user, "GET /api/v1/pods bob ann", false);
        check(&everything(json!({"kind": "User", "user": {"name": "*"}})), "GET /version bob", true);
        let group = everything(json!({"kind": "Group", "group": {"name": "ops"}}));
        check(&group, "GET /api/v1/pods bob devs ops", true);
        check(&group, "GET /api/v1/pods ops", false);
        let account = |name: &str| {
            everything(json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": name}}))
        };
        check(&account("a"), "GET /api/v1/pods system:serviceaccount:n:a", true);
        check(&account("a"), "GET /api/v1/pods system:serviceaccount:n:b", false);
        check(&account("*"), "GET /api/v1/pods system:serviceaccount:n:b", true);
        check(&account("*"), "GET /api/v1/pods system:serviceaccount:nn:b", false);
    }

    #[test]
    fn schema_matches_by_resource_rule() {
        let flow_schema =
            |rule: Value| json!({"subjects": [{"kind": "User", "user": {"name": "*"}}], "resourceRules": [rule]});
        let leases = flow_schema(
            json!({"verbs": ["get"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["n"]}),
        );
        check(&leases, "GET /apis/coordination.k8s.io/v1/namespaces/n/leases/l u", true);
        check(&leases, "PUT /apis/coordination.k8s.io/v1/namespaces/n/leases/l u", false);
        check(&leases, "GET /apis/coordination.k8s.io/v1/namespaces/m/leases/l u", false);
        check(&leases, "GET /api/v1/namespaces/n/leases/l u", false);
        let nodes = flow_schema(
            json!({"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true}),
        );
        check(&nodes, "GET /api/v1/nodes u", true);
        check(&nodes, "PUT /api/v1/nodes/n/status u", true);
        check(&nodes, "GET /api/v1/nodes/n/proxy u", false);
        let spaced = flow_schema(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}));
        check(&spaced, "GET /api/v1/namespaces/n/pods u", true);
        check(&spaced, "GET /api/v1/pods u", false);
        check(&spaced, "GET /version u", false);
    }

    #[test]
    fn url_matches_paths_below_it() {
        let flow_schema = |url: &str| json!({"subjects": [{"kind": "User", "user": {"name": "*"}}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": [url]}]});
        for (url, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", true),
            ("/healthz", "/healthzz", false),
            ("/apis/*", "/apis/x", true),
            ("/apis/*", "/apis", false),
            ("*", "/", true),
        ] {
            check(&flow_schema(url), &format!("GET {path} u"), expected);
        }
        check(&flow_schema("*"), "POST /x u", false);
    }
}
