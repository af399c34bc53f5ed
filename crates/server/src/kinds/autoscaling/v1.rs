//! The older version: CPU has a field of its own, and what else there is stands in annotations, as upstream writes it.

use super::behavior;
use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const UTILIZATION: &str = "targetCPUUtilizationPercentage";
const CURRENT_UTILIZATION: &str = "currentCPUUtilizationPercentage";

/// Does something to an object of this version that is known for the stored one.
pub(super) fn through(object: &mut Value, change: fn(&mut Value)) {
    let mut stored = stored(object);
    change(&mut stored);
    if let Value::Object(mut map) = stored {
        map.insert("apiVersion".to_owned(), json!("autoscaling/v1"));
        from_stored(&mut map);
        *object = Value::Object(map);
    }
}

/// An object of this version in the stored form.
pub(super) fn stored(object: &Value) -> Value {
    let mut map = object.as_object().cloned().unwrap_or_default();
    to_stored(&mut map);
    Value::Object(map)
}

/// A metric is CPU, of all containers, in percent.
fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

pub(super) fn from_stored(object: &mut Map<String, Value>) {
    let mut notes = Map::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = spec.remove("metrics").unwrap_or_default();
        let cpu = |m: &&Value| is_cpu(m) && !m["resource"]["target"]["averageUtilization"].is_null();
        let all = metrics.as_array().cloned().unwrap_or_default();
        if let Some(metric) = all.iter().find(cpu) {
            spec.insert(UTILIZATION.to_owned(), metric["resource"]["target"]["averageUtilization"].clone());
        }
        let first = all.iter().position(|m| cpu(&m));
        let rest: Vec<Value> =
            all.iter().enumerate().filter(|(i, _)| Some(*i) != first).map(|(_, m)| in_note(m, "target")).collect();
        note(&mut notes, METRICS, rest);
        if let Some(text) = spec.remove("behavior").and_then(behavior::written) {
            notes.insert(BEHAVIOR.to_owned(), json!(text));
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
        let shown: Vec<Value> = all.iter().map(|m| in_note(m, "current")).collect();
        note(&mut notes, CURRENT, shown);
        let conditions = status.remove("conditions").and_then(|c| c.as_array().cloned()).unwrap_or_default();
        note(&mut notes, CONDITIONS, conditions);
    }
    if !notes.is_empty()
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.extend(notes);
        }
    }
}

pub(super) fn to_stored(object: &mut Map<String, Value>) {
    object.insert("apiVersion".to_owned(), json!("autoscaling/v2"));
    let mut notes = Map::new();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        for key in [METRICS, BEHAVIOR, CONDITIONS, CURRENT] {
            notes.extend(annotations.remove(key).map(|value| (key.to_owned(), value)));
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    // What is no JSON says nothing.
    let read = |key: &str| -> Value {
        notes.get(key).and_then(Value::as_str).and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default()
    };
    let list = |key: &str| read(key).as_array().cloned().unwrap_or_default();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut metrics: Vec<Value> = list(METRICS).iter().map(|m| from_note(m, "target")).collect();
        if let Some(percent) = spec.remove(UTILIZATION) {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        if !metrics.is_empty() {
            spec.insert("metrics".to_owned(), json!(metrics));
        }
        if let Some(behavior) = notes.get(BEHAVIOR).and_then(Value::as_str).and_then(behavior::read) {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let percent = status.remove(CURRENT_UTILIZATION);
        let mut current: Vec<Value> = list(CURRENT).iter().map(|m| from_note(m, "current")).collect();
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

fn note(notes: &mut Map<String, Value>, key: &str, values: Vec<Value>) {
    if !values.is_empty() {
        notes.insert(key.to_owned(), json!(json!(values).to_string()));
    }
}

/// Fields of a value in the newer form, and of the same in the older: `{part}` is `target` or `current`.
const VALUES: [(&str, &str); 3] =
    [("averageUtilization", "AverageUtilization"), ("averageValue", "AverageValue"), ("value", "Value")];
/// The name under which a metric says what it is about, in the older form.
const SOURCES: [&str; 5] = ["resource", "containerResource", "pods", "object", "external"];

/// A metric in the older form: names stand beside values.
fn in_note(metric: &Value, part: &str) -> Value {
    let mut note = json!({"type": metric["type"]});
    for source in SOURCES.into_iter().filter(|s| metric[s].is_object()) {
        let newer = &metric[source];
        let mut older = newer.as_object().cloned().unwrap_or_default();
        older.remove(part);
        if let Some(Value::Object(about)) = older.remove("metric") {
            older.extend(about.get("name").map(|n| ("metricName".to_owned(), n.clone())));
            let key = if source == "external" { "metricSelector" } else { "selector" };
            older.extend(about.get("selector").map(|s| (key.to_owned(), s.clone())));
        }
        if let Some(object) = older.remove("describedObject") {
            older.insert("target".to_owned(), object);
        }
        for (field, name) in VALUES {
            if let Some(value) = newer[part].get(field) {
                let plain = source == "object" && field == "averageValue";
                older.insert(if plain { field.to_owned() } else { format!("{part}{name}") }, value.clone());
            }
        }
        note[source] = Value::Object(older);
    }
    note
}

/// The newer form of a metric that stood in an annotation.
fn from_note(note: &Value, part: &str) -> Value {
    let mut metric = json!({"type": note["type"]});
    for source in SOURCES.into_iter().filter(|s| note[s].is_object()) {
        let mut fields = note[source].as_object().cloned().unwrap_or_default();
        let mut value = Map::new();
        for (field, name) in VALUES {
            let plain = if source == "object" && field == "averageValue" { fields.remove(field) } else { None };
            value.extend(plain.or_else(|| fields.remove(&format!("{part}{name}"))).map(|v| (field.to_owned(), v)));
        }
        if part == "target" {
            let kind = match VALUES.iter().find(|(field, _)| value.contains_key(*field)) {
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
            let mut about = json!({"name": name});
            if let Some(selector) = selector {
                about["selector"] = selector;
            }
            fields.insert("metric".to_owned(), about);
        }
        fields.insert(part.to_owned(), Value::Object(value));
        metric[source] = Value::Object(fields);
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::checks::{items, text};

    #[track_caller]
    fn check(spec: Value, older: Value, notes: &[&str]) {
        let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec});
        let mut converted = object.as_object().cloned().unwrap();
        from_stored(&mut converted);
        assert_eq!(converted["spec"], older);
        let annotations = converted["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        assert_eq!(annotations.keys().map(String::as_str).collect::<Vec<_>>(), notes);
        assert_eq!(stored(&Value::Object(converted)), object, "there and back");
    }

    #[test]
    fn what_v1_cannot_say_stands_in_annotations() {
        let resource =
            |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
        let cpu = resource("cpu", json!({"type": "Utilization", "averageUtilization": 50}));
        let memory = resource("memory", json!({"type": "AverageValue", "averageValue": "1Gi"}));
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "rps", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "1k"}}});
        let about = json!({"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"});
        let object = json!({"type": "Object", "object": {"describedObject": about, "metric": {"name": "rps"}, "target": {"type": "Value", "value": "10"}}});
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
    fn a_metric_in_an_annotation_has_the_older_names() {
        let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}});
        let note = in_note(&memory, "target");
        assert_eq!(note, json!({"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 60}}));
        assert_eq!(text(&from_note(&note, "target"), "type"), "Resource");
        assert_eq!(items(&json!({"m": [from_note(&note, "target")]}), "m").next(), Some(&memory));
    }
}
