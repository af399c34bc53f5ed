//! Pods of deleted and out-of-service nodes. The nodes are Node objects without a kubelet.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{ClusterBuilder, Kubectl, PodBuilder, e2e_test, wait_for};

/// Creates a node without a kubelet, and a Pod bound to it.
fn apply(kubectl: &Kubectl, name: &str, finalizers: &[&str]) {
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string());
    let pod = PodBuilder::new(name).metadata(&json!({"finalizers": finalizers})).spec(&json!({"nodeName": name}));
    kubectl.apply(&pod.to_string());
}

fn condition(pod: &Value, name: &str) -> Value {
    let all = pod["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|c| c["type"] == name).cloned().unwrap_or_default()
}

#[e2e_test("Pods of a deleted node fail and are garbage collected")]
fn pods_of_deleted_node_are_collected() {
    let cluster = ClusterBuilder::default().without_images().start();
    let kubectl = cluster.kubectl_in("default");
    apply(&kubectl, "lost", &["example.com/look"]);
    // Another node stops its heartbeats.
    apply(&kubectl, "quiet", &[]);
    for object in ["node/quiet", "pod/quiet"] {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}).to_string();
        kubectl.args(&["patch", object, "--subresource=status", "-p", &ready], "").ok();
    }
    let since = Instant::now();
    kubectl.run("delete node lost").ok();
    // The finalizer keeps the object, so that its last state can be read.
    let pod = wait_for("the Pod to have failed", Duration::from_secs(100), || match kubectl.get("pod/lost") {
        Some(pod) if pod["metadata"]["deletionTimestamp"].is_string() => Ok(pod),
        other => Err(format!("{other:?}")),
    });
    assert!(
        since.elapsed() > Duration::from_secs(35),
        "the node must be quarantined before its Pods are deleted: {:?}",
        since.elapsed()
    );
    assert_eq!(pod["status"]["phase"], json!("Failed"));
    let disrupted = condition(&pod, "DisruptionTarget");
    assert_eq!((&disrupted["status"], &disrupted["reason"]), (&json!("True"), &json!("DeletionByPodGC")));
    assert_eq!(disrupted["message"], json!("PodGC: node no longer exists"));
    kubectl.wait_for_event("lost", "RegisteredNode", "Registered Node lost in Controller");
    kubectl.wait_for_event("lost", "RemovingNode", "Removing Node lost from Controller");
    for message in ["Node quiet status is now: NodeNotReady", "Node is not ready"] {
        kubectl.wait_for_event("quiet", "NodeNotReady", message);
    }
    kubectl.args(&["patch", "pod", "lost", "-p", r#"{"metadata":{"finalizers":null}}"#], "").ok();
    kubectl.run("wait --for=delete pod/lost --timeout=90s").ok();
}

#[e2e_test("terminating Pods of an out-of-service node are deleted by force")]
fn pods_on_out_of_service_node_are_deleted() {
    let cluster = ClusterBuilder::default().without_images().start();
    let kubectl = cluster.kubectl_in("default");
    for name in ["out", "silent"] {
        apply(&kubectl, name, &[]);
        kubectl.run(&format!("delete pod {name} --wait=false")).ok();
    }
    // No kubelet reports that its containers have ended.
    assert!(kubectl.value("pod/out", "/metadata/deletionTimestamp").is_string());
    kubectl.run("taint node out node.kubernetes.io/out-of-service=nodeshutdown:NoExecute").ok();
    kubectl.run("wait --for=delete pod/out --timeout=60s").ok();
    assert!(kubectl.value("pod/silent", "/metadata/deletionTimestamp").is_string());
}
