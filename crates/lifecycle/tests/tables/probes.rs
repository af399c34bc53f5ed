//! Probe timing and results (`pkg/kubelet/prober`).

use crate::common::{Run, Sim, refused};
use lifecycle::{
    Action, ActionKey, PodLifecycleEvent,
    ProbeKind::{self, *},
    ProbeOutcome::{self, Success},
};
use serde_json::{Value, json};

/// Creates a Pod of one container `c` with these fields.
pub(crate) fn pod(policy: &str, fields: &Value) -> Sim {
    let mut container = json!({"name": "c", "image": "i"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Sim::new(json!({"restartPolicy": policy, "terminationGracePeriodSeconds": 20, "containers": [container]}))
}

pub(crate) fn probe(extra: &Value) -> Value {
    let mut probe = json!({"tcpSocket": {"port": 80}});
    probe.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    probe
}

/// Asserts `started` and `ready` of the container, and the condition Ready.
#[track_caller]
fn check(sim: &Sim, started: bool, ready: bool) {
    let c = sim.container("c");
    assert_eq!((c.started, c.ready, sim.condition("Ready").starts_with("True")), (Some(started), ready, ready));
}

#[track_caller]
fn check_probe_times(extra: &Value, expected: &[u64]) {
    let mut sim = pod("Always", &json!({"livenessProbe": probe(extra)}));
    sim.pass(30);
    assert_eq!(sim.times("Liveness c"), expected, "{extra}");
}

#[test]
fn probe_runs_after_initial_delay_then_every_period() {
    check_probe_times(&json!({}), &[0, 10, 20, 30]);
    check_probe_times(&json!({"initialDelaySeconds": 7}), &[7, 17, 27]);
    check_probe_times(&json!({"initialDelaySeconds": 3, "periodSeconds": 9}), &[3, 12, 21, 30]);
    check_probe_times(&json!({"initialDelaySeconds": 31, "periodSeconds": 1}), &[]);
    check_probe_times(&json!({"periodSeconds": 0, "failureThreshold": 0}), &[0, 10, 20, 30]);
}

#[test]
fn probe_action_is_repeated_with_its_key_until_answered() {
    let mut sim = pod("Always", &json!({"livenessProbe": probe(&json!({}))}));
    sim.pass(45);
    let keys: std::collections::BTreeSet<_> = sim.log.iter().map(|(_, a)| a.key()).collect();
    assert_eq!(keys.iter().filter(|k| matches!(k, ActionKey::Probe { probe: Liveness, .. })).count(), 5);
    sim.now += std::time::Duration::from_secs(100);
    let (first, later) = (sim.next_action().unwrap(), sim.next_action().unwrap());
    assert_eq!(first.key(), later.key());
}

#[test]
fn container_killed_for_restart_is_waiting() {
    let live = probe(&json!({"failureThreshold": 1, "periodSeconds": 5}));
    let mut sim =
        pod("Always", &json!({"livenessProbe": live})).probe("c", Liveness, &[(5, refused())]).on_stop("c", 1, 137);
    sim.pass(5);
    sim.now += std::time::Duration::from_secs(1);
    for (_, end) in sim.runtime.ends(sim.now) {
        sim.observe(end);
    }
    let states = (sim.state("c"), sim.last_state("c"), sim.phase());
    assert_eq!(states, ("waiting ContainerCreating".into(), "terminated Error 137".into(), "Running".into()));
    sim.settle();
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1));
}

#[test]
fn successful_probe_needs_no_checkpoint() {
    let mut sim = pod("Always", &json!({"livenessProbe": probe(&json!({"periodSeconds": 5}))}));
    sim.pass(6);
    let (revision, probes) = (sim.pod.durable_revision(), sim.log.len());
    sim.pass(60);
    assert_eq!((sim.pod.durable_revision(), sim.log.len() - probes), (revision, 12));
    sim.runtime.probe_failures = 1;
    sim.pass(5);
    assert!(sim.pod.durable_revision() > revision, "a failure must be durable");
}

