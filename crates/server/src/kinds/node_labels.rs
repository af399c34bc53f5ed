//! Labels of nodes that have other names by now, wherever they are asked for (`pkg/api/node/util.go`).

use super::{
    FieldPath,
    checks::{items, text},
};
use serde_json::Value;

const OLD: [(&str, &str); 8] = [
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

/// What users are told who ask for this label.
pub(in crate::kinds) fn warning(label: &str) -> Option<&'static str> {
    OLD.iter().find(|(old, _)| *old == label).map(|(_, why)| *why)
}

/// The same of each label of a map of them.
pub(in crate::kinds) fn of_map(labels: &Value) -> impl Iterator<Item = (&str, &'static str)> {
    let names = labels.as_object().into_iter().flat_map(|map| map.keys());
    names.filter_map(|label| Some((label.as_str(), warning(label)?)))
}

/// What a term of a node selector asks for, and values there that no label can have, if those are looked at.
pub(in crate::kinds) fn of_term(term: &Value, with_values: bool, path: &FieldPath, all: &mut Vec<String>) {
    for (i, expression) in items(term, "matchExpressions").enumerate() {
        let (at, label) = (|| path.child("matchExpressions").index(i), text(expression, "key"));
        if let Some(why) = warning(label) {
            all.push(format!("{}: {label} is {why}", at().child("key")));
        }
        for (j, value) in items(expression, "values").filter_map(Value::as_str).enumerate().filter(|_| with_values) {
            let wrong = api::names::label_value(value);
            all.extend(wrong.iter().map(|why| format!("{}: {value} is invalid, {why}", at().child("values").index(j))));
        }
    }
}

/// What a selector of labels asks for.
pub(in crate::kinds) fn of_selector(selector: &Value, path: &FieldPath, all: &mut Vec<String>) {
    of_term(selector, false, path, all);
    let labels = of_map(&selector["matchLabels"]);
    all.extend(labels.map(|(label, why)| format!("{}: {why}", path.child("matchLabels").child(label))));
}
