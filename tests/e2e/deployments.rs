//! Deployments: Pods of a new template take the place of those of the old one, as `kubectl rollout` tells it.

use crate::{Shared, workload};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, eventually};

pub(crate) const TESTS: &[Shared] = &[
    ("a Deployment rolls out, rolls back and restarts", deployment_rolls_out_back_and_restarts),
    ("a rolling update keeps maxUnavailable", rolling_update_keeps_max_unavailable),
    ("a Recreate Deployment ends old Pods before it creates new ones", recreate_ends_old_pods_first),
    ("a paused Deployment scales but does not roll out", paused_deployment_scales_but_does_not_roll_out),
    (
        "a Deployment without progress reports ProgressDeadlineExceeded",
        stuck_deployment_reports_progress_deadline_exceeded,
    ),
];

fn deployment(kubectl: &Kubectl, spec: &Value, container: &Value) {
    workload::apply(kubectl, "Deployment", "web", &[&json!({"replicas": 2}), spec], container);
}

/// The values of a variable in the Pods that are not on their way out.
fn values(kubectl: &Kubectl) -> Vec<String> {
    let list: Value = serde_json::from_str(&kubectl.run("get pods -l app=web -o json").ok()).unwrap();
    let alive = list["items"].as_array().into_iter().flatten().filter(|p| p["metadata"]["deletionTimestamp"].is_null());
    let mut all: Vec<String> =
        alive.map(|p| p["spec"]["containers"][0]["env"][0]["value"].as_str().unwrap_or("").to_owned()).collect();
    all.sort();
    all
}

fn rolled_out(kubectl: &Kubectl) {
    let told = kubectl.run("rollout status deployment/web --timeout=120s").ok();
    assert!(told.contains("deployment \"web\" successfully rolled out"), "{told}");
}

fn revision(kubectl: &Kubectl) -> Value {
    kubectl.value("deployment/web", "/metadata/annotations/deployment.kubernetes.io~1revision")
}

fn condition(kubectl: &Kubectl, kind: &str) -> Value {
    let conditions = kubectl.value("deployment/web", "/status/conditions");
    conditions.as_array().into_iter().flatten().find(|c| c["type"] == kind).cloned().unwrap_or_default()
}

fn gone(kubectl: &Kubectl) {
    kubectl.run("delete deployment web").ok();
    eventually("its ReplicaSets and Pods go with it", || {
        kubectl.run("get replicasets,pods -o name").is_ok_and(str::is_empty)
    });
}

fn deployment_rolls_out_back_and_restarts(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    deployment(&kubectl, &json!({}), &json!({"env": [{"name": "A", "value": "one"}]}));
    rolled_out(&kubectl);
    assert_eq!((revision(&kubectl), values(&kubectl)), (json!("1"), vec!["one".to_owned(); 2]));
    let table = kubectl.run("get deployment web --no-headers").ok();
    assert!(table.contains("2/2"), "{table}");

    kubectl.run("set env deployment/web A=two").ok();
    rolled_out(&kubectl);
    eventually("the old are gone", || values(&kubectl) == ["two", "two"]);
    assert_eq!(revision(&kubectl), "2");
    let history = kubectl.run("rollout history deployment/web").ok();
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(revisions.ends_with(&["1", "2"]), "{history}");

    kubectl.run("rollout undo deployment/web").ok();
    rolled_out(&kubectl);
    eventually("the first are back", || values(&kubectl) == ["one", "one"]);
    assert_eq!(revision(&kubectl), "3");
    assert_eq!(kubectl.run("get replicasets -o name").ok().lines().count(), 2);

    kubectl.run("rollout restart deployment/web").ok();
    rolled_out(&kubectl);
    eventually("it has a fourth revision", || revision(&kubectl) == "4");
    assert_eq!(kubectl.run("get replicasets -o name").ok().lines().count(), 3);
    assert_eq!(condition(&kubectl, "Progressing")["reason"], "NewReplicaSetAvailable");
    let told = kubectl.run("describe deployment web").ok();
    assert!(told.contains("Scaled up replica set web-") && told.contains("from 0 to 2"), "{told}");
    gone(&kubectl);
}