#[test]
fn probe_period_counts_from_probe_start() {
    for (timeout, took, next) in [(1, 1, 10), (5, 4, 10), (30, 25, 25), (1, 9, 18)] {
        let mut sim = pod("Always", &json!({"livenessProbe": probe(&json!({"timeoutSeconds": timeout}))}));
        while !matches!(sim.next_action(), Some(Action::Probe { .. })) {
            let action = sim.next_action().unwrap();
            sim.begin(&action);
            sim.finish(&action);
            sim.report();
        }
        let action = sim.next_action().unwrap();
        sim.begin(&action);
        sim.pass(took);
        sim.finish(&action);
        sim.pass(next - took);
        assert_eq!(sim.times("Liveness c"), [0, next], "timeout {timeout}, took {took}");
    }
}

#[test]
fn readiness_follows_thresholds() {
    let ready = probe(&json!({"periodSeconds": 1, "successThreshold": 2, "failureThreshold": 3}));
    let outcomes = [(0, refused()), (4, Success), (10, refused()), (12, Success), (20, refused()), (30, Success)];
    let mut sim = pod("Always", &json!({"readinessProbe": ready})).probe("c", Readiness, &outcomes);
    let mut changes = Vec::new();
    for second in 0..40 {
        sim.pass(u64::from(second > 0));
        let ready = sim.container("c").ready;
        if changes.last().map_or(ready, |(_, before)| *before != ready) {
            changes.push((second, ready));
        }
        check(&sim, true, ready);
    }
    assert_eq!(changes, [(5, true), (22, false), (31, true)]);
    assert_eq!((sim.restarts("c"), sim.phase().as_str()), (0, "Running"));
    assert_eq!(sim.message_of("Unhealthy"), "Readiness probe failed: HTTP probe failed with statuscode: 500");
}

#[test]
fn unready_container_is_named_in_conditions() {
    let mut sim = pod("Always", &json!({"readinessProbe": probe(&json!({}))})).probe("c", Readiness, &[(0, refused())]);
    sim.pass(100);
    assert_eq!(sim.condition("Ready"), "False ContainersNotReady: containers with unready status: [c]");
    assert_eq!(sim.condition("ContainersReady"), sim.condition("Ready"));
}

#[test]
fn liveness_failure_kills_after_threshold() {
    let live = probe(&json!({"periodSeconds": 5}));
    let mut sim = pod("Always", &json!({"livenessProbe": live})).probe("c", Liveness, &[(20, refused())]);
    sim = sim.on_stop("c", 3, 0);
    sim.pass(29);
    assert_eq!(sim.times("Liveness c"), [0, 5, 10, 15, 20, 25]);
    check(&sim, true, true);
    sim.pass(2);
    assert_eq!(sim.message_of("Killing"), "Container c failed liveness probe, will be restarted");
    assert_eq!((sim.state("c").as_str(), sim.container("c").ready), ("running", true), "it takes its leave");
    sim.pass(15);
    assert_eq!(sim.done_since(30), ["30 stop c 20s", "33 image c", "33 start c 1"]);
    assert_eq!(sim.last_state("c"), "terminated Completed 0");
    assert_eq!(sim.times("Liveness c")[6..], [30, 33, 38, 43]);
    assert_eq!(sim.event_reasons().iter().filter(|r| **r == "Unhealthy").count(), 3);
}

/// Asserts when a container whose probe always fails is killed.
#[track_caller]
fn check_kill_time(kind: ProbeKind, extra: &Value, expected: u64) {
    let field = if kind == Startup { "startupProbe" } else { "livenessProbe" };
    let mut sim = pod("Always", &json!({field: probe(extra)})).probe("c", kind, &[(0, refused())]);
    sim.pass(expected - 1);
    assert!(!sim.event_reasons().contains(&"Killing"), "{kind:?} {extra}");
    sim.pass(1);
    assert_eq!(sim.times("stop c 20s"), [expected], "{kind:?} {extra}");
}

#[test]
fn liveness_never_kills_before_delay_and_periods_elapse() {
    for kind in [Startup, Liveness] {
        check_kill_time(kind, &json!({}), 30);
        check_kill_time(kind, &json!({"failureThreshold": 30}), 300);
        check_kill_time(kind, &json!({"initialDelaySeconds": 15, "periodSeconds": 3}), 24);
        check_kill_time(kind, &json!({"failureThreshold": 1, "periodSeconds": 1}), 1);
    }
}

