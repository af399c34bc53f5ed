//! Probe kills and the probes of the next container (`pkg/kubelet/prober`).

use super::probes::{pod, probe};
use crate::common::{Run, refused};
use lifecycle::ProbeKind::{self, Liveness, Startup};
use serde_json::json;

/// Two runs exit one failure before the threshold, with or without a kubelet restart in between; only the third run is
/// killed, after three failures of its own.
#[track_caller]
fn check_failures_reset(kind: ProbeKind, restart_kubelet: bool) {
    let field = if kind == Startup { "startupProbe" } else { "livenessProbe" };
    let mut sim = pod("Always", &json!({field: probe(&json!({"periodSeconds": 1}))}));
    sim = sim.probe("c", kind, &[(0, refused())]).script("c", &[Run::Ends(2, 1), Run::Ends(2, 1), Run::Forever]);
    let mut probes = Vec::new();
    for restarts in 0..3 {
        while sim.restarts("c") < restarts || sim.state("c") != "running" {
            sim.pass(1);
        }
        let before = sim.times(&format!("{kind:?} c")).len();
        sim.pass(1);
        if restart_kubelet {
            sim.restart(0);
        }
        while sim.state("c") == "running" && sim.restarts("c") == restarts {
            sim.pass(1);
        }
        probes.push(sim.times(&format!("{kind:?} c")).len() - before);
    }
    assert_eq!(
        sim.event_reasons().iter().filter(|r| **r == "Killing").count(),
        1,
        "{kind:?} {restart_kubelet} {probes:?}"
    );
}

#[test]
fn probe_failures_do_not_carry_over_to_the_next_container() {
    for kind in [Startup, Liveness] {
        for restart_kubelet in [false, true] {
            check_failures_reset(kind, restart_kubelet);
        }
    }
}

/// Asserts the Killing Events of a Pod that is deleted while a liveness failure is stopping its container.
#[track_caller]
fn check_killing_events(policy: &str, expected: &[&str]) {
    let live = probe(&json!({"failureThreshold": 1}));
    let mut sim = pod(policy, &json!({"livenessProbe": live})).probe("c", Liveness, &[(0, refused())]);
    sim = sim.on_stop("c", 8, 0);
    sim.pass(12);
    sim.delete(20);
    sim.pass(10);
    assert!(sim.forgotten);
    let killing = sim.events.iter().filter(|e| e.reason == "Killing");
    assert_eq!(killing.map(|e| e.message.as_str()).collect::<Vec<_>>(), expected, "{policy}");
}

#[test]
fn deletion_during_probe_kill_records_a_killing_event() {
    let stopping = "Stopping container c";
    check_killing_events("Always", &["Container c failed liveness probe, will be restarted", stopping]);
    check_killing_events("OnFailure", &["Container c failed liveness probe, will be restarted", stopping]);
    check_killing_events("Never", &["Container c failed liveness probe"]);
}
