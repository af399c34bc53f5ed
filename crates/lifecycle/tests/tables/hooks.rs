//! Lifecycle hooks: postStart is part of the start, preStop of the grace period (`killContainer` in
//! `kuberuntime_container.go`).

use crate::{
    common::{Run, Sim, refused},
    probes::pod,
};
use api::feature_gates::FeatureGates;
use lifecycle::{
    Hook,
    HookOutcome::{self, Done},
    ProbeKind::*,
};
use serde_json::{Value, json};

fn hooks(which: &[&str]) -> Value {
    let all: serde_json::Map<_, _> =
        which.iter().map(|hook| ((*hook).to_owned(), json!({"exec": {"command": ["true"]}}))).collect();
    json!({"lifecycle": all})
}

fn failed() -> HookOutcome {
    HookOutcome::Failed("password: secret".to_owned())
}

fn pod_with_post_start(policy: &str, seconds: u64, outcome: HookOutcome) -> Sim {
    pod(policy, &hooks(&["postStart"])).hook("c", Hook::PostStart, seconds, outcome)
}

#[test]
fn container_is_waiting_until_post_start_is_done() {
    let mut sim = pod_with_post_start("Always", 5, Done);
    sim.pass(4);
    let c = sim.container("c");
    assert_eq!((sim.state("c").as_str(), c.started, c.ready), ("waiting ContainerCreating", Some(false), false));
    assert_eq!((sim.phase().as_str(), sim.times("PostStart c")), ("Pending", vec![0]));
    sim.pass(1);
    let c = sim.container("c");
    assert_eq!((sim.state("c").as_str(), c.started, c.ready), ("running", Some(true), true));
    sim.pass(100);
    assert_eq!((sim.phase().as_str(), sim.times("PostStart c")), ("Running", vec![0]));
}

#[test]
fn post_start_runs_at_each_start_before_probes() {
    let mut fields = hooks(&["postStart"]);
    fields["livenessProbe"] = json!({"tcpSocket": {"port": 80}});
    let mut sim = pod("Always", &fields).script("c", &[Run::Ends(18, 1), Run::Forever]);
    sim = sim.hook("c", Hook::PostStart, 3, Done);
    sim.pass(22);
    assert_eq!((sim.times("PostStart c"), sim.times("Liveness c")), (vec![0, 18], vec![3, 13, 21]));
    assert_eq!(sim.phase(), "Running");
}

#[test]
fn slow_post_start_delays_later_containers() {
    let mut first = json!({"name": "a", "image": "i"});
    first["lifecycle"] = hooks(&["postStart"])["lifecycle"].clone();
    let mut sim = Sim::new(json!({"containers": [first, {"name": "b", "image": "i"}]}));
    sim = sim.hook("a", Hook::PostStart, 7, Done);
    sim.pass(20);
    assert_eq!((sim.starts("a"), sim.starts("b")), (vec![0], vec![7]));
}

#[test]
fn post_start_failure_kills_the_container() {
    let mut sim = pod_with_post_start("Always", 2, failed()).on_stop("c", 3, 1);
    sim.pass(3);
    assert_eq!((sim.state("c").as_str(), sim.phase().as_str()), ("waiting PostStartHookError", "Pending"));
    assert_eq!(sim.message_of("FailedPostStartHook"), "PostStartHook failed");
    assert_eq!(sim.message_of("Killing"), "FailedPostStartHook");
    assert!(sim.events.iter().all(|e| !e.message.contains("secret")));
    sim.pass(8);
    assert_eq!(
        (sim.state("c").as_str(), sim.last_state("c").as_str()),
        ("waiting CrashLoopBackOff", "terminated Error 1")
    );
    assert_eq!((sim.starts("c"), sim.times("stop c 20s")), (vec![0, 5], vec![2, 7]));
    let mut sim = pod_with_post_start("Never", 2, failed());
    sim.pass(10);
    assert_eq!((sim.phase().as_str(), sim.starts("c")), ("Failed", vec![0]));
}

