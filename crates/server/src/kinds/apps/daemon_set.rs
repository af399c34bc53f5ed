//! DaemonSet.

use super::{
    GROUP, not_negatives, same_selector,
    status::{Counts, collisions},
};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{int_or_percent, percent},
    fill, integer,
    plain::Plain,
    selector,
    template::{self, CONTAINERS, IMAGES, SELECTOR},
    text,
};
use serde_json::{Value, json};

const COUNTS: Counts = Counts {
    counted: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ],
    parts: &[],
    ready: "",
};

pub(in crate::kinds) static DAEMON_SET: Plain = Plain {
    columns: &[
        NAME,
        integer("Desired", Cell::At("/status/desiredNumberScheduled")),
        integer("Current", Cell::At("/status/currentNumberScheduled")),
        integer("Ready", Cell::At("/status/numberReady")),
        integer("Up-to-date", Cell::At("/status/updatedNumberScheduled")),
        integer("Available", Cell::At("/status/numberAvailable")),
        text("Node Selector", Cell::Of(|d, _| selector::labels(&d["spec"]["template"]["spec"]["nodeSelector"]))),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    default,
    validate,
    validate_change: same_selector,
    warnings: |object, old| template::warnings(object, old, template::SPEC_PATH),
    validate_status: |object, old, errors| {
        COUNTS.validate(object, errors);
        collisions(object, old, errors);
    },
    ..Plain::of(&KindInfo {
        short_names: &["ds"],
        categories: &["all"],
        status: true,
        generation: true,
        ..KindInfo::of(GROUP, "DaemonSet", "daemonsets", "daemonset")
    })
};

/// `SetDefaults_DaemonSet`.
fn default(object: &mut Value) {
    template::default(object, template::SPEC);
    fill::at(object, "/spec", &[("revisionHistoryLimit", json!(10))]);
    fill::at(object, "/spec/updateStrategy", &[("type", json!("RollingUpdate"))]);
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        fill::at(object, "/spec/updateStrategy", &[("rollingUpdate", json!({}))]);
        let one = [("maxUnavailable", json!(1)), ("maxSurge", json!(0))];
        fill::at(object, "/spec/updateStrategy/rollingUpdate", &one);
    }
}

/// `ValidateDaemonSetSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (at, template) = (path.child("selector"), &spec["template"]);
    selector::validate(&spec["selector"], &at, errors);
    if let Some(selected) = selector::selects(&spec["selector"], &template["metadata"]["labels"]) {
        template::validate_selected(template, selected, &path.child("template"), errors);
    }
    if !spec["selector"].is_null() && selector::is_empty(&spec["selector"]) {
        errors.invalid(&at, &spec["selector"], "empty selector is invalid for daemonset");
    }
    template::validate_lasting(template, &path.child("template"), "DaemonSet", errors);
    not_negatives(spec, &["minReadySeconds"], &path, errors);
    strategy(&spec["updateStrategy"], &path.child("updateStrategy"), errors);
    not_negatives(spec, &["revisionHistoryLimit"], &path, errors);
}

/// `ValidateRollingUpdateDaemonSet`.
fn strategy(strategy: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match strategy["type"].as_str().unwrap_or("") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&rolling[field], &at.child(field), errors);
                if percent(&rolling[field]).is_some_and(|p| p > 100) {
                    errors.invalid(&at.child(field), &rolling[field], "must not be greater than 100%");
                }
            }
            let is_zero = |v: &Value| v.is_null() || v.as_i64() == Some(0) || percent(v) == Some(0);
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
