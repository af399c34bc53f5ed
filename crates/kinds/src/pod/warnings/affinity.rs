//! Warnings for deprecated node labels and null label selectors in scheduling constraints.

use crate::{
    FieldPath,
    field_validation::{items, text},
    node_labels,
};
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NULL_SELECTOR_WARNING: &str = "a null labelSelector results in matching no pod";

pub(super) fn warn_deprecated_node_labels(spec: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    let labels = node_labels::map_warnings(&spec["nodeSelector"]);
    warnings.extend(labels.map(|(label, detail)| format!("{}: {detail}", path.child("nodeSelector").key(label))));
    let (affinity, at) = (&spec["affinity"]["nodeAffinity"], path.child("affinity").child("nodeAffinity"));
    for (i, term) in items(&affinity[REQUIRED], "nodeSelectorTerms").enumerate() {
        node_labels::warn_node_selector_term(
            term,
            false,
            &at.child(REQUIRED).child("nodeSelectorTerms").index(i),
            warnings,
        );
    }
    for (i, term) in items(affinity, PREFERRED).enumerate() {
        let at = at.child(PREFERRED).index(i).child("preference");
        node_labels::warn_node_selector_term(&term["preference"], true, &at, warnings);
    }
    for (i, constraint) in items(spec, "topologySpreadConstraints").enumerate() {
        let at = || path.child("topologySpreadConstraints").index(i);
        let label = text(constraint, "topologyKey");
        if let Some(detail) = node_labels::deprecation_warning(label) {
            warnings.push(format!("{}: {label} is {detail}", at().child("topologyKey")));
        }
        if constraint["labelSelector"].is_null() {
            warnings.push(format!("{}: {NULL_SELECTOR_WARNING}", at().child("labelSelector")));
        }
    }
}

pub(super) fn warn_null_selectors(spec: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, at) = (&spec["affinity"][kind], path.child(kind));
        for (i, term) in items(affinity, REQUIRED).enumerate() {
            if term["labelSelector"].is_null() {
                warnings
                    .push(format!("{}: {NULL_SELECTOR_WARNING}", at.child(REQUIRED).index(i).child("labelSelector")));
            }
        }
        for (i, term) in items(affinity, PREFERRED).enumerate() {
            if term["podAffinityTerm"]["labelSelector"].is_null() {
                let at = at.child(PREFERRED).index(i).child("podAffinityTerm");
                warnings.push(format!("{}: {NULL_SELECTOR_WARNING}", at.child("labelSelector")));
            }
        }
    }
}
