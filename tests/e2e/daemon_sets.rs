//! DaemonSets: a Pod on each node that should have one.

use crate::{Shared, workload};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, eventually};

pub(crate) const TESTS: &[Shared] = &[
    ("a DaemonSet runs a Pod on each node, rolls out and rolls back", daemon_set_rolls_out_and_back),
    ("a DaemonSet replaces an ended Pod and removes Pods from excluded nodes", daemon_set_replaces_and_removes_pods),
];

fn daemon_set(kubectl: &Kubectl, spec: &Value, container: &Value) {
    workload::apply(kubectl, "DaemonSet", "agent", &[spec], container);
}

fn pods(kubectl: &Kubectl) -> Vec<Value> {
    let list: Value = serde_json::from_str(&kubectl.run("get pods -l app=agent -o json").ok()).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// The only Pod's name, and the value of its variable.
fn only(kubectl: &Kubectl) -> Option<(String, String)> {
    let all = pods(kubectl);
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let [pod] = all.as_slice() else { return None };
    Some((text(&pod["metadata"]["name"]), text(&pod["spec"]["containers"][0]["env"][0]["value"])))
}

fn rolled_out(kubectl: &Kubectl) {
    let told = kubectl.run("rollout status daemonset/agent --timeout=120s").ok();
    assert!(told.contains("daemon set \"agent\" successfully rolled out"), "{told}");
}

/// How many there should be, are, are ready, and have the newest template.
fn counts(kubectl: &Kubectl) -> [i64; 4] {
    let status = kubectl.value("daemonset/agent", "/status");
    ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled"]
        .map(|field| status[field].as_i64().unwrap_or(0))
}

fn gone(kubectl: &Kubectl) {
    kubectl.run("delete daemonset agent").ok();
    eventually("all goes with it", || {
        pods(kubectl).is_empty() && kubectl.run("get controllerrevisions -o name").ok().is_empty()
    });
}

fn daemon_set_rolls_out_and_back(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    daemon_set(&kubectl, &json!({}), &json!({"env": [{"name": "A", "value": "one"}]}));
    rolled_out(&kubectl);
    eventually("it is counted", || counts(&kubectl) == [1, 1, 1, 1]);
    let (first, _) = only(&kubectl).unwrap();
    kubectl.run(&format!("delete pod {first}")).ok();
    eventually("another takes its place", || only(&kubectl).is_some_and(|(name, _)| name != first));
    kubectl.run("set env daemonset/agent A=two").ok();
    rolled_out(&kubectl);
    eventually("the new is there", || only(&kubectl).is_some_and(|(_, value)| value == "two"));
    let history = kubectl.run("rollout history daemonset/agent").ok();
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(revisions.ends_with(&["1", "2"]), "{history}");
    kubectl.run("rollout undo daemonset/agent").ok();
    rolled_out(&kubectl);
    eventually("the first is back", || only(&kubectl).is_some_and(|(_, value)| value == "one"));
    let history = kubectl.run("rollout history daemonset/agent").ok();
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(revisions.ends_with(&["2", "3"]), "{history}");
    let table = kubectl.run("get daemonset agent --no-headers").ok();
    assert_eq!(table.split_whitespace().take(6).collect::<Vec<_>>(), ["agent", "1", "1", "1", "1", "1"]);
    gone(&kubectl);
}

fn daemon_set_replaces_and_removes_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // Its node refuses it.
    let labels = json!({"app": "agent"});
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]});
    let pod = json!({"os": {"name": "windows"}, "containers": [container]});
    daemon_set(&kubectl, &json!({"template": {"metadata": {"labels": labels}, "spec": pod}}), &json!({}));
    let failed = || kubectl.events("agent").iter().filter(|(reason, _)| reason == "FailedDaemonPod").count();
    eventually("it is tried again and again", || failed() > 2);
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"there": "is-none"}}}}});
    kubectl.args(&["patch", "daemonset", "agent", "-p", &nowhere.to_string()], "").ok();
    eventually("there are none", || pods(&kubectl).is_empty() && counts(&kubectl) == [0, 0, 0, 0]);
    gone(&kubectl);
}
