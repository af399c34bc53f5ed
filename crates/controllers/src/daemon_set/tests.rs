//! Tests of what is planned for a DaemonSet.

use super::{
    node::NodeSummary,
    plan::{DaemonSetSnapshot, Plan},
};
use crate::pod_summary::PodSummary;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const NOW: i64 = 1_000;

fn set(spec: Value) -> DaemonSet {
    let mut all = json!({"selector": {}, "template": {"spec": {"containers": []}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}});
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "d", "generation": 2}, "spec": all})).unwrap()
}

/// Returns nodes. A name that begins with `x` has a taint with effect NoExecute.
fn node_summaries(names: &[&str]) -> Vec<Arc<NodeSummary>> {
    let one = |name: &&str| {
        let taints = if name.starts_with('x') { json!([{"key": "a", "effect": "NoExecute"}]) } else { json!([]) };
        let node = json!({"metadata": {"name": name}, "spec": {"taints": taints}});
        Arc::new(NodeSummary::from_node(serde_json::from_value(node).unwrap()))
    };
    names.iter().map(one).collect()
}

/// Returns a Pod on a node, of the `new` or `old` template, in a state: `ready`, `Running`, `Failed`, `Terminating`,
/// or `pending` if it is not bound.
fn pod(node: &str, template: &str, state: &str) -> Arc<PodSummary> {
    let ready = state == "ready";
    let phase = if matches!(state, "Failed" | "Succeeded") { state } else { "Running" };
    let target_node = state == "pending";
    Arc::new(PodSummary {
        name: format!("{node}-{template}"),
        uid: format!("{node}-{template}-{state}"),
        labels: [("controller-revision-hash".to_owned(), template.to_owned())].into(),
        node: (!target_node).then(|| node.to_owned()),
        target_node: target_node.then(|| node.to_owned()),
        phase: phase.to_owned(),
        terminating: state == "Terminating",
        ready: ready.then(|| Timestamp::from_second(NOW - 5).unwrap()),
        created: Some(Timestamp::from_second(NOW - if template == "old" { 100 } else { 10 }).unwrap()),
        ..PodSummary::default()
    })
}

fn decide<T>(
    set: &DaemonSet,
    nodes: &[&str],
    pods: &[Arc<PodSummary>],
    look: impl FnOnce(&DaemonSetSnapshot<'_>) -> T,
) -> T {
    let nodes = node_summaries(nodes);
    let now = Timestamp::from_second(NOW).unwrap();
    look(&DaemonSetSnapshot::new(set.spec.as_ref().unwrap(), &nodes, pods, "new", now))
}

fn line(plan: &Plan) -> String {
    let deleted: Vec<&str> = plan.delete.iter().map(|pod| pod.name.as_str()).collect();
    format!("make {} delete {}", plan.create.join(" "), deleted.join(" "))
}

#[track_caller]
fn check(spec: Value, nodes: &[&str], pods: &[Arc<PodSummary>], expected: &str) {
    let plan = decide(&set(spec), nodes, pods, |snapshot| snapshot.plan(|_| None));
    assert_eq!(line(&plan), expected);
}

#[test]
fn each_eligible_node_gets_one_pod() {
    check(json!({}), &["a", "b", "x"], &[], "make a b delete ");
    check(json!({}), &["a", "b"], &[pod("a", "new", "ready")], "make b delete ");
    check(json!({}), &["a"], &[pod("a", "new", "pending")], "make  delete ");
    check(json!({}), &["x"], &[pod("x", "new", "ready")], "make  delete x-new");
    check(json!({}), &["a"], &[pod("a", "old", "ready"), pod("a", "new", "ready")], "make  delete a-new");
    check(json!({}), &["a"], &[pod("a", "new", "Terminating")], "make  delete ");
    check(json!({}), &["a"], &[pod("gone", "new", "pending"), pod("a", "new", "ready")], "make  delete gone-new");
}

#[test]
fn failed_daemon_pod_is_deleted_after_the_backoff() {
    check(json!({}), &["a"], &[pod("a", "new", "Failed")], "make  delete a-new");
    check(json!({}), &["a"], &[pod("a", "new", "Succeeded")], "make  delete a-new");
    let wait = Duration::from_secs(4);
    let plan = decide(&set(json!({})), &["a"], &[pod("a", "new", "Failed")], |snapshot| snapshot.plan(|_| Some(wait)));
    assert_eq!((line(&plan).as_str(), plan.requeue_after, plan.terminated.len()), ("make  delete ", Some(wait), 0));
}

#[test]
fn daemon_rolling_update_respects_max_unavailable() {
    let old = || vec![pod("a", "old", "ready"), pod("b", "old", "ready"), pod("c", "old", "ready")];
    let nodes = ["a", "b", "c"];
    check(json!({}), &nodes, &old(), "make  delete a-old");
    let two = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}});
    check(two, &nodes, &old(), "make  delete a-old b-old");
    let begun = [pod("a", "new", "Running"), pod("b", "old", "ready"), pod("c", "old", "ready")];
    check(json!({}), &nodes, &begun, "make  delete ");
    // An unavailable Pod is replaced at once, and does not count towards `maxUnavailable`.
    let broken = [pod("a", "new", "Running"), pod("b", "old", "Running"), pod("c", "old", "ready")];
    check(json!({}), &nodes, &broken, "make  delete b-old");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), &nodes, &old(), "make  delete ");
}

#[test]
fn daemon_surge_keeps_the_old_pod_until_the_new_is_available() {
    let surge =
        || json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}});
    let (a, b) = (pod("a", "old", "ready"), pod("b", "old", "ready"));
    check(surge(), &["a", "b"], &[a.clone(), b.clone()], "make a delete ");
    check(surge(), &["a", "b"], &[a.clone(), pod("a", "new", "Running"), b.clone()], "make  delete ");
    check(surge(), &["a", "b"], &[a, pod("a", "new", "ready"), b], "make  delete a-old");
}

fn status(pods: &[Arc<PodSummary>], nodes: &[&str]) -> DaemonSetStatus {
    let set = set(json!({"minReadySeconds": 3}));
    decide(&set, nodes, pods, |snapshot| snapshot.status(&set))
}

#[test]
fn daemon_set_status_counts_nodes() {
    let pods =
        [pod("a", "new", "ready"), pod("b", "old", "ready"), pod("c", "new", "Running"), pod("x", "new", "ready")];
    let status = status(&pods, &["a", "b", "c", "d", "x"]);
    assert_eq!((status.desired_number_scheduled, status.current_number_scheduled), (4, 3));
    assert_eq!((status.number_ready, status.number_misscheduled), (2, 1));
    assert_eq!((status.updated_number_scheduled, status.number_available), (Some(2), Some(2)));
    assert_eq!((status.number_unavailable, status.observed_generation), (Some(2), Some(2)));
}
