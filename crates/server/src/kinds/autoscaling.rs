//! HorizontalPodAutoscaler (`autoscaling/v2`, and `v1` in the form of which it was made).

mod behavior;
mod reference;
mod v1;

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{dns_label, items, not_negative, not_negative_quantity, path_part, text as text_of},
    fill,
    plain::{Conversion, Plain},
    text,
};
use api::quantity::Amount;
use serde_json::{Value, json};

pub(super) static V2: Plain = Plain {
    columns: COLUMNS,
    default,
    validate,
    validate_new: reference::new,
    validate_change: reference::changed,
    validate_status,
    ..Plain::of(&KindInfo { version: "v2", ..INFO })
};
pub(super) static V1: Plain = Plain {
    columns: COLUMNS,
    default: |object| v1::through(object, default),
    validate: |object, errors| validate(&v1::stored(object), errors),
    validate_new: |object, errors| reference::new(&v1::stored(object), errors),
    validate_change: |object, old, errors| reference::changed(&v1::stored(object), &v1::stored(old), errors),
    validate_status,
    convert: Some(Conversion { from: v1::from_stored, to: v1::to_stored }),
    ..Plain::of(&KindInfo { converted: true, ..INFO })
};

const INFO: KindInfo = KindInfo {
    short_names: &["hpa"],
    categories: &["all"],
    status: true,
    ..KindInfo::of("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "horizontalpodautoscaler")
};

/// Kinds of metrics, and the field that describes one.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

const COLUMNS: &[Column] = &[
    NAME,
    text("Reference", Cell::Of(|h, _| json!(reference(h)))),
    text("Targets", Cell::Of(|h, _| json!(targets(h)))),
    text(
        "MinPods",
        Cell::Of(|h, _| json!(h["spec"]["minReplicas"].as_i64().map_or("<unset>".to_owned(), |n| n.to_string()))),
    ),
    text("MaxPods", Cell::Of(|h, _| json!(h["spec"]["maxReplicas"].as_i64().unwrap_or(0)))),
    text("Replicas", Cell::Of(|h, _| json!(h["status"]["currentReplicas"].as_i64().unwrap_or(0)))),
    AGE,
];

fn reference(object: &Value) -> String {
    let target = &object["spec"]["scaleTargetRef"];
    format!("{}/{}", text_of(target, "kind"), text_of(target, "name"))
}

/// `cpu: <unknown>/80%`: what is measured, and what it should be (`formatHPAMetrics`).
fn targets(object: &Value) -> String {
    const MOST: usize = 2;
    let object = if object["apiVersion"] == "autoscaling/v1" { v1::stored(object) } else { object.clone() };
    let all: Vec<String> = items(&object["spec"], "metrics")
        .enumerate()
        .map(|(i, metric)| {
            let kind = text_of(metric, "type");
            let field = SOURCES.iter().find(|(name, _)| *name == kind).map_or("resource", |(_, field)| field);
            let (wanted, current) =
                (&metric[field]["target"], &object["status"]["currentMetrics"][i][field]["current"]);
            let name = match field {
                "resource" | "containerResource" => format!("{}: ", text_of(&metric[field], "name")),
                _ => String::new(),
            };
            let average =
                if matches!(field, "external" | "object") && !wanted["averageValue"].is_null() { " (avg)" } else { "" };
            format!("{name}{}/{}{average}", amount(current, "<unknown>"), amount(wanted, "<auto>"))
        })
        .collect();
    match all.len() {
        0 => "<none>".to_owned(),
        count if count > MOST => format!("{} + {} more...", all[..MOST].join(", "), count - MOST),
        _ => all.join(", "),
    }
}

fn amount(value: &Value, unset: &str) -> String {
    if let Some(percent) = value["averageUtilization"].as_i64() {
        return format!("{percent}%");
    }
    let quantity = ["averageValue", "value"].iter().find_map(|field| value[field].as_str());
    quantity.unwrap_or(unset).to_owned()
}

/// `SetDefaults_HorizontalPodAutoscaler`.
fn default(object: &mut Value) {
    fill::at(object, "/spec", &[("minReplicas", json!(1))]);
    if items(&object["spec"], "metrics").next().is_none() {
        object["spec"]["metrics"] = json!([{
            "type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]);
    }
    let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
    let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    // One direction that is described brings the other.
    if object["spec"]["behavior"].is_object() {
        fill::at(object, "/spec/behavior", &[("scaleUp", json!({})), ("scaleDown", json!({}))]);
        let of = |policies: Value| [("selectPolicy", json!("Max")), ("policies", policies)];
        fill::at(object, "/spec/behavior/scaleUp", &[("stabilizationWindowSeconds", json!(0))]);
        fill::at(object, "/spec/behavior/scaleUp", &of(up));
        fill::at(object, "/spec/behavior/scaleDown", &of(down));
    }
}

/// `ValidateHorizontalPodAutoscalerStatusUpdate`.
fn validate_status(object: &Value, _: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    ["currentReplicas", "desiredReplicas"].iter().for_each(|f| not_negative(&object["status"], f, &path, errors));
}

/// `validateHorizontalPodAutoscalerSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (least, most) = (&spec["minReplicas"], spec["maxReplicas"].as_i64().unwrap_or(0));
    if least.as_i64().is_some_and(|n| n < 1) {
        errors.invalid(&path.child("minReplicas"), least, "must be greater than or equal to 1");
    }
    if most < 1 {
        errors.invalid(&path.child("maxReplicas"), &json!(most), "must be greater than 0");
    }
    if least.as_i64().is_some_and(|n| most < n) {
        errors.invalid(&path.child("maxReplicas"), &json!(most), "must be greater than or equal to `minReplicas`");
    }
    reference_of(&spec["scaleTargetRef"], &path.child("scaleTargetRef"), errors);
    for (i, metric) in items(spec, "metrics").enumerate() {
        self::metric(metric, &path.child("metrics").index(i), errors);
    }
    for direction in ["scaleUp", "scaleDown"] {
        let path = path.child("behavior").child(direction);
        rules(&spec["behavior"][direction], &path, errors);
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
            if period.as_i64().is_some_and(|n| n > LONGEST_PERIOD) {
                let why = format!("must be less than or equal to {LONGEST_PERIOD}");
                errors.invalid(&path.child("periodSeconds"), period, &why);
            }
        }
        let tolerance = &spec["behavior"][direction]["tolerance"];
        not_negative_quantity(tolerance, &path.child("tolerance"), errors);
    }
}

/// `ValidateCrossVersionObjectReference`.
fn reference_of(object: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["kind", "name"] {
        path_part(&object[field], &path.child(field), errors);
    }
}

/// How long one waits before one scales, and how long a policy may look back, in seconds.
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

/// `validateScalingRules`, without its policies.
fn rules(rules: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if rules.is_null() {
        return;
    }
    let (at, window) = (path.child("stabilizationWindowSeconds"), &rules["stabilizationWindowSeconds"]);
    match window.as_i64() {
        Some(n) if n < 0 => errors.invalid(&at, window, "must be greater than or equal to zero"),
        Some(n) if n > LONGEST_WINDOW => {
            errors.invalid(&at, window, &format!("must be less than or equal to {LONGEST_WINDOW}"));
        }
        _ => {}
    }
    let (policy, known) = (&rules["selectPolicy"], ["Disabled", "Max", "Min"]);
    if !policy.is_null() && !known.iter().any(|k| policy == k) {
        errors.not_supported(&path.child("selectPolicy"), policy, &known);
    }
}

/// Which values a target has to have, and which not, for each kind of metric.
fn target(kind: &str, target: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["value", "averageValue"].into_iter().filter(|f| !target[*f].is_null()) {
        let amount = target[field].as_str().and_then(|q| Amount::parse(q).ok()).unwrap_or_default();
        if amount <= Amount::ZERO {
            errors.invalid(&path.child(field), &target[field], "must be positive");
        }
    }
    let has = |field: &str| !target[field].is_null();
    let (average, value, used) = (has("averageValue"), has("value"), has("averageUtilization"));
    let at = |field: &str| path.child(field);
    match kind {
        "Resource" | "ContainerResource" if !used && !average => {
            errors.required(&at("averageUtilization"), "must set either a target raw value or a target utilization");
        }
        "Resource" | "ContainerResource" if used && average => {
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

/// What a metric is called (`validateMetricIdentifier`).
fn identifier(identifier: &Value, path: &FieldPath, errors: &mut FieldErrors) {
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

/// `validateMetricSpec`.
fn metric(metric: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let kind = text_of(metric, "type");
    let Some((_, field)) = SOURCES.iter().find(|(name, _)| *name == kind) else {
        if kind.is_empty() {
            return errors.required(&path.child("type"), "must specify a metric source type");
        }
        return errors.not_supported(&path.child("type"), &metric["type"], &SOURCES.map(|(name, _)| name));
    };
    let (whole, path) = (path, path.child(field));
    if metric[field].is_null() {
        return errors.required(&path, "must populate information for the given metric source");
    }
    if field.to_lowercase().contains("resource") && text_of(&metric[field], "name").is_empty() {
        errors.required(&path.child("name"), "must specify a resource name");
    }
    for (_, other) in SOURCES.iter().filter(|(_, other)| other != field && !metric[other].is_null()) {
        errors.forbidden(&whole.child(other), "must populate the given metric source only");
    }
    if kind == "Object" {
        reference_of(&metric[field]["describedObject"], &path.child("describedObject"), errors);
    }
    if let "Pods" | "Object" | "External" = kind {
        identifier(&metric[field]["metric"], &path.child("metric"), errors);
    }
    if kind == "ContainerResource" {
        match text_of(&metric[field], "container") {
            "" => errors.required(&path.child("container"), "must specify a container"),
            _ => dns_label(&metric[field]["container"], &path.child("container"), errors),
        }
    }
    let (target, at) = (&metric[field]["target"], path.child("target"));
    self::target(kind, target, &at, errors);
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
