//! Deployment.

use super::{
    GROUP, SCALE,
    status::{ReplicaCounts, validate_collision_count},
    validate_immutable_selector, validate_nonnegative_fields, validate_selector_and_template,
};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, defaulting,
    field_validation::{parse_percent, validate_int_or_percent},
    generic_kind::GenericKind,
    pod_template_spec::{self, CONTAINERS, IMAGES, SELECTOR},
    text,
};
use serde_json::{Value, json};

const COUNTS: ReplicaCounts = ReplicaCounts {
    counts: &[
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
    ],
    bounded_by_replicas: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready_name: "readyReplicas",
};

pub(crate) static DEPLOYMENT: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Ready", Cell::Computed(|d, _| json!(ready_cell(d)))),
        text("Up-to-date", Cell::Computed(|d, _| json!(d["status"]["updatedReplicas"].as_i64().unwrap_or(0)))),
        text("Available", Cell::Computed(|d, _| json!(d["status"]["availableReplicas"].as_i64().unwrap_or(0)))),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    default,
    validate,
    validate_change: validate_immutable_selector,
    warnings: |object, old| pod_template_spec::warnings_with_name(object, old, pod_template_spec::SPEC_PATH),
    validate_status: |object, old, errors| {
        COUNTS.validate(object, errors);
        validate_collision_count(object, old, errors);
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["deploy"],
        categories: &["all"],
        status: true,
        // Like upstream's `deploymentStatusStrategy`.
        reset_by_status_update: &["labels"],
        generation: true,
        // The controller copies annotations to its ReplicaSets.
        annotations_bump_generation: true,
        subresources: &[SCALE],
        ..KindInfo::namespaced(GROUP, "Deployment", "deployments", "deployment")
    })
};

/// Returns ready and desired replicas, for example `1/3`.
pub(super) fn ready_cell(object: &Value) -> String {
    let number = |v: &Value| v.as_i64().unwrap_or(0);
    format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"]))
}

/// Sets the defaults of a Deployment (`SetDefaults_Deployment`).
fn default(object: &mut Value) {
    pod_template_spec::set_pod_template_defaults(object, pod_template_spec::SPEC);
    let values = [("replicas", json!(1)), ("revisionHistoryLimit", json!(10)), ("progressDeadlineSeconds", json!(600))];
    defaulting::set_defaults_at(object, "/spec", &values);
    defaulting::set_defaults_at(object, "/spec/strategy", &[("type", json!("RollingUpdate"))]);
    if object["spec"]["strategy"]["type"] == "RollingUpdate" {
        defaulting::set_defaults_at(object, "/spec/strategy", &[("rollingUpdate", json!({}))]);
        let quarter = [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))];
        defaulting::set_defaults_at(object, "/spec/strategy/rollingUpdate", &quarter);
    }
}

/// Validates a Deployment (`ValidateDeploymentSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    validate_nonnegative_fields(spec, &["replicas"], &path, errors);
    validate_selector_and_template(spec, "deployment", "ReplicaSet", &path, errors);
    validate_strategy(&spec["strategy"], &path.child("strategy"), errors);
    validate_nonnegative_fields(
        spec,
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        &path,
        errors,
    );
    let deadline = &spec["progressDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|d| d <= spec["minReadySeconds"].as_i64().unwrap_or(0)) {
        errors.invalid(&path.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

fn validate_strategy(strategy: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
    match strategy["type"].as_str().unwrap_or("") {
        "Recreate" if !rolling.is_null() => {
            errors.forbidden(&at, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            for field in ["maxUnavailable", "maxSurge"] {
                validate_int_or_percent(&rolling[field], &at.child(field), errors);
            }
            let (unavailable, at) = (&rolling["maxUnavailable"], at.child("maxUnavailable"));
            let is_zero = |v: &Value| v.as_i64() == Some(0) || parse_percent(v) == Some(0);
            if is_zero(unavailable) && is_zero(&rolling["maxSurge"]) {
                errors.invalid(&at, unavailable, "may not be 0 when `maxSurge` is 0");
            }
            if parse_percent(unavailable).is_some_and(|p| p > 100) {
                errors.invalid(&at, unavailable, "must not be greater than 100%");
            }
        }
        _ => errors.not_supported(&path.child("type"), &strategy["type"], &["Recreate", "RollingUpdate"]),
    }
}
