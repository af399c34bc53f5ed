//! Where a Pod may run: labels of nodes under their old names, and selectors that select nothing.

use crate::kinds::{
    FieldPath,
    checks::{items, text},
    node_labels,
};
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NULL: &str = "a null labelSelector results in matching no pod";

pub(super) fn node_labels(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    let labels = node_labels::of_map(&spec["nodeSelector"]);
    all.extend(labels.map(|(label, why)| format!("{}: {why}", path.child("nodeSelector").key(label))));
    let (affinity, at) = (&spec["affinity"]["nodeAffinity"], path.child("affinity").child("nodeAffinity"));
    for (i, term) in items(&affinity[REQUIRED], "nodeSelectorTerms").enumerate() {
        node_labels::of_term(term, false, &at.child(REQUIRED).child("nodeSelectorTerms").index(i), all);
    }
    for (i, term) in items(affinity, PREFERRED).enumerate() {
        let at = at.child(PREFERRED).index(i).child("preference");
        node_labels::of_term(&term["preference"], true, &at, all);
    }
    for (i, constraint) in items(spec, "topologySpreadConstraints").enumerate() {
        let at = || path.child("topologySpreadConstraints").index(i);
        let label = text(constraint, "topologyKey");
        if let Some(why) = node_labels::warning(label) {
            all.push(format!("{}: {label} is {why}", at().child("topologyKey")));
        }
        if constraint["labelSelector"].is_null() {
            all.push(format!("{}: {NULL}", at().child("labelSelector")));
        }
    }
}

pub(super) fn null_selectors(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, at) = (&spec["affinity"][kind], path.child(kind));
        for (i, term) in items(affinity, REQUIRED).enumerate() {
            if term["labelSelector"].is_null() {
                all.push(format!("{}: {NULL}", at.child(REQUIRED).index(i).child("labelSelector")));
            }
        }
        for (i, term) in items(affinity, PREFERRED).enumerate() {
            if term["podAffinityTerm"]["labelSelector"].is_null() {
                let at = at.child(PREFERRED).index(i).child("podAffinityTerm");
                all.push(format!("{}: {NULL}", at.child("labelSelector")));
            }
        }
    }
}
