//! Matching of requests with the rules and selectors of webhooks and policies
//! (`apiserver/pkg/admission/plugin/{webhook,policy}`, their `predicates` and `matching`).

use crate::attributes::Attributes;
use api::selector::{LabelRequirements, SelectorError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use std::sync::Arc;

/// Error for an invalid label selector.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MatchingError {
    /// It cannot be decoded.
    #[error(transparent)]
    Decode(Arc<serde_json::Error>),
    /// An operator is unknown.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// Rules and selectors of a webhook, a policy or a binding.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    rules: Vec<Rule>,
    /// Rules of excluded resources, which take precedence.
    excluded: Vec<Rule>,
    /// Whether `matchPolicy` is `Exact`: equivalent resources do not match.
    exact: bool,
    /// Whether empty rules match all requests.
    matches_without_rules: bool,
    namespaces: LabelRequirements,
    objects: LabelRequirements,
}

#[derive(Debug, Clone)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

impl Matching {
    /// Parses the rules and selectors of a webhook.
    ///
    /// # Errors
    /// If a selector is invalid.
    pub fn of_webhook(webhook: &Value) -> Result<Self, MatchingError> {
        Ok(Self { rules: Rule::all(&webhook["rules"]), ..Self::selectors(webhook)? })
    }

    /// Parses the `matchConstraints` of a policy.
    ///
    /// # Errors
    /// If a selector is invalid.
    pub fn of_policy(constraints: &Value) -> Result<Self, MatchingError> {
        let (rules, excluded) = (&constraints["resourceRules"], &constraints["excludeResourceRules"]);
        Ok(Self { rules: Rule::all(rules), excluded: Rule::all(excluded), ..Self::selectors(constraints)? })
    }

    /// Parses the optional `matchResources` of a binding.
    ///
    /// # Errors
    /// If a selector is invalid.
    pub fn of_binding(resources: &Value) -> Result<Self, MatchingError> {
        Ok(Self { matches_without_rules: true, ..Self::of_policy(resources)? })
    }

    fn selectors(match_resources: &Value) -> Result<Self, MatchingError> {
        let exact = match_resources["matchPolicy"] == "Exact";
        Ok(Self {
            exact,
            namespaces: selector(&match_resources["namespaceSelector"])?,
            objects: selector(&match_resources["objectSelector"])?,
            ..Self::default()
        })
    }

    /// Returns the index of the equivalent resource that matches a rule, if there is one.
    #[must_use]
    pub fn matching_resource(&self, attributes: &Attributes) -> Option<usize> {
        let count = if self.exact { 1 } else { attributes.equivalent_resources.len() };
        let first = |rules: &[Rule]| (0..count).find(|i| rules.iter().any(|rule| rule.matches(attributes, *i)));
        if first(&self.excluded).is_some() {
            return None;
        }
        if self.matches_without_rules && self.rules.is_empty() { Some(0) } else { first(&self.rules) }
    }

    /// Whether the object selector matches the object or the old object.
    #[must_use]
    pub fn matches_object_selector(&self, object: Option<&Value>, old: Option<&Value>) -> bool {
        let selected =
            |object: &Value| object["metadata"].is_object() && selects(&self.objects, &object["metadata"]["labels"]);
        self.objects.is_empty() || [object, old].into_iter().flatten().any(selected)
    }

    /// Whether the namespace selector applies, so that the labels of the namespace are needed.
    #[must_use]
    pub fn has_namespace_selector(&self, attributes: &Attributes) -> bool {
        !self.namespaces.is_empty() && !attributes.namespace.is_empty()
    }

    /// Whether the namespace selector matches the labels of a namespace.
    #[must_use]
    pub fn matches_namespace_selector(&self, labels: &Value) -> bool {
        selects(&self.namespaces, labels)
    }
}

fn selector(value: &Value) -> Result<LabelRequirements, MatchingError> {
    if value.is_null() {
        return Ok(LabelRequirements::default());
    }
    let typed: LabelSelector =
        serde_json::from_value(value.clone()).map_err(|error| MatchingError::Decode(Arc::new(error)))?;
    Ok(LabelRequirements::from_object(&typed)?)
}

