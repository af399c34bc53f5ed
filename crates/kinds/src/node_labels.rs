//! Warnings for deprecated node labels (`pkg/api/node/util.go`).

use super::{
    FieldPath,
    field_validation::{items, text},
};
use serde_json::Value;

const DEPRECATED_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Returns the deprecation warning of a label (`GetNodeLabelDeprecatedMessage`).
pub(crate) fn deprecation_warning(label: &str) -> Option<&'static str> {
    DEPRECATED_LABELS.iter().find(|(old, _)| *old == label).map(|(_, detail)| *detail)
}

/// Returns the deprecated labels of a map, each with its warning.
pub(crate) fn map_warnings(labels: &Value) -> impl Iterator<Item = (&str, &'static str)> {
    let names = labels.as_object().into_iter().flat_map(|map| map.keys());
    names.filter_map(|label| Some((label.as_str(), deprecation_warning(label)?)))
}

/// Warns of deprecated labels in a node selector term, and of invalid label values if `with_values`
/// (`GetWarningsForNodeSelectorTerm`).
pub(crate) fn warn_node_selector_term(term: &Value, with_values: bool, path: &FieldPath, all: &mut Vec<String>) {
    for (i, expression) in items(term, "matchExpressions").enumerate() {
        let (at, label) = (|| path.child("matchExpressions").index(i), text(expression, "key"));
        if let Some(detail) = deprecation_warning(label) {
            all.push(format!("{}: {label} is {detail}", at().child("key")));
        }
        for (j, value) in items(expression, "values").filter_map(Value::as_str).enumerate().filter(|_| with_values) {
            let wrong = api::names::label_value(value);
            all.extend(
                wrong.iter().map(|detail| format!("{}: {value} is invalid, {detail}", at().child("values").index(j))),
            );
        }
    }
}

/// Warns of deprecated labels in a label selector (`GetWarningsForNodeSelector`).
pub(crate) fn warn_label_selector(selector: &Value, path: &FieldPath, all: &mut Vec<String>) {
    warn_node_selector_term(selector, false, path, all);
    let labels = map_warnings(&selector["matchLabels"]);
    all.extend(labels.map(|(label, detail)| format!("{}: {detail}", path.child("matchLabels").child(label))));
}
