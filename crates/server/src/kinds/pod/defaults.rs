//! What upstream's `SetDefaults_Pod` and its kin fill in, and the tolerations of its `DefaultTolerationSeconds` admission.

use serde_json::{Map, Value, json};

pub(super) fn pod(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let values = [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("serviceAccountName", json!("default")),
    ];
    values.into_iter().for_each(|(key, value)| set(spec, key, value));
    let account = spec["serviceAccountName"].clone();
    set(spec, "serviceAccount", account);
    tolerations(spec);
    for list in ["initContainers", "containers"] {
        each(spec, list, container);
    }
    each(spec, "volumes", volume);
}

fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    let entry = map.entry(key).or_insert(Value::Null);
    if entry.is_null() {
        *entry = value;
    }
}

fn each(map: &mut Map<String, Value>, list: &str, mut fill: impl FnMut(&mut Map<String, Value>)) {
    let items = map.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut fill);
}

fn container(c: &mut Map<String, Value>) {
    let image = c.get("image").and_then(Value::as_str).unwrap_or("");
    set_policy(c, image.to_owned().as_str());
    set(c, "terminationMessagePath", json!("/dev/termination-log"));
    set(c, "terminationMessagePolicy", json!("File"));
    set(c, "resources", json!({}));
    each(c, "ports", |p| set(p, "protocol", json!("TCP")));
    each(c, "env", |e| {
        if let Some(field) = e.get_mut("valueFrom").and_then(|v| v.get_mut("fieldRef")).and_then(Value::as_object_mut) {
            set(field, "apiVersion", json!("v1"));
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = c.get_mut(probe).and_then(Value::as_object_mut) {
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                set(probe, key, json!(value));
            }
        }
    }
    // What is limited and not asked for is asked for in full.
    if let Some(resources) = c.get_mut("resources").and_then(Value::as_object_mut)
        && let Some(Value::Object(limits)) = resources.get("limits").cloned()
    {
        set(resources, "requests", json!({}));
        if let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) {
            limits.into_iter().for_each(|(key, value)| set(requests, &key, value));
        }
    }
}

/// No tag, or `latest`, is pulled each time.
fn set_policy(c: &mut Map<String, Value>, image: &str) {
    let name = image.rsplit('/').next().unwrap_or("");
    let digest = name.contains('@');
    let tag = name.split_once(':').map_or("latest", |(_, tag)| tag);
    let always = !digest && tag == "latest";
    set(c, "imagePullPolicy", json!(if always { "Always" } else { "IfNotPresent" }));
}

fn volume(v: &mut Map<String, Value>) {
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = v.get_mut(source).and_then(Value::as_object_mut) {
            set(source, "defaultMode", json!(420));
        }
    }
    if let Some(path) = v.get_mut("hostPath").and_then(Value::as_object_mut) {
        set(path, "type", json!(""));
    }
    if v.keys().all(|k| k == "name") {
        v.insert("emptyDir".to_owned(), json!({}));
    }
}

fn tolerations(spec: &mut Map<String, Value>) {
    set(spec, "tolerations", json!([]));
    let Some(list) = spec.get_mut("tolerations").and_then(Value::as_array_mut) else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            let (k, effect) = (t["key"].as_str().unwrap_or(""), t["effect"].as_str().unwrap_or(""));
            (k == key || k.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !list.iter().any(covers) {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}