fn selects(selector: &LabelRequirements, labels: &Value) -> bool {
    selector.matches(|key| labels.get(key).and_then(Value::as_str))
}

impl Rule {
    fn all(rules: &Value) -> Vec<Self> {
        let list = |rule: &Value, field: &str| -> Vec<String> {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let read = |rule: &Value| Self {
            operations: list(rule, "operations"),
            groups: list(rule, "apiGroups"),
            versions: list(rule, "apiVersions"),
            resources: list(rule, "resources"),
            names: list(rule, "resourceNames"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        };
        rules.as_array().into_iter().flatten().map(read).collect()
    }

    fn matches(&self, attributes: &Attributes, equivalent: usize) -> bool {
        let Some(equivalent) = attributes.equivalent_resources.get(equivalent) else { return false };
        let [group, version, resource] = &equivalent.resource;
        let contains = |list: &[String], name: &str| list.iter().any(|n| n == "*" || n == name);
        let matches_resource = |pattern: &String| {
            let (name, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
            (name == "*" || name == resource) && (subresource == "*" || subresource == attributes.subresource)
        };
        let namespaced = !attributes.namespace.is_empty() && !attributes.is_namespace();
        contains(&self.operations, attributes.operation.name())
            && contains(&self.groups, group)
            && contains(&self.versions, version)
            && self.resources.iter().any(matches_resource)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
            && match self.scope.as_str() {
                "Namespaced" => namespaced,
                "Cluster" => !namespaced,
                _ => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{EquivalentResource, Operation};
    use serde_json::json;

    fn equivalent(group: &str, version: &str, resource: &str) -> EquivalentResource {
        let triple = |name: &str| [group, version, name].map(str::to_owned);
        EquivalentResource { resource: triple(resource), kind: triple("Kind") }
    }

    /// Returns attributes from `UPDATE apps/v1/deployments/scale` and an optional namespace.
    fn attributes_of(text: &str, namespace: &str) -> Attributes {
        let (operation, path) = text.split_once(' ').unwrap();
        let operation = match operation {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            _ => Operation::Connect,
        };
        let parts: Vec<&str> = path.split('/').collect();
        Attributes {
            operation,
            equivalent_resources: vec![equivalent(parts[0], parts[1], parts[2])],
            subresource: parts.get(3).copied().unwrap_or("").to_owned(),
            namespace: namespace.to_owned(),
            name: "a".to_owned(),
            user: Value::Null,
            options: Value::Null,
            dry: false,
        }
    }

    fn rule(operation: &str, group: &str, version: &str, resource: &str, scope: &str) -> Value {
        json!({"operations": [operation], "apiGroups": [group], "apiVersions": [version], "resources": [resource], "scope": scope})
    }

    #[test]
    fn rules_match_operation_resource_and_scope() {
        let check = |rule: Value, text: &str, namespace: &str, expected: bool| {
            let matching = Matching::of_webhook(&json!({"rules": [rule]})).unwrap();
            assert_eq!(
                matching.matching_resource(&attributes_of(text, namespace)).is_some(),
                expected,
                "{rule} {text} {namespace}"
            );
        };
        let pods = || rule("CREATE", "", "v1", "pods", "*");
        check(pods(), "CREATE /v1/pods", "n", true);
        check(pods(), "UPDATE /v1/pods", "n", false);
        check(pods(), "CREATE apps/v1/pods", "n", false);
        check(pods(), "CREATE /v2/pods", "n", false);
        check(pods(), "CREATE /v1/nodes", "", false);
        check(pods(), "CREATE /v1/pods/binding", "n", false);
        for (resources, main, status, other) in [
            ("*", true, false, false),
            ("*/*", true, true, true),
            ("*/status", false, true, false),
            ("pods/*", true, true, true),
            ("pods/status", false, true, false),
        ] {
            let rule = || rule("*", "*", "*", resources, "*");
            check(rule(), "UPDATE /v1/pods", "n", main);
            check(rule(), "UPDATE /v1/pods/status", "n", status);
            check(rule(), "UPDATE /v1/pods/resize", "n", other);
        }
        for (scope, namespaced, cluster) in [("*", true, true), ("Namespaced", true, false), ("Cluster", false, true)] {
            check(rule("*", "*", "*", "*", scope), "CREATE /v1/pods", "n", namespaced);
            check(rule("*", "*", "*", "*", scope), "CREATE /v1/nodes", "", cluster);
            // A Namespace has a namespace, but is cluster-scoped.
            check(rule("*", "*", "*", "*", scope), "CREATE /v1/namespaces", "a", cluster);
        }
    }

    #[test]
    fn equivalent_resources_match_unless_policy_is_exact() {
        let mut attributes = attributes_of("CREATE autoscaling/v1/horizontalpodautoscalers", "n");
        attributes.equivalent_resources.push(equivalent("autoscaling", "v2", "horizontalpodautoscalers"));
        let check = |policy: &str, version: &str, expected: Option<usize>| {
            let rules = [rule("*", "autoscaling", version, "*", "*")];
            let matching = Matching::of_webhook(&json!({"rules": rules, "matchPolicy": policy})).unwrap();
            assert_eq!(matching.matching_resource(&attributes), expected, "{policy} {version}");
        };
        check("Equivalent", "v1", Some(0));
        check("Equivalent", "v2", Some(1));
        check("Equivalent", "v3", None);
        check("Exact", "v2", None);
        check("Exact", "*", Some(0));
    }

    #[test]
    fn excluded_rules_take_precedence_and_empty_binding_matches() {
        let constraints = json!({
            "resourceRules": [rule("*", "*", "*", "*", "*")], "excludeResourceRules": [rule("*", "", "*", "pods", "*")]});
        let policy = Matching::of_policy(&constraints).unwrap();
        assert_eq!(policy.matching_resource(&attributes_of("CREATE /v1/pods", "n")), None);
        assert_eq!(policy.matching_resource(&attributes_of("CREATE /v1/nodes", "")), Some(0));
        let mut named = rule("*", "*", "*", "*", "*");
        named["resourceNames"] = json!(["b"]);
        let named = Matching::of_policy(&json!({"resourceRules": [named]})).unwrap();
        assert_eq!(named.matching_resource(&attributes_of("CREATE /v1/pods", "n")), None);
        assert_eq!(
            Matching::of_binding(&Value::Null).unwrap().matching_resource(&attributes_of("CREATE /v1/pods", "n")),
            Some(0)
        );
        assert_eq!(
            Matching::of_policy(&Value::Null).unwrap().matching_resource(&attributes_of("CREATE /v1/pods", "n")),
            None
        );
    }

    #[test]
    fn object_selector_matches_the_new_or_the_old_object() {
        let object = |labels: Value| json!({"metadata": {"labels": labels}});
        let matching = Matching::of_webhook(&json!({"objectSelector": {"matchLabels": {"a": "b"}}})).unwrap();
        let (with, without) = (object(json!({"a": "b"})), object(json!({})));
        assert!(
            matching.matches_object_selector(Some(&with), None)
                && matching.matches_object_selector(Some(&without), Some(&with))
        );
        assert!(
            !matching.matches_object_selector(Some(&without), None)
                && !matching.matches_object_selector(Some(&json!({"command": ["a"]})), None)
        );
        let matching = Matching::of_webhook(
            &json!({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}),
        )
        .unwrap();
        assert!(
            matching.has_namespace_selector(&attributes_of("CREATE /v1/pods", "n"))
                && !matching.has_namespace_selector(&attributes_of("CREATE /v1/nodes", ""))
        );
        assert!(
            matching.matches_namespace_selector(&json!({})) && !matching.matches_namespace_selector(&json!({"x": "y"}))
        );
        assert!(
            Matching::of_webhook(&json!({"objectSelector": {"matchExpressions": [{"key": "x", "operator": "Like"}]}}))
                .is_err()
        );
    }
}
