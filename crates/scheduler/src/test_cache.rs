//! Helpers for table tests of Pod constraints: a cache with two zones, and decisions in short form.

use crate::{
    cache::Cache,
    schedule_pod::{Decision, schedule_pod},
};
use k8s_openapi::api::core::v1::{Namespace, Node};
use serde_json::{Value, json};

/// Nodes `a1` and `a2` in zone `a`, `b1` in zone `b`, and `bare` without labels. `old` is tainted, in zone `c`.
pub(crate) const NODES: [&str; 4] = ["a1", "a2", "b1", "bare"];

/// Returns a cache with these nodes and assigned Pods.
pub(crate) fn cache(nodes: &[&str], assigned: &[(&str, Value)]) -> Cache {
    let mut cache = Cache::default();
    for name in nodes {
        cache.set_node(&node(name));
    }
    for team in ["red", "blue"] {
        let labels = json!({ "metadata": { "name": format!("{team}-team"), "labels": { "team": team } } });
        cache.namespaces.insert(read::<Namespace>(labels));
    }
    for (i, (node, pod)) in assigned.iter().enumerate() {
        let mut pod = pod.clone();
        pod["metadata"]["uid"] = format!("placed-{i}").into();
        pod["spec"]["nodeName"] = (*node).into();
        cache.set_pod(&read(pod));
    }
    cache
}

fn node(name: &str) -> Node {
    let labels = match name {
        "bare" => json!({}),
        "old" => json!({ "zone": "c", "host": name }),
        _ => json!({ "zone": name[..1], "host": name }),
    };
    let taints = if name == "old" { json!([{ "key": "old", "effect": "NoSchedule" }]) } else { json!([]) };
    read(json!({
        "metadata": { "name": name, "labels": labels }, "spec": { "taints": taints },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } },
    }))
}

/// Returns a Pod of `shop` with a label `app`. Its CPU request makes emptier nodes score higher.
pub(crate) fn pod(app: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{ "name": "c", "resources": { "requests": { "cpu": "100m" } } }]);
    json!({ "metadata": { "namespace": "shop", "uid": "p", "labels": { "app": app } }, "spec": spec })
}

/// Replaces fields of the Pod's metadata.
pub(crate) fn with(mut pod: Value, metadata: &Value) -> Value {
    for (field, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

pub(crate) fn selector(app: &str) -> Value {
    json!({ "matchLabels": { "app": app } })
}

/// Returns the node's name, or `2 Reason, 1 Other | 3 result of preemption`.
pub(crate) fn decide(cache: &Cache, pod: Value) -> String {
    let message = match schedule_pod(&read(pod), cache) {
        Decision::Bind(name) => return name,
        Decision::Unschedulable(message) | Decision::UnschedulableKeepingNomination(message) => message,
        Decision::BindVolumes(orders) => panic!("{orders:?}"),
        Decision::Preempt(preemption) => panic!("{preemption:?}"),
    };
    let all = format!("0/{} nodes are available: ", cache.node_count());
    let short = message.replace(&all, "").replace(". no new claims to deallocate, preemption: ", " | ");
    let short = short.replace("Preemption is not helpful for scheduling", "no help");
    short.replace("No preemption victims found for incoming pod", "no victims").trim_end_matches('.').to_owned()
}

pub(crate) fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object")
}
