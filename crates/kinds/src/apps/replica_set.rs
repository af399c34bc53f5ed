//! ReplicaSet.

use super::{GROUP, SCALE, status::ReplicaCounts, validate_immutable_selector, validate_selector_and_template};
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME, defaulting,
    field_cursor::FieldCursor,
    generic_kind::GenericKind,
    integer,
    pod_template_spec::{self, CONTAINERS, IMAGES, SELECTOR},
};
use serde_json::{Value, json};

const COUNTS: ReplicaCounts = ReplicaCounts {
    counts: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"],
    bounded_by_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready_name: "readyReplicas",
};

pub(crate) static REPLICA_SET: GenericKind = GenericKind {
    columns: &[
        NAME,
        integer("Desired", Cell::Pointer("/spec/replicas")),
        integer("Current", Cell::Pointer("/status/replicas")),
        integer("Ready", Cell::Pointer("/status/readyReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: &["status.replicas"],
    default,
    validate,
    validate_change: validate_immutable_selector,
    warnings: |object, old| pod_template_spec::warnings_with_name(object, old, pod_template_spec::SPEC_PATH),
    validate_status: |object, _, errors| COUNTS.validate(object, errors),
    ..GenericKind::new(&KindInfo {
        short_names: &["rs"],
        categories: &["all"],
        status: true,
        generation: true,
        subresources: &[SCALE],
        ..KindInfo::namespaced(GROUP, "ReplicaSet", "replicasets", "replicaset")
    })
};

fn default(object: &mut Value) {
    pod_template_spec::set_pod_template_defaults(object, pod_template_spec::SPEC);
    defaulting::set_defaults_at(object, "/spec", &[("replicas", json!(1))]);
}

/// Validates a ReplicaSet (`ValidateReplicaSetSpec`). Upstream's error for an empty selector has `deployment`, too.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    spec.at("replicas").nonnegative(errors);
    spec.at("minReadySeconds").nonnegative(errors);
    validate_selector_and_template(&spec, "deployment", "ReplicaSet", errors);
}
