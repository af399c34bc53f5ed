//! Graceful node shutdown (KEP-2000, KEP-2712).

use crate::common::Sim;
use lifecycle::{Admission, Eviction, PodLifecycleEvent, ShutdownGrace, ShutdownPod, ShutdownPolicy};
use std::time::Duration;

fn pod(priority: i32, grace_seconds: u32) -> ShutdownPod {
    ShutdownPod { uid: format!("p{priority}"), priority, grace_seconds }
}

/// Asserts the groups: Pods with their grace periods, and the group's limit, in seconds.
#[track_caller]
fn check(policy: &ShutdownPolicy, pods: &[ShutdownPod], expected: &[(u64, &[(&str, u32)])]) {
    let got: Vec<(u64, Vec<(String, u32)>)> = policy
        .groups(pods)
        .into_iter()
        .map(|group| {
            let pods = group.pods.into_iter().map(|(uid, eviction)| (uid, eviction.grace_seconds.unwrap()));
            (group.limit.as_secs(), pods.collect())
        })
        .collect();
    let expected: Vec<(u64, Vec<(String, u32)>)> = expected
        .iter()
        .map(|(limit, pods)| (*limit, pods.iter().map(|(uid, grace)| ((*uid).to_owned(), *grace)).collect()))
        .collect();
    assert_eq!(got, expected);
}

#[test]
fn shutdown_terminates_critical_pods_last() {
    let policy = ShutdownPolicy::from_grace_periods(Duration::from_secs(30), Duration::from_secs(10));
    assert_eq!(policy.total(), Duration::from_secs(30));
    check(
        &policy,
        &[pod(2_000_001_000, 30), pod(0, 30), pod(1_000_000, 5), pod(-10, 60)],
        &[(20, &[("p0", 20), ("p1000000", 5), ("p-10", 20)]), (10, &[("p2000001000", 10)])],
    );
    check(&policy, &[pod(2_000_000_000, 3)], &[(10, &[("p2000000000", 3)])]);
    check(&policy, &[], &[]);
}

#[test]
fn shutdown_without_grace_period_has_no_groups() {
    for (total, critical) in [(0, 0), (0, 10), (10, 20)] {
        let policy = ShutdownPolicy::from_grace_periods(Duration::from_secs(total), Duration::from_secs(critical));
        assert!(policy.is_empty(), "{total} {critical}");
        check(&policy, &[pod(0, 30)], &[]);
    }
}

#[test]
fn shutdown_groups_pods_by_priority_range() {
    let ranges = [(100_000, 10), (0, 60), (10_000, 180)].map(|(priority, seconds)| ShutdownGrace { priority, seconds });
    let policy = ShutdownPolicy::by_priority(ranges.to_vec());
    assert_eq!(policy.total(), Duration::from_secs(250));
    let pods = [-5, 0, 9_999, 10_000, 99_999, 100_000, 2_000_000_000].map(|priority| pod(priority, 3600));
    check(
        &policy,
        &pods,
        &[
            (60, &[("p-5", 60), ("p0", 60), ("p9999", 60)]),
            (180, &[("p10000", 180), ("p99999", 180)]),
            (10, &[("p100000", 10), ("p2000000000", 10)]),
        ],
    );
}

#[test]
fn shutdown_sets_reason_terminated() {
    for (code, phase) in [(143, "Failed"), (0, "Succeeded")] {
        let mut sim = Sim::of("Always", &["c"]).on_stop("c", 1, code);
        sim.pass(10);
        let policy = ShutdownPolicy::from_grace_periods(Duration::from_secs(20), Duration::from_secs(10));
        let group = policy.groups(&[pod(0, 30)]).remove(0);
        sim.observe(PodLifecycleEvent::Evicted(group.pods[0].1.clone()));
        sim.pass(5);
        let status = sim.status();
        assert_eq!((sim.phase().as_str(), status.reason.as_deref()), (phase, Some("Terminated")), "exit code {code}");
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(status.message.as_deref(), Some(message), "exit code {code}");
        let target = status.conditions.unwrap().into_iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
        assert_eq!(
            (target.status.as_str(), target.reason.as_deref()),
            ("True", Some("TerminationByKubelet")),
            "exit code {code}"
        );
        assert_eq!(target.message.as_deref(), Some(message), "exit code {code}");
    }
}

/// Returns the eviction of a Pod by a node shutdown.
fn shutdown_eviction() -> Eviction {
    let policy = ShutdownPolicy::from_grace_periods(Duration::from_secs(20), Duration::from_secs(10));
    policy.groups(&[pod(0, 30)]).remove(0).pods.remove(0).1
}

#[test]
fn evicted_pod_has_left_once_its_volumes_are_unmounted() {
    let mut sim = Sim::of("Always", &["c"]).on_stop("c", 3, 143);
    sim.pass(10);
    sim.observe(PodLifecycleEvent::Evicted(shutdown_eviction()));
    sim.pass(1);
    assert!(!sim.pod.is_terminated_and_unmounted());
    sim.pass(5);
    assert!(sim.pod.is_terminated_and_unmounted());
    // The shutdown is reported by the node's own Event.
    assert!(!sim.events.iter().any(|event| event.reason == "Terminated"));
}

#[test]
fn pod_is_shut_down_only_if_node_shutdown_ended_it() {
    let is_shut_down_after = |event: PodLifecycleEvent| {
        let mut sim = Sim::of("Always", &["c"]).on_stop("c", 1, 143);
        if matches!(event, PodLifecycleEvent::Evicted(_)) {
            sim.pass(10);
        }
        sim.observe(event);
        sim.pass(10);
        assert_eq!(sim.phase(), "Failed");
        sim.pod.is_shut_down()
    };
    let rejected = |reason: &str| {
        PodLifecycleEvent::Admission(Admission::Rejected { reason: reason.to_owned(), message: "no".to_owned() })
    };
    assert!(is_shut_down_after(PodLifecycleEvent::Evicted(shutdown_eviction())));
    assert!(is_shut_down_after(rejected("NodeShutdown")));
    assert!(!is_shut_down_after(rejected("OutOfcpu")));
    assert!(!is_shut_down_after(PodLifecycleEvent::Evicted(Eviction {
        reason: "Evicted".to_owned(),
        ..shutdown_eviction()
    })));
    let mut alive = Sim::of("Always", &["c"]);
    alive.pass(10);
    assert!(!alive.pod.is_shut_down());
}
