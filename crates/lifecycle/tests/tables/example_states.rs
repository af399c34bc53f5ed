//! Example states of the Pod Lifecycle documentation.

use crate::common::{Run, Sim};
use k8s_openapi::api::core::v1::PodStatus;
use lifecycle::PodLifecycleEvent;
use std::sync::Arc;

/// Asserts phase, container states and restart counts after a minute.
#[track_caller]
fn check(mut sim: Sim, phase: &str, containers: &[(&str, &str, i32)]) {
    sim.pass(60);
    check_now(&sim, phase, containers);
}

#[track_caller]
fn check_now(sim: &Sim, phase: &str, containers: &[(&str, &str, i32)]) {
    assert_eq!(sim.phase(), phase, "{:#?}", sim.done());
    for (name, state, restarts) in containers {
        assert_eq!((sim.state(name).as_str(), sim.restarts(name)), (*state, *restarts), "{name}");
    }
}

fn one(policy: &str, first: Run) -> Sim {
    Sim::of(policy, &["c"]).script("c", &[first, Run::Forever])
}

#[test]
fn succeeded_container_restarts_by_restart_policy() {
    check(one("Always", Run::Ends(5, 0)), "Running", &[("c", "running", 1)]);
    check(one("OnFailure", Run::Ends(5, 0)), "Succeeded", &[("c", "terminated Completed 0", 0)]);
    check(one("Never", Run::Ends(5, 0)), "Succeeded", &[("c", "terminated Completed 0", 0)]);
}

#[test]
fn failed_container_restarts_by_restart_policy() {
    check(one("Always", Run::Ends(5, 1)), "Running", &[("c", "running", 1)]);
    check(one("OnFailure", Run::Ends(5, 1)), "Running", &[("c", "running", 1)]);
    check(one("Never", Run::Ends(5, 1)), "Failed", &[("c", "terminated Error 1", 0)]);
}

fn two(policy: &str) -> Sim {
    Sim::of(policy, &["c1", "c2"]).script("c1", &[Run::Ends(5, 1), Run::Forever])
}

#[test]
fn pod_with_one_of_two_failed_containers_is_running() {
    check(two("Always"), "Running", &[("c1", "running", 1), ("c2", "running", 0)]);
    check(two("OnFailure"), "Running", &[("c1", "running", 1), ("c2", "running", 0)]);
    check(two("Never"), "Running", &[("c1", "terminated Error 1", 0), ("c2", "running", 0)]);
}

#[test]
fn second_exit_decides_phase_while_first_is_not_running() {
    for code in [0, 1] {
        let pod = |policy| {
            Sim::of(policy, &["c1", "c2"])
                .script("c1", &[Run::Ends(5, 1), Run::Ends(5, 1), Run::Forever])
                .script("c2", &[Run::Ends(12, code), Run::Forever])
        };
        // The second container exits while the first one is in backoff.
        let mut sim = pod("Always");
        sim.pass(11);
        check_now(&sim, "Running", &[("c1", "waiting CrashLoopBackOff", 1), ("c2", "running", 0)]);
        check(sim, "Running", &[("c1", "running", 2), ("c2", "running", 1)]);
        let (second, restarts) = if code == 0 { ("terminated Completed 0", 0) } else { ("running", 1) };
        check(pod("OnFailure"), "Running", &[("c1", "running", 2), ("c2", second, restarts)]);
        let second = if code == 0 { "terminated Completed 0" } else { "terminated Error 1" };
        check(pod("Never"), "Failed", &[("c1", "terminated Error 1", 0), ("c2", second, 0)]);
    }
}

#[test]
fn oom_killed_container_restarts_by_restart_policy() {
    check(one("Always", Run::OutOfMemory(5)), "Running", &[("c", "running", 1)]);
    check(one("OnFailure", Run::OutOfMemory(5)), "Running", &[("c", "running", 1)]);
    check(one("Never", Run::OutOfMemory(5)), "Failed", &[("c", "terminated OOMKilled 137", 0)]);
    let mut sim = one("Always", Run::OutOfMemory(5));
    sim.pass(6);
    assert_eq!(sim.last_state("c"), "terminated OOMKilled 137");
}

#[test]
fn evicted_pod_fails_under_any_restart_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut sim = Sim::of(policy, &["c1", "c2"]).on_stop("c2", 3, 0);
        sim.pass(5);
        sim.evict(None);
        assert_eq!(sim.phase(), "Running", "{policy}: not terminal before all containers have stopped");
        check(sim, "Failed", &[("c1", "terminated Error 143", 0), ("c2", "terminated Completed 0", 0)]);
    }
}

#[test]
fn phase_failed_by_controller_terminates_containers() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut sim = Sim::of(policy, &["c"]);
        sim.pass(5);
        let status =
            PodStatus { phase: Some("Failed".to_owned()), reason: Some("NodeLost".to_owned()), ..sim.status() };
        sim.api.status = Some(status);
        sim.expect_terminal("Failed", Some("NodeLost"));
        sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
        check(sim, "Failed", &[("c", "terminated Error 143", 0)]);
    }
}
