//! HorizontalPodAutoscaler in `autoscaling/v2` and `v1`, which is converted to and from `v2`.

mod behavior;
mod v1;
mod validate_references;

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME, defaulting,
    field_validation::{
        items, text as text_of, validate_dns_label, validate_nonnegative, validate_nonnegative_quantity,
        validate_path_segment,
    },
    generic_kind::{Conversion, GenericKind},
    text,
};
use api::quantity::Amount;
use serde_json::{Value, json};

pub(super) static V2: GenericKind = GenericKind {
    columns: COLUMNS,
    default,
    validate,
    validate_new: validate_references::validate_new,
    validate_change: validate_references::validate_change,
    validate_status,
    ..GenericKind::new(&KindInfo { version: "v2", ..INFO })
};
pub(super) static V1: GenericKind = GenericKind {
    columns: COLUMNS,
    default: |object| v1::apply_as_v2(object, default),
    validate: |object, errors| validate(&v1::to_v2(object), errors),
    validate_new: |object, errors| validate_references::validate_new(&v1::to_v2(object), errors),
    validate_change: |object, old, errors| {
        validate_references::validate_change(&v1::to_v2(object), &v1::to_v2(old), errors);
    },
    validate_status,
    convert: Some(Conversion { from: v1::convert_from_v2, to: v1::convert_to_v2 }),
    ..GenericKind::new(&KindInfo { converted: true, ..INFO })
};

const INFO: KindInfo = KindInfo {
    short_names: &["hpa"],
    categories: &["all"],
    status: true,
    ..KindInfo::namespaced(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
    )
};

/// Types of metrics with their fields.
const METRIC_SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

const COLUMNS: &[Column] = &[
    NAME,
    text("Reference", Cell::Computed(|h, _| json!(reference_cell(h)))),
    text("Targets", Cell::Computed(|h, _| json!(targets_cell(h)))),
    text(
        "MinPods",
        Cell::Computed(|h, _| json!(h["spec"]["minReplicas"].as_i64().map_or("<unset>".to_owned(), |n| n.to_string()))),
    ),
    text("MaxPods", Cell::Computed(|h, _| json!(h["spec"]["maxReplicas"].as_i64().unwrap_or(0)))),
    text("Replicas", Cell::Computed(|h, _| json!(h["status"]["currentReplicas"].as_i64().unwrap_or(0)))),
    AGE,
];

fn reference_cell(object: &Value) -> String {
    let target = &object["spec"]["scaleTargetRef"];
    format!("{}/{}", text_of(target, "kind"), text_of(target, "name"))
}

/// Returns current and target values, for example `cpu: <unknown>/80%` (`formatHPAMetrics`).
fn targets_cell(object: &Value) -> String {
    const MAX_SHOWN: usize = 2;
    let object = if object["apiVersion"] == "autoscaling/v1" { v1::to_v2(object) } else { object.clone() };
    let all: Vec<String> = items(&object["spec"], "metrics")
        .enumerate()
        .map(|(i, metric)| {
            let kind = text_of(metric, "type");
            let field = METRIC_SOURCES.iter().find(|(name, _)| *name == kind).map_or("resource", |(_, field)| field);
            let (target, current) =
                (&metric[field]["target"], &object["status"]["currentMetrics"][i][field]["current"]);
            let name = match field {
                "resource" | "containerResource" => format!("{}: ", text_of(&metric[field], "name")),
                _ => String::new(),
            };
            let average =
                if matches!(field, "external" | "object") && !target["averageValue"].is_null() { " (avg)" } else { "" };
            format!("{name}{}/{}{average}", format_target(current, "<unknown>"), format_target(target, "<auto>"))
        })
        .collect();
    match all.len() {
        0 => "<none>".to_owned(),
        count if count > MAX_SHOWN => format!("{} + {} more...", all[..MAX_SHOWN].join(", "), count - MAX_SHOWN),
        _ => all.join(", "),
    }
}

fn format_target(value: &Value, unset: &str) -> String {
    if let Some(percent) = value["averageUtilization"].as_i64() {
        return format!("{percent}%");
    }
    let quantity = ["averageValue", "value"].iter().find_map(|field| value[field].as_str());
    quantity.unwrap_or(unset).to_owned()
}

