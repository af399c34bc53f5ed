//! In-place resize (KEP-1287): desired, allocated and actual resources.

use crate::common::{Run, Sim};
use lifecycle::{Action, PodLifecycleEvent, ResizeDecision, StartFailureStage, decide_resize};
use serde_json::{Value, json};

fn amounts(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

/// Creates an unstarted Pod whose container requests 100m and 10Mi, with this memory resize policy.
fn unstarted_pod(restart_policy: &str, memory_policy: &str) -> Sim {
    let policy = json!([{"resourceName": "memory", "restartPolicy": memory_policy}]);
    let resources = json!({"requests": amounts("100m", "10Mi"), "limits": amounts("200m", "20Mi")});
    let container = json!({"name": "c", "image": "i", "resizePolicy": policy, "resources": resources});
    Sim::new(json!({"restartPolicy": restart_policy, "containers": [container]}))
}

/// Creates the same Pod, running.
fn pod(restart_policy: &str, memory_policy: &str) -> Sim {
    let mut sim = unstarted_pod(restart_policy, memory_policy);
    sim.pass(1);
    assert_eq!(sim.phase(), "Running");
    sim
}

/// Returns the allocated and actual CPU of `c` in the status.
fn cpu_in_status(sim: &Sim) -> (String, String) {
    let status = json!(sim.status().container_statuses.unwrap()[0]);
    let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or("none").to_owned();
    (text("/allocatedResources/cpu"), text("/resources/requests/cpu"))
}

/// Returns reason and message of a true condition.
fn condition(sim: &Sim, kind: &str) -> Option<(String, String)> {
    let conditions = sim.status().conditions.unwrap_or_default();
    let found = conditions.into_iter().find(|c| c.type_ == kind)?;
    assert_eq!(found.status, "True");
    Some((found.reason.unwrap_or_default(), found.message.unwrap_or_default()))
}

fn events(sim: &Sim) -> Vec<&str> {
    sim.events.iter().map(|e| e.reason.as_str()).filter(|r| r.starts_with("Resize") || *r == "Killing").collect()
}

fn deferred() -> ResizeDecision {
    ResizeDecision::Deferred { message: "full".to_owned() }
}

#[test]
fn feasible_resize_is_allocated_and_actuated() {
    let mut sim = pod("Always", "NotRequired");
    sim.resize("c", &amounts("150m", "15Mi"), &amounts("300m", "30Mi"));
    assert_eq!(cpu_in_status(&sim), ("150m".to_owned(), "150m".to_owned()));
    assert_eq!((sim.restarts("c"), events(&sim)), (0, vec!["ResizeStarted", "ResizeCompleted"]));
    assert_eq!((condition(&sim, "PodResizePending"), condition(&sim, "PodResizeInProgress")), (None, None));
    let completed = &sim.events.iter().find(|e| e.reason == "ResizeCompleted").unwrap().message;
    let expected = r#"Pod resize completed: {"containers":[{"name":"c","resources":{"limits":{"cpu":"300m","memory":"30Mi"},"requests":{"cpu":"150m","memory":"15Mi"}}}],"generation":2}"#;
    assert_eq!(completed, expected);
}

#[test]
fn deferred_resize_is_retried_after_30s_then_every_3m() {
    let mut sim = pod("Always", "NotRequired");
    sim.runtime.resize_decisions = vec![deferred(); 3].into();
    sim.resize("c", &amounts("150m", "10Mi"), &amounts("200m", "20Mi"));
    let pending = Some(("Deferred".to_owned(), "full".to_owned()));
    assert_eq!((condition(&sim, "PodResizePending"), cpu_in_status(&sim).0), (pending, "100m".to_owned()));
    let decisions = |sim: &Sim| -> Vec<u64> {
        sim.log.iter().filter(|(_, a)| matches!(a, Action::DecideResize { .. })).map(|(at, _)| *at).collect()
    };
    sim.pass(600);
    // After 30 s, then every 3 min.
    assert_eq!(decisions(&sim), [1, 31, 211, 391]);
    assert_eq!((condition(&sim, "PodResizePending"), cpu_in_status(&sim).1), (None, "150m".to_owned()));
    assert_eq!(events(&sim), ["ResizeDeferred", "ResizeStarted", "ResizeCompleted"]);
}

#[test]
fn deferred_resize_is_retried_when_resources_are_released() {
    let mut sim = pod("Always", "NotRequired");
    sim.runtime.resize_decisions = vec![deferred()].into();
    sim.resize("c", &amounts("150m", "10Mi"), &amounts("200m", "20Mi"));
    sim.observe(PodLifecycleEvent::ResourcesReleased);
    sim.settle();
    assert_eq!(cpu_in_status(&sim).1, "150m");
}

#[test]
fn infeasible_resize_is_retried_only_after_a_new_request() {
    let mut sim = pod("Always", "NotRequired");
    sim.runtime.resize_decisions = vec![ResizeDecision::Infeasible { message: "small".to_owned() }].into();
    sim.resize("c", &amounts("1k", "10Mi"), &amounts("1k", "20Mi"));
    sim.pass(1000);
    assert_eq!(condition(&sim, "PodResizePending"), Some(("Infeasible".to_owned(), "small".to_owned())));
    assert_eq!((cpu_in_status(&sim).0.as_str(), events(&sim)), ("100m", vec!["ResizeInfeasible"]));
    // The resize is withdrawn.
    sim.resize("c", &amounts("100m", "10Mi"), &amounts("200m", "20Mi"));
    assert_eq!((condition(&sim, "PodResizePending"), events(&sim).len()), (None, 1));
    sim.resize("c", &amounts("120m", "10Mi"), &amounts("200m", "20Mi"));
    assert_eq!(cpu_in_status(&sim).1, "120m");
}

#[test]
fn failed_resize_is_reported_and_retried() {
    let mut sim = pod("Always", "NotRequired");
    sim.runtime.resize_failures = vec!["in use"; 3].into();
    sim.resize("c", &amounts("150m", "10Mi"), &amounts("200m", "15Mi"));
    assert_eq!(condition(&sim, "PodResizeInProgress"), Some(("Error".to_owned(), "in use".to_owned())));
    assert_eq!(cpu_in_status(&sim), ("150m".to_owned(), "100m".to_owned()));
    sim.pass(20);
    assert_eq!((condition(&sim, "PodResizeInProgress"), cpu_in_status(&sim).1), (None, "150m".to_owned()));
    assert_eq!(events(&sim), ["ResizeStarted", "ResizeError", "ResizeCompleted"]);
}

#[test]
fn resize_restarts_container_by_resize_policy() {
    for policy in ["Always", "OnFailure"] {
        let mut sim = pod(policy, "RestartContainer").on_stop("c", 2, 0);
        sim.resize("c", &amounts("150m", "10Mi"), &amounts("200m", "20Mi"));
        assert_eq!(
            (sim.restarts("c"), cpu_in_status(&sim).1.as_str()),
            (0, "150m"),
            "{policy}: CPU is resized in place"
        );
        sim.resize("c", &amounts("150m", "12Mi"), &amounts("200m", "25Mi"));
        assert_eq!(condition(&sim, "PodResizeInProgress"), Some((String::new(), String::new())), "{policy}");
        let actuations =
            |sim: &Sim| sim.log.iter().filter(|(_, a)| matches!(a, Action::ActuateResources { .. })).count();
        let before = actuations(&sim);
        sim.pass(1);
        assert_eq!(actuations(&sim), before, "{policy}: the cgroup shrinks after the container has stopped");
        sim.pass(2);
        assert_eq!(actuations(&sim), before + 1, "{policy}");
        assert_eq!(
            (sim.restarts("c"), sim.state("c").as_str(), sim.phase().as_str()),
            (1, "running", "Running"),
            "{policy}"
        );
        assert_eq!((condition(&sim, "PodResizeInProgress"), sim.starts("c")), (None, vec![0, 3]), "{policy}");
        let killing = sim.events.iter().find(|e| e.reason == "Killing").unwrap();
        assert_eq!(killing.message, "Container c resize requires restart", "{policy}");
    }
}

#[test]
fn container_restarted_by_resize_is_never_shown_terminated() {
    let mut sim = pod("OnFailure", "RestartContainer").on_stop("c", 2, 0);
    // The next start waits for the Pod's cgroup.
    sim.runtime.resize_failures = vec!["no"; 3].into();
    sim.runtime.start_failures = vec![(StartFailureStage::Create, "no")].into();
    sim.resize("c", &amounts("100m", "12Mi"), &amounts("200m", "25Mi"));
    for _ in 0..20 {
        assert!(!sim.state("c").starts_with("terminated"), "{}", sim.state("c"));
        sim.now += std::time::Duration::from_millis(500);
        sim.pass(0);
    }
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1));
}

