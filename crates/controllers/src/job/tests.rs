//! Tests of what is planned for a Job, and of how its Pods are counted.

use super::{
    backoff::BackoffRecord,
    plan::{Plan, PodAction, plan},
    snapshot::{JobSnapshot, condition},
    tracking::{Outcome, TrackedStatus, finalize_status, track_job_status},
};
use crate::pod_summary::{JobPodSummary, PodSummary};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use std::{collections::HashSet, sync::Arc};

const NOW: i64 = 10_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn job(spec: Value, status: Value) -> Job {
    let mut all = json!({"completions": 3, "parallelism": 2, "backoffLimit": 6, "completionMode": "NonIndexed",
        "podReplacementPolicy": "TerminatingOrFailed",
        "template": {"spec": {"restartPolicy": "Never", "containers": []}}});
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    let meta = json!({"name": "j", "namespace": "x", "uid": "j"});
    serde_json::from_value(json!({"metadata": meta, "spec": all, "status": status})).unwrap()
}

fn indexed(fields: Value) -> Value {
    let mut spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 5});
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

/// Returns a Pod with the tracking finalizer, a phase and an index. `Terminating` is a running Pod that is being
/// deleted.
fn pod(name: &str, phase: &str, index: Option<i32>) -> PodSummary {
    let ended = matches!(phase, "Succeeded" | "Failed");
    let part = JobPodSummary { tracked: true, index, finished: ended.then(|| at(NOW - 1)), ..JobPodSummary::default() };
    PodSummary {
        namespace: "x".into(),
        name: name.into(),
        uid: name.into(),
        active: matches!(phase, "Pending" | "Running"),
        terminating: phase == "Terminating",
        phase: if phase == "Terminating" { "Running".into() } else { phase.into() },
        job: Some(Box::new(part)),
        ..PodSummary::default()
    }
}

fn pods(all: &[(&str, &str)]) -> Vec<PodSummary> {
    all.iter().map(|(name, phase)| pod(name, phase, None)).collect()
}

fn of_indexes(all: &[(i32, &str)]) -> Vec<PodSummary> {
    all.iter().map(|(index, phase)| pod(&format!("{index}{phase}"), phase, Some(*index))).collect()
}

/// Formats the action of a plan.
fn line(plan: &Plan<'_>) -> String {
    let names = |pods: &[&PodSummary]| {
        let mut names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    let ends = plan.finished.as_ref().map(|end| format!("{} {}: ", end.type_, end.reason.as_deref().unwrap_or("")));
    let action = match &plan.action {
        PodAction::Nothing => "nothing".to_owned(),
        PodAction::Terminate(pods) => format!("end {}", names(pods)),
        PodAction::Remove(pods) => format!("drop {}", names(pods)),
        PodAction::Create(new) if new.iter().any(|n| n.index.is_some()) => {
            format!("make {:?}", new.iter().filter_map(|n| n.index).collect::<Vec<_>>())
        }
        PodAction::Create(new) => format!("make {}", new.len()),
    };
    format!("{}{}", ends.unwrap_or_default(), action.trim())
}

/// Plans a sync, and tracks the status as if all planned Pods were created or deleted.
fn decide<T>(job: &Job, pods: &[PodSummary], look: impl FnOnce(&Plan<'_>, TrackedStatus<'_>) -> T) -> T {
    let pods: Vec<Arc<PodSummary>> = pods.iter().cloned().map(Arc::new).collect();
    let snapshot = JobSnapshot::new(job, job.spec.as_ref().unwrap(), &pods, BackoffRecord::default(), at(NOW));
    let plan = plan(&snapshot);
    let done = match &plan.action {
        PodAction::Nothing => 0,
        PodAction::Terminate(pods) | PodAction::Remove(pods) => pods.len(),
        PodAction::Create(new) => new.len(),
    };
    let tracked = track_job_status(&snapshot, &plan, Outcome { done: i32::try_from(done).unwrap(), failed: false });
    look(&plan, tracked)
}

#[track_caller]
fn check(spec: Value, status: Value, pods: &[PodSummary], expected: &str) {
    assert_eq!(decide(&job(spec, status), pods, |plan, _| line(plan)), expected);
}

#[test]
fn active_pods_are_limited_by_parallelism_and_completions() {
    check(json!({}), json!({}), &[], "make 2");
    check(json!({}), json!({}), &pods(&[("a", "Running")]), "make 1");
    check(json!({}), json!({"succeeded": 2}), &pods(&[("a", "Running")]), "nothing");
    check(json!({}), json!({"succeeded": 2}), &[], "make 1");
    check(json!({"parallelism": 0}), json!({}), &pods(&[("a", "Running")]), "drop a");
    check(json!({}), json!({"succeeded": 2}), &pods(&[("a", "Running"), ("b", "Pending")]), "drop b");
}

#[test]
fn work_queue_job_starts_no_pods_after_a_success() {
    let queue = || json!({"completions": null});
    check(queue(), json!({}), &[], "make 2");
    check(queue(), json!({"succeeded": 1}), &pods(&[("a", "Running")]), "nothing");
    let tracked = decide(&job(queue(), json!({"succeeded": 1})), &[], |_, tracked| tracked.status);
    assert_eq!(condition(&tracked, "SuccessCriteriaMet").unwrap().reason.as_deref(), Some("CompletionsReached"));
}

#[test]
fn failed_pod_is_replaced_after_the_backoff() {
    let failed = pods(&[("a", "Failed"), ("b", "Running")]);
    let (action, again) = decide(&job(json!({}), json!({})), &failed, |plan, _| (line(plan), plan.requeue_after));
    assert_eq!((action.as_str(), again.map(|a| a.as_secs())), ("nothing", Some(9)));
}

#[test]
fn job_fails_when_the_backoff_limit_is_exceeded() {
    let status = || json!({"failed": 2});
    let failed = pods(&[("a", "Failed"), ("b", "Running")]);
    check(json!({"backoffLimit": 2}), status(), &failed, "FailureTarget BackoffLimitExceeded: end b");
    check(json!({"backoffLimit": 3}), status(), &failed, "nothing");
    let policy =
        json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]});
    let mut disrupted = failed.clone();
    disrupted[0].job.as_mut().unwrap().conditions = vec![("DisruptionTarget".into(), "True".into())];
    check(json!({"backoffLimit": 2, "podFailurePolicy": policy}), status(), &disrupted, "nothing");
}

