//! Deployment.

use super::{
    GROUP, SCALE, not_negatives, same_selector, selector_and_template,
    status::{Counts, collisions},
};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{int_or_percent, percent},
    fill,
    plain::Plain,
    template::{self, CONTAINERS, IMAGES, SELECTOR},
    text,
};
use serde_json::{Value, json};

const COUNTS: Counts = Counts {
    counted: &[
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
    ],
    parts: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ready: "readyReplicas",
};

pub(in crate::kinds) static DEPLOYMENT: Plain = Plain {
    columns: &[
        NAME,
        text("Ready", Cell::Of(|d, _| json!(ready(d)))),
        text("Up-to-date", Cell::Of(|d, _| json!(d["status"]["updatedReplicas"].as_i64().unwrap_or(0)))),
        text("Available", Cell::Of(|d, _| json!(d["status"]["availableReplicas"].as_i64().unwrap_or(0)))),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    default,
    validate,
    validate_change: same_selector,
    warnings: |object, old| template::warnings_with_name(object, old, template::SPEC_PATH),
    validate_status: |object, old, errors| {
        COUNTS.validate(object, errors);
        collisions(object, old, errors);
    },
    ..Plain::of(&KindInfo {
        short_names: &["deploy"],
        categories: &["all"],
        status: true,
        // As `deploymentStatusStrategy` has it.
        kept_by_status: &["labels"],
        generation: true,
        // They are copied to its ReplicaSets.
        generation_of_annotations: true,
        subresources: &[SCALE],
        ..KindInfo::of(GROUP, "Deployment", "deployments", "deployment")
    })
};

/// How many are ready of those that there should be.
pub(super) fn ready(object: &Value) -> String {
    let number = |v: &Value| v.as_i64().unwrap_or(0);
    format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"]))
}

/// `SetDefaults_Deployment`.
fn default(object: &mut Value) {
    template::default(object, template::SPEC);
    let values = [("replicas", json!(1)), ("revisionHistoryLimit", json!(10)), ("progressDeadlineSeconds", json!(600))];
    fill::at(object, "/spec", &values);
    fill::at(object, "/spec/strategy", &[("type", json!("RollingUpdate"))]);
    if object["spec"]["strategy"]["type"] == "RollingUpdate" {
        fill::at(object, "/spec/strategy", &[("rollingUpdate", json!({}))]);
        let quarter = [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))];
        fill::at(object, "/spec/strategy/rollingUpdate", &quarter);
    }
}

/// `ValidateDeploymentSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    not_negatives(spec, &["replicas"], &path, errors);
    selector_and_template(spec, "deployment", "ReplicaSet", &path, errors);
    strategy(&spec["strategy"], &path.child("strategy"), errors);
    not_negatives(spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"], &path, errors);
    let deadline = &spec["progressDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|d| d <= spec["minReadySeconds"].as_i64().unwrap_or(0)) {
        errors.invalid(&path.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

fn strategy(strategy: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
    match strategy["type"].as_str().unwrap_or("") {
        "Recreate" if !rolling.is_null() => {
            errors.forbidden(&at, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&rolling[field], &at.child(field), errors);
            }
            let (unavailable, at) = (&rolling["maxUnavailable"], at.child("maxUnavailable"));
            let is_zero = |v: &Value| v.as_i64() == Some(0) || percent(v) == Some(0);
            if is_zero(unavailable) && is_zero(&rolling["maxSurge"]) {
                errors.invalid(&at, unavailable, "may not be 0 when `maxSurge` is 0");
            }
            if percent(unavailable).is_some_and(|p| p > 100) {
                errors.invalid(&at, unavailable, "must not be greater than 100%");
            }
        }
        _ => errors.not_supported(&path.child("type"), &strategy["type"], &["Recreate", "RollingUpdate"]),
    }
}
