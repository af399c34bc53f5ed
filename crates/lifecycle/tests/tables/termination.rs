//! Pod termination: deletion, eviction, `activeDeadlineSeconds` (`SyncTerminatingPod`).

use crate::common::{Run, Sim};
use api::feature_gates::FeatureGates;
use lifecycle::{Action, PodLifecycleEvent};
use serde_json::json;
use std::sync::Arc;

/// Asserts the actions from this log position on.
#[track_caller]
fn check(sim: &Sim, since: usize, expected: &[&str]) {
    assert_eq!(sim.done()[since..], *expected);
}

fn running() -> (Sim, usize) {
    let mut sim = Sim::of("Always", &["c"]);
    sim.pass(10);
    let since = sim.log.len();
    (sim, since)
}

#[test]
fn deletion_stops_containers_then_sandbox_volumes_and_object() {
    let (mut sim, since) = running();
    sim = sim.on_stop("c", 3, 0);
    sim.delete(30);
    assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Running", "running"));
    assert_eq!(sim.message_of("Killing"), "Stopping container c");
    sim.pass(10);
    let expected = ["10 stop c 30s", "13 stop sandbox", "13 unmount", "13 delete", "13 remove sandbox", "13 forget"];
    check(&sim, since, &expected);
    assert_eq!(sim.api_phase(), "Succeeded", "the final status before the deletion");
}

#[test]
fn container_is_killed_after_the_grace_period() {
    for grace in [1, 5, 30] {
        let (mut sim, _) = running();
        sim = sim.on_stop("c", 1000, 0);
        sim.delete(grace);
        let kill_after = u64::try_from(grace).unwrap().max(2);
        sim.pass(kill_after - 1);
        assert_eq!(sim.phase(), "Running", "grace {grace}");
        sim.pass(1);
        assert!(sim.forgotten, "grace {grace}");
        assert_eq!(sim.api_phase(), "Failed", "grace {grace}");
    }
}

#[test]
fn grace_period_can_only_be_shortened() {
    let table: &[(&[(u64, i64)], u64)] = &[
        (&[(0, 60)], 60),
        (&[(0, 60), (10, 5)], 15),
        (&[(0, 60), (50, 30)], 60),
        (&[(0, 30), (10, 60)], 30),
        (&[(0, 30), (10, 60), (20, 2)], 22),
    ];
    for (requests, killed_after) in table {
        let (mut sim, _) = running();
        sim = sim.on_stop("c", 1000, 0);
        let mut at = 0;
        for (when, grace) in *requests {
            sim.pass(when - at);
            at = *when;
            sim.delete(*grace);
        }
        sim.pass(killed_after - at - 1);
        assert_eq!(sim.state("c"), "running", "{requests:?}");
        sim.pass(1);
        assert!(sim.forgotten, "{requests:?}");
    }
}

#[test]
fn repeated_deletion_request_plans_no_new_stop() {
    let (mut sim, _) = running();
    sim = sim.on_stop("c", 1000, 0);
    sim.delete(30);
    for _ in 0..5 {
        sim.pass(1);
        sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
        sim.settle();
    }
    let stops = sim.log.iter().filter(|(_, a)| matches!(a, Action::StopContainer { .. })).count();
    assert_eq!(stops, 1);
}

#[test]
fn forced_deletion_has_2s_grace_and_cleans_up() {
    let (mut sim, since) = running();
    sim = sim.on_stop("c", 1000, 0);
    sim.force_delete();
    sim.pass(5);
    check(&sim, since, &["10 stop c 2s", "12 stop sandbox", "12 unmount", "12 remove sandbox", "12 forget"]);
}

#[test]
fn forced_deletion_shortens_graceful_deletion() {
    let (mut sim, _) = running();
    sim = sim.on_stop("c", 1000, 0);
    sim.delete(600);
    sim.pass(10);
    sim.force_delete();
    sim.pass(2);
    assert!(sim.forgotten);
}

/// Asserts the final phase of a deleted Pod whose containers exit with these codes.
#[track_caller]
fn check_final_phase(policy: &str, codes: [i32; 2], expected: &str) {
    let mut sim = Sim::of(policy, &["a", "b"]).on_stop("a", 1, codes[0]).on_stop("b", 2, codes[1]);
    sim.pass(5);
    sim.delete(30);
    sim.pass(30);
    assert_eq!(sim.api_phase(), expected, "{policy} {codes:?}");
}