#[test]
fn container_restarts_count_with_restart_policy_on_failure() {
    let template = json!({"spec": {"restartPolicy": "OnFailure", "containers": []}});
    let mut restarted = pods(&[("a", "Running")]);
    restarted[0].job.as_mut().unwrap().restarts = 2;
    let spec = |limit: i32| json!({"backoffLimit": limit, "parallelism": 1, "template": template.clone()});
    check(spec(3), json!({}), &restarted, "nothing");
    check(spec(2), json!({}), &restarted, "FailureTarget BackoffLimitExceeded: end a");
    check(spec(0), json!({}), &restarted, "FailureTarget BackoffLimitExceeded: end a");
}

#[test]
fn job_fails_after_its_active_deadline() {
    let started = || json!({"startTime": at(NOW - 50).to_string()});
    let running = pods(&[("a", "Running"), ("b", "Running")]);
    check(json!({"activeDeadlineSeconds": 50}), started(), &running, "FailureTarget DeadlineExceeded: end a b");
    let again = decide(&job(json!({"activeDeadlineSeconds": 60}), started()), &running, |plan, _| plan.requeue_after);
    assert_eq!(again.map(|a| a.as_secs()), Some(10));
    check(json!({"activeDeadlineSeconds": 50, "suspend": true}), started(), &running, "drop a b");
}

#[test]
fn failure_policy_fails_the_job_at_once() {
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let mut failed = pods(&[("a", "Failed"), ("b", "Running")]);
    failed[0].job.as_mut().unwrap().exits = vec![("c".into(), 42)];
    check(json!({"podFailurePolicy": policy}), json!({}), &failed, "FailureTarget PodFailurePolicy: end b");
    let job = job(json!({"podFailurePolicy": policy}), json!({}));
    let (status, end) = decide(&job, &failed, |_, tracked| (tracked.status, tracked.end.unwrap()));
    let message = "Container c for pod x/a failed with exit code 42 matching FailJob rule at index 0";
    assert_eq!(condition(&status, "FailureTarget").unwrap().message.as_deref(), Some(message));
    assert_eq!((end.type_.as_str(), end.message.as_deref()), ("Failed", Some(message)));
}

#[test]
fn each_index_has_one_pod_until_it_succeeds() {
    check(indexed(json!({})), json!({"completedIndexes": "0,2"}), &of_indexes(&[(1, "Running")]), "make [3, 4]");
    let twice = of_indexes(&[(0, "Running"), (0, "Pending"), (9, "Running")]);
    check(indexed(json!({})), json!({}), &twice, "drop 0Pending 9Running");
}

