//! ReplicationControllers.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

fn counts(kubectl: &Kubectl) -> [i64; 3] {
    ["replicas", "readyReplicas", "availableReplicas"]
        .map(|field| kubectl.value("replicationcontroller/web", &format!("/status/{field}")).as_i64().unwrap_or(0))
}

#[e2e_test("a ReplicationController keeps its Pods, scales, adopts and has a budget")]
fn replication_controller_keeps_scales_and_adopts(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]}]}});
    let mut stray = template.clone();
    stray["apiVersion"] = json!("v1");
    stray["kind"] = json!("Pod");
    stray["metadata"]["name"] = json!("stray");
    kubectl.apply(&stray.to_string());
    let object = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": template}});
    kubectl.apply(&object.to_string());
    eventually("two ready Pods", || counts(&kubectl) == [2, 2, 2]);
    let before = kubectl.pod_names("app=web");
    assert!(before.len() == 2 && before.contains(&"stray".to_owned()), "{before:?}");
    let owner = kubectl.value("pod/stray", "/metadata/ownerReferences/0");
    assert_eq!((&owner["kind"], &owner["apiVersion"]), (&json!("ReplicationController"), &json!("v1")));

    kubectl.run("create poddisruptionbudget web --selector=app=web --max-unavailable=50%").ok();
    eventually("the disruption budget to expect all Pods", || {
        let status = kubectl.value("poddisruptionbudget/web", "/status");
        (&status["expectedPods"], &status["disruptionsAllowed"]) == (&json!(2), &json!(1))
    });
    kubectl.run("delete pod stray").ok();
    eventually("another Pod", || {
        kubectl.pod_names("app=web").len() == 2
            && !kubectl.pod_names("app=web").contains(&"stray".to_owned())
            && counts(&kubectl) == [2, 2, 2]
    });
    kubectl.run("scale replicationcontroller web --replicas=1").ok();
    eventually("one Pod", || kubectl.pod_names("app=web").len() == 1 && counts(&kubectl) == [1, 1, 1]);
    let table = kubectl.run("get replicationcontroller web --no-headers").ok();
    assert_eq!(table.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "1", "1", "1"]);
    eventually("the Events in the description", || {
        let described = kubectl.run("describe replicationcontroller web").ok();
        described.contains("Created pod: web-") && described.contains("Deleted pod: web-")
    });
    kubectl.run("delete replicationcontroller web").ok();
    eventually("its Pods to be deleted", || kubectl.pod_names("app=web").is_empty());
    let gone: Value = kubectl.get("replicationcontroller/web").unwrap_or_default();
    assert_eq!(gone, Value::Null);
}
