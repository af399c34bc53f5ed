//! Node selectors and required node affinity of Pods (`k8s.io/component-helpers/scheduling/corev1/nodeaffinity`).

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use std::collections::BTreeMap;

/// Returns whether a node has all labels of `nodeSelector` and matches the required node affinity.
#[must_use]
pub fn matches_node(spec: &PodSpec, node: &Node) -> bool {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let selector_ok = spec.node_selector.iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selector_ok && required.is_none_or(|selector| matches_selector(selector, node))
}

/// Returns whether any term matches the node. A selector without terms, and an empty term, match nothing.
#[must_use]
pub fn matches_selector(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| matches_term(term, node))
}

/// Returns whether all expressions and fields of a term match the node; an empty term matches nothing.
#[must_use]
pub fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|l| l.get(key)).map(String::as_str);
    let field = |key: &str| {
        if key == "metadata.name" { node.metadata.name.as_deref() } else { None }
    };
    expressions.iter().all(|r| matches_requirement(r, label(&r.key)))
        && fields.iter().all(|r| matches_requirement(r, field(&r.key)))
}

fn matches_requirement(requirement: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |v: &str| values.iter().any(|x| x == v);
    let number = |s: &str| s.parse::<i64>().ok();
    match requirement.operator.as_str() {
        "In" => actual.is_some_and(listed),
        "NotIn" => !actual.is_some_and(listed),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" | "Lt" => {
            let (Some(actual), [expected]) = (actual.and_then(number), values) else {
                return false;
            };
            let Some(expected) = number(expected) else {
                return false;
            };
            if requirement.operator == "Gt" { actual > expected } else { actual < expected }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operator: &str, values: &[&str], actual: Option<&str>, expected: bool) {
        let r = NodeSelectorRequirement {
            key: "k".into(),
            operator: operator.into(),
            values: Some(values.iter().map(|s| (*s).to_owned()).collect()),
        };
        assert_eq!(matches_requirement(&r, actual), expected, "{operator} {values:?} {actual:?}");
    }

    #[test]
    fn node_selector_requirement_matches_as_documented() {
        check("In", &["a", "b"], Some("b"), true);
        check("In", &["a"], None, false);
        check("NotIn", &["a"], Some("a"), false);
        check("NotIn", &["a"], None, true);
        check("Exists", &[], Some(""), true);
        check("DoesNotExist", &[], None, true);
        check("Gt", &["3"], Some("4"), true);
        check("Gt", &["3"], Some("x"), false);
        check("Lt", &["3"], Some("2"), true);
        check("Lt", &[], Some("2"), false);
        check("Like", &["3"], Some("3"), false);
    }

    #[test]
    fn empty_node_selector_term_matches_no_node() {
        assert!(!matches_term(&NodeSelectorTerm::default(), &Node::default()));
    }
}
