//! Conversion between `autoscaling/v1` and `v2`. `v1` has a field for CPU utilization, and annotations for everything else.

use super::behavior;
use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const UTILIZATION: &str = "targetCPUUtilizationPercentage";
const CURRENT_UTILIZATION: &str = "currentCPUUtilizationPercentage";

/// Converts a `v1` object to `v2`, applies a function, and converts it back.
pub(super) fn apply_as_v2(object: &mut Value, change: fn(&mut Value)) {
    let mut stored = to_v2(object);
    change(&mut stored);
    if let Value::Object(mut map) = stored {
        map.insert("apiVersion".to_owned(), json!("autoscaling/v1"));
        convert_from_v2(&mut map);
        *object = Value::Object(map);
    }
}

/// Converts a `v1` object to `v2`.
pub(super) fn to_v2(object: &Value) -> Value {
    let mut map = object.as_object().cloned().unwrap_or_default();
    convert_to_v2(&mut map);
    Value::Object(map)
}

/// Whether a metric is the CPU resource.
fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

pub(super) fn convert_from_v2(object: &mut Map<String, Value>) {
    let mut annotations_of_v1 = Map::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = spec.remove("metrics").unwrap_or_default();
        let cpu = |m: &&Value| is_cpu(m) && !m["resource"]["target"]["averageUtilization"].is_null();
        let all = metrics.as_array().cloned().unwrap_or_default();
        if let Some(metric) = all.iter().find(cpu) {
            spec.insert(UTILIZATION.to_owned(), metric["resource"]["target"]["averageUtilization"].clone());
        }
        let first = all.iter().position(|m| cpu(&m));
        let rest: Vec<Value> =
            all.iter().enumerate().filter(|(i, _)| Some(*i) != first).map(|(_, m)| metric_to_v1(m, "target")).collect();
        insert_json_annotation(&mut annotations_of_v1, METRICS, rest);
        if let Some(text) = spec.remove("behavior").and_then(behavior::encode_annotation) {
            annotations_of_v1.insert(BEHAVIOR.to_owned(), json!(text));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let current = status.remove("currentMetrics").unwrap_or_default();
        let all = current.as_array().cloned().unwrap_or_default();
        let used = |m: &Value| m["resource"]["current"]["averageUtilization"].clone();
        let cpu = all.iter().position(|m| is_cpu(m) && !used(m).is_null());
        if let Some(metric) = cpu.and_then(|i| all.get(i)) {
            status.insert(CURRENT_UTILIZATION.to_owned(), used(metric));
        }
        let shown: Vec<Value> = all.iter().map(|m| metric_to_v1(m, "current")).collect();
        insert_json_annotation(&mut annotations_of_v1, CURRENT, shown);
        let conditions = status.remove("conditions").and_then(|c| c.as_array().cloned()).unwrap_or_default();
        insert_json_annotation(&mut annotations_of_v1, CONDITIONS, conditions);
    }
    if !annotations_of_v1.is_empty()
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.extend(annotations_of_v1);
        }
    }
}