#[test]
fn container_that_exits_during_post_start_is_terminated() {
    let mut sim = pod_with_post_start("Never", 10, failed()).script("c", &[Run::Ends(4, 3)]);
    sim.pass(20);
    assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Failed", "terminated Error 3"));
    assert!(sim.event_reasons().contains(&"FailedPostStartHook"));
    assert!(!sim.event_reasons().contains(&"Killing"));
}

fn deleted_pod_with_pre_stop(grace: i64, seconds: u64, outcome: HookOutcome) -> Sim {
    let mut sim = pod("Always", &hooks(&["preStop"])).hook("c", Hook::PreStop, seconds, outcome);
    sim = sim.on_stop("c", 1000, 0);
    sim.pass(10);
    sim.delete(grace);
    sim.pass(100);
    sim
}

/// Asserts the actions after a deletion at second 10 of a container that never exits by itself.
#[track_caller]
fn check(grace: i64, seconds: u64, expected: [&str; 3]) {
    let sim = deleted_pod_with_pre_stop(grace, seconds, Done);
    assert!(sim.forgotten);
    assert_eq!(sim.done_since(10)[..3], expected, "grace {grace}, a hook of {seconds} s");
}

#[test]
fn pre_stop_uses_grace_period_and_container_gets_2s_minimum() {
    check(30, 0, ["10 PreStop c 30s", "10 stop c 30s", "40 stop sandbox"]);
    check(30, 12, ["10 PreStop c 30s", "22 stop c 18s", "40 stop sandbox"]);
    check(30, 29, ["10 PreStop c 30s", "39 stop c 2s", "41 stop sandbox"]);
    check(30, 30, ["10 PreStop c 30s", "40 stop c 2s", "42 stop sandbox"]);
    check(30, 90, ["10 PreStop c 30s", "40 stop c 2s", "42 stop sandbox"]);
    check(1, 5, ["10 PreStop c 1s", "11 stop c 2s", "13 stop sandbox"]);
}

#[test]
fn pre_stop_failure_event_has_no_details_and_timeout_has_none() {
    let reasons = |sim: &Sim| sim.event_reasons().contains(&"FailedPreStopHook");
    let sim = deleted_pod_with_pre_stop(30, 5, failed());
    assert_eq!(sim.message_of("FailedPreStopHook"), "PreStopHook failed");
    assert_eq!(sim.times("stop c 25s"), [15]);
    assert_eq!(
        (reasons(&deleted_pod_with_pre_stop(30, 50, Done)), reasons(&deleted_pod_with_pre_stop(30, 5, Done))),
        (false, false)
    );
}

#[test]
fn pre_stop_is_not_run_with_zero_grace() {
    let mut sim = pod("Always", &hooks(&["preStop"])).on_stop("c", 1000, 0);
    sim.pass(10);
    sim.force_delete();
    sim.pass(10);
    assert_eq!(sim.done_since(10)[..2], ["10 stop c 2s", "12 stop sandbox"]);
    let mut sim = pod("Always", &hooks(&["preStop"])).on_stop("c", 1000, 0);
    sim.pass(10);
    sim.delete(0);
    sim.pass(10);
    assert_eq!(sim.done_since(10)[..2], ["10 stop c 2s", "12 stop sandbox"]);
    let mut sim = pod("Always", &hooks(&["preStop"])).on_stop("c", 1000, 0);
    sim.pass(10);
    sim.evict(Some(0));
    sim.pass(10);
    assert_eq!(sim.done_since(10)[..2], ["10 stop c 2s", "12 stop sandbox"]);
}

/// The Pod has zero grace; its container fails its liveness probe, or exceeds the Pod's deadline.
#[test]
fn pre_stop_is_not_run_with_zero_pod_grace_unless_deleted() {
    let spec = |fields: &Value| {
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().unwrap().extend(hooks(&["preStop"]).as_object().unwrap().clone());
        let live = json!({"tcpSocket": {"port": 80}, "failureThreshold": 1});
        container["livenessProbe"] = live;
        let mut spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container]});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Sim::new(spec).on_stop("c", 1000, 0)
    };
    let mut sim = spec(&json!({})).probe("c", Liveness, &[(1, refused())]);
    sim.pass(12);
    assert_eq!(sim.done_since(10)[..3], ["10 stop c 2s", "12 image c", "12 start c 1"]);
    let mut sim = spec(&json!({"activeDeadlineSeconds": 15}));
    sim.pass(20);
    assert_eq!(sim.done_since(10)[..2], ["15 stop c 2s", "17 stop sandbox"]);
    let mut sim = spec(&json!({})).hook("c", Hook::PreStop, 3, Done);
    sim.pass(5);
    sim.delete(8);
    sim.pass(20);
    assert_eq!(sim.done_since(5)[..3], ["5 PreStop c 8s", "8 stop c 5s", "13 stop sandbox"]);
}

