//! Sidecars: init containers with `restartPolicy: Always` (KEP-753).

use crate::common::{Run, Sim, refused};
use lifecycle::{Hook, HookOutcome, ProbeKind, ProbeOutcome};
use serde_json::json;

/// Creates a Pod with sidecar s1, init container i, sidecar s2 and app container c.
fn pod(policy: &str) -> Sim {
    let sidecar = |name| json!({"name": name, "image": "i", "restartPolicy": "Always"});
    Sim::new(json!({"restartPolicy": policy, "terminationGracePeriodSeconds": 20,
        "initContainers": [sidecar("s1"), {"name": "i", "image": "i"}, sidecar("s2")],
        "containers": [{"name": "c", "image": "i"}]}))
    .script("i", &[Run::Ends(5, 0)])
}

#[track_caller]
fn check(sim: &Sim, phase: &str, states: [&str; 4]) {
    let actual = ["s1", "i", "s2", "c"].map(|name| sim.state(name));
    assert_eq!((sim.phase().as_str(), actual), (phase, states.map(str::to_owned)));
}

const DONE: &str = "terminated Completed 0";
const INITIALIZING: &str = "waiting PodInitializing";

#[test]
fn sidecars_start_in_order_and_keep_running() {
    let mut sim = pod("Always");
    sim.pass(1);
    check(&sim, "Pending", ["running", "running", INITIALIZING, INITIALIZING]);
    assert!(sim.condition("Initialized").ends_with("incomplete status: [i s2]"));
    sim.pass(5);
    check(&sim, "Running", ["running", DONE, "running", "running"]);
    assert_eq!((sim.condition("Initialized").as_str(), sim.condition("Ready").as_str()), ("True", "True"));
    assert_eq!(
        (sim.starts("s1"), sim.starts("i"), sim.starts("s2"), sim.starts("c")),
        (vec![0], vec![0], vec![5], vec![5])
    );
}

#[test]
fn sidecar_that_cannot_start_blocks_later_containers() {
    let mut sim = pod("Always").script("s1", &[Run::Ends(0, 1)]);
    sim.runtime.image_failures = [("ErrImagePull", "no"); 100].into();
    sim.pass(5);
    check(&sim, "Pending", ["waiting ImagePullBackOff", INITIALIZING, INITIALIZING, INITIALIZING]);
}

#[test]
fn sidecar_that_fails_after_start_blocks_nothing() {
    let mut sim = pod("Never").script("s1", &[Run::Ends(1, 5); 9]).script("s2", &[Run::Ends(1, 5); 9]);
    sim.pass(6);
    // s1 is in backoff since 2 s; i, s2 and c do not wait for it.
    check(&sim, "Running", ["waiting CrashLoopBackOff", DONE, "running", "running"]);
    assert_eq!((sim.starts("s1"), sim.starts("i"), sim.starts("s2")), (vec![0, 1], vec![0], vec![5, 6]));
    assert_eq!(sim.starts("c"), [5]);
    sim.pass(7);
    assert_eq!((sim.starts("s1"), sim.starts("s2"), sim.starts("c")), (vec![0, 1, 12], vec![5, 6], vec![5]));
}

#[test]
fn init_container_is_retried_while_earlier_sidecar_backs_off() {
    let mut sim = pod("Always").script("s1", &[Run::Ends(1, 5); 9]).script("i", &[Run::Ends(3, 6), Run::Ends(3, 0)]);
    sim.pass(7);
    check(&sim, "Running", ["waiting CrashLoopBackOff", DONE, "running", "running"]);
    assert_eq!((sim.starts("i"), sim.starts("c")), (vec![0, 3], vec![6]));
}