/// Sets the defaults of an autoscaler (`SetDefaults_HorizontalPodAutoscaler`).
fn default(object: &mut Value) {
    defaulting::set_defaults_at(object, "/spec", &[("minReplicas", json!(1))]);
    if items(&object["spec"], "metrics").next().is_none() {
        object["spec"]["metrics"] = json!([{
            "type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]);
    }
    let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
    let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    // Behavior of one direction implies defaults for the other.
    if object["spec"]["behavior"].is_object() {
        defaulting::set_defaults_at(object, "/spec/behavior", &[("scaleUp", json!({})), ("scaleDown", json!({}))]);
        let scaling_rules = |policies: Value| [("selectPolicy", json!("Max")), ("policies", policies)];
        defaulting::set_defaults_at(object, "/spec/behavior/scaleUp", &[("stabilizationWindowSeconds", json!(0))]);
        defaulting::set_defaults_at(object, "/spec/behavior/scaleUp", &scaling_rules(up));
        defaulting::set_defaults_at(object, "/spec/behavior/scaleDown", &scaling_rules(down));
    }
}

/// Validates an update of the status (`ValidateHorizontalPodAutoscalerStatusUpdate`).
fn validate_status(object: &Value, _: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    ["currentReplicas", "desiredReplicas"]
        .iter()
        .for_each(|f| validate_nonnegative(&object["status"], f, &path, errors));
}

/// Validates an autoscaler (`validateHorizontalPodAutoscalerSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (min, max) = (&spec["minReplicas"], spec["maxReplicas"].as_i64().unwrap_or(0));
    if min.as_i64().is_some_and(|n| n < 1) {
        errors.invalid(&path.child("minReplicas"), min, "must be greater than or equal to 1");
    }
    if max < 1 {
        errors.invalid(&path.child("maxReplicas"), &json!(max), "must be greater than 0");
    }
    if min.as_i64().is_some_and(|n| max < n) {
        errors.invalid(&path.child("maxReplicas"), &json!(max), "must be greater than or equal to `minReplicas`");
    }
    validate_object_reference(&spec["scaleTargetRef"], &path.child("scaleTargetRef"), errors);
    for (i, metric) in items(spec, "metrics").enumerate() {
        self::validate_metric(metric, &path.child("metrics").index(i), errors);
    }
    for direction in ["scaleUp", "scaleDown"] {
        let path = path.child("behavior").child(direction);
        validate_scaling_rules(&spec["behavior"][direction], &path, errors);
        if spec["behavior"][direction].is_object() && items(&spec["behavior"][direction], "policies").next().is_none() {
            errors.required(&path.child("policies"), "must specify at least one Policy");
        }
        for (i, policy) in items(&spec["behavior"][direction], "policies").enumerate() {
            let path = path.child("policies").index(i);
            if !matches!(text_of(policy, "type"), "Percent" | "Pods") {
                errors.not_supported(&path.child("type"), &policy["type"], &["Percent", "Pods"]);
            }
            for field in ["value", "periodSeconds"].into_iter().filter(|f| policy[f].as_i64().unwrap_or(0) <= 0) {
                errors.invalid(&path.child(field), &policy[field], "must be greater than zero");
            }
            let period = &policy["periodSeconds"];
            if period.as_i64().is_some_and(|n| n > MAX_PERIOD_SECONDS) {
                let detail = format!("must be less than or equal to {MAX_PERIOD_SECONDS}");
                errors.invalid(&path.child("periodSeconds"), period, &detail);
            }
        }
        let tolerance = &spec["behavior"][direction]["tolerance"];
        validate_nonnegative_quantity(tolerance, &path.child("tolerance"), errors);
    }
}

/// Validates an object reference (`ValidateCrossVersionObjectReference`).
fn validate_object_reference(object: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["kind", "name"] {
        validate_path_segment(&object[field], &path.child(field), errors);
    }
}

/// Maximum stabilization window and policy period in seconds.
const MAX_STABILIZATION_SECONDS: i64 = 3600;
const MAX_PERIOD_SECONDS: i64 = 1800;

/// Validates scaling rules, except their policies (`validateScalingRules`).
fn validate_scaling_rules(rules: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if rules.is_null() {
        return;
    }
    let (at, window) = (path.child("stabilizationWindowSeconds"), &rules["stabilizationWindowSeconds"]);
    match window.as_i64() {
        Some(n) if n < 0 => errors.invalid(&at, window, "must be greater than or equal to zero"),
        Some(n) if n > MAX_STABILIZATION_SECONDS => {
            errors.invalid(&at, window, &format!("must be less than or equal to {MAX_STABILIZATION_SECONDS}"));
        }
        _ => {}
    }
    let (policy, known) = (&rules["selectPolicy"], ["Disabled", "Max", "Min"]);
    if !policy.is_null() && !known.iter().any(|k| policy == k) {
        errors.not_supported(&path.child("selectPolicy"), policy, &known);
    }
}

/// Validates the values of a target for a type of metric.
fn validate_metric_target(kind: &str, target: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["value", "averageValue"].into_iter().filter(|f| !target[*f].is_null()) {
        let amount = target[field].as_str().and_then(|q| Amount::parse(q).ok()).unwrap_or_default();
        if amount <= Amount::ZERO {
            errors.invalid(&path.child(field), &target[field], "must be positive");
        }
    }
    let has = |field: &str| !target[field].is_null();
    let (average, value, utilization) = (has("averageValue"), has("value"), has("averageUtilization"));
    let at = |field: &str| path.child(field);
    match kind {
        "Resource" | "ContainerResource" if !utilization && !average => {
            errors.required(&at("averageUtilization"), "must set either a target raw value or a target utilization");
        }
        "Resource" | "ContainerResource" if utilization && average => {
            errors.forbidden(&at("averageValue"), "may not set both a target raw value and a target utilization");
        }
        "Pods" if !average => errors.required(&at("averageValue"), "must specify a positive target averageValue"),
        "Object" if !value && !average => {
            errors.required(&at("averageValue"), "must set either a target value or averageValue");
        }
        "External" if !value && !average => {
            errors.required(&at("averageValue"), "must set either a target value for metric or a per-pod target");
        }
        "External" if value && average => {
            errors.forbidden(&at("value"), "may not set both a target value for metric and a per-pod target");
        }
        _ => {}
    }
}

/// Validates a metric identifier (`validateMetricIdentifier`).
fn validate_metric_identifier(identifier: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, at) = (text_of(identifier, "name"), path.child("name"));
    if name.is_empty() {
        errors.required(&at, "must specify a metric name");
    }
    if matches!(name, "." | "..") {
        errors.invalid(&at, &identifier["name"], &format!("may not be '{name}'"));
    }
    for part in ['/', '%'].into_iter().filter(|part| name.contains(*part)) {
        errors.invalid(&at, &identifier["name"], &format!("may not contain '{part}'"));
    }
}

/// Validates a metric (`validateMetricSpec`).
fn validate_metric(metric: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let kind = text_of(metric, "type");
    let Some((_, field)) = METRIC_SOURCES.iter().find(|(name, _)| *name == kind) else {
        if kind.is_empty() {
            return errors.required(&path.child("type"), "must specify a metric source type");
        }
        return errors.not_supported(&path.child("type"), &metric["type"], &METRIC_SOURCES.map(|(name, _)| name));
    };
    let (metric_path, path) = (path, path.child(field));
    if metric[field].is_null() {
        return errors.required(&path, "must populate information for the given metric source");
    }
    if field.to_lowercase().contains("resource") && text_of(&metric[field], "name").is_empty() {
        errors.required(&path.child("name"), "must specify a resource name");
    }
    for (_, other) in METRIC_SOURCES.iter().filter(|(_, other)| other != field && !metric[other].is_null()) {
        errors.forbidden(&metric_path.child(other), "must populate the given metric source only");
    }
    if kind == "Object" {
        validate_object_reference(&metric[field]["describedObject"], &path.child("describedObject"), errors);
    }
    if let "Pods" | "Object" | "External" = kind {
        validate_metric_identifier(&metric[field]["metric"], &path.child("metric"), errors);
    }
    if kind == "ContainerResource" {
        match text_of(&metric[field], "container") {
            "" => errors.required(&path.child("container"), "must specify a container"),
            _ => validate_dns_label(&metric[field]["container"], &path.child("container"), errors),
        }
    }
    let (target, at) = (&metric[field]["target"], path.child("target"));
    self::validate_metric_target(kind, target, &at, errors);
    match text_of(target, "type") {
        "" => errors.required(&at.child("type"), "must specify a metric target type"),
        "Utilization" | "Value" | "AverageValue" => {}
        _ => {
            errors.invalid(&at.child("type"), &target["type"], "must be either Utilization, Value, or AverageValue");
        }
    }
    if target["averageUtilization"].as_i64().is_some_and(|n| n < 1) {
        errors.invalid(&at.child("averageUtilization"), &target["averageUtilization"], "must be greater than 0");
    }
}
