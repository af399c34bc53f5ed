//! Container restart decisions (`ContainerShouldRestart`).

use crate::common::{Run, Sim};
use serde_json::{Value, json};

/// Asserts whether a container with these fields is restarted after it exits with this code.
#[track_caller]
fn check(pod_policy: &str, container: Value, code: i32, restarted: bool) {
    let mut spec = json!({"name": "c", "image": "i"});
    spec.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let spec = json!({"restartPolicy": pod_policy, "containers": [spec, {"name": "other", "image": "i"}]});
    let mut sim = Sim::new(spec.clone()).script("c", &[Run::Ends(5, code), Run::Forever]);
    sim.pass(10);
    let state = if code == 0 { "terminated Completed 0".to_owned() } else { format!("terminated Error {code}") };
    let expected = if restarted { ("running".to_owned(), 1, vec![0, 5]) } else { (state, 0, vec![0]) };
    assert_eq!((sim.state("c"), sim.restarts("c"), sim.starts("c")), expected, "{spec} {code}");
    assert_eq!(sim.phase(), "Running");
}

#[test]
fn pod_restart_policy_decides_by_default() {
    for (policy, success, failure) in [("Always", true, true), ("OnFailure", false, true), ("Never", false, false)] {
        check(policy, json!({}), 0, success);
        for code in [1, 2, 126, 127, 128, 137, 139, 143, 255, -1] {
            check(policy, json!({}), code, failure);
        }
    }
}

#[test]
fn container_restart_policy_overrides_the_pod() {
    for pod in ["Always", "OnFailure", "Never"] {
        for (container_policy, success, failure) in
            [("Always", true, true), ("OnFailure", false, true), ("Never", false, false)]
        {
            check(pod, json!({"restartPolicy": container_policy}), 0, success);
            check(pod, json!({"restartPolicy": container_policy}), 3, failure);
        }
    }
}

fn rules(container_policy: &str, rules: &[(&str, &[i32])]) -> Value {
    let rules: Vec<_> = rules
        .iter()
        .map(|(operator, values)| json!({"action": "Restart", "exitCodes": {"operator": operator, "values": values}}))
        .collect();
    json!({"restartPolicy": container_policy, "restartPolicyRules": rules})
}

#[test]
fn matching_restart_rule_overrides_restart_policies() {
    let in_42 = || rules("Never", &[("In", &[42, 43])]);
    for pod in ["Always", "OnFailure", "Never"] {
        check(pod, in_42(), 42, true);
        check(pod, in_42(), 43, true);
        check(pod, in_42(), 41, false);
        check(pod, in_42(), 0, false);
        check(pod, rules("Never", &[("NotIn", &[42])]), 42, false);
        check(pod, rules("Never", &[("NotIn", &[42])]), 0, true);
        check(pod, rules("Never", &[("NotIn", &[42])]), 1, true);
        check(pod, rules("OnFailure", &[("In", &[0])]), 0, true);
        check(pod, rules("OnFailure", &[("In", &[0])]), 1, true);
    }
}

#[test]
fn container_policy_decides_without_matching_rule() {
    check("Never", rules("OnFailure", &[("In", &[42])]), 1, true);
    check("Always", rules("Never", &[("In", &[42]), ("In", &[44])]), 43, false);
    check("Always", rules("Never", &[("In", &[42]), ("In", &[44])]), 44, true);
    check("Always", rules("Never", &[]), 1, false);
}

#[test]
fn restart_rules_without_container_policy_are_ignored() {
    let rule = json!({"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]});
    check("Never", rule, 42, false);
}

#[test]
fn pod_policy_decides_without_the_rules_gate_except_sidecars() {
    for (pod, own, code, restarted) in [
        ("Never", "Always", 1, 0),
        ("Never", "OnFailure", 1, 0),
        ("Always", "Never", 1, 1),
        ("OnFailure", "Always", 0, 0),
    ] {
        let mut spec = json!({"restartPolicy": pod, "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}],
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}]});
        spec["containers"][0].as_object_mut().unwrap().extend(rules(own, &[("In", &[1])]).as_object().unwrap().clone());
        let mut sim = Sim::new(spec)
            .script("c", &[Run::Ends(5, code), Run::Forever])
            .script("s", &[Run::Ends(5, code), Run::Forever]);
        sim.policy.gates = api::feature_gates::FeatureGates::parse("ContainerRestartRules=false").unwrap();
        sim.pass(10);
        assert_eq!((sim.restarts("c"), sim.restarts("s")), (restarted, 1), "{pod} {own} {code}");
    }
}

#[test]
fn init_container_restart_policy_and_rules_decide() {
    for (pod, own, code, restarts, phase) in [
        ("Always", rules("Never", &[]), 1, 0, "Failed"),
        ("Never", rules("OnFailure", &[]), 1, 1, "Running"),
        ("Never", rules("Never", &[("In", &[42])]), 42, 1, "Running"),
        ("Never", rules("Never", &[("In", &[42])]), 1, 0, "Failed"),
        ("Always", rules("Never", &[("NotIn", &[42])]), 42, 0, "Failed"),
        // A succeeded init container is done.
        ("Always", rules("Never", &[("In", &[0])]), 0, 0, "Running"),
    ] {
        let mut init = json!({"name": "i", "image": "i"});
        init.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let spec = json!({"restartPolicy": pod, "initContainers": [init], "containers": [{"name": "c", "image": "i"}]});
        let mut sim = Sim::new(spec.clone()).script("i", &[Run::Ends(5, code), Run::Ends(1, 0)]);
        sim.pass(20);
        assert_eq!((sim.restarts("i"), sim.phase().as_str()), (restarts, phase), "{spec} {code}");
    }
}

/// Asserts the phase of a Pod whose two containers exited with these codes.
#[track_caller]
fn check_phase(policy: &str, codes: [i32; 2], expected: &str) {
    let mut sim = Sim::of(policy, &["a", "b"])
        .script("a", &[Run::Ends(1, codes[0]), Run::Forever])
        .script("b", &[Run::Ends(2, codes[1]), Run::Forever]);
    sim.pass(5);
    assert_eq!(sim.phase(), expected, "{policy} {codes:?}");
    assert_eq!(sim.api_phase(), expected);
}

#[test]
fn phase_follows_exit_codes_and_restart_policy() {
    for (codes, on_failure, never) in [
        ([0, 0], "Succeeded", "Succeeded"),
        ([0, 1], "Running", "Failed"),
        ([1, 0], "Running", "Failed"),
        ([1, 1], "Running", "Failed"),
    ] {
        check_phase("Always", codes, "Running");
        check_phase("OnFailure", codes, on_failure);
        check_phase("Never", codes, never);
    }
}

#[test]
fn last_state_and_restart_count_describe_the_previous_run() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(5, 1), Run::OutOfMemory(20), Run::Forever]);
    let table = [
        (4, "running", "none", 0),
        (5, "running", "terminated Error 1", 1),
        (24, "running", "terminated Error 1", 1),
        (25, "waiting CrashLoopBackOff", "terminated OOMKilled 137", 1),
        (35, "running", "terminated OOMKilled 137", 2),
    ];
    let mut at = 0;
    for (seconds, state, last, restarts) in table {
        sim.pass(seconds - at);
        at = seconds;
        assert_eq!((sim.state("c").as_str(), sim.last_state("c").as_str()), (state, last), "after {seconds} s");
        assert_eq!(sim.restarts("c"), restarts, "after {seconds} s");
    }
    // Of two dead containers the older one is removed, and the newer one kept for its log.
    assert_eq!(sim.runtime.containers.len(), 2);
}