#[test]
fn startup_probe_gates_other_probes() {
    let all = json!({"startupProbe": probe(&json!({"periodSeconds": 2, "failureThreshold": 50})),
        "livenessProbe": probe(&json!({})), "readinessProbe": probe(&json!({"initialDelaySeconds": 5}))});
    let mut sim = pod("Always", &all).probe("c", Startup, &[(0, refused()), (13, Success)]);
    sim.pass(13);
    check(&sim, false, false);
    assert_eq!((sim.state("c").as_str(), sim.phase().as_str()), ("running", "Running"));
    sim.pass(1);
    check(&sim, true, true);
    sim.pass(12);
    assert_eq!(sim.times("Startup c"), [0, 2, 4, 6, 8, 10, 12, 14]);
    assert_eq!((sim.times("Liveness c"), sim.times("Readiness c")), (vec![14, 24], vec![14, 24]));
}

#[test]
fn startup_failure_kills_after_threshold() {
    let mut sim = pod("Always", &json!({"startupProbe": probe(&json!({"periodSeconds": 2}))}));
    sim = sim.probe("c", Startup, &[(0, refused())]);
    sim.pass(7);
    assert_eq!(sim.message_of("Killing"), "Container c failed startup probe, will be restarted");
    assert_eq!((sim.restarts("c"), sim.last_state("c").as_str()), (1, "terminated Error 143"));
    check(&sim, false, false);
}

/// Without restart rules, the exit code of a probe kill is irrelevant (`computePodActions`).
#[track_caller]
fn check_probe_kill(
    policy: &str,
    container_policy: Option<&str>,
    code: i32,
    killing: &str,
    restarts: i32,
    phase: &str,
) {
    let mut fields = json!({"livenessProbe": probe(&json!({"failureThreshold": 1}))});
    if let Some(container_policy) = container_policy {
        fields["restartPolicy"] = json!(container_policy);
    }
    let mut sim = pod(policy, &fields).probe("c", Liveness, &[(5, refused())]).on_stop("c", 1, code);
    sim.pass(12);
    assert_eq!(
        (sim.message_of("Killing"), sim.restarts("c")),
        (killing, restarts),
        "{policy} {container_policy:?} {code}"
    );
    assert_eq!(sim.phase(), phase, "{policy} {container_policy:?} {code}");
}

#[test]
fn probe_kill_restarts_by_restart_policy() {
    let (again, over) = ("Container c failed liveness probe, will be restarted", "Container c failed liveness probe");
    check_probe_kill("Always", None, 0, again, 1, "Running");
    check_probe_kill("OnFailure", None, 0, again, 1, "Running");
    check_probe_kill("OnFailure", None, 137, again, 1, "Running");
    check_probe_kill("Never", None, 0, over, 0, "Succeeded");
    check_probe_kill("Never", None, 137, over, 0, "Failed");
    check_probe_kill("Never", Some("Always"), 0, again, 1, "Running");
    check_probe_kill("Always", Some("Never"), 143, over, 0, "Failed");
}

#[test]
fn probe_kill_honors_restart_rules() {
    for (code, restarts, phase) in [(42, 1, "Running"), (43, 0, "Failed")] {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
        let fields = json!({"livenessProbe": probe(&json!({"failureThreshold": 1})), "restartPolicy": "Never", "restartPolicyRules": [rule]});
        let mut sim = pod("Never", &fields).probe("c", Liveness, &[(5, refused())]).on_stop("c", 1, code);
        sim.pass(12);
        // The Killing Event is recorded before the exit code is known.
        assert_eq!(sim.message_of("Killing"), "Container c failed liveness probe", "{code}");
        assert_eq!((sim.restarts("c"), sim.phase().as_str()), (restarts, phase), "{code}");
    }
}

#[test]
fn probe_kill_restarts_despite_exit_code_zero() {
    let live = probe(&json!({"failureThreshold": 1}));
    let mut sim =
        pod("OnFailure", &json!({"livenessProbe": live})).probe("c", Liveness, &[(0, refused()), (11, Success)]);
    sim = sim.on_stop("c", 3, 0);
    sim.pass(12);
    assert_eq!((sim.restarts("c"), sim.state("c").as_str()), (0, "running"));
    sim.pass(1);
    let actual = (sim.restarts("c"), sim.state("c"), sim.last_state("c"), sim.phase());
    assert_eq!(actual, (1, "running".to_owned(), "terminated Completed 0".to_owned(), "Running".to_owned()));
}