#[test]
fn shorter_grace_or_forced_deletion_cuts_pre_stop() {
    let sim = || {
        let mut sim = pod("Always", &hooks(&["preStop"])).hook("c", Hook::PreStop, 50, Done).on_stop("c", 1000, 0);
        sim.pass(10);
        sim.delete(60);
        sim.pass(10);
        sim
    };
    let mut shorter = sim();
    shorter.delete(5);
    shorter.pass(30);
    assert_eq!(shorter.done_since(10)[..3], ["10 PreStop c 60s", "25 stop c 2s", "27 stop sandbox"]);
    let mut forced = sim();
    forced.force_delete();
    forced.pass(30);
    assert_eq!(forced.done_since(10)[..3], ["10 PreStop c 60s", "20 stop c 2s", "22 stop sandbox"]);
}

#[test]
fn pre_stop_is_not_run_for_exited_container() {
    let mut sim = pod("Never", &hooks(&["preStop"])).script("c", &[Run::Ends(5, 0)]);
    sim.pass(10);
    sim.delete(30);
    assert!(sim.forgotten);
    assert!(!sim.done().iter().any(|d| d.contains("PreStop")));
    // The container exits while the hook runs.
    let mut sim = pod("Never", &hooks(&["preStop"])).script("c", &[Run::Ends(15, 0)]);
    sim = sim.hook("c", Hook::PreStop, 20, Done);
    sim.pass(10);
    sim.delete(30);
    sim.pass(5);
    assert!(sim.forgotten);
    assert_eq!(sim.done_since(10)[..2], ["10 PreStop c 30s", "15 stop sandbox"]);
}

#[test]
fn pre_stop_is_rerun_after_kubelet_restart_if_unfinished() {
    for (downtime, expected) in [
        (1, ["10 PreStop c 30s", "15 PreStop c 25s", "24 stop c 16s"]),
        (50, ["10 PreStop c 30s", "64 stop c 2s", "66 stop sandbox"]),
    ] {
        let mut sim = pod("Always", &hooks(&["preStop"])).hook("c", Hook::PreStop, 9, Done).on_stop("c", 1000, 0);
        sim.pass(10);
        sim.delete(30);
        sim.pass(4);
        sim.restart(downtime);
        sim.pass(40);
        assert_eq!(sim.done_since(10)[..3], expected, "away for {downtime} s");
    }
    // A finished hook is not rerun.
    let mut sim = pod("Always", &hooks(&["preStop", "postStart"])).hook("c", Hook::PreStop, 3, Done);
    sim = sim.on_stop("c", 1000, 0);
    sim.pass(10);
    sim.delete(30);
    sim.pass(4);
    sim.restart(1);
    sim.pass(40);
    assert_eq!((sim.times("PreStop c 30s"), sim.times("PostStart c")), (vec![10], vec![0]));
}

#[test]
fn post_start_is_rerun_after_kubelet_restart_if_unfinished() {
    for checkpoint in [true, false] {
        for (seconds, times) in [(20, vec![0, 10]), (5, vec![0])] {
            let mut sim = pod_with_post_start("Always", seconds, Done);
            sim.pass(9);
            if checkpoint {
                sim.restart(1);
            } else {
                sim.restart_without_checkpoint(1);
            }
            sim.pass(30);
            assert_eq!((sim.times("PostStart c"), sim.state("c").as_str()), (times, "running"), "{checkpoint}");
            assert!(sim.container("c").ready, "{seconds} s, {checkpoint}");
        }
    }
}