#[test]
fn sidecar_that_fails_before_started_blocks_later_containers() {
    // The startup probe does not succeed before the first exit.
    let probe = json!({"exec": {"command": ["c"]}, "periodSeconds": 1, "failureThreshold": 100});
    let mut sim = Sim::new(json!({"restartPolicy": "Always",
        "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "startupProbe": probe}],
        "containers": [{"name": "c", "image": "i"}]}))
    .script("s", &[Run::Ends(3, 5), Run::Forever])
    .probe("s", ProbeKind::Startup, &[(0, refused()), (4, ProbeOutcome::Success)]);
    sim.pass(6);
    assert_eq!((sim.starts("s"), sim.starts("c")), (vec![0, 3], vec![]));
    sim.pass(4);
    assert_eq!((sim.starts("s"), sim.starts("c")), (vec![0, 3], vec![7]));
}

#[test]
fn sidecar_restarts_under_any_policy_and_exit_code() {
    for policy in ["Always", "OnFailure", "Never"] {
        for code in [0, 1] {
            let mut sim = pod(policy).script("s2", &[Run::Ends(3, code), Run::Ends(3, code), Run::Forever]);
            sim.pass(60);
            check(&sim, "Running", ["running", DONE, "running", "running"]);
            assert_eq!((sim.starts("s2"), sim.restarts("s2")), (vec![5, 8, 21], 2), "{policy} {code}");
        }
    }
}

#[test]
fn sidecar_ignores_restart_rules() {
    let codes = |operator: &str| json!({"operator": operator, "values": [7]});
    for operator in ["In", "NotIn"] {
        let rules = json!([{"action": "Restart", "exitCodes": codes(operator)}]);
        let mut sim = Sim::new(json!({"restartPolicy": "Never",
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "restartPolicyRules": rules}],
            "containers": [{"name": "c", "image": "i"}]}))
        .script("s", &[Run::Ends(3, 0), Run::Ends(3, 7), Run::Forever]);
        sim.pass(60);
        assert_eq!((sim.state("s").as_str(), sim.restarts("s")), ("running", 2), "{operator}");
    }
}

#[test]
fn waiting_sidecar_makes_pod_unready() {
    let mut sim = pod("Always").script("s2", &[Run::Ends(1, 1)]);
    sim.pass(10);
    check(&sim, "Running", ["running", DONE, "waiting CrashLoopBackOff", "running"]);
    assert_eq!(sim.condition("Ready"), "False ContainersNotReady: containers with unready status: [s2]");
    assert_eq!(sim.condition("Initialized"), "True");
}

#[test]
fn sidecars_do_not_affect_completion_or_phase() {
    for (policy, code, phase) in [("Never", 0, "Succeeded"), ("OnFailure", 0, "Succeeded"), ("Never", 1, "Failed")] {
        let mut sim = pod(policy).script("c", &[Run::Ends(5, code)]).on_stop("s1", 2, 7).on_stop("s2", 3, 0);
        sim.pass(12);
        assert_eq!(sim.phase(), "Running", "{policy}, exit code {code}: a sidecar still runs");
        let at = sim.done().iter().position(|d| d.starts_with("10 ")).unwrap();
        sim.pass(10);
        assert_eq!(sim.phase(), phase, "{policy}, exit code {code}");
        assert_eq!(
            sim.done()[at..],
            ["10 stop s2 20s", "13 stop s1 17s", "15 stop sandbox", "15 unmount"],
            "{policy}, exit code {code}"
        );
        assert_eq!(
            (sim.state("s1").as_str(), sim.restarts("s1")),
            ("terminated Error 7", 0),
            "{policy}, exit code {code}"
        );
    }
}

#[test]
fn deletion_stops_sidecars_in_reverse_order() {
    let mut sim = pod("Always").on_stop("c", 4, 0).on_stop("s2", 3, 0).on_stop("s1", 2, 0);
    sim.pass(10);
    let since = sim.log.len();
    sim.delete(30);
    sim.pass(20);
    assert_eq!(sim.done()[since..since + 4], ["10 stop c 30s", "14 stop s2 26s", "17 stop s1 23s", "19 stop sandbox"]);
    assert!(sim.forgotten);
    assert_eq!(sim.api_phase(), "Succeeded");
}

