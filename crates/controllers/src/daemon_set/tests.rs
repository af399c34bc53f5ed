//! What is decided for a DaemonSet, in upstream's terms.

use super::node::NodeSummary;
use super::plan::{DaemonSetSnapshot, Plan};
use crate::pod_summary::PodSummary;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NOW: i64 = 1_000;

fn set(spec: Value) -> DaemonSet {
    let mut all = json!({"selector": {}, "template": {"spec": {"containers": []}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}});
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "d", "generation": 2}, "spec": all})).unwrap()
}

/// Nodes; one that begins with `x` has a taint that lets nothing come.
fn node_summaries(names: &[&str]) -> Vec<Arc<NodeSummary>> {
    let one = |name: &&str| {
        let taints = if name.starts_with('x') { json!([{"key": "a", "effect": "NoExecute"}]) } else { json!([]) };
        let node = json!({"metadata": {"name": name}, "spec": {"taints": taints}});
        Arc::new(NodeSummary::from_node(serde_json::from_value(node).unwrap()))
    };
    names.iter().map(one).collect()
}

/// A Pod on a node: of the new template or the old, and what it does: `ready`, `Running`, `Failed`, `Terminating`, `target_node`.
fn pod(node: &str, template: &str, what: &str) -> Arc<PodSummary> {
    let ready = what == "ready";
    let phase = if matches!(what, "Failed" | "Succeeded") { what } else { "Running" };
    let target_node = what == "pending";
    Arc::new(PodSummary {
        name: format!("{node}-{template}"),
        uid: format!("{node}-{template}-{what}"),
        labels: [("controller-revision-hash".to_owned(), template.to_owned())].into(),
        node: (!target_node).then(|| node.to_owned()),
        target_node: target_node.then(|| node.to_owned()),
        phase: phase.to_owned(),
        terminating: what == "Terminating",
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
fn each_node_that_should_have_a_pod_has_one() {
    check(json!({}), &["a", "b", "x"], &[], "make a b delete ");
    check(json!({}), &["a", "b"], &[pod("a", "new", "ready")], "make b delete ");
    check(json!({}), &["a"], &[pod("a", "new", "pending")], "make  delete ");
    check(json!({}), &["x"], &[pod("x", "new", "ready")], "make  delete x-new");
    check(json!({}), &["a"], &[pod("a", "old", "ready"), pod("a", "new", "ready")], "make  delete a-new");
    check(json!({}), &["a"], &[pod("a", "new", "Terminating")], "make  delete ");
    check(json!({}), &["a"], &[pod("gone", "new", "pending"), pod("a", "new", "ready")], "make  delete gone-new");
}

#[test]
fn a_pod_that_has_ended_is_deleted_and_one_that_failed_after_a_pause() {
    check(json!({}), &["a"], &[pod("a", "new", "Failed")], "make  delete a-new");
    check(json!({}), &["a"], &[pod("a", "new", "Succeeded")], "make  delete a-new");
    let wait = Duration::from_secs(4);
    let plan = decide(&set(json!({})), &["a"], &[pod("a", "new", "Failed")], |snapshot| snapshot.plan(|_| Some(wait)));
    assert_eq!((line(&plan).as_str(), plan.requeue_after, plan.terminated.len()), ("make  delete ", Some(wait), 0));
}

#[test]
fn a_new_template_comes_to_one_node_after_the_other() {
    let old = || vec![pod("a", "old", "ready"), pod("b", "old", "ready"), pod("c", "old", "ready")];
    let nodes = ["a", "b", "c"];
    check(json!({}), &nodes, &old(), "make  delete a-old");
    let two = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}});
    check(two, &nodes, &old(), "make  delete a-old b-old");
    let begun = [pod("a", "new", "Running"), pod("b", "old", "ready"), pod("c", "old", "ready")];
    check(json!({}), &nodes, &begun, "make  delete ");
    // One that is not available is replaced at once, and does not count.
    let broken = [pod("a", "new", "Running"), pod("b", "old", "Running"), pod("c", "old", "ready")];
    check(json!({}), &nodes, &broken, "make  delete b-old");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), &nodes, &old(), "make  delete ");
}

#[test]
fn with_surge_the_old_go_when_the_new_are_available() {
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
fn the_status_counts_nodes() {
    let pods =
        [pod("a", "new", "ready"), pod("b", "old", "ready"), pod("c", "new", "Running"), pod("x", "new", "ready")];
    let status = status(&pods, &["a", "b", "c", "d", "x"]);
    assert_eq!((status.desired_number_scheduled, status.current_number_scheduled), (4, 3));
    assert_eq!((status.number_ready, status.number_misscheduled), (2, 1));
    assert_eq!((status.updated_number_scheduled, status.number_available), (Some(2), Some(2)));
    assert_eq!((status.number_unavailable, status.observed_generation), (Some(2), Some(2)));
}
