//! ReplicaSets.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

fn template(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]}]}})
}

fn set(kubectl: &Kubectl, replicas: u32) {
    let labels = json!({"app": "web"});
    let object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels)}});
    kubectl.apply(&object.to_string());
}

fn status(kubectl: &Kubectl) -> [i64; 3] {
    ["replicas", "readyReplicas", "availableReplicas"]
        .map(|field| kubectl.value("replicaset/web", &format!("/status/{field}")).as_i64().unwrap_or(0))
}

#[e2e_test("a ReplicaSet replaces deleted Pods and scales")]
fn replica_set_replaces_pods_and_scales(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    set(&kubectl, 2);
    eventually("two ready Pods", || status(&kubectl) == [2, 2, 2]);
    let before = kubectl.pod_names("app=web");
    assert!(before.len() == 2 && before.iter().all(|name| name.starts_with("web-")), "{before:?}");
    kubectl.run(&format!("delete pod {}", before[0])).ok();
    eventually("another Pod", || {
        let now = kubectl.pod_names("app=web");
        now.len() == 2 && now.contains(&before[1]) && !now.contains(&before[0])
    });
    eventually("two ready Pods", || status(&kubectl) == [2, 2, 2]);
    kubectl.run("scale replicaset web --replicas=1").ok();
    eventually("one Pod", || kubectl.pod_names("app=web").len() == 1 && status(&kubectl) == [1, 1, 1]);
    eventually("the Events in the description", || {
        let described = kubectl.run("describe replicaset web").ok();
        described.contains("SuccessfulCreate") && described.contains("SuccessfulDelete")
    });
    kubectl.run("delete replicaset web").ok();
    eventually("its Pods to be deleted", || kubectl.pod_names("app=web").is_empty());
}

#[e2e_test("a ReplicaSet adopts matching Pods and releases others")]
fn replica_set_adopts_and_releases_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mut pod = template(&json!({"app": "web"}));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("stray");
    kubectl.apply(&pod.to_string());
    set(&kubectl, 1);
    eventually("the stray Pod to be adopted", || {
        kubectl.value("pod/stray", "/metadata/ownerReferences/0/name") == "web"
    });
    assert_eq!(kubectl.pod_names("app=web"), ["stray"]);
    kubectl.run("label pod stray app=other --overwrite").ok();
    eventually("the Pod to be released and replaced", || {
        kubectl.value("pod/stray", "/metadata/ownerReferences").is_null() && kubectl.pod_names("app=web").len() == 1
    });
    kubectl.run("delete replicaset web").ok();
    eventually("its Pods to be deleted", || kubectl.pod_names("app=web").is_empty());
    assert_eq!(kubectl.pod_names("app=other"), ["stray"]);
}

#[e2e_test("a ReplicaSet reports ReplicaFailure when Pods are forbidden")]
fn replica_set_reports_replica_failure(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let labels = json!({"app": "web"});
    let mut template = template(&labels);
    template["spec"]["priorityClassName"] = json!("nothing");
    let object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": template}});
    kubectl.apply(&object.to_string());
    eventually("ReplicaFailure", || {
        let condition = kubectl.value("replicaset/web", "/status/conditions/0");
        condition["type"] == "ReplicaFailure"
            && condition["message"].as_str().is_some_and(|m| m.contains("no PriorityClass with name nothing was found"))
    });
}
