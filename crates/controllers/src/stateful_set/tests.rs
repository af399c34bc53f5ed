//! Tests of what is planned for a StatefulSet.

use super::{
    plan::{Plan, StatefulSetSnapshot, Step},
    retention::ClaimSummary,
    status::status,
};
use crate::pod_summary::PodSummary;
use jiff::Timestamp;
use k8s_openapi::{api::apps::v1::StatefulSet, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const NOW: i64 = 1_000;

/// Returns a set called `web` with three replicas, and the given fields of its spec.
fn set(spec: Value) -> StatefulSet {
    let mut all = json!({"replicas": 3, "selector": {}, "template": {}, "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "web", "uid": "s", "generation": 2}, "spec": all})).unwrap()
}

/// Parses Pods: `0` is ready and of the update revision, `0:old` of the current one. A state may follow: `ready`,
/// `Running`, `Pending`, `Failed`, `Succeeded`; a `-` after it marks a terminating Pod.
fn pods(words: &str) -> Vec<(i64, Arc<PodSummary>)> {
    let one = |word: &str| {
        let ends = word.ends_with('-');
        let mut parts = word.trim_end_matches('-').split(':');
        let ordinal: i64 = parts.next().unwrap().parse().unwrap();
        let template = parts.next().filter(|template| !template.is_empty()).unwrap_or("new");
        let state = parts.next().unwrap_or("ready");
        let name = format!("web-{ordinal}");
        let mut labels = vec![("statefulset.kubernetes.io/pod-name", name.as_str())];
        labels.push(("controller-revision-hash", template));
        let pod = PodSummary {
            labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            uid: format!("uid-{ordinal}"),
            phase: if state == "ready" { "Running" } else { state }.to_owned(),
            ready: (state == "ready").then(|| Timestamp::from_second(NOW - 5).unwrap()),
            terminating: ends,
            claims: vec![("data".to_owned(), format!("data-web-{ordinal}"))],
            name: name.clone(),
            ..PodSummary::default()
        };
        (ordinal, Arc::new(pod))
    };
    words.split_whitespace().map(one).collect()
}

fn owner() -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "web".into(),
        uid: "s".into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn decide<T>(
    set: &StatefulSet,
    words: &str,
    claims: &[ClaimSummary],
    look: impl FnOnce(&StatefulSetSnapshot<'_>) -> T,
) -> T {
    look(&StatefulSetSnapshot {
        name: "web",
        spec: set.spec.as_ref().unwrap(),
        owner: owner(),
        is_deleting: set.metadata.deletion_timestamp.is_some(),
        pods: pods(words).into_iter().collect(),
        claims: claims.iter().map(|claim| (claim.name.clone(), Arc::new(claim.clone()))).collect(),
        current: "old",
        update: "new",
        max_unavailable_enabled: true,
        now: Timestamp::from_second(NOW).unwrap(),
    })
}

fn plan(snapshot: &StatefulSetSnapshot<'_>) -> Plan {
    snapshot.plan(|_| None)
}

/// Formats a plan: `+` creates (`old`: of the current revision), `-` deletes, `=` updates, `claims` creates claims; a
/// claim is shown with its owners.
fn line(plan: &Plan) -> String {
    let step = |step: &Step| match step {
        Step::CreatePod { ordinal, updated: true } => format!("+{ordinal}"),
        Step::CreatePod { ordinal, updated: false } => format!("+{ordinal}:old"),
        Step::DeletePod(pod) => format!("-{}", pod.name.trim_start_matches("web-")),
        Step::UpdatePod { ordinal, .. } => format!("={ordinal}"),
        Step::CreateClaims { ordinal, .. } => format!("claims:{ordinal}"),
        Step::UpdateClaimOwners { claim, owners, .. } => {
            let owners: Vec<&str> = owners.iter().flatten().map(|owner| owner.kind.as_str()).collect();
            format!("{claim}>{}", owners.join(","))
        }
    };
    plan.steps.iter().map(step).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(spec: Value, pods: &str, expected: &str) {
    let plan = decide(&set(spec), pods, &[], plan);
    assert_eq!(line(&plan), expected);
}

#[test]
fn ordered_pods_wait_for_their_ready_predecessor() {
    check(json!({}), "", "+0");
    check(json!({}), "0::Pending", "");
    check(json!({}), "0::Running", "");
    check(json!({}), "0", "+1");
    check(json!({}), "0 1:new:ready-", "");
    check(json!({}), "0 2", "+1");
    check(json!({}), "0 1 2", "");
    check(json!({"ordinals": {"start": 5}}), "5", "+6");
    check(json!({"replicas": 0}), "", "");
    // Parallel Pods are created at once.
    check(json!({"podManagementPolicy": "Parallel"}), "1::Running", "+0 +2");
}

#[test]
fn pod_is_available_after_min_ready_seconds() {
    check(json!({"minReadySeconds": 5}), "0", "+1");
    check(json!({"minReadySeconds": 8}), "0", "");
    let plan = decide(&set(json!({"minReadySeconds": 8})), "0", &[], plan);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(3)));
}

#[test]
fn terminal_pod_is_deleted_and_recreated() {
    check(json!({}), "0::Failed 1 2", "-0");
    check(json!({}), "0::Succeeded", "-0");
    check(json!({}), "0::Failed-", "");
    check(json!({"podManagementPolicy": "Parallel"}), "0::Failed 1", "-0 +2");
}

#[test]
fn terminal_pod_deletion_is_delayed_by_the_backoff() {
    let waits = |spec: Value, pods: &str| {
        let pause = |ordinal| (ordinal == 0).then_some(Duration::from_secs(4));
        let plan = decide(&set(spec), pods, &[], |snapshot| snapshot.plan(pause));
        (line(&plan), plan.requeue_after.map(|again| again.as_secs()))
    };
    assert_eq!(waits(json!({}), "0::Failed 1 2"), (String::new(), Some(4)));
    assert_eq!(waits(json!({}), "0::Failed- 1 2"), (String::new(), None));
    assert_eq!(waits(json!({}), "0 1::Failed 2"), ("-1".to_owned(), None));
    // Other Pods are not delayed.
    assert_eq!(waits(json!({"podManagementPolicy": "Parallel"}), "0::Failed 1::Failed"), ("-1 +2".to_owned(), Some(4)));
}

#[test]
fn condemned_pods_are_deleted_last_to_first() {
    let one = || json!({"replicas": 1});
    check(one(), "0 1 2", "-2");
    check(one(), "0 1 2:new:ready-", "");
    check(one(), "0 1:new:Running 2", "-2");
    check(one(), "0:new:Running 1 2", "");
    // The first unhealthy condemned Pod may be deleted; a healthy one above it waits.
    check(one(), "0 1 2:new:Running", "-2");
    check(one(), "0 1:new:Running 2:new:Running", "");
    check(json!({"replicas": 1, "podManagementPolicy": "Parallel"}), "0 1 2:new:Running", "-2 -1");
    // Ordinals below the start are condemned, too.
    check(json!({"replicas": 1, "ordinals": {"start": 2}}), "0 1 2", "-1");
}

#[test]
fn rolling_update_replaces_pods_last_to_first() {
    check(json!({}), "0:old 1:old 2:old", "-2");
    check(json!({}), "0:old 1:old 2:old:ready-", "");
    check(json!({}), "0:old 1:old", "+2");
    check(json!({}), "0:old 1:old 2:new:Running", "");
    check(json!({}), "0:old 1:old 2", "-1");
    check(json!({}), "0 1 2", "");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), "0:old 1:old 2:old", "");
    check(json!({"updateStrategy": {"type": "OnDelete"}}), "0:old 1:old", "+2");
}

#[test]
fn pods_below_the_partition_keep_their_revision() {
    let partition = |n: i32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": n}}});
    check(partition(2), "0:old 1:old 2:old", "-2");
    check(partition(2), "0:old 1:old 2", "");
    check(partition(2), "0:old 2", "+1:old");
    check(partition(9), "0:old 1:old", "+2:old");
    let mut later = partition(1);
    later["ordinals"] = json!({"start": 5});
    check(later.clone(), "5:old 6:old 7:old", "-7");
    check(later.clone(), "5:old 6 7", "");
    check(later, "", "+5:old");
}

#[test]
fn rolling_update_replaces_max_unavailable_pods() {
    let several = |max_unavailable: Value| {
        json!({"replicas": 4, "updateStrategy": {"type": "RollingUpdate",
            "rollingUpdate": {"partition": 0, "maxUnavailable": max_unavailable}}})
    };
    check(several(json!(2)), "0:old 1:old 2:old 3:old", "-3 -2");
    check(several(json!("50%")), "0:old 1:old 2:old 3:old", "-3 -2");
    check(several(json!("10%")), "0:old 1:old 2:old 3:old", "-3");
    // Ordered Pods wait for the terminating one.
    check(several(json!(2)), "0:old 1:old 2:old 3:old:ready-", "");
    let mut parallel = several(json!(2));
    parallel["podManagementPolicy"] = json!("Parallel");
    check(parallel.clone(), "0:old 1:old 2:old 3:old:ready-", "-2");
    check(parallel.clone(), "0:old 1:old 2 3:new:Running", "-1");
    // Unhealthy Pods are replaced beyond `maxUnavailable`.
    check(parallel.clone(), "0:old:Running 1:old:Running 2:old:Running 3:old", "-2 -1 -0");
    check(parallel, "0:old:Running 1:old 2:old 3:old", "-0 -3");
}

#[test]
fn rolling_update_replaces_one_pod_without_the_gate() {
    let check = |spec: Value, pods: &str, expected: &str| {
        let set = set(spec);
        let mut plan = Plan::default();
        decide(&set, pods, &[], |snapshot| {
            let snapshot = StatefulSetSnapshot {
                max_unavailable_enabled: false,
                owner: snapshot.owner.clone(),
                pods: snapshot.pods.clone(),
                claims: snapshot.claims.clone(),
                ..*snapshot
            };
            plan = snapshot.plan(|_| None);
        });
        assert_eq!(line(&plan), expected);
    };
    let two = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}});
    check(two, "0:old 1:old 2:old", "-2");
    let parallel = || json!({"podManagementPolicy": "Parallel"});
    check(parallel(), "0:old:Running 1:old:Running 2:old:Running", "-2");
    check(parallel(), "0:old 1:old 2:new:Running", "");
    check(parallel(), "0:old 1:old 2", "-1");
}