#[test]
fn index_fails_at_its_backoff_limit_per_index() {
    let limited = |fields: Value| {
        let mut spec = indexed(json!({"backoffLimitPerIndex": 1, "backoffLimit": i32::MAX}));
        fields.as_object().unwrap().iter().for_each(|(field, value)| spec[field] = value.clone());
        spec
    };
    let failed = |failures: i32, finished: i64| {
        let mut pod = pod("f", "Failed", Some(0));
        let part = pod.job.as_mut().unwrap();
        (part.failures, part.finished) = (failures, Some(at(finished)));
        pod
    };
    let rest = of_indexes(&[(1, "Running"), (2, "Running"), (3, "Running"), (4, "Running")]);
    let all = |first: PodSummary| [vec![first], rest.clone()].concat();
    // The first failure is delayed, and its Pod is kept until the replacement exists.
    let young = decide(&job(limited(json!({})), json!({})), &all(failed(0, NOW - 1)), |plan, tracked| {
        (line(plan), tracked.release.len(), tracked.status.failed_indexes)
    });
    assert_eq!(young, ("nothing".into(), 0, Some(String::new())));
    let pods = [Arc::new(failed(0, NOW - 10))];
    let job_ = job(limited(json!({"completions": 1})), json!({}));
    let snapshot = JobSnapshot::new(&job_, job_.spec.as_ref().unwrap(), &pods, BackoffRecord::default(), at(NOW));
    let PodAction::Create(new) = plan(&snapshot).action else { panic!("nothing is made") };
    assert_eq!((new[0].index, new[0].failures, new[0].ignored), (Some(0), 1, 0));
    // The second failure reaches the limit.
    let old = decide(&job(limited(json!({})), json!({})), &all(failed(1, NOW - 1)), |plan, tracked| {
        (line(plan), tracked.release.len(), tracked.status.failed_indexes)
    });
    assert_eq!(old, ("nothing".into(), 1, Some("0".into())));
    let no_failed_indexes = limited(json!({"maxFailedIndexes": 0}));
    check(no_failed_indexes, json!({}), &[failed(1, NOW)], "FailureTarget MaxFailedIndexesExceeded: end");
    let done = json!({"completedIndexes": "1-4"});
    check(limited(json!({})), done, &[failed(1, NOW)], "FailureTarget FailedIndexes: end");
}

#[test]
fn success_policy_completes_the_job_early() {
    let policy = json!({"rules": [{"succeededIndexes": "0", "succeededCount": 1}]});
    let spec = indexed(json!({"successPolicy": policy}));
    let some = of_indexes(&[(0, "Succeeded"), (1, "Running")]);
    check(spec.clone(), json!({}), &some, "SuccessCriteriaMet SuccessPolicy: end 1Running");
    let (status, end) = decide(&job(spec, json!({})), &some, |_, tracked| (tracked.status, tracked.end.unwrap()));
    assert_eq!(condition(&status, "SuccessCriteriaMet").unwrap().message.as_deref(), Some("Matched rules at index 0"));
    assert_eq!((end.type_.as_str(), end.reason.as_deref()), ("Complete", Some("SuccessPolicy")));
    // Pods that still ran did not fail.
    assert_eq!(status.uncounted_terminated_pods.unwrap().failed, None);
}

#[test]
fn terminal_pod_is_recorded_then_released_then_counted() {
    let some = pods(&[("a", "Succeeded"), ("b", "Failed"), ("c", "Running")]);
    let (mut status, released) = decide(&job(json!({}), json!({})), &some, |_, tracked| {
        (tracked.status, tracked.release.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>())
    });
    assert_eq!((status.succeeded, status.failed, released), (None, None, vec!["a".to_owned(), "b".to_owned()]));
    let recorded = status.uncounted_terminated_pods.clone().unwrap();
    assert_eq!((recorded.succeeded.unwrap(), recorded.failed.unwrap()), (vec!["a".to_owned()], vec!["b".to_owned()]));
    // The finalizer of one of them could not be removed yet.
    assert!(!finalize_status(&mut status, None, &HashSet::from(["b", "c"])));
    assert_eq!((status.succeeded, status.failed), (Some(1), None));
    // Tracking resumes after an interruption, and counts each Pod once.
    let mut again = some.clone();
    again[0].job.as_mut().unwrap().tracked = false;
    let known = serde_json::to_value(&status).unwrap();
    let (mut status, released) = decide(&job(json!({}), known), &again, |_, tracked| {
        (tracked.status, tracked.release.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>())
    });
    assert_eq!(released, ["b"]);
    finalize_status(&mut status, None, &HashSet::from(["c"]));
    assert_eq!((status.succeeded, status.failed), (Some(1), Some(1)));
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
}

