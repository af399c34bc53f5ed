//! Pods of nodes that are gone or out of service. The nodes are objects alone: what is shown is what becomes of the Pods.

use crate::Alone;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{Kubectl, Setup, wait_for};

pub(crate) const TESTS: &[Alone] = &[
    ("Pods of a deleted node fail and are garbage collected", pods_of_deleted_node_are_collected),
    ("terminating Pods of an out-of-service node are deleted by force", pods_on_out_of_service_node_are_deleted),
];

/// A node without a kubelet, and a Pod that was put upon it.
fn apply(kubectl: &Kubectl, name: &str, finalizers: &[&str]) {
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string());
    let container = json!({"name": "c", "image": test_images::BUSYBOX});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"nodeName": name, "containers": [container]}});
    kubectl.apply(&pod.to_string());
}

fn condition(pod: &Value, name: &str) -> Value {
    let all = pod["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|c| c["type"] == name).cloned().unwrap_or_default()
}

fn pods_of_deleted_node_are_collected() {
    let cluster = Setup::default().without_images().start();
    let kubectl = cluster.kubectl_in("default");
    apply(&kubectl, "lost", &["example.com/look"]);
    // Another one falls silent.
    apply(&kubectl, "quiet", &[]);
    for object in ["node/quiet", "pod/quiet"] {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).to_string();
        kubectl.args(&["patch", object, "--subresource=status", "-p", &ready], "").ok();
    }
    kubectl.run("delete node lost").ok();
    let since = Instant::now();
    // The finalizer keeps the object, so that its last state can be seen.
    let pod = wait_for("the Pod to have failed", Duration::from_secs(100), || match kubectl.get("pod/lost") {
        Some(pod) if pod["metadata"]["deletionTimestamp"].is_string() => Ok(pod),
        other => Err(format!("{other:?}")),
    });
    assert!(since.elapsed() > Duration::from_secs(35), "a node that comes back soon keeps them: {:?}", since.elapsed());
    assert_eq!(pod["status"]["phase"], json!("Failed"));
    let disrupted = condition(&pod, "DisruptionTarget");
    assert_eq!((&disrupted["status"], &disrupted["reason"]), (&json!("True"), &json!("DeletionByPodGC")));
    assert_eq!(disrupted["message"], json!("PodGC: node no longer exists"));
    let told = |name: &str, reason: &str, message: &str| {
        kubectl.events(name).contains(&(reason.to_owned(), message.to_owned()))
    };
    assert!(told("lost", "RegisteredNode", "Registered Node lost in Controller"));
    assert!(told("lost", "RemovingNode", "Removing Node lost from Controller"));
    wait_for("the silence to be told", Duration::from_secs(100), || {
        let node = told("quiet", "NodeNotReady", "Node quiet status is now: NodeNotReady");
        if node && told("quiet", "NodeNotReady", "Node is not ready") {
            Ok(())
        } else {
            Err(format!("{:?}", kubectl.events("quiet")))
        }
    });
    kubectl.args(&["patch", "pod", "lost", "-p", r#"{"metadata":{"finalizers":null}}"#], "").ok();
    kubectl.run("wait --for=delete pod/lost --timeout=30s").ok();
}

fn pods_on_out_of_service_node_are_deleted() {
    let cluster = Setup::default().without_images().start();
    let kubectl = cluster.kubectl_in("default");
    for name in ["out", "silent"] {
        apply(&kubectl, name, &[]);
        kubectl.run(&format!("delete pod {name} --wait=false")).ok();
    }
    // Nobody says that its containers have ended.
    assert!(kubectl.value("pod/out", "/metadata/deletionTimestamp").is_string());
    kubectl.run("taint node out node.kubernetes.io/out-of-service=nodeshutdown:NoExecute").ok();
    kubectl.run("wait --for=delete pod/out --timeout=60s").ok();
    assert!(kubectl.value("pod/silent", "/metadata/deletionTimestamp").is_string());
}