#[test]
fn adopted_pod_gets_its_identity() {
    let set = set(json!({}));
    let plan = decide(&set, "0 1 2", &[], |snapshot| {
        let mut pods = snapshot.pods.clone();
        let pod = Arc::make_mut(pods.get_mut(&1).unwrap());
        let mut labels = (*pod.labels).clone();
        labels.remove("statefulset.kubernetes.io/pod-name");
        pod.labels = labels.into();
        StatefulSetSnapshot { pods, owner: snapshot.owner.clone(), claims: snapshot.claims.clone(), ..*snapshot }
            .plan(|_| None)
    });
    assert_eq!(line(&plan), "=1");
}

fn claim(ordinal: i64, kind: &str, uid: &str) -> ClaimSummary {
    let (api_version, name) =
        if kind == "Pod" { ("v1", format!("web-{ordinal}")) } else { ("apps/v1", "web".to_owned()) };
    let by = OwnerReference { api_version: api_version.into(), kind: kind.into(), name, uid: uid.into(), ..owner() };
    let owners = if kind.is_empty() { vec![] } else { vec![by] };
    ClaimSummary { name: format!("data-web-{ordinal}"), owners, ..ClaimSummary::default() }
}

#[track_caller]
fn check_claims(policy: [&str; 2], replicas: i32, pods: &str, claims: &[ClaimSummary], expected: &str) {
    let policy = json!({"whenDeleted": policy[0], "whenScaled": policy[1]});
    let templates = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let set = set(json!({"replicas": replicas, "persistentVolumeClaimRetentionPolicy": policy,
        "volumeClaimTemplates": templates}));
    let plan = decide(&set, pods, claims, plan);
    assert_eq!(line(&plan), expected);
}