#[test]
fn sidecars_share_the_grace_deadline_and_get_2s_minimum() {
    let mut sim = pod("Always").on_stop("c", 1000, 0).on_stop("s1", 1000, 0).on_stop("s2", 1000, 0);
    sim.pass(10);
    let since = sim.log.len();
    sim.delete(20);
    sim.pass(19);
    assert_eq!(sim.done()[since..], ["10 stop c 20s"]);
    sim.pass(3);
    assert_eq!(sim.done()[since + 1..since + 3].iter().collect::<std::collections::BTreeSet<_>>().len(), 2);
    assert!(sim.forgotten);
    assert_eq!(sim.log.last().unwrap().0, 32);
}

#[test]
fn sidecar_startup_probe_gates_the_next_container() {
    let probe = json!({"tcpSocket": {"port": 80}, "periodSeconds": 2, "failureThreshold": 10});
    let mut sim = Sim::new(json!({"initContainers": [
            {"name": "s1", "image": "i", "restartPolicy": "Always", "startupProbe": probe.clone(), "readinessProbe": probe},
            {"name": "i", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]}))
    .script("i", &[Run::Ends(5, 0)])
    .probe("s1", ProbeKind::Startup, &[(0, refused()), (7, ProbeOutcome::Success)])
    .probe("s1", ProbeKind::Readiness, &[(0, refused()), (20, ProbeOutcome::Success)]);
    sim.pass(6);
    assert_eq!((sim.container("s1").started, sim.state("i").as_str()), (Some(false), INITIALIZING));
    assert!(sim.condition("Initialized").ends_with("incomplete status: [s1 i]"));
    sim.pass(8);
    // Readiness does not gate the next container.
    assert_eq!((sim.starts("i"), sim.starts("c")), (vec![8], vec![13]));
    assert_eq!(sim.condition("Initialized"), "True");
    assert_eq!(sim.condition("Ready"), "False ContainersNotReady: containers with unready status: [s1]");
    sim.pass(10);
    assert_eq!(sim.condition("Ready"), "True");
}

#[test]
fn sidecar_liveness_restart_happens_during_another_pre_stop() {
    let alive = |period: u32| json!({"tcpSocket": {"port": 80}, "periodSeconds": period, "failureThreshold": 1});
    let hook = json!({"preStop": {"exec": {"command": ["true"]}}});
    let mut sim = Sim::new(json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 100,
        "initContainers": [{"name": "s1", "image": "i", "restartPolicy": "Always", "livenessProbe": alive(1)}],
        "containers": [{"name": "c", "image": "i", "livenessProbe": alive(10), "lifecycle": hook}]}))
    .probe("c", ProbeKind::Liveness, &[(1, refused())])
    .hook("c", Hook::PreStop, 20, HookOutcome::Done)
    .probe("s1", ProbeKind::Liveness, &[(15, refused())]);
    sim.pass(20);
    assert_eq!((sim.done_since(10)[0].as_str(), sim.state("c").as_str()), ("10 PreStop c 100s", "running"));
    assert_eq!((sim.starts("s1"), sim.times("Liveness s1").last()), (vec![0, 15], Some(&20)));
}

#[test]
fn failed_init_container_stops_sidecars() {
    let mut sim = pod("Never").script("i", &[Run::Ends(5, 1)]).on_stop("s1", 3, 0);
    sim.pass(6);
    assert_eq!(sim.phase(), "Pending");
    sim.pass(10);
    check(&sim, "Failed", [DONE, "terminated Error 1", INITIALIZING, INITIALIZING]);
}

#[test]
fn sidecar_is_not_restarted_during_termination() {
    let mut sim = pod("Always").on_stop("c", 10, 0).script("s1", &[Run::Ends(15, 1)]);
    sim.pass(10);
    sim.delete(30);
    sim.pass(30);
    assert_eq!(sim.starts("s1"), [0]);
    assert!(sim.forgotten);
}
