//! DaemonSet.

use super::{
    GROUP,
    status::{ReplicaCounts, validate_collision_count},
    validate_immutable_selector, validate_nonnegative_fields,
};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, defaulting,
    field_validation::{parse_percent, validate_int_or_percent},
    generic_kind::GenericKind,
    integer,
    pod_template_spec::{self, CONTAINERS, IMAGES, SELECTOR},
    selector, text,
};
use serde_json::{Value, json};

const COUNTS: ReplicaCounts = ReplicaCounts {
    counts: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ],
    bounded_by_replicas: &[],
    ready_name: "",
};

pub(crate) static DAEMON_SET: GenericKind = GenericKind {
    columns: &[
        NAME,
        integer("Desired", Cell::Pointer("/status/desiredNumberScheduled")),
        integer("Current", Cell::Pointer("/status/currentNumberScheduled")),
        integer("Ready", Cell::Pointer("/status/numberReady")),
        integer("Up-to-date", Cell::Pointer("/status/updatedNumberScheduled")),
        integer("Available", Cell::Pointer("/status/numberAvailable")),
        text(
            "Node Selector",
            Cell::Computed(|d, _| selector::labels_table_cell(&d["spec"]["template"]["spec"]["nodeSelector"])),
        ),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    default,
    validate,
    validate_change: validate_immutable_selector,
    warnings: |object, old| pod_template_spec::warnings(object, old, pod_template_spec::SPEC_PATH),
    validate_status: |object, old, errors| {
        COUNTS.validate(object, errors);
        validate_collision_count(object, old, errors);
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["ds"],
        categories: &["all"],
        status: true,
        generation: true,
        ..KindInfo::namespaced(GROUP, "DaemonSet", "daemonsets", "daemonset")
    })
};

/// Sets the defaults of a DaemonSet (`SetDefaults_DaemonSet`).
fn default(object: &mut Value) {
    pod_template_spec::set_pod_template_defaults(object, pod_template_spec::SPEC);
    defaulting::set_defaults_at(object, "/spec", &[("revisionHistoryLimit", json!(10))]);
    defaulting::set_defaults_at(object, "/spec/updateStrategy", &[("type", json!("RollingUpdate"))]);
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        defaulting::set_defaults_at(object, "/spec/updateStrategy", &[("rollingUpdate", json!({}))]);
        let values = [("maxUnavailable", json!(1)), ("maxSurge", json!(0))];
        defaulting::set_defaults_at(object, "/spec/updateStrategy/rollingUpdate", &values);
    }
}

/// Validates a DaemonSet (`ValidateDaemonSetSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (at, template) = (path.child("selector"), &spec["template"]);
    selector::validate(&spec["selector"], &at, errors);
    if let Some(selected) = selector::matches(&spec["selector"], &template["metadata"]["labels"]) {
        pod_template_spec::validate_selector_matches(template, selected, &path.child("template"), errors);
    }
    if !spec["selector"].is_null() && selector::is_empty(&spec["selector"]) {
        errors.invalid(&at, &spec["selector"], "empty selector is invalid for daemonset");
    }
    pod_template_spec::validate_for_controller(template, &path.child("template"), "DaemonSet", errors);
    validate_nonnegative_fields(spec, &["minReadySeconds"], &path, errors);
    validate_update_strategy(&spec["updateStrategy"], &path.child("updateStrategy"), errors);
    validate_nonnegative_fields(spec, &["revisionHistoryLimit"], &path, errors);
}

/// Validates the update strategy (`ValidateRollingUpdateDaemonSet`).
fn validate_update_strategy(strategy: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match strategy["type"].as_str().unwrap_or("") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
            for field in ["maxUnavailable", "maxSurge"] {
                validate_int_or_percent(&rolling[field], &at.child(field), errors);
                if parse_percent(&rolling[field]).is_some_and(|p| p > 100) {
                    errors.invalid(&at.child(field), &rolling[field], "must not be greater than 100%");
                }
            }
            let is_zero = |v: &Value| v.is_null() || v.as_i64() == Some(0) || parse_percent(v) == Some(0);
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            match (is_zero(unavailable), is_zero(surge)) {
                (false, false) => {
                    errors.invalid(&at.child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero");
                }
                (true, true) => errors.required(&at.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => errors.not_supported(&path.child("type"), &strategy["type"], &["RollingUpdate", "OnDelete"]),
    }
}