#[test]
fn deleted_pod_succeeds_if_all_containers_exit_with_zero() {
    for policy in ["Always", "OnFailure", "Never"] {
        check_final_phase(policy, [0, 0], "Succeeded");
        check_final_phase(policy, [0, 143], "Failed");
        check_final_phase(policy, [1, 0], "Failed");
    }
}

#[test]
fn deleted_pod_fails_if_its_containers_never_ran() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.sandbox_failures = 1000;
    sim.pass(10);
    sim.delete(30);
    assert!(sim.forgotten);
    assert_eq!(sim.api_phase(), "Failed");
    let status = &sim.api.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let terminated = status.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((terminated.reason.as_deref(), terminated.exit_code), (Some("ContainerStatusUnknown"), 137));
    assert_eq!(terminated.message.as_deref(), Some("The container could not be located when the pod was terminated"));
    assert_eq!((&terminated.started_at, &terminated.finished_at, status.image.as_str()), (&None, &None, "i"));
}

#[test]
fn deletion_during_backoff_ends_pod_and_keeps_exit_code() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 7)]);
    sim.pass(5);
    assert_eq!(sim.state("c"), "waiting CrashLoopBackOff");
    sim.delete(30);
    assert!(sim.forgotten);
    let status = &sim.api.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(status.state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 7);
}

#[test]
fn active_deadline_terminates_and_fails_the_pod() {
    let spec = |containers| {
        json!({"restartPolicy": "OnFailure", "activeDeadlineSeconds": 20, "terminationGracePeriodSeconds": 5,
        "containers": containers})
    };
    let mut sim = Sim::new(spec(json!([{"name": "c", "image": "i"}]))).on_stop("c", 100, 0);
    sim.pass(24);
    assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Running", "running"));
    sim.pass(1);
    assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Failed", "terminated Error 137"));
    let status = sim.status();
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(status.message.as_deref(), Some("Pod was active on the node longer than the specified deadline"));
    assert_eq!(sim.message_of("Killing"), "Stopping container c");
    assert_eq!(sim.message_of("DeadlineExceeded"), status.message.unwrap());
    assert!(sim.in_api, "the failed Pod stays in the API");
}

#[test]
fn active_deadline_fails_a_waiting_pod() {
    let spec =
        json!({"restartPolicy": "Always", "activeDeadlineSeconds": 20, "containers": [{"name": "c", "image": "i"}]});
    let mut waiting = Sim::new(spec.clone());
    waiting.runtime.image_failures = [("ErrImagePull", "no"); 100].into();
    let looping = Sim::new(spec).script("c", &[Run::Ends(1, 1)]);
    for (case, mut sim) in [("waiting", waiting), ("looping", looping)] {
        sim.pass(19);
        assert_ne!(sim.phase(), "Failed", "{case}");
        sim.pass(1);
        assert_eq!(
            (sim.phase().as_str(), sim.status().reason.as_deref()),
            ("Failed", Some("DeadlineExceeded")),
            "{case}"
        );
        sim.pass(1000);
    }
}

#[test]
fn pod_that_ended_before_active_deadline_keeps_its_phase() {
    for (code, phase) in [(0, "Succeeded"), (1, "Failed")] {
        let spec =
            json!({"restartPolicy": "Never", "activeDeadlineSeconds": 20, "containers": [{"name": "c", "image": "i"}]});
        let mut sim = Sim::new(spec).script("c", &[Run::Ends(10, code)]);
        sim.pass(100);
        assert_eq!((sim.phase().as_str(), sim.status().reason), (phase, None), "exit code {code}");
    }
}

#[test]
fn evicted_pod_fails_with_reason_after_containers_stop() {
    let mut sim = Sim::of("Always", &["a", "b"]).on_stop("a", 100, 0).on_stop("b", 1, 0);
    sim.pass(5);
    sim.evict(Some(4));
    sim.pass(3);
    assert_eq!((sim.phase().as_str(), sim.condition("DisruptionTarget").as_str()), ("Running", "none"));
    sim.pass(1);
    let status = sim.status();
    assert_eq!((sim.phase().as_str(), status.reason.as_deref()), ("Failed", Some("Evicted")));
    assert_eq!(status.message.as_deref(), Some("The node was low on resource: memory."));
    assert_eq!(sim.condition("DisruptionTarget"), "True TerminationByKubelet: The node was low on resource: memory.");
    assert!(sim.event_reasons().contains(&"Evicted"));
    assert!(sim.in_api);
    sim.delete(30);
    assert!(sim.forgotten);
    assert_eq!(sim.api.status.as_ref().unwrap().reason.as_deref(), Some("Evicted"));
}

