//! ReplicationController.

use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME,
    apps::{ReplicaCounts, SCALE},
    defaulting,
    field_cursor::FieldCursor,
    generic_kind::GenericKind,
    integer, object_meta,
    pod_template_spec::{self, CONTAINERS, IMAGES},
    selector, text,
};
use serde_json::{Value, json};

const COUNTS: ReplicaCounts = ReplicaCounts {
    counts: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    bounded_by_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready_name: "readyReplicas",
};

pub(crate) static REPLICATION_CONTROLLER: GenericKind = GenericKind {
    columns: &[
        NAME,
        integer("Desired", Cell::Pointer("/spec/replicas")),
        integer("Current", Cell::Pointer("/status/replicas")),
        integer("Ready", Cell::Pointer("/status/readyReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        text("Selector", Cell::Computed(|rc, _| selector::labels_table_cell(&rc["spec"]["selector"]))).wide(),
    ],
    fields: &["status.replicas"],
    default,
    validate,
    warnings: |object, old| pod_template_spec::warnings_with_name(object, old, pod_template_spec::SPEC_PATH),
    validate_status: |object, _, errors| COUNTS.validate(object, errors),
    ..GenericKind::new(&KindInfo {
        short_names: &["rc"],
        categories: &["all"],
        status: true,
        generation: true,
        subresources: &[SCALE],
        orphans_by_default: true,
        ..KindInfo::core("ReplicationController", "replicationcontrollers", "replicationcontroller")
    })
};

/// Sets the defaults: labels and selector default to the labels of the template (`SetDefaults_ReplicationController`).
fn default(object: &mut Value) {
    pod_template_spec::set_pod_template_defaults(object, pod_template_spec::SPEC);
    defaulting::set_defaults_at(object, "/spec", &[("replicas", json!(1))]);
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if !labels.is_object() {
        return;
    }
    let is_empty = |v: &Value| v.as_object().is_none_or(serde_json::Map::is_empty);
    if is_empty(&object["spec"]["selector"]) {
        object["spec"]["selector"] = labels.clone();
    }
    if is_empty(&object["metadata"]["labels"]) {
        object["metadata"]["labels"] = labels;
    }
}

/// Validates a ReplicationController (`ValidateReplicationControllerSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    spec.at("minReadySeconds").nonnegative(errors);
    if selector.entries().next().is_none() {
        selector.required("", errors);
    }
    object_meta::labels(&selector, errors);
    spec.at("replicas").nonnegative(errors);
    if template.is_null() {
        return template.required("", errors);
    }
    let labels = template.at("metadata").at("labels").value();
    if let Some(selected) = selector::matches(&json!({"matchLabels": selector.value()}), labels) {
        pod_template_spec::validate_selector_matches(&template, selected, errors);
    }
    pod_template_spec::validate_for_controller(&template, "ReplicationController", errors);
}
