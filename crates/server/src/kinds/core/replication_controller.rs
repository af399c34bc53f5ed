//! ReplicationController.

use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    apps::{Counts, SCALE},
    checks::not_negative,
    fill, integer,
    plain::Plain,
    selector,
    template::{self, CONTAINERS, IMAGES},
    text,
};
use crate::object_meta;
use serde_json::{Value, json};

const COUNTS: Counts = Counts {
    counted: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
};

pub(in crate::kinds) static REPLICATION_CONTROLLER: Plain = Plain {
    columns: &[
        NAME,
        integer("Desired", Cell::At("/spec/replicas")),
        integer("Current", Cell::At("/status/replicas")),
        integer("Ready", Cell::At("/status/readyReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        text("Selector", Cell::Of(|rc, _| selector::labels(&rc["spec"]["selector"]))).wide(),
    ],
    fields: &["status.replicas"],
    default,
    validate,
    warnings: |object, old| template::warnings_with_name(object, old, template::SPEC_PATH),
    validate_status: |object, _, errors| COUNTS.validate(object, errors),
    ..Plain::of(&KindInfo {
        short_names: &["rc"],
        categories: &["all"],
        status: true,
        generation: true,
        subresources: &[SCALE],
        orphans: true,
        ..KindInfo::core("ReplicationController", "replicationcontrollers", "replicationcontroller")
    })
};

/// `SetDefaults_ReplicationController`: labels and selector are those of the template, unless they are given.
fn default(object: &mut Value) {
    template::default(object, template::SPEC);
    fill::at(object, "/spec", &[("replicas", json!(1))]);
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

/// `ValidateReplicationControllerSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (at, wanted) = (path.child("selector"), &spec["selector"]);
    not_negative(spec, "minReadySeconds", &path, errors);
    if wanted.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(&at, "");
    }
    object_meta::labels(wanted, &at, errors);
    not_negative(spec, "replicas", &path, errors);
    let at = path.child("template");
    if spec["template"].is_null() {
        return errors.required(&at, "");
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if let Some(selected) = selector::selects(&json!({"matchLabels": wanted}), labels) {
        template::validate_selected(&spec["template"], selected, &at, errors);
    }
    template::validate_lasting(&spec["template"], &at, "ReplicationController", errors);
}