#[test]
fn claim_owners_are_planned_by_the_retention_policy() {
    let (keep, with_set, with_pod) = (["Retain", "Retain"], ["Delete", "Retain"], ["Retain", "Delete"]);
    check_claims(keep, 1, "0", &[claim(0, "", "")], "");
    check_claims(keep, 1, "0", &[claim(0, "StatefulSet", "s")], "data-web-0>");
    check_claims(with_set, 1, "0", &[claim(0, "", "")], "data-web-0>StatefulSet");
    check_claims(with_set, 1, "0", &[claim(0, "StatefulSet", "s")], "");
    // The claim is deleted with a condemned Pod.
    check_claims(with_pod, 1, "0 1", &[claim(0, "", ""), claim(1, "", "")], "data-web-1>Pod -1");
    check_claims(["Delete", "Delete"], 1, "0 1", &[claim(1, "StatefulSet", "s")], "data-web-1>Pod -1");
    check_claims(with_pod, 2, "0 1", &[claim(0, "", ""), claim(1, "Pod", "uid-1")], "data-web-1>");
    // A claim with a stale owner reference is not used by the next Pod.
    check_claims(with_pod, 2, "0", &[claim(0, "", ""), claim(1, "Pod", "uid-1")], "");
    check_claims(keep, 2, "0", &[claim(0, "", ""), claim(1, "Pod", "uid-1")], "+1");
}