#[test]
fn running_pods_of_a_failed_job_count_as_failed() {
    let some = pods(&[("a", "Failed"), ("b", "Running")]);
    let (mut status, end) = decide(&job(json!({"backoffLimit": 0}), json!({})), &some, |_, t| (t.status, t.end));
    assert_eq!((status.active, status.terminating), (None, Some(1)));
    // The Job is not finished before its last Pod is gone.
    assert!(!finalize_status(&mut status, end.as_ref(), &HashSet::new()));
    assert_eq!(status.failed, Some(2));
    let known = serde_json::to_value(&status).unwrap();
    let (mut status, end) = decide(&job(json!({"backoffLimit": 0}), known), &[], |_, t| (t.status, t.end));
    assert!(finalize_status(&mut status, end.as_ref(), &HashSet::new()));
    let failed = condition(&status, "Failed").unwrap();
    assert_eq!(failed.message.as_deref(), Some("Job has reached the specified backoff limit"));
    assert_eq!((status.failed, status.completion_time), (Some(2), None));
}

#[test]
fn job_is_complete_when_all_pods_are_counted() {
    let last = pods(&[("c", "Succeeded")]);
    let (mut status, end) = decide(&job(json!({}), json!({"succeeded": 2})), &last, |_, t| (t.status, t.end));
    assert!(condition(&status, "SuccessCriteriaMet").is_some() && condition(&status, "Complete").is_none());
    assert!(finalize_status(&mut status, end.as_ref(), &HashSet::new()));
    let complete = condition(&status, "Complete").unwrap();
    assert_eq!(complete.message.as_deref(), Some("Reached expected number of succeeded pods"));
    assert_eq!((status.succeeded, status.completion_time.unwrap().0), (Some(3), at(NOW)));
}

#[test]
fn uncounted_pods_are_limited_per_sync() {
    let names: Vec<String> = (0..600).map(|n| format!("p{n}")).collect();
    let all: Vec<PodSummary> = names.iter().map(|name| pod(name, "Succeeded", None)).collect();
    let many = job(json!({"completions": 600}), json!({}));
    let (mut status, released, end) =
        decide(&many, &all, |_, tracked| (tracked.status, tracked.release.len(), tracked.end));
    assert!(released == 500 && end.is_none() && condition(&status, "SuccessCriteriaMet").is_some());
    finalize_status(&mut status, None, &names[500..].iter().map(String::as_str).collect());
    assert_eq!(status.succeeded, Some(500));
    let known = serde_json::to_value(&status).unwrap();
    let (mut status, end) = decide(&job(json!({"completions": 600}), known), &all[500..], |_, t| (t.status, t.end));
    assert!(finalize_status(&mut status, end.as_ref(), &HashSet::new()));
    assert_eq!(status.succeeded, Some(600));
}

#[test]
fn completed_indexes_persist_without_their_pods() {
    let some = of_indexes(&[(0, "Succeeded"), (2, "Succeeded"), (1, "Running")]);
    let status = decide(&job(indexed(json!({})), json!({"completedIndexes": "3"})), &some, |_, t| t.status);
    assert_eq!((status.completed_indexes.as_deref(), status.succeeded), (Some("0,2,3"), Some(3)));
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
}

#[test]
fn terminating_pod_fails_unless_only_terminal_ones_count() {
    let ending = pods(&[("a", "Terminating"), ("b", "Running")]);
    let failed =
        |spec: Value| decide(&job(spec, json!({})), &ending, |plan, tracked| (line(plan), tracked.release.len()));
    assert_eq!(failed(json!({"podReplacementPolicy": "TerminatingOrFailed"})).1, 1);
    assert_eq!(failed(json!({"podReplacementPolicy": "Failed"})), ("nothing".into(), 0));
}

#[test]
fn suspended_job_has_no_pods_and_no_deadline() {
    let running = pods(&[("a", "Running")]);
    let suspended = job(json!({"suspend": true}), json!({}));
    let (status, events) = decide(&suspended, &running, |_, tracked| (tracked.status, tracked.events));
    assert_eq!(events, [("Suspended", "Job suspended")]);
    assert_eq!((status.start_time.clone(), status.active), (None, None));
    assert_eq!(condition(&status, "Suspended").unwrap().reason.as_deref(), Some("JobSuspended"));
    let resumed = job(json!({}), serde_json::to_value(&status).unwrap());
    let (status, events) = decide(&resumed, &[], |_, tracked| (tracked.status, tracked.events));
    assert_eq!(events, [("Resumed", "Job resumed")]);
    assert_eq!(status.start_time.map(|t| t.0), Some(at(NOW)));
}

#[test]
fn job_being_deleted_creates_no_pods_and_removes_finalizers() {
    let mut ending = job(json!({}), json!({}));
    ending.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(NOW)));
    let (action, released) =
        decide(&ending, &pods(&[("a", "Running")]), |plan, tracked| (line(plan), tracked.release.len()));
    assert_eq!((action.as_str(), released), ("nothing", 1));
}