#[test]
fn probe_kill_uses_probe_grace_else_pod_grace() {
    for (probe_grace, grace) in [(Some(3), 3), (Some(50), 50), (None, 20)] {
        for (kind, field) in [(Startup, "startupProbe"), (Liveness, "livenessProbe")] {
            let extra = json!({"failureThreshold": 1, "terminationGracePeriodSeconds": probe_grace});
            let mut sim = pod("Always", &json!({field: probe(&extra)})).probe("c", kind, &[(0, refused())]);
            sim = sim.on_stop("c", 1000, 0);
            sim.pass(10 + grace - 1);
            assert_eq!(sim.restarts("c"), 0, "{probe_grace:?} {kind:?}");
            sim.pass(1);
            assert_eq!(
                (sim.restarts("c"), sim.last_state("c").as_str()),
                (1, "terminated Error 137"),
                "{probe_grace:?} {kind:?}"
            );
        }
    }
}

#[test]
fn deletion_ignores_probe_grace() {
    let extra = json!({"failureThreshold": 1, "terminationGracePeriodSeconds": 300});
    let mut sim = pod("Always", &json!({"livenessProbe": probe(&extra)})).probe("c", Liveness, &[(0, refused())]);
    sim = sim.on_stop("c", 1000, 0);
    sim.pass(15);
    assert_eq!(sim.times("stop c 300s"), [10]);
    sim.delete(4);
    sim.pass(4);
    assert!(sim.forgotten);
    assert_eq!(sim.times("stop c 4s"), [15]);
}

#[test]
fn only_readiness_probe_runs_during_termination() {
    let fast = || probe(&json!({"periodSeconds": 1, "failureThreshold": 1}));
    let all = json!({"startupProbe": fast(), "livenessProbe": fast(), "readinessProbe": fast()});
    let outcomes = [(12, refused())];
    let mut sim = pod("Always", &all).probe("c", Readiness, &outcomes).probe("c", Liveness, &outcomes);
    sim = sim.on_stop("c", 15, 0);
    sim.pass(10);
    sim.delete(30);
    check(&sim, true, true);
    sim.pass(5);
    check(&sim, true, false);
    assert_eq!((sim.times("Readiness c").last(), sim.times("Liveness c").last()), (Some(&15), Some(&10)));
    assert!(sim.events.iter().all(|e| !e.message.starts_with("Container c failed")));
    sim.pass(20);
    assert!(sim.forgotten);
    assert_eq!(sim.api_phase(), "Succeeded");
}

#[test]
fn unstarted_container_stays_unstarted_during_termination() {
    let all = json!({"startupProbe": probe(&json!({"periodSeconds": 1})), "readinessProbe": probe(&json!({}))});
    let mut sim = pod("Always", &all).probe("c", Startup, &[(0, refused()), (2, Success)]).on_stop("c", 10, 0);
    sim.pass(1);
    sim.delete(30);
    sim.pass(5);
    check(&sim, false, false);
    assert_eq!((sim.times("Startup c").len(), sim.times("Readiness c").len()), (2, 0));
}

#[test]
fn probe_unknown_is_ignored_and_warning_passes() {
    let unknown = || ProbeOutcome::Unknown("no route".to_owned());
    let fast = || probe(&json!({"periodSeconds": 1, "failureThreshold": 2}));
    let outcomes = [(0, Success), (3, refused()), (4, unknown()), (8, Success)];
    let mut sim = pod("Always", &json!({"livenessProbe": fast(), "readinessProbe": fast()}));
    sim = sim.probe("c", Liveness, &outcomes).probe("c", Readiness, &outcomes);
    sim.pass(20);
    assert_eq!((sim.restarts("c"), sim.times("Liveness c").len()), (0, 21));
    check(&sim, true, true);
    let errored = "Readiness probe errored and resulted in unknown state: no route";
    assert!(sim.events.iter().any(|e| e.message == errored && e.reason == "Unhealthy"));
    let warned = ProbeOutcome::Warning("moved to another host".to_owned());
    let mut sim = pod("Always", &json!({"readinessProbe": fast()})).probe("c", Readiness, &[(0, warned)]);
    sim.pass(1);
    check(&sim, true, true);
    assert_eq!(sim.message_of("ProbeWarning"), "Readiness probe warning: moved to another host");
}

