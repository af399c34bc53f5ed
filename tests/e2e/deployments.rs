//! Deployments and `kubectl rollout`.

use crate::workload;
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

fn deployment(kubectl: &Kubectl, spec: &Value, container: &Value) {
    workload::apply(kubectl, "Deployment", "web", &[&json!({"replicas": 2}), spec], container);
}

/// Returns the values of a variable in the Pods that are not terminating.
fn values(kubectl: &Kubectl) -> Vec<String> {
    let list: Value = serde_json::from_str(&kubectl.run("get pods -l app=web -o json").ok()).unwrap();
    let alive = list["items"].as_array().into_iter().flatten().filter(|p| p["metadata"]["deletionTimestamp"].is_null());
    let mut all: Vec<String> =
        alive.map(|p| p["spec"]["containers"][0]["env"][0]["value"].as_str().unwrap_or("").to_owned()).collect();
    all.sort();
    all
}

fn wait_for_rollout(kubectl: &Kubectl) {
    let output = kubectl.run("rollout status deployment/web --timeout=120s").ok();
    assert!(output.contains("deployment \"web\" successfully rolled out"), "{output}");
}

fn revision(kubectl: &Kubectl) -> Value {
    kubectl.value("deployment/web", "/metadata/annotations/deployment.kubernetes.io~1revision")
}

fn delete_and_wait(kubectl: &Kubectl) {
    kubectl.run("delete deployment web").ok();
    eventually("its ReplicaSets and Pods to be deleted", || {
        kubectl.run("get replicasets,pods -o name").is_ok_and(str::is_empty)
    });
}

#[e2e_test("a Deployment rolls out, rolls back and restarts")]
fn deployment_rolls_out_back_and_restarts(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    deployment(&kubectl, &json!({}), &json!({"env": [{"name": "A", "value": "one"}]}));
    wait_for_rollout(&kubectl);
    assert_eq!((revision(&kubectl), values(&kubectl)), (json!("1"), vec!["one".to_owned(); 2]));
    let table = kubectl.run("get deployment web --no-headers").ok();
    assert!(table.contains("2/2"), "{table}");

    kubectl.run("set env deployment/web A=two").ok();
    wait_for_rollout(&kubectl);
    eventually("only new Pods", || values(&kubectl) == ["two", "two"]);
    assert_eq!(revision(&kubectl), "2");
    let history = kubectl.run("rollout history deployment/web").ok();
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(revisions.ends_with(&["1", "2"]), "{history}");

    kubectl.run("rollout undo deployment/web").ok();
    wait_for_rollout(&kubectl);
    eventually("Pods of the first template", || values(&kubectl) == ["one", "one"]);
    assert_eq!(revision(&kubectl), "3");
    assert_eq!(kubectl.run("get replicasets -o name").ok().lines().count(), 2);

    kubectl.run("rollout restart deployment/web").ok();
    wait_for_rollout(&kubectl);
    eventually("the fourth revision", || revision(&kubectl) == "4");
    assert_eq!(kubectl.run("get replicasets -o name").ok().lines().count(), 3);
    assert_eq!(kubectl.condition("deployment/web", "Progressing")["reason"], "NewReplicaSetAvailable");
    let output = kubectl.run("describe deployment web").ok();
    assert!(output.contains("Scaled up replica set web-") && output.contains("from 0 to 2"), "{output}");
    delete_and_wait(&kubectl);
}

#[e2e_test("a rolling update keeps maxUnavailable")]
fn rolling_update_keeps_max_unavailable(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    deployment(&kubectl, &json!({"strategy": strategy}), &json!({"env": [{"name": "A", "value": "one"}]}));
    wait_for_rollout(&kubectl);
    // A Pod of the new template never becomes ready, so old Pods stay.
    let probe = json!({"exec": {"command": ["false"]}});
    let broken = json!({"env": [{"name": "A", "value": "two"}], "readinessProbe": probe});
    deployment(&kubectl, &json!({"strategy": strategy}), &broken);
    eventually("one new Pod", || values(&kubectl) == ["one", "one", "two"]);
    eventually("updatedReplicas", || kubectl.value("deployment/web", "/status/updatedReplicas") == 1);
    assert_eq!(kubectl.value("deployment/web", "/status/availableReplicas"), 2);
    assert_eq!(kubectl.condition("deployment/web", "Available")["reason"], "MinimumReplicasAvailable");
    kubectl.run("rollout undo deployment/web").ok();
    wait_for_rollout(&kubectl);
    eventually("only old Pods", || values(&kubectl) == ["one", "one"]);
    delete_and_wait(&kubectl);
}

#[e2e_test("a Recreate Deployment ends old Pods before it creates new ones")]
fn recreate_ends_old_pods_first(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let recreate = json!({"replicas": 1, "strategy": {"type": "Recreate"}});
    deployment(&kubectl, &recreate, &json!({"env": [{"name": "A", "value": "one"}]}));
    wait_for_rollout(&kubectl);
    deployment(&kubectl, &recreate, &json!({"env": [{"name": "A", "value": "two"}]}));
    wait_for_rollout(&kubectl);
    eventually("the new Pod", || values(&kubectl) == ["two"]);
    let list: Value = serde_json::from_str(&kubectl.run("get events -o json").ok()).unwrap();
    let revision = |e: &Value| e["metadata"]["resourceVersion"].as_str().and_then(|r| r.parse::<u64>().ok());
    let events = list["items"].as_array().into_iter().flatten().filter(|e| e["reason"] == "ScalingReplicaSet");
    let mut output: Vec<_> = events.map(|e| (revision(e), e["message"].as_str().unwrap_or("").to_owned())).collect();
    output.sort();
    let ways: Vec<&str> = output.iter().map(|(_, m)| if m.starts_with("Scaled up") { "up" } else { "down" }).collect();
    assert_eq!(ways, ["up", "down", "up"], "{output:?}");
    delete_and_wait(&kubectl);
}

#[e2e_test("a paused Deployment scales but does not roll out")]
fn paused_deployment_scales_but_does_not_roll_out(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    deployment(&kubectl, &json!({"replicas": 1}), &json!({"env": [{"name": "A", "value": "one"}]}));
    wait_for_rollout(&kubectl);
    kubectl.run("rollout pause deployment/web").ok();
    eventually("DeploymentPaused", || {
        kubectl.condition("deployment/web", "Progressing")["reason"] == "DeploymentPaused"
    });
    kubectl.run("set env deployment/web A=two").ok();
    kubectl.run("scale deployment web --replicas=2").ok();
    eventually("another Pod of the old template", || values(&kubectl) == ["one", "one"]);
    kubectl.run("rollout resume deployment/web").ok();
    wait_for_rollout(&kubectl);
    eventually("Pods of the new template", || values(&kubectl) == ["two", "two"]);
    delete_and_wait(&kubectl);
}

#[e2e_test("a Deployment without progress reports ProgressDeadlineExceeded")]
fn stuck_deployment_reports_progress_deadline_exceeded(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = json!({"replicas": 1, "progressDeadlineSeconds": 2});
    deployment(&kubectl, &spec, &json!({"readinessProbe": {"exec": {"command": ["false"]}}}));
    eventually("ProgressDeadlineExceeded", || {
        kubectl.condition("deployment/web", "Progressing")["reason"] == "ProgressDeadlineExceeded"
    });
    assert_eq!(kubectl.condition("deployment/web", "Available")["status"], "False");
    let output = kubectl.run("rollout status deployment/web").failed();
    assert!(output.contains("deployment \"web\" exceeded its progress deadline"), "{output}");
    delete_and_wait(&kubectl);
}
