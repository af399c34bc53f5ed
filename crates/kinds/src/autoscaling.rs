//! HorizontalPodAutoscaler in `autoscaling/v2` and `v1`, which is converted to and from `v2`.

mod behavior;
mod v1;
mod validate_references;

use super::{
    AGE, Cell, Column, FieldErrors, KindInfo, NAME, defaulting,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of, validate_nonnegative_quantity},
    generic_kind::{Conversion, GenericKind},
    text, validate_path_segment_name,
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
    let object = FieldCursor::object(object);
    let status = object.at("status");
    status.at("currentReplicas").nonnegative(errors);
    status.at("desiredReplicas").nonnegative(errors);
}

/// Validates an autoscaler (`validateHorizontalPodAutoscalerSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (min, max) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    if min.integer().is_some_and(|n| n < 1) {
        min.invalid("must be greater than or equal to 1", errors);
    }
    let count = max.integer().unwrap_or(0);
    if count < 1 {
        max.invalid("must be greater than 0", errors);
    }
    if min.integer().is_some_and(|n| count < n) {
        max.invalid("must be greater than or equal to `minReplicas`", errors);
    }
    validate_object_reference(&spec.at("scaleTargetRef"), errors);
    spec.at("metrics").items().for_each(|metric| self::validate_metric(&metric, errors));
    let behavior = spec.at("behavior");
    for rules in [behavior.at("scaleUp"), behavior.at("scaleDown")].iter().filter(|rules| rules.is_set()) {
        validate_scaling_rules(rules, errors);
    }
}

/// Validates an object reference (`ValidateCrossVersionObjectReference`).
fn validate_object_reference(reference: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    reference.at("kind").validate_required_text(validate_path_segment_name, errors);
    reference.at("name").validate_required_text(validate_path_segment_name, errors);
}

/// Maximum stabilization window and policy period in seconds.
const MAX_STABILIZATION_SECONDS: i64 = 3600;
const MAX_PERIOD_SECONDS: i64 = 1800;

/// Validates scaling rules (`validateScalingRules`).
fn validate_scaling_rules(rules: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (window, policy, policies) =
        (rules.at("stabilizationWindowSeconds"), rules.at("selectPolicy"), rules.at("policies"));
    match window.integer() {
        Some(n) if n < 0 => window.invalid("must be greater than or equal to zero", errors),
        Some(n) if n > MAX_STABILIZATION_SECONDS => {
            window.invalid(&format!("must be less than or equal to {MAX_STABILIZATION_SECONDS}"), errors);
        }
        _ => {}
    }
    if policy.is_set() {
        policy.supported(&["Disabled", "Max", "Min"], errors);
    }
    if policies.count() == 0 {
        policies.required("must specify at least one Policy", errors);
    }
    for policy in policies.items() {
        let (value, period) = (policy.at("value"), policy.at("periodSeconds"));
        policy.at("type").supported(&["Percent", "Pods"], errors);
        for field in [value, period].iter().filter(|field| field.integer().unwrap_or(0) <= 0) {
            field.invalid("must be greater than zero", errors);
        }
        if period.integer().is_some_and(|n| n > MAX_PERIOD_SECONDS) {
            period.invalid(&format!("must be less than or equal to {MAX_PERIOD_SECONDS}"), errors);
        }
    }
    validate_nonnegative_quantity(&rules.at("tolerance"), errors);
}

/// Validates the values of a target for a type of metric.
fn validate_metric_target(kind: &str, target: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (value, average, utilization) =
        (target.at("value"), target.at("averageValue"), target.at("averageUtilization"));
    for quantity in [value, average].iter().filter(|quantity| quantity.is_set()) {
        if Amount::parse(quantity.text()).unwrap_or_default() <= Amount::ZERO {
            quantity.invalid("must be positive", errors);
        }
    }
    match kind {
        "Resource" | "ContainerResource" if utilization.is_null() && average.is_null() => {
            utilization.required("must set either a target raw value or a target utilization", errors);
        }
        "Resource" | "ContainerResource" if utilization.is_set() && average.is_set() => {
            average.forbidden("may not set both a target raw value and a target utilization", errors);
        }
        "Pods" if average.is_null() => average.required("must specify a positive target averageValue", errors),
        "Object" if value.is_null() && average.is_null() => {
            average.required("must set either a target value or averageValue", errors);
        }
        "External" if value.is_null() && average.is_null() => {
            average.required("must set either a target value for metric or a per-pod target", errors);
        }
        "External" if value.is_set() && average.is_set() => {
            value.forbidden("may not set both a target value for metric and a per-pod target", errors);
        }
        _ => {}
    }
}

/// Validates a metric identifier (`validateMetricIdentifier`).
fn validate_metric_identifier(identifier: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let name = identifier.at("name");
    if name.text().is_empty() {
        name.required("must specify a metric name", errors);
    }
    name.validate_text(validate_path_segment_name, errors);
}

/// Validates a metric (`validateMetricSpec`).
fn validate_metric(metric: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let metric_type = metric.at("type");
    let kind = metric_type.text();
    let Some((_, field)) = METRIC_SOURCES.iter().find(|(name, _)| *name == kind) else {
        if kind.is_empty() {
            return metric_type.required("must specify a metric source type", errors);
        }
        return metric_type.not_supported(&METRIC_SOURCES.map(|(name, _)| name), errors);
    };
    let source = metric.at(field);
    if source.is_null() {
        return source.required("must populate information for the given metric source", errors);
    }
    if matches!(kind, "Resource" | "ContainerResource") && source.at("name").text().is_empty() {
        source.at("name").required("must specify a resource name", errors);
    }
    for (_, other) in METRIC_SOURCES.iter().filter(|(_, other)| other != field) {
        let other = metric.at(other);
        if other.is_set() {
            other.forbidden("must populate the given metric source only", errors);
        }
    }
    if kind == "Object" {
        validate_object_reference(&source.at("describedObject"), errors);
    }
    if let "Pods" | "Object" | "External" = kind {
        validate_metric_identifier(&source.at("metric"), errors);
    }
    let (container, target) = (source.at("container"), source.at("target"));
    if kind == "ContainerResource" {
        if container.text().is_empty() {
            container.required("must specify a container", errors);
        } else {
            container.validate_text(api::names::dns1123_label, errors);
        }
    }
    self::validate_metric_target(kind, &target, errors);
    let (target_type, utilization) = (target.at("type"), target.at("averageUtilization"));
    match target_type.text() {
        "" => target_type.required("must specify a metric target type", errors),
        "Utilization" | "Value" | "AverageValue" => {}
        _ => target_type.invalid("must be either Utilization, Value, or AverageValue", errors),
    }
    if utilization.integer().is_some_and(|n| n < 1) {
        utilization.invalid("must be greater than 0", errors);
    }
}
