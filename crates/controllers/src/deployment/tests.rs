//! Tests of what is planned for a Deployment.

use super::{
    plan::{Plan, plan},
    replica_set::PlannedReplicaSet,
    status::condition,
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};
use std::sync::Arc;

const NOW: i64 = 1_000;

fn deployment(spec: Value) -> Deployment {
    let mut all = json!({
        "replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template("new"),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}},
        "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
    });
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    let meta = json!({"name": "web", "namespace": "x", "uid": "d", "generation": 1});
    serde_json::from_value(json!({"metadata": meta, "spec": all})).unwrap()
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// Returns a ReplicaSet of a template, with `size` desired Pods of which `available` are available.
fn set(image: &str, age: i64, size: i32, available: i32) -> ReplicaSet {
    let mut template = template(image);
    template["metadata"]["labels"]["pod-template-hash"] = json!(image);
    let created = Timestamp::from_second(NOW - age).unwrap().to_string();
    let meta = json!({"name": format!("web-{image}"), "uid": image, "generation": 1, "creationTimestamp": created,
        "annotations": {"deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "10",
            "deployment.kubernetes.io/max-replicas": "13"}});
    let status = json!({"replicas": size, "readyReplicas": available, "availableReplicas": available,
        "terminatingReplicas": 0, "observedGeneration": 1});
    let spec = json!({"replicas": size, "selector": {}, "template": template});
    serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).unwrap()
}

fn decide(deployment: &Deployment, sets: &[ReplicaSet], old_pods_running: bool) -> Plan {
    let sets: Vec<Arc<ReplicaSet>> = sets.iter().cloned().map(Arc::new).collect();
    let now = Timestamp::from_second(NOW).unwrap();
    plan(deployment, deployment.spec.as_ref().unwrap(), &sets, |_| old_pods_running, now)
}

/// Formats the planned changes of `spec.replicas`.
fn sizes(plan: &Plan) -> Vec<String> {
    let line = |set: &PlannedReplicaSet| {
        let verb = if set.observed.is_none() { "make " } else { "" };
        let name = if set.observed.is_none() { "new" } else { set.name().trim_start_matches("web-") };
        let from = set.scales_from().unwrap_or(set.spec_replicas());
        if set.deleted { format!("remove {name}") } else { format!("{verb}{name} {from}>{}", set.spec_replicas()) }
    };
    let is_shown = |set: &&PlannedReplicaSet| set.deleted || set.observed.is_none() || set.scales_from().is_some();
    plan.changed.iter().filter(is_shown).map(line).collect()
}

#[track_caller]
fn check(spec: Value, sets: &[ReplicaSet], expected: &[&str]) {
    assert_eq!(sizes(&decide(&deployment(spec), sets, false)), expected);
}

fn progressing(plan: &Plan) -> (String, String) {
    let condition = condition(&plan.status, "Progressing").cloned().unwrap_or_default();
    (condition.status, condition.reason.unwrap_or_default())
}

#[test]
fn new_deployment_creates_a_replica_set_of_full_size() {
    let plan = decide(&deployment(json!({})), &[], false);
    assert_eq!(sizes(&plan), ["make new 0>10"]);
    let made = &plan.changed[0].planned;
    let hash = &made.metadata.labels.as_ref().unwrap()["pod-template-hash"];
    assert_eq!(made.metadata.name.as_deref(), Some(format!("web-{hash}").as_str()));
    let spec = made.spec.as_ref().unwrap();
    assert_eq!(spec.selector.match_labels.as_ref().unwrap()["pod-template-hash"], *hash);
    assert_eq!(spec.template.as_ref().unwrap().metadata.as_ref().unwrap().labels, made.metadata.labels);
    assert_eq!(made.metadata.owner_references.as_ref().unwrap()[0].uid, "d");
    let annotations = made.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["deployment.kubernetes.io/max-replicas"], "13");
    assert_eq!(plan.revision.as_deref(), Some("1"));
    assert_eq!(progressing(&plan), ("True".into(), "NewReplicaSetCreated".into()));
}

#[test]
fn rollout_starts_within_surge_and_unavailability() {
    check(json!({}), &[set("old", 9, 10, 10)], &["old 10>8", "make new 0>3"]);
    let none = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    check(none, &[set("old", 9, 10, 10)], &["make new 0>1"]);
}