fn rolling_update_keeps_max_unavailable(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    deployment(&kubectl, &json!({"strategy": strategy}), &json!({"env": [{"name": "A", "value": "one"}]}));
    rolled_out(&kubectl);
    // A Pod of the new template never becomes ready: those of the old one stay.
    let probe = json!({"exec": {"command": ["false"]}});
    let broken = json!({"env": [{"name": "A", "value": "two"}], "readinessProbe": probe});
    deployment(&kubectl, &json!({"strategy": strategy}), &broken);
    eventually("one of the new is there", || values(&kubectl) == ["one", "one", "two"]);
    eventually("it is counted", || kubectl.value("deployment/web", "/status/updatedReplicas") == 1);
    assert_eq!(kubectl.value("deployment/web", "/status/availableReplicas"), 2);
    assert_eq!(condition(&kubectl, "Available")["reason"], "MinimumReplicasAvailable");
    kubectl.run("rollout undo deployment/web").ok();
    rolled_out(&kubectl);
    eventually("the old are left", || values(&kubectl) == ["one", "one"]);
    gone(&kubectl);
}

fn recreate_ends_old_pods_first(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let recreate = json!({"replicas": 1, "strategy": {"type": "Recreate"}});
    deployment(&kubectl, &recreate, &json!({"env": [{"name": "A", "value": "one"}]}));
    rolled_out(&kubectl);
    deployment(&kubectl, &recreate, &json!({"env": [{"name": "A", "value": "two"}]}));
    rolled_out(&kubectl);
    eventually("the new is there", || values(&kubectl) == ["two"]);
    let list: Value = serde_json::from_str(&kubectl.run("get events -o json").ok()).unwrap();
    let revision = |e: &Value| e["metadata"]["resourceVersion"].as_str().and_then(|r| r.parse::<u64>().ok());
    let events = list["items"].as_array().into_iter().flatten().filter(|e| e["reason"] == "ScalingReplicaSet");
    let mut told: Vec<_> = events.map(|e| (revision(e), e["message"].as_str().unwrap_or("").to_owned())).collect();
    told.sort();
    let ways: Vec<&str> = told.iter().map(|(_, m)| if m.starts_with("Scaled up") { "up" } else { "down" }).collect();
    assert_eq!(ways, ["up", "down", "up"], "{told:?}");
    gone(&kubectl);
}

fn paused_deployment_scales_but_does_not_roll_out(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    deployment(&kubectl, &json!({"replicas": 1}), &json!({"env": [{"name": "A", "value": "one"}]}));
    rolled_out(&kubectl);
    kubectl.run("rollout pause deployment/web").ok();
    eventually("it is paused", || condition(&kubectl, "Progressing")["reason"] == "DeploymentPaused");
    kubectl.run("set env deployment/web A=two").ok();
    kubectl.run("scale deployment web --replicas=2").ok();
    eventually("it has another Pod of the old template", || values(&kubectl) == ["one", "one"]);
    kubectl.run("rollout resume deployment/web").ok();
    rolled_out(&kubectl);
    eventually("now it has those of the new", || values(&kubectl) == ["two", "two"]);
    gone(&kubectl);
}

fn stuck_deployment_reports_progress_deadline_exceeded(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = json!({"replicas": 1, "progressDeadlineSeconds": 2});
    deployment(&kubectl, &spec, &json!({"readinessProbe": {"exec": {"command": ["false"]}}}));
    eventually("it is too late", || condition(&kubectl, "Progressing")["reason"] == "ProgressDeadlineExceeded");
    assert_eq!(condition(&kubectl, "Available")["status"], "False");
    let told = kubectl.run("rollout status deployment/web").failed();
    assert!(told.contains("deployment \"web\" exceeded its progress deadline"), "{told}");
    gone(&kubectl);
}