#[test]
fn evicted_pod_releases_resources_after_unmount() {
    let mut sim = Sim::of("Always", &["c"]).on_stop("c", 3, 0);
    sim.pass(5);
    assert!(!sim.pod.has_released_resources(sim.now), "not evicted");
    sim.evict(Some(10));
    sim.pass(2);
    assert!(!sim.pod.has_released_resources(sim.now), "still running");
    sim.now += std::time::Duration::from_secs(1);
    for (_, end) in sim.runtime.ends(sim.now) {
        sim.observe(end);
    }
    let is_release = |action: &Action| matches!(action, Action::StopSandbox { .. } | Action::UnmountVolumes);
    for _ in 0..2 {
        let next = loop {
            let action = sim.next_action().expect("an action");
            if is_release(&action) {
                break action;
            }
            sim.begin(&action);
            sim.finish(&action);
        };
        assert!(!sim.pod.has_released_resources(sim.now), "{next:?} has not started");
        sim.begin(&next);
        assert!(!sim.pod.has_released_resources(sim.now), "{next:?} is in flight");
        sim.finish(&next);
    }
    assert!(sim.pod.has_released_resources(sim.now));
}

#[test]
fn eviction_of_terminal_pod_is_ignored() {
    let mut sim = Sim::of("Never", &["c"]).script("c", &[Run::Ends(5, 0)]);
    sim.pass(10);
    sim.evict(None);
    sim.pass(10);
    assert_eq!((sim.phase().as_str(), sim.status().reason), ("Succeeded", None));
    assert!(!sim.event_reasons().contains(&"Evicted"));
}

#[test]
fn finished_pod_stops_sandbox_and_keeps_its_containers() {
    let mut sim = Sim::of("Never", &["c"]).script("c", &[Run::Ends(5, 0)]);
    sim.pass(5);
    let at = sim.done().iter().position(|d| d.starts_with("5 ")).unwrap();
    check(&sim, at, &["5 stop sandbox", "5 unmount"]);
    assert_eq!(sim.runtime.containers.len(), 1);
    sim.pass(10_000);
    sim.delete(30);
    check(&sim, at + 2, &["10005 delete", "10005 remove sandbox", "10005 forget"]);
}

#[test]
fn rejected_pod_fails_with_the_rejection_reason() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.rejection = Some(("OutOfcpu", "Node didn't have enough resource: cpu"));
    sim.pass(100);
    let status = sim.status();
    assert_eq!((sim.phase().as_str(), status.reason.as_deref()), ("Failed", Some("OutOfcpu")));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: Node didn't have enough resource: cpu"));
    assert_eq!(status.container_statuses, None);
    assert_eq!(sim.done(), ["0 admit"]);
    sim.delete(30);
    assert!(sim.forgotten);
}

#[test]
fn deletion_waits_for_container_start_in_flight() {
    let mut sim = Sim::of("Never", &["c"]);
    // All that is missing is the container, whose start is in flight.
    let start = loop {
        sim.report();
        let action = sim.next_action().unwrap();
        sim.begin(&action);
        if matches!(action, Action::StartContainer { .. }) {
            break action;
        }
        sim.finish(&action);
    };
    sim.delete(30);
    assert_eq!(sim.phase(), "Pending", "a start is in flight");
    sim.pass(1);
    sim.finish(&start);
    assert_eq!(sim.phase(), "Running");
    sim.settle();
    sim.pass(1);
    assert!(sim.forgotten);
    assert_eq!(sim.api_phase(), "Failed");
}

#[test]
fn stop_signal_of_the_spec_requires_its_feature_gate() {
    for (gates, sent, shown) in
        [("ContainerStopSignals=true", Some("SIGUSR1"), Some("SIGTERM")), ("ContainerStopSignals=false", None, None)]
    {
        let spec = json!({"containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}}]});
        let mut sim = Sim::new(spec);
        sim.policy.gates = FeatureGates::parse(gates).unwrap();
        sim.pass(1);
        // The test runtime reports SIGTERM for all its containers.
        let status = sim.status().container_statuses.unwrap().remove(0);
        assert_eq!(status.stop_signal.as_deref(), shown, "{gates}");
        sim.delete(30);
        let stops = sim.log.iter().filter_map(|(_, a)| match a {
            Action::StopContainer { signal, .. } => Some(signal.as_deref()),
            _ => None,
        });
        assert_eq!(stops.collect::<Vec<_>>(), [sent], "{gates}");
    }
}