#[test]
fn missing_claims_of_a_pending_pod_are_created() {
    let keep = ["Retain", "Retain"];
    check_claims(keep, 1, "0::Pending", &[], "claims:0");
    check_claims(keep, 1, "0::Pending", &[claim(0, "", "")], "");
    check_claims(keep, 1, "0::Pending", &[ClaimSummary { terminating: true, ..claim(0, "", "") }], "claims:0");
    check_claims(keep, 1, "0", &[], "");
}

#[test]
fn stateful_set_being_deleted_plans_nothing() {
    let mut set = set(json!({}));
    set.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    assert_eq!(line(&decide(&set, "0:old 4", &[], plan)), "");
}

#[test]
fn parallel_creation_is_limited_per_sync() {
    let all = json!({"replicas": i32::MAX, "ordinals": {"start": i32::MAX}, "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": i32::MAX}}});
    assert_eq!(decide(&set(all), "", &[], plan).steps.len(), 500);
}

/// Checks replicas, the ready, available, current and updated ones, and the current revision.
#[track_caller]
fn check_status(spec: Value, pods: &str, expected: (i32, [i32; 4], &str)) {
    let set = set(spec);
    let status = decide(&set, pods, &[], |snapshot| status(&set, snapshot, plan(snapshot).rolled, 1));
    let number = |n: Option<i32>| n.unwrap_or(0);
    let counts = [
        number(status.ready_replicas),
        number(status.available_replicas),
        number(status.current_replicas),
        number(status.updated_replicas),
    ];
    assert_eq!((status.replicas, counts, status.current_revision.as_deref().unwrap()), expected);
    assert_eq!((status.update_revision.as_deref(), status.observed_generation), (Some("new"), Some(2)));
    assert_eq!(status.collision_count, Some(1));
}

#[test]
fn stateful_set_status_counts_pods_by_state() {
    check_status(json!({}), "", (0, [0, 0, 0, 0], "old"));
    check_status(json!({"minReadySeconds": 8}), "0:old 1:new:Running", (2, [1, 0, 1, 1], "old"));
    // One Pod is deleted for the update, and is no longer counted as current.
    check_status(json!({}), "0:old 1:old 2:old", (3, [3, 3, 2, 0], "old"));
    check_status(json!({}), "0:old 1:old 2:old:ready-", (3, [3, 3, 2, 0], "old"));
}

#[test]
fn rolling_update_completes_when_all_pods_are_ready() {
    check_status(json!({}), "0 1 2", (3, [3, 3, 3, 3], "new"));
    check_status(json!({}), "0 1 2:new:Running", (3, [2, 2, 0, 3], "old"));
    check_status(json!({}), "0 1 2 3", (4, [4, 4, 0, 4], "old"));
    check_status(json!({"updateStrategy": {"type": "OnDelete"}}), "0 1 2", (3, [3, 3, 0, 3], "old"));
}