#[test]
fn kubelet_restart_keeps_allocated_resources() {
    let mut sim = pod("Always", "NotRequired");
    sim.runtime.resize_decisions = vec![deferred(); 2].into();
    sim.resize("c", &amounts("150m", "10Mi"), &amounts("200m", "20Mi"));
    sim.restart(5);
    assert_eq!(cpu_in_status(&sim), ("100m".to_owned(), "100m".to_owned()));
    assert!(condition(&sim, "PodResizePending").is_some());
    sim.restart_without_checkpoint(5);
    assert_eq!(
        (cpu_in_status(&sim).0.as_str(), events(&sim).len()),
        ("100m", 2),
        "the decision is repeated and deferred again"
    );
    sim.pass(60);
    assert_eq!((cpu_in_status(&sim).1.as_str(), sim.restarts("c")), ("150m", 0));
}

#[test]
fn resize_during_backoff_applies_at_the_next_start() {
    let mut sim = unstarted_pod("Always", "NotRequired").script("c", &[Run::Ends(5, 1), Run::Ends(5, 1), Run::Forever]);
    sim.pass(9);
    // The container is in backoff when the resize is requested.
    sim.resize("c", &amounts("150m", "10Mi"), &amounts("200m", "20Mi"));
    sim.pass(60);
    assert_eq!((cpu_in_status(&sim).1.as_str(), sim.state("c").as_str()), ("150m", "running"));
    assert_eq!(events(&sim), ["ResizeStarted", "ResizeCompleted"]);
}

