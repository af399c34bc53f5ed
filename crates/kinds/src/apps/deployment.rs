//! Deployment.

use super::{
    GROUP, SCALE,
    status::{ReplicaCounts, validate_collision_count},
    validate_immutable_selector, validate_selector_and_template,
};
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME, defaulting, enums,
    field_cursor::FieldCursor,
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
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    spec.at("replicas").nonnegative(errors);
    validate_selector_and_template(&spec, "deployment", "ReplicaSet", errors);
    validate_strategy(&spec.at("strategy"), errors);
    let deadline = spec.at("progressDeadlineSeconds");
    for seconds in [spec.at("minReadySeconds"), spec.at("revisionHistoryLimit"), deadline] {
        seconds.nonnegative(errors);
    }
    if deadline.integer().is_some_and(|d| d <= spec.at("minReadySeconds").integer().unwrap_or(0)) {
        deadline.invalid("must be greater than minReadySeconds", errors);
    }
}

fn validate_strategy(strategy: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (kind, rolling) = (strategy.at("type"), strategy.at("rollingUpdate"));
    match kind.text() {
        "Recreate" if !rolling.is_null() => {
            rolling.forbidden("may not be specified when strategy `type` is 'Recreate'", errors);
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            validate_int_or_percent(&unavailable, errors);
            validate_int_or_percent(&surge, errors);
            let is_zero = |v: &Value| v.as_i64() == Some(0) || parse_percent(v) == Some(0);
            if is_zero(unavailable.value()) && is_zero(surge.value()) {
                unavailable.invalid("may not be 0 when `maxSurge` is 0", errors);
            }
            if parse_percent(unavailable.value()).is_some_and(|p| p > 100) {
                unavailable.invalid("must not be greater than 100%", errors);
            }
        }
        _ => kind.supported(enums::DEPLOYMENT_STRATEGIES, errors),
    }
}
