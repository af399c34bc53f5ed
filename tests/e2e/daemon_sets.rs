//! DaemonSets.

use crate::workload;
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

fn daemon_set(kubectl: &Kubectl, spec: &Value, container: &Value) {
    workload::apply(kubectl, "DaemonSet", "agent", &[spec], container);
}

fn pods(kubectl: &Kubectl) -> Vec<Value> {
    kubectl.list("pods", "app=agent")
}

/// Returns the only_pod Pod's name and the value of its variable.
fn only_pod(kubectl: &Kubectl) -> Option<(String, String)> {
    let all = pods(kubectl);
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let [pod] = all.as_slice() else { return None };
    Some((text(&pod["metadata"]["name"]), text(&pod["spec"]["containers"][0]["env"][0]["value"])))
}

fn wait_for_rollout(kubectl: &Kubectl) {
    let output = kubectl.run("rollout status daemonset/agent --timeout=120s").ok();
    assert!(output.contains("daemon set \"agent\" successfully rolled out"), "{output}");
}

/// Returns desired, current, ready and updated numbers.
fn counts(kubectl: &Kubectl) -> [i64; 4] {
    let status = kubectl.value("daemonset/agent", "/status");
    ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled"]
        .map(|field| status[field].as_i64().unwrap_or(0))
}

fn delete_and_wait(kubectl: &Kubectl) {
    kubectl.run("delete daemonset agent").ok();
    eventually("the dependents to be deleted", || {
        pods(kubectl).is_empty() && kubectl.run("get controllerrevisions -o name").ok().is_empty()
    });
}

#[e2e_test("a DaemonSet runs a Pod on each node, rolls out and rolls back")]
fn daemon_set_rolls_out_and_back(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    daemon_set(&kubectl, &json!({}), &json!({"env": [{"name": "A", "value": "one"}]}));
    wait_for_rollout(&kubectl);
    eventually("the status", || counts(&kubectl) == [1, 1, 1, 1]);
    let (first, _) = only_pod(&kubectl).unwrap();
    kubectl.run(&format!("delete pod {first}")).ok();
    eventually("another Pod", || only_pod(&kubectl).is_some_and(|(name, _)| name != first));
    kubectl.run("set env daemonset/agent A=two").ok();
    wait_for_rollout(&kubectl);
    eventually("the new Pod", || only_pod(&kubectl).is_some_and(|(_, value)| value == "two"));
    let history = kubectl.run("rollout history daemonset/agent").ok();
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(revisions.ends_with(&["1", "2"]), "{history}");
    kubectl.run("rollout undo daemonset/agent").ok();
    wait_for_rollout(&kubectl);
    eventually("the first template", || only_pod(&kubectl).is_some_and(|(_, value)| value == "one"));
    let history = kubectl.run("rollout history daemonset/agent").ok();
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(revisions.ends_with(&["2", "3"]), "{history}");
    let table = kubectl.run("get daemonset agent --no-headers").ok();
    assert_eq!(table.split_whitespace().take(6).collect::<Vec<_>>(), ["agent", "1", "1", "1", "1", "1"]);
    delete_and_wait(&kubectl);
}

#[e2e_test("a DaemonSet replaces an ended Pod and removes Pods from excluded nodes")]
fn daemon_set_replaces_and_removes_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // The kubelet rejects it.
    let labels = json!({"app": "agent"});
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]});
    let pod = json!({"os": {"name": "windows"}, "containers": [container]});
    daemon_set(&kubectl, &json!({"template": {"metadata": {"labels": labels}, "spec": pod}}), &json!({}));
    let failed = || kubectl.events("agent").iter().filter(|(reason, _)| reason == "FailedDaemonPod").count();
    eventually("several failed Pods", || failed() > 2);
    let nowhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"there": "is-none"}}}}});
    kubectl.args(&["patch", "daemonset", "agent", "-p", &nowhere.to_string()], "").ok();
    eventually("no Pods", || pods(&kubectl).is_empty() && counts(&kubectl) == [0, 0, 0, 0]);
    delete_and_wait(&kubectl);
}