#[test]
fn probe_unknown_keeps_failure_streak() {
    let live = probe(&json!({"periodSeconds": 1, "failureThreshold": 2}));
    let outcomes = [(0, Success), (5, refused()), (6, ProbeOutcome::Unknown("no".to_owned())), (7, refused())];
    let mut sim = pod("Always", &json!({"livenessProbe": live})).probe("c", Liveness, &outcomes);
    sim.pass(7);
    assert_eq!(sim.times("stop c 20s"), [7]);
}

#[test]
fn stale_or_unrequested_probe_result_is_ignored() {
    let all = json!({"readinessProbe": probe(&json!({})), "livenessProbe": probe(&json!({"failureThreshold": 1}))});
    let mut sim = pod("Always", &all).script("c", &[Run::Ends(20, 1), Run::Forever]);
    sim.pass(5);
    let old = sim.runtime.containers[0].id.clone();
    sim.pass(30);
    let new = sim.runtime.containers[1].id.clone();
    let before = sim.status();
    for (id, probe) in [(&old, Readiness), (&old, Liveness), (&new, Readiness), (&new, Liveness), (&new, Startup)] {
        sim.observe(PodLifecycleEvent::Probed { id: id.clone(), probe, outcome: refused() });
    }
    sim.settle();
    assert_eq!(sim.status(), before);
    assert!(!sim.event_reasons().contains(&"Unhealthy"));
}

#[test]
fn kubelet_restart_keeps_readiness() {
    for checkpoint in [true, false] {
        for passes in [true, false] {
            let slow = || probe(&json!({"periodSeconds": 100, "successThreshold": 2, "failureThreshold": 2}));
            let mut all = json!({"readinessProbe": slow(), "startupProbe": probe(&json!({}))});
            all["readinessProbe"]["initialDelaySeconds"] = json!(1);
            let (first, later) = if passes { (Success, refused()) } else { (refused(), Success) };
            let mut sim = pod("Always", &all).probe("c", Readiness, &[(0, first), (300, later)]);
            sim.pass(250);
            check(&sim, true, passes);
            if checkpoint {
                sim.restart(60);
            } else {
                sim.restart_without_checkpoint(60);
            }
            check(&sim, true, passes);
            assert!(
                !sim.times("Startup c").iter().any(|at| *at > 0),
                "checkpoint: {checkpoint}, passes: {passes}: the startup probe is not repeated"
            );
            sim.pass(200);
            check(&sim, true, !passes);
        }
    }
}

#[test]
fn failure_streak_reset_survives_kubelet_restart() {
    let live = probe(&json!({"periodSeconds": 1}));
    let outcomes = [(0, Success), (10, refused()), (12, Success), (14, refused()), (15, Success)];
    let mut sim = pod("Always", &json!({"livenessProbe": live})).probe("c", Liveness, &outcomes);
    sim.pass(13);
    sim.restart(1);
    sim.pass(20);
    assert!(sim.times("stop c 20s").is_empty());
}

#[test]
fn explain_shows_pending_probe() {
    let all = json!({"startupProbe": probe(&json!({})), "readinessProbe": probe(&json!({}))});
    let mut sim = pod("Always", &all).probe("c", Startup, &[(0, refused()), (15, Success)]);
    sim = sim.probe("c", Readiness, &[(0, refused())]);
    let because = |sim: &Sim| lifecycle::explain(&sim.pod, &sim.policy, sim.now).because.pop().unwrap();
    sim.pass(12);
    let expected =
        "container c: startup probe has not succeeded, 2 consecutive failures, next probe at 2026-01-01T00:00:20Z";
    assert_eq!(because(&sim), expected);
    sim.pass(10);
    let expected = "container c: readiness probe has not succeeded, 1 failure, next probe at 2026-01-01T00:00:30Z";
    assert_eq!(because(&sim), expected);
    let until = lifecycle::explain(&sim.pod, &sim.policy, sim.now).until.unwrap();
    assert_eq!(until.to_string(), "2026-01-01T00:00:30Z");
}
