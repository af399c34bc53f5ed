//! In-place restart of all containers by a restart rule (KEP-5532).

use crate::common::{Run, Sim};
use api::feature_gates::FeatureGates;
use lifecycle::Action;
use serde_json::{Value, json};
use std::time::Duration;

const ON: &str = "RestartAllContainersOnContainerExits=true,NodeDeclaredFeatures=true";

fn rule() -> Value {
    json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}])
}

/// Creates a Pod with an init container of 1 s, a sidecar, an app that finishes after 3 s, a long-running app, and one
/// whose exit (`source`) restarts all.
fn pod(policy: &str, source: Run) -> Sim {
    let hooks = json!({"preStop": {"sleep": {"seconds": 10}}});
    let mut sim = Sim::new(json!({
        "restartPolicy": policy,
        "terminationGracePeriodSeconds": 30,
        "initContainers": [
            {"name": "init", "image": "i"},
            {"name": "side", "image": "i", "restartPolicy": "Always", "lifecycle": hooks},
        ],
        "containers": [
            {"name": "done", "image": "i", "restartPolicy": "Never"},
            {"name": "main", "image": "i", "lifecycle": hooks},
            {"name": "source", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rule()},
        ],
    }))
    .script("init", &[Run::Ends(1, 0)])
    .script("done", &[Run::Ends(3, 0), Run::Forever])
    .script("source", &[source, Run::Forever])
    .on_stop("main", 25, 0);
    sim.policy.gates = FeatureGates::parse(ON).unwrap();
    sim
}

#[test]
fn restart_all_kills_removes_and_starts_from_first_init() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut sim = pod(policy, Run::Ends(9, 42));
        sim.pass(9);
        assert_eq!(sim.condition("AllContainersRestarting"), "none", "{policy}");
        sim.pass(10);
        let done = sim.done_since(10);
        let kills: Vec<_> = done.iter().filter(|d| d.contains(" stop ") || d.contains("PreStop")).collect();
        assert_eq!(kills, ["10 stop main 0s", "10 stop side 0s"], "{policy}");
        let graces = sim.log.iter().filter_map(|(_, a)| match a {
            Action::StopContainer { grace, .. } => Some(*grace),
            _ => None,
        });
        assert_eq!(graces.collect::<Vec<_>>(), [Duration::ZERO; 2], "{policy}");
        let removed = done.iter().filter(|d| d.contains(" remove ")).count();
        assert_eq!(removed, 5, "{policy}: {done:?}");
        let starts: Vec<_> = done.iter().filter(|d| d.contains(" start ")).collect();
        assert_eq!(
            starts,
            ["10 start init 1", "11 start side 1", "11 start done 1", "11 start main 1", "11 start source 1"],
            "{policy}"
        );
        assert_eq!(sim.times("create sandbox 0"), [0], "{policy}");
        assert!(!done.iter().any(|d| d.contains("sandbox") || d.contains("mount")), "{policy}: {done:?}");
        let counts = ["init", "side", "done", "main", "source"].map(|name| sim.restarts(name));
        assert_eq!(counts, [1; 5], "{policy}");
        assert_eq!(sim.last_state("main"), "terminated RestartingAllContainers 137", "{policy}");
        assert_eq!(sim.last_state("source"), "terminated Error 42", "{policy}");
        assert_eq!(sim.last_state("done"), "terminated Completed 0", "{policy}");
        assert_eq!(sim.condition("AllContainersRestarting"), "False", "{policy}");
        assert_eq!((sim.phase().as_str(), sim.state("main").as_str()), ("Running", "running"), "{policy}");
    }
}

#[test]
fn restart_all_is_shown_in_condition_states_and_phase() {
    let mut sim = pod("Never", Run::Ends(9, 42));
    sim.pass(9);
    // Only the exit of `source` is delivered yet.
    sim.now += Duration::from_secs(1);
    let exit = sim.runtime.ends(sim.now).remove(0).1;
    sim.observe(exit);
    let message = "Container source exited with code 42, triggering pod restart";
    assert_eq!(sim.condition("AllContainersRestarting"), format!("True ContainerExited: {message}"));
    assert_eq!(
        (sim.state("source").as_str(), sim.state("main").as_str()),
        ("waiting RestartingAllContainers", "running")
    );
    assert_eq!(
        sim.condition("ContainersReady"),
        "False ContainersNotReady: containers with unready status: [done source]"
    );
    assert_eq!((sim.condition("Initialized"), sim.phase()), ("True".to_owned(), "Pending".to_owned()));
    sim.settle();
    sim.pass(0);
    // The init container runs again.
    assert_eq!(sim.condition("AllContainersRestarting"), "False");
    assert_eq!((sim.condition("Initialized"), sim.phase()), ("True".to_owned(), "Pending".to_owned()));
    assert_eq!(
        (sim.state("main").as_str(), sim.last_state("source").as_str()),
        ("waiting PodInitializing", "terminated Error 42")
    );
}