#[test]
fn terminating_pod_is_not_resized() {
    let mut sim = pod("Always", "RestartContainer").on_stop("c", 20, 0);
    sim.delete(30);
    sim.resize("c", &amounts("150m", "12Mi"), &amounts("200m", "25Mi"));
    sim.pass(40);
    assert!(sim.forgotten && events(&sim) == ["Killing"], "{:?}", events(&sim));
}

#[test]
fn requested_resources_are_max_of_allocated_and_actual() {
    let mut sim = pod("Always", "NotRequired");
    let cpu = |sim: &Sim| sim.pod.requested_resources()["cpu"].milli();
    sim.runtime.resize_failures = vec!["no"; 2].into();
    sim.resize("c", &amounts("50m", "10Mi"), &amounts("200m", "20Mi"));
    assert_eq!((cpu_in_status(&sim).0.as_str(), cpu(&sim)), ("50m", 100));
    sim.pass(10);
    assert_eq!(cpu(&sim), 50);
}

#[test]
fn resize_decision_checks_capacity_and_other_pods() {
    let list = |cpu: &str, memory: &str| {
        let map = serde_json::from_value(amounts(cpu, memory)).unwrap();
        api::resources::amounts(Some(&map))
    };
    let node = list("2", "1Gi");
    let check = |desired: (&str, &str), used: (&str, &str), expected: ResizeDecision| {
        assert_eq!(decide_resize(&list(desired.0, desired.1), &list(used.0, used.1), &node), expected);
    };
    let deferred = |message: &str| ResizeDecision::Deferred { message: message.to_owned() };
    let infeasible = |message: &str| ResizeDecision::Infeasible { message: message.to_owned() };
    check(("1", "512Mi"), ("1", "512Mi"), ResizeDecision::Fits);
    check(
        ("1500m", "1Mi"),
        ("1", "1Mi"),
        deferred("Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"),
    );
    check(
        ("1", "1Gi"),
        ("1", "1Mi"),
        deferred(
            "Node didn't have enough resource: memory, requested: 1073741824, used: 1048576, capacity: 1073741824",
        ),
    );
    check(
        ("3", "1Mi"),
        ("0", "0"),
        infeasible("Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000"),
    );
    check(
        ("3", "2Gi"),
        ("0", "0"),
        infeasible("Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824"),
    );
}