pub(super) fn convert_to_v2(object: &mut Map<String, Value>) {
    object.insert("apiVersion".to_owned(), json!("autoscaling/v2"));
    let mut annotations_of_v1 = Map::new();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        for key in [METRICS, BEHAVIOR, CONDITIONS, CURRENT] {
            annotations_of_v1.extend(annotations.remove(key).map(|value| (key.to_owned(), value)));
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    // Invalid JSON is ignored.
    let read = |key: &str| -> Value {
        annotations_of_v1
            .get(key)
            .and_then(Value::as_str)
            .and_then(|t| serde_json::from_str(t).ok())
            .unwrap_or_default()
    };
    let list = |key: &str| read(key).as_array().cloned().unwrap_or_default();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut metrics: Vec<Value> = list(METRICS).iter().map(|m| metric_from_v1(m, "target")).collect();
        if let Some(percent) = spec.remove(UTILIZATION) {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        if !metrics.is_empty() {
            spec.insert("metrics".to_owned(), json!(metrics));
        }
        if let Some(behavior) =
            annotations_of_v1.get(BEHAVIOR).and_then(Value::as_str).and_then(behavior::decode_annotation)
        {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let percent = status.remove(CURRENT_UTILIZATION);
        let mut current: Vec<Value> = list(CURRENT).iter().map(|m| metric_from_v1(m, "current")).collect();
        if let Some(percent) = percent.filter(|_| !current.iter().any(is_cpu)) {
            let value = json!({"averageUtilization": percent, "averageValue": "0"});
            current.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": value}}));
        }
        for (field, values) in [("currentMetrics", current), ("conditions", list(CONDITIONS))] {
            if !values.is_empty() {
                status.insert(field.to_owned(), json!(values));
            }
        }
    }
}

fn insert_json_annotation(annotations_of_v1: &mut Map<String, Value>, key: &str, values: Vec<Value>) {
    if !values.is_empty() {
        annotations_of_v1.insert(key.to_owned(), json!(json!(values).to_string()));
    }
}

/// Value fields in `v2`, and their suffixes in `v1` after `target` or `current`.
const VALUE_FIELDS: [(&str, &str); 3] =
    [("averageUtilization", "AverageUtilization"), ("averageValue", "AverageValue"), ("value", "Value")];
/// Source fields of a metric.
const SOURCE_FIELDS: [&str; 5] = ["resource", "containerResource", "pods", "object", "external"];

/// Converts a metric to `v1`, where names and values are on the same level.
fn metric_to_v1(metric: &Value, part: &str) -> Value {
    let mut v1_metric = json!({"type": metric["type"]});
    for source in SOURCE_FIELDS.into_iter().filter(|s| metric[s].is_object()) {
        let v2_fields = &metric[source];
        let mut v1_fields = v2_fields.as_object().cloned().unwrap_or_default();
        v1_fields.remove(part);
        if let Some(Value::Object(metric_identifier)) = v1_fields.remove("metric") {
            v1_fields.extend(metric_identifier.get("name").map(|n| ("metricName".to_owned(), n.clone())));
            let key = if source == "external" { "metricSelector" } else { "selector" };
            v1_fields.extend(metric_identifier.get("selector").map(|s| (key.to_owned(), s.clone())));
        }
        if let Some(object) = v1_fields.remove("describedObject") {
            v1_fields.insert("target".to_owned(), object);
        }
        for (field, name) in VALUE_FIELDS {
            if let Some(value) = v2_fields[part].get(field) {
                let unprefixed = source == "object" && field == "averageValue";
                v1_fields.insert(if unprefixed { field.to_owned() } else { format!("{part}{name}") }, value.clone());
            }
        }
        v1_metric[source] = Value::Object(v1_fields);
    }
    v1_metric
}

/// Converts a metric from `v1`.
fn metric_from_v1(v1_metric: &Value, part: &str) -> Value {
    let mut metric = json!({"type": v1_metric["type"]});
    for source in SOURCE_FIELDS.into_iter().filter(|s| v1_metric[s].is_object()) {
        let mut fields = v1_metric[source].as_object().cloned().unwrap_or_default();
        let mut value = Map::new();
        for (field, name) in VALUE_FIELDS {
            let unprefixed = if source == "object" && field == "averageValue" { fields.remove(field) } else { None };
            value.extend(unprefixed.or_else(|| fields.remove(&format!("{part}{name}"))).map(|v| (field.to_owned(), v)));
        }
        if part == "target" {
            let kind = match VALUE_FIELDS.iter().find(|(field, _)| value.contains_key(*field)) {
                Some(("averageUtilization", _)) => "Utilization",
                Some(("averageValue", _)) => "AverageValue",
                _ => "Value",
            };
            value.insert("type".to_owned(), json!(kind));
        }
        if source == "object"
            && let Some(object) = fields.remove("target")
        {
            fields.insert("describedObject".to_owned(), object);
        }
        if let Some(name) = fields.remove("metricName") {
            let selector = ["metricSelector", "selector"].iter().find_map(|key| fields.remove(*key));
            let mut metric_identifier = json!({"name": name});
            if let Some(selector) = selector {
                metric_identifier["selector"] = selector;
            }
            fields.insert("metric".to_owned(), metric_identifier);
        }
        fields.insert(part.to_owned(), Value::Object(value));
        metric[source] = Value::Object(fields);
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_validation::{items, text};

    #[track_caller]
    fn check(spec: Value, v1_fields: Value, annotations_of_v1: &[&str]) {
        let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec});
        let mut converted = object.as_object().cloned().unwrap();
        convert_from_v2(&mut converted);
        assert_eq!(converted["spec"], v1_fields);
        let annotations = converted["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        assert_eq!(annotations.keys().map(String::as_str).collect::<Vec<_>>(), annotations_of_v1);
        assert_eq!(to_v2(&Value::Object(converted)), object, "there and back");
    }

    #[test]
    fn fields_without_v1_equivalent_are_annotations() {
        let resource =
            |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
        let cpu = resource("cpu", json!({"type": "Utilization", "averageUtilization": 50}));
        let memory = resource("memory", json!({"type": "AverageValue", "averageValue": "1Gi"}));
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "rps", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "1k"}}});
        let metric_identifier = json!({"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"});
        let object = json!({"type": "Object", "object": {"describedObject": metric_identifier, "metric": {"name": "rps"}, "target": {"type": "Value", "value": "10"}}});
        let external = json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}});
        check(json!({"maxReplicas": 3, "metrics": [cpu]}), json!({"maxReplicas": 3, UTILIZATION: 50}), &[]);
        check(
            json!({"maxReplicas": 3, "metrics": [cpu, memory, pods, object, external], "behavior": {"scaleUp": {"selectPolicy": "Max"}}}),
            json!({"maxReplicas": 3, UTILIZATION: 50}),
            &[BEHAVIOR, METRICS],
        );
        check(json!({"maxReplicas": 3, "metrics": [memory]}), json!({"maxReplicas": 3}), &[METRICS]);
    }

    #[test]
    fn metric_annotation_has_v1_field_names() {
        let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}});
        let v1_metric = metric_to_v1(&memory, "target");
        assert_eq!(
            v1_metric,
            json!({"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 60}})
        );
        assert_eq!(text(&metric_from_v1(&v1_metric, "target"), "type"), "Resource");
        assert_eq!(items(&json!({"m": [metric_from_v1(&v1_metric, "target")]}), "m").next(), Some(&memory));
    }
}