#[test]
fn probe_kill_runs_pre_stop_within_probe_grace() {
    for (grace, hook, expected) in [
        (9, 4, ["10 PreStop c 9s", "14 stop c 5s", "19 image c"]),
        (9, 40, ["10 PreStop c 9s", "19 stop c 2s", "21 image c"]),
    ] {
        let mut fields = hooks(&["preStop"]);
        fields["livenessProbe"] =
            json!({"tcpSocket": {"port": 80}, "failureThreshold": 1, "terminationGracePeriodSeconds": grace});
        let mut sim = pod("Always", &fields).probe("c", Liveness, &[(1, refused())]).on_stop("c", 1000, 0);
        sim = sim.hook("c", Hook::PreStop, hook, Done);
        sim.pass(22);
        assert_eq!(sim.done_since(10)[..3], expected, "grace: {grace}, hook: {hook}");
    }
}

#[test]
fn deletion_during_probe_kill_does_not_rerun_pre_stop() {
    let mut fields = hooks(&["preStop"]);
    fields["livenessProbe"] = json!({"tcpSocket": {"port": 80}, "failureThreshold": 1});
    let mut sim = pod("Always", &fields).probe("c", Liveness, &[(1, refused())]).on_stop("c", 1000, 0);
    sim = sim.hook("c", Hook::PreStop, 4, Done);
    sim.pass(12);
    sim.delete(10);
    sim.pass(30);
    assert_eq!(sim.done_since(10)[..3], ["10 PreStop c 20s", "14 stop c 8s", "22 stop sandbox"]);
}

#[test]
fn pre_stop_hooks_run_in_parallel_and_signals_keep_order() {
    let with = |name: &str, policy: Option<&str>| {
        let mut c = json!({"name": name, "image": "i", "restartPolicy": policy});
        c["lifecycle"] = hooks(&["preStop"])["lifecycle"].clone();
        c
    };
    let mut sim = Sim::new(json!({"initContainers": [with("s1", Some("Always")), with("s2", Some("Always"))],
        "containers": [with("c", None)]}));
    sim = sim.hook("c", Hook::PreStop, 5, Done).hook("s2", Hook::PreStop, 9, Done).hook("s1", Hook::PreStop, 1, Done);
    sim = sim.on_stop("c", 1, 0).on_stop("s1", 1, 0).on_stop("s2", 1, 0);
    sim.pass(10);
    sim.delete(30);
    sim.pass(20);
    let expected = [
        "10 PreStop s1 30s",
        "10 PreStop s2 30s",
        "10 PreStop c 30s",
        "15 stop c 25s",
        "19 stop s2 21s",
        "20 stop s1 20s",
        "21 stop sandbox",
    ];
    assert_eq!(sim.done_since(10)[..7], expected);
}

#[test]
fn stop_signal_follows_pre_stop() {
    let mut fields = hooks(&["preStop"]);
    fields["lifecycle"]["stopSignal"] = json!("SIGUSR1");
    for (grace, expected) in [(30, ["PreStop", "SIGUSR1"].as_slice()), (0, &["SIGUSR1"])] {
        let mut sim = pod("Always", &fields).hook("c", Hook::PreStop, 5, Done);
        sim.policy.gates = FeatureGates::parse("ContainerStopSignals=true").unwrap();
        sim.pass(10);
        let since = sim.log.len();
        sim.delete(grace);
        sim.pass(10);
        let actions: Vec<String> = sim.log[since..]
            .iter()
            .filter_map(|(_, a)| match a {
                lifecycle::Action::RunHook { hook, .. } => Some(format!("{hook:?}")),
                lifecycle::Action::StopContainer { signal, .. } => Some(signal.clone().unwrap_or_default()),
                _ => None,
            })
            .collect();
        assert_eq!(actions, expected, "grace {grace}");
    }
}

#[test]
fn explain_shows_pending_hook() {
    let mut sim = pod_with_post_start("Always", 30, failed()).on_stop("c", 1000, 0);
    let because = |sim: &Sim| lifecycle::explain(&sim.pod, &sim.policy, sim.now).because.pop().unwrap();
    sim.pass(10);
    assert_eq!(because(&sim), "container c: postStart hook is still running");
    sim.pass(20);
    let expected = "container c failed its postStart hook and is being stopped, SIGKILL at 2026-01-01T00:00:50Z";
    assert_eq!(because(&sim), expected);
}
