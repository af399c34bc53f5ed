//! Unusual client actions that the node must handle.

use serde_json::json;
use std::process::Command;
use tests::{Cluster, PodBuilder, e2e_test, eventually, podium_binary};

fn pod() -> PodBuilder {
    PodBuilder::new("p").grace_period(0).command(&["sleep", "10000"])
}

#[e2e_test("the kubelet corrects a status that another client changed")]
fn kubelet_corrects_foreign_status_change(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&pod().to_string());
    kubectl.wait_ready("p");
    let ip = kubectl.value("pod/p", "/status/podIP");
    let wrong = r#"{"status":{"phase":"Pending","podIP":"192.0.2.1","containerStatuses":[]}}"#;
    kubectl.args(&["patch", "pod", "p", "--subresource=status", "--type=merge", "-p", wrong], "").ok();
    kubectl.wait_value("pod/p", "/status/podIP", &ip);
    assert_eq!(kubectl.value("pod/p", "/status/phase"), "Running");
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/ready"), true);
}

#[e2e_test("a force-deleted Pod frees its resources at once")]
fn force_deleted_pod_frees_resources_at_once(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // A port outside of the kernel's ephemeral range, so that it does not conflict with a Podium of another test.
    let manifest = pod().container(&json!({"ports": [{"containerPort": 80, "hostPort": 18_567}]})).to_string();
    kubectl.apply(&manifest);
    kubectl.wait_ready("p");
    for _ in 0..3 {
        kubectl.run("delete pod p --force --grace-period=0").ok();
        kubectl.args(&["create", "-f", "-"], &manifest).ok();
        kubectl.wait_ready("p");
    }
}

#[e2e_test("a volume that cannot be refreshed does not block others")]
fn failed_volume_refresh_does_not_block_others(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.run("create secret generic s --from-literal=k=1").ok();
    kubectl.run("create configmap c --from-literal=k=1").ok();
    let pod = pod()
        .volume("a", &json!({"secret": {"secretName": "s"}}))
        .mount("a", "/a")
        .volume("b", &json!({"configMap": {"name": "c"}}))
        .mount("b", "/b");
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    kubectl.run("delete secret s").ok();
    kubectl.args(&["patch", "configmap", "c", "-p", r#"{"data":{"k":"2"}}"#], "").ok();
    eventually("the current value of the ConfigMap", || {
        kubectl.run("exec p -- cat /b/k").is_ok_and(|output| output == "2")
    });
    assert_eq!(kubectl.run("exec p -- cat /a/k").ok(), "1");
}

#[e2e_test("short-lived Pods leave nothing on the node")]
fn short_lived_pods_leave_nothing_on_node(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mut uids = Vec::new();
    for _ in 0..10 {
        kubectl.apply(&pod().to_string());
        uids.push(kubectl.value("pod/p", "/metadata/uid").as_str().unwrap().to_owned());
        kubectl.run("delete pod p --force --grace-period=0").ok();
    }
    let kubelet = cluster.data_dir().join("kubelet");
    for dir in ["pods", "logs"] {
        eventually("the files of these Pods to be removed", || {
            let entries = std::fs::read_dir(kubelet.join(dir)).into_iter().flatten().flatten();
            let mut names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
            !names.any(|name| uids.iter().any(|uid| name.ends_with(uid.as_str())))
        });
    }
}

#[e2e_test("podium down refuses a directory that is not Podium's")]
fn down_refuses_foreign_directory() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "keep me").unwrap();
    let down =
        |dir: &std::path::Path| Command::new(podium_binary()).args(["down", "--data-dir"]).arg(dir).output().unwrap();
    let refused = down(dir.path());
    assert!(!refused.status.success() && precious.is_file());
    let reported = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reported.contains("is not a data directory of Podium: nothing was removed"), "{reported}");

    let cluster = Cluster::start(&[]);
    let own = cluster.data_dir().join("notes.txt");
    std::fs::write(&own, "mine").unwrap();
    let output = cluster.podium(&["down"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = std::fs::read_dir(cluster.data_dir()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}
