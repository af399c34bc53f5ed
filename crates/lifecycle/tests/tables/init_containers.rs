//! Init containers (`computeInitContainerActions`).

use crate::common::{Run, Sim};
use serde_json::{Value, json};

fn spec(policy: &str, first: Value) -> Value {
    let mut init = json!({"name": "i1", "image": "i"});
    init.as_object_mut().unwrap().extend(first.as_object().unwrap().clone());
    json!({"restartPolicy": policy, "initContainers": [init, {"name": "i2", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]})
}

fn pod(policy: &str, first: &[Run]) -> Sim {
    Sim::new(spec(policy, json!({}))).script("i1", first).script("i2", &[Run::Ends(5, 0)])
}

/// Asserts the phase, the states of i1, i2 and c, and the restart count of i1 after 30 s.
#[track_caller]
fn check(mut sim: Sim, phase: &str, states: [&str; 3], restarts: i32) {
    sim.pass(30);
    let actual = ["i1", "i2", "c"].map(|name| sim.state(name));
    assert_eq!((sim.phase().as_str(), actual), (phase, states.map(str::to_owned)));
    assert_eq!(sim.restarts("i1"), restarts);
}

#[test]
fn init_containers_run_in_order_before_app() {
    let mut sim = pod("Always", &[Run::Ends(5, 0)]);
    sim.pass(60);
    assert_eq!((sim.starts("i1"), sim.starts("i2"), sim.starts("c")), (vec![0], vec![5], vec![10]));
    assert!(sim.container("i1").ready && sim.container("i2").ready);
}

#[test]
fn failed_init_container_restarts_unless_policy_is_never() {
    let done = "terminated Completed 0";
    let fails_once = [Run::Ends(5, 1), Run::Ends(5, 0)];
    check(pod("Always", &fails_once), "Running", [done, done, "running"], 1);
    check(pod("OnFailure", &fails_once), "Running", [done, done, "running"], 1);
    check(
        pod("Never", &fails_once),
        "Failed",
        ["terminated Error 1", "waiting PodInitializing", "waiting PodInitializing"],
        0,
    );
}

#[test]
fn init_container_that_keeps_failing_keeps_pod_pending() {
    let initializing = "waiting PodInitializing";
    check(pod("Always", &[Run::Ends(1, 1)]), "Pending", ["waiting CrashLoopBackOff", initializing, initializing], 2);
}

#[test]
fn init_container_restart_policy_and_rules_override_the_pod() {
    let done = "terminated Completed 0";
    let initializing = "waiting PodInitializing";
    let with = |policy, first: Value, code| {
        Sim::new(spec(policy, first))
            .script("i1", &[Run::Ends(5, code), Run::Ends(5, 0)])
            .script("i2", &[Run::Ends(5, 0)])
    };
    let failed = |code| format!("terminated Error {code}");
    check(with("Never", json!({"restartPolicy": "OnFailure"}), 1), "Running", [done, done, "running"], 1);
    check(with("Always", json!({"restartPolicy": "Never"}), 1), "Failed", [&failed(1), initializing, initializing], 0);
    let rules = json!({"restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]});
    check(with("Never", rules.clone(), 42), "Running", [done, done, "running"], 1);
    check(with("Always", rules, 41), "Failed", [&failed(41), initializing, initializing], 0);
}

#[test]
fn succeeded_init_container_ignores_restart_rules() {
    let rules = json!({"restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [0]}}]});
    let done = "terminated Completed 0";
    let sim = Sim::new(spec("Never", rules)).script("i1", &[Run::Ends(5, 0)]).script("i2", &[Run::Ends(5, 0)]);
    check(sim, "Running", [done, done, "running"], 0);
}

#[test]
fn init_containers_do_not_rerun_when_app_restarts() {
    let mut sim = pod("Always", &[Run::Ends(1, 0)]).script("c", &[Run::Ends(5, 1), Run::Forever]);
    sim.pass(60);
    assert_eq!((sim.starts("i1").len(), sim.starts("i2").len(), sim.starts("c").len()), (1, 1, 2));
}

#[test]
fn deletion_during_initialization_starts_no_container() {
    let mut sim = pod("Always", &[Run::Forever]).on_stop("i1", 2, 0);
    sim.pass(5);
    sim.delete(30);
    sim.pass(10);
    assert!(sim.forgotten);
    assert!(sim.starts("i2").is_empty() && sim.starts("c").is_empty());
    assert_eq!(sim.api_phase(), "Failed");
}