#[test]
fn restart_all_continues_after_kubelet_restart() {
    for checkpoint in [true, false] {
        for killed in [false, true] {
            let mut sim = pod("Never", Run::Ends(9, 42));
            sim.pass(9);
            sim.now += Duration::from_secs(1);
            let exit = sim.runtime.ends(sim.now).remove(0).1;
            sim.observe(exit);
            sim.report();
            if killed {
                let stop = sim.next_action().unwrap();
                sim.begin(&stop);
                sim.finish(&stop);
            }
            if checkpoint {
                sim.restart(5);
            } else {
                sim.restart_without_checkpoint(5);
            }
            sim.pass(10);
            let counts = ["init", "side", "done", "main", "source"].map(|name| sim.restarts(name));
            assert_eq!(counts, [1; 5], "checkpoint: {checkpoint}, killed: {killed}");
            assert_eq!(sim.condition("AllContainersRestarting"), "False", "checkpoint: {checkpoint}, killed: {killed}");
            assert_eq!(
                (sim.phase().as_str(), sim.times("create sandbox 0")),
                ("Running", vec![0]),
                "checkpoint: {checkpoint}, killed: {killed}"
            );
        }
    }
}

#[test]
fn restart_all_init_failure_fails_the_pod() {
    let mut sim = pod("Never", Run::Ends(9, 42)).script("init", &[Run::Ends(1, 0), Run::Ends(1, 1)]);
    sim.pass(60);
    assert_eq!((sim.phase().as_str(), sim.api_phase()), ("Failed", "Failed"));
}

#[test]
fn restart_all_can_be_triggered_by_init_and_sidecar() {
    for (at, name, code) in [(0, "init", [42, 0]), (1, "side", [42, 0])] {
        let mut sim = pod("Never", Run::Forever).script(name, &[Run::Ends(1, code[0]), Run::Ends(5, code[1])]);
        let spec = sim.api.spec.as_mut().unwrap();
        let container = &mut spec.init_containers.as_mut().unwrap()[at];
        container.restart_policy.get_or_insert("Never".to_owned());
        container.restart_policy_rules = serde_json::from_value(rule()).unwrap();
        sim.observe(lifecycle::PodLifecycleEvent::Updated(std::sync::Arc::new(sim.api.clone())));
        sim.pass(4);
        assert_eq!(sim.restarts(name), 1, "{name}");
        assert!(sim.events.iter().all(|e| e.reason != "BackOff"), "{name}");
        sim.pass(60);
        assert_eq!((sim.phase().as_str(), sim.state("main").as_str()), ("Running", "running"), "{name}");
    }
}

#[test]
fn restart_all_trigger_backs_off_when_repeated() {
    let mut sim = pod("Never", Run::Ends(2, 42)).script("source", &[Run::Ends(2, 42)]);
    sim.pass(100);
    // `source` exits at 3, 6, 18, 41 and 84 s; the other containers wait only for the init container.
    assert_eq!(sim.starts("source"), [1, 4, 16, 38, 80]);
    assert_eq!(sim.starts("main"), [1, 4, 7, 19, 41, 83]);
}

#[test]
fn restart_all_is_ignored_while_pod_terminates() {
    let mut sim = pod("Never", Run::Forever).on_stop("source", 1, 42);
    sim.pass(9);
    sim.delete(20);
    sim.pass(60);
    assert!(sim.forgotten);
    assert_eq!(sim.starts("source"), [1]);
    // A deletion during the restart ends it.
    let mut sim = pod("Never", Run::Ends(9, 42));
    sim.pass(9);
    sim.now += Duration::from_secs(1);
    let exit = sim.runtime.ends(sim.now).remove(0).1;
    sim.observe(exit);
    sim.delete(20);
    sim.pass(60);
    assert!(sim.forgotten);
    assert_eq!(sim.starts("source"), [1]);
}

/// Asserts the restart counts with these feature gates and this additional first rule of `source`.
#[track_caller]
fn check(gates: &str, first: Option<(&str, i32)>, code: i32, expected: [i32; 2]) {
    let mut sim = pod("Always", Run::Ends(5, code));
    sim.policy.gates = FeatureGates::parse(gates).unwrap();
    let source = &mut sim.api.spec.as_mut().unwrap().containers[2];
    let rules = source.restart_policy_rules.as_mut().unwrap();
    if let Some((action, value)) = first {
        let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": [value]}});
        rules.insert(0, serde_json::from_value(rule).unwrap());
    }
    sim.observe(lifecycle::PodLifecycleEvent::Updated(std::sync::Arc::new(sim.api.clone())));
    sim.pass(30);
    assert_eq!([sim.restarts("source"), sim.restarts("main")], expected, "{gates} {first:?} {code}");
}

#[test]
fn restart_rule_first_match_wins_if_its_gate_is_on() {
    check(ON, None, 42, [1, 1]);
    check(ON, None, 41, [0, 0]);
    check(ON, Some(("Restart", 42)), 42, [1, 0]);
    check(ON, Some(("Restart", 41)), 42, [1, 1]);
    check(ON, Some(("RestartAllContainers", 41)), 41, [1, 1]);
    check("", None, 42, [0, 0]);
    check("", Some(("RestartAllContainers", 42)), 42, [0, 0]);
}
