//! ReplicaSet.

use super::{GROUP, SCALE, not_negatives, same_selector, selector_and_template, status::Counts};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, fill, integer,
    plain::Plain,
    template::{self, CONTAINERS, IMAGES, SELECTOR},
};
use serde_json::{Value, json};

const COUNTS: Counts = Counts {
    counted: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"],
    parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
};

pub(in crate::kinds) static REPLICA_SET: Plain = Plain {
    columns: &[
        NAME,
        integer("Desired", Cell::At("/spec/replicas")),
        integer("Current", Cell::At("/status/replicas")),
        integer("Ready", Cell::At("/status/readyReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: &["status.replicas"],
    default,
    validate,
    validate_change: same_selector,
    warnings: |object, old| template::warnings_with_name(object, old, template::SPEC_PATH),
    validate_status: |object, _, errors| COUNTS.validate(object, errors),
    ..Plain::of(&KindInfo {
        short_names: &["rs"],
        categories: &["all"],
        status: true,
        generation: true,
        subresources: &[SCALE],
        ..KindInfo::of(GROUP, "ReplicaSet", "replicasets", "replicaset")
    })
};

fn default(object: &mut Value) {
    template::default(object, template::SPEC);
    fill::at(object, "/spec", &[("replicas", json!(1))]);
}

/// `ValidateReplicaSetSpec`; that it says `deployment` of an empty selector is upstream's.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    not_negatives(spec, &["replicas", "minReadySeconds"], &path, errors);
    selector_and_template(spec, "deployment", "ReplicaSet", &path, errors);
}
