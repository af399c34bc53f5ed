//! For tables of what Pods mean to each other: a cluster of two zones, and what is decided in short.

use crate::cluster::Cluster;
use crate::fit::{Decision, fit};
use crate::listing::Listing;
use api::lean::Lean;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

/// Nodes `a1` and `a2` in zone `a`, `b1` in zone `b`, and `bare` without labels. `old` is tainted, in a zone `c`.
pub(crate) const NODES: [&str; 4] = ["a1", "a2", "b1", "bare"];

/// The nodes of these names, with the Pods that are placed on some.
pub(crate) fn cluster(nodes: &[&str], placed: &[(&str, Value)]) -> Cluster {
    let mut cluster = Cluster::default();
    for name in nodes {
        cluster.set_node(&node(name));
    }
    for team in ["red", "blue"] {
        let labels = json!({ "metadata": { "name": format!("{team}-team"), "labels": { "team": team } } });
        cluster.namespaces.fold(&mut Listing::default(), Event::Apply(Lean(read::<Namespace>(labels))));
    }
    for (i, (node, pod)) in placed.iter().enumerate() {
        let mut pod = pod.clone();
        pod["metadata"]["uid"] = format!("placed-{i}").into();
        pod["spec"]["nodeName"] = (*node).into();
        cluster.set_pod(&read(pod));
    }
    cluster
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

/// A Pod of `shop`, with a label `app` and this spec. It takes some CPU: of equal nodes the emptier one is taken.
pub(crate) fn pod(app: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{ "name": "c", "resources": { "requests": { "cpu": "100m" } } }]);
    json!({ "metadata": { "namespace": "shop", "uid": "p", "labels": { "app": app } }, "spec": spec })
}

/// The same with other metadata.
pub(crate) fn with(mut pod: Value, metadata: &Value) -> Value {
    for (field, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

pub(crate) fn selector(app: &str) -> Value {
    json!({ "matchLabels": { "app": app } })
}

/// A node's name, or `2 Reason, 1 Other | 3 what preemption says`.
pub(crate) fn decide(cluster: &Cluster, pod: Value) -> String {
    let message = match fit(&read(pod), cluster) {
        Decision::Node(name) => return name,
        Decision::Unschedulable(message) | Decision::Waits(message) => message,
        Decision::Volumes(orders) => panic!("{orders:?}"),
        Decision::Preempts(room) => panic!("{room:?}"),
    };
    let all = format!("0/{} nodes are available: ", cluster.node_count());
    let short = message.replace(&all, "").replace(". no new claims to deallocate, preemption: ", " | ");
    let short = short.replace("Preemption is not helpful for scheduling", "no help");
    short.replace("No preemption victims found for incoming pod", "no victims").trim_end_matches('.').to_owned()
}

pub(crate) fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("an object")
}