#[test]
fn replica_counts_saturate_at_i32_max() {
    let max = i32::MAX;
    let many = || json!({"replicas": max, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": max, "maxUnavailable": max}}});
    let plan = decide(&deployment(many()), &[], false);
    assert_eq!(
        plan.changed[0].planned.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/max-replicas"],
        max.to_string()
    );
    for sets in [
        vec![set("old", 9, max, max)],
        vec![set("old", 9, max, 0), set("older", 99, max, max), set("new", 1, max, max)],
    ] {
        decide(&deployment(many()), &sets, false);
    }
}

#[test]
fn new_replica_set_grows_as_old_ones_shrink() {
    check(json!({}), &[set("old", 9, 8, 8), set("new", 1, 3, 0)], &["new 3>5"]);
    check(json!({}), &[set("old", 9, 8, 8), set("new", 1, 5, 0)], &[]);
    check(json!({}), &[set("old", 9, 8, 8), set("new", 1, 5, 5)], &["old 8>3"]);
    check(json!({}), &[set("old", 9, 3, 3), set("new", 1, 10, 10)], &["old 3>0"]);
}

#[test]
fn unavailable_new_pods_keep_old_pods() {
    check(json!({}), &[set("old", 9, 8, 7), set("new", 1, 5, 0)], &[]);
}

#[test]
fn unavailable_old_pods_are_scaled_down_first() {
    check(json!({}), &[set("older", 99, 8, 6), set("old", 9, 5, 0), set("new", 1, 0, 0)], &["older 8>6", "old 5>2"]);
}

#[test]
fn rollback_reuses_the_replica_set_with_a_new_revision() {
    let mut new = set("new", 99, 0, 0);
    let mut old = set("old", 9, 10, 10);
    let annotations = |set: &mut ReplicaSet, revision: &str| {
        let all = set.metadata.annotations.as_mut().unwrap();
        all.insert("deployment.kubernetes.io/revision".into(), revision.into());
    };
    annotations(&mut new, "1");
    annotations(&mut old, "2");
    let plan = decide(&deployment(json!({})), &[new, old], false);
    assert_eq!(sizes(&plan), ["new 0>3"]);
    assert_eq!(plan.revision.as_deref(), Some("3"));
    let annotations = plan.changed[0].planned.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");
}

#[test]
fn recreate_waits_for_old_pods_before_creating_new_ones() {
    let recreate = || json!({"strategy": {"type": "Recreate"}});
    check(recreate(), &[set("old", 9, 10, 10)], &["old 10>0"]);
    let mut ending = set("old", 9, 0, 0);
    ending.status.as_mut().unwrap().replicas = 2;
    check(recreate(), &[ending], &[]);
    assert_eq!(sizes(&decide(&deployment(recreate()), &[set("old", 9, 0, 0)], true)), [""; 0]);
    check(recreate(), &[set("old", 9, 0, 0)], &["make new 0>10"]);
}

#[test]
fn scaling_changes_the_only_active_replica_set() {
    check(json!({"replicas": 20}), &[set("new", 9, 10, 10)], &["new 10>20"]);
    check(json!({"replicas": 5}), &[set("old", 99, 0, 0), set("new", 9, 10, 10)], &["new 10>5"]);
    check(json!({"replicas": 0}), &[set("new", 9, 10, 10)], &["new 10>0"]);
}

#[test]
fn scaling_during_a_rollout_is_proportional() {
    // 8 and 5 of 13 Pods, scaled to a maximum of 23: 14 and 9.
    check(json!({"replicas": 20}), &[set("old", 9, 8, 8), set("new", 1, 5, 0)], &["old 8>14", "new 5>9"]);
    // Scaled to a maximum of 8: 5 and 3.
    check(json!({"replicas": 5}), &[set("old", 9, 8, 8), set("new", 1, 5, 0)], &["old 8>5", "new 5>3"]);
    check(json!({"replicas": 0}), &[set("old", 9, 8, 8), set("new", 1, 5, 0)], &["old 8>0", "new 5>0"]);
}

#[test]
fn paused_deployment_scales_without_rollout() {
    let paused = |replicas: i32| json!({"paused": true, "replicas": replicas});
    let plan = decide(&deployment(paused(10)), &[set("old", 9, 10, 10)], false);
    assert_eq!((sizes(&plan), progressing(&plan)), (vec![], ("Unknown".into(), "DeploymentPaused".into())));
    assert_eq!(plan.requeue_at, None);
    check(paused(12), &[set("old", 9, 10, 10)], &["old 10>12"]);
    let midway = [set("old", 9, 8, 8), set("new", 1, 5, 0)];
    let mut resumed = deployment(json!({}));
    resumed.status = Some(decide(&deployment(paused(10)), &midway, false).status);
    assert_eq!(progressing(&decide(&resumed, &midway, false)).1, "DeploymentResumed");
}

#[test]
fn empty_old_replica_sets_are_pruned_to_the_history_limit() {
    let mut done = deployment(json!({"revisionHistoryLimit": 1}));
    done.status = serde_json::from_value(json!({"observedGeneration": 1, "replicas": 10, "updatedReplicas": 10,
        "readyReplicas": 10, "availableReplicas": 10}))
    .unwrap();
    let revised = |mut set: ReplicaSet, revision: &str| {
        let all = set.metadata.annotations.as_mut().unwrap();
        all.insert("deployment.kubernetes.io/revision".into(), revision.into());
        set
    };
    let new = || revised(set("new", 1, 10, 10), "9");
    let a = || revised(set("a", 8, 0, 0), "3");
    let b = || revised(set("b", 9, 0, 0), "4");
    assert_eq!(sizes(&decide(&done, &[a(), b(), new()], false)), ["remove a"]);
    let mut busy = a();
    busy.status.as_mut().unwrap().replicas = 1;
    assert_eq!(sizes(&decide(&done, &[busy, b(), new()], false)), [""; 0]);
    done.status.as_mut().unwrap().available_replicas = Some(9);
    assert_eq!(sizes(&decide(&done, &[a(), b(), new()], false)), [""; 0]);
}

#[test]
fn status_has_replica_counts_and_availability() {
    let plan = decide(&deployment(json!({})), &[set("old", 9, 8, 7), set("new", 1, 5, 0)], false);
    let status = &plan.status;
    assert_eq!((status.replicas, status.updated_replicas), (Some(13), Some(5)));
    assert_eq!((status.ready_replicas, status.available_replicas), (Some(7), Some(7)));
    assert_eq!((status.unavailable_replicas, status.terminating_replicas), (Some(6), Some(0)));
    assert_eq!(status.observed_generation, Some(1));
    let available = condition(status, "Available").unwrap();
    assert_eq!((available.status.as_str(), available.reason.as_deref()), ("False", Some("MinimumReplicasUnavailable")));
    let plan = decide(&deployment(json!({})), &[set("old", 9, 8, 8), set("new", 1, 5, 0)], false);
    let available = condition(&plan.status, "Available").unwrap();
    assert_eq!(available.message.as_deref(), Some("Deployment has minimum availability."));
}

#[test]
fn stuck_rollout_exceeds_its_progress_deadline() {
    let mut stuck = deployment(json!({"progressDeadlineSeconds": 60}));
    let sets = [set("old", 9, 8, 8), set("new", 1, 5, 0)];
    let first = decide(&stuck, &sets, false);
    assert_eq!(progressing(&first), ("True".into(), "ReplicaSetUpdated".into()));
    assert_eq!(first.requeue_at, Some(Timestamp::from_second(NOW + 61).unwrap()));
    stuck.status = Some(first.status);
    let age = |d: &mut Deployment, seconds: i64| {
        let conditions = d.status.as_mut().unwrap().conditions.as_mut().unwrap();
        let progressing = conditions.iter_mut().find(|c| c.type_ == "Progressing").unwrap();
        let at = Timestamp::from_second(NOW - seconds).unwrap();
        progressing.last_update_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
    };
    age(&mut stuck, 59);
    assert_eq!(progressing(&decide(&stuck, &sets, false)).1, "ReplicaSetUpdated");
    age(&mut stuck, 61);
    let late = decide(&stuck, &sets, false);
    assert_eq!(progressing(&late), ("False".into(), "ProgressDeadlineExceeded".into()));
    let message = condition(&late.status, "Progressing").unwrap().message.clone().unwrap();
    assert_eq!(message, "ReplicaSet \"web-new\" has timed out progressing.");
    assert_eq!(late.requeue_at, None);
}

#[test]
fn complete_rollout_sets_progressing_once() {
    let mut done = deployment(json!({}));
    let sets = [set("old", 9, 0, 0), set("new", 1, 10, 10)];
    let plan = decide(&done, &sets, false);
    assert_eq!(progressing(&plan), ("True".into(), "NewReplicaSetAvailable".into()));
    assert_eq!(plan.requeue_at, None);
    done.status = Some(plan.status.clone());
    assert_eq!(decide(&done, &sets, false).status, plan.status);
}

#[test]
fn replica_failure_is_copied_from_the_replica_set() {
    let mut new = set("new", 1, 3, 0);
    let failure = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no room"}]);
    new.status.as_mut().unwrap().conditions = serde_json::from_value(failure).unwrap();
    let mut failing = deployment(json!({}));
    let plan = decide(&failing, &[set("old", 9, 8, 8), new], false);
    assert_eq!(condition(&plan.status, "ReplicaFailure").unwrap().message.as_deref(), Some("no room"));
    failing.status = Some(plan.status);
    let plan = decide(&failing, &[set("old", 9, 8, 8), set("new", 1, 3, 0)], false);
    assert!(condition(&plan.status, "ReplicaFailure").is_none());
}

#[test]
fn deployment_being_deleted_only_updates_its_status() {
    let mut ending = deployment(json!({}));
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::from_second(NOW).unwrap());
    ending.metadata.deletion_timestamp = Some(now);
    let plan = decide(&ending, &[set("old", 9, 10, 10)], false);
    assert_eq!((sizes(&plan), plan.status.replicas), (vec![], Some(10)));
}
