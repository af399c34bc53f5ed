//! Kubelet restarts: no state is lost, no exit is counted twice, running containers are not disturbed.

use crate::common::{Run, Sim, start};
use lifecycle::{Action, ContainerExit, PodLifecycleEvent, RuntimeContainerState, StartFailureStage};
use serde_json::{Value, json};

fn restart_kubelet(sim: &mut Sim, checkpoint: bool, seconds: u64) {
    if checkpoint { sim.restart(seconds) } else { sim.restart_without_checkpoint(seconds) }
}

#[test]
fn kubelet_restart_keeps_containers_running() {
    for checkpoint in [true, false] {
        let mut sim = Sim::of("Always", &["c"]);
        sim.pass(10);
        let (before, since) = (sim.status(), sim.log.len());
        restart_kubelet(&mut sim, checkpoint, 100);
        sim.pass(100);
        let mut after = sim.status();
        after.start_time.clone_from(&before.start_time);
        assert_eq!(after, before, "checkpoint: {checkpoint}");
        let unexpected: Vec<_> = sim.done()[since..].iter().filter(|d| !d.ends_with(" mount")).cloned().collect();
        assert_eq!(unexpected, Vec::<String>::new(), "checkpoint: {checkpoint}");
    }
}

/// Asserts the result of an exit during kubelet downtime.
#[track_caller]
fn check(policy: &str, code: i32, checkpoint: bool, phase: &str, last_or_state: &str, restarts: i32) {
    let mut sim = Sim::of(policy, &["c"]).script("c", &[Run::Ends(20, code), Run::Forever]);
    sim.pass(10);
    restart_kubelet(&mut sim, checkpoint, 60);
    sim.relist();
    sim.pass(10);
    let actual = if restarts == 0 { sim.state("c") } else { sim.last_state("c") };
    assert_eq!(
        (sim.phase().as_str(), actual.as_str(), sim.restarts("c")),
        (phase, last_or_state, restarts),
        "{policy}"
    );
    assert_eq!(sim.starts("c").len(), usize::try_from(restarts).unwrap() + 1);
}

#[test]
fn exit_during_downtime_is_counted_once() {
    for checkpoint in [true, false] {
        check("Always", 3, checkpoint, "Running", "terminated Error 3", 1);
        check("Always", 0, checkpoint, "Running", "terminated Completed 0", 1);
        check("OnFailure", 3, checkpoint, "Running", "terminated Error 3", 1);
        check("OnFailure", 0, checkpoint, "Succeeded", "terminated Completed 0", 0);
        check("Never", 3, checkpoint, "Failed", "terminated Error 3", 0);
        check("Never", 0, checkpoint, "Succeeded", "terminated Completed 0", 0);
    }
}

#[test]
fn kubelet_restart_keeps_backoff_and_restart_count() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 1)]);
    sim.pass(35);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("waiting CrashLoopBackOff", 3));
    sim.restart(5);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("waiting CrashLoopBackOff", 3));
    sim.pass(40);
    assert_eq!(sim.starts("c"), [0, 1, 12, 33, 74]);
    assert_eq!(sim.restarts("c"), 4);
}

#[test]
fn restart_count_and_last_state_are_restored_from_the_api() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 1), Run::Ends(1, 2), Run::Forever]);
    sim.pass(20);
    assert_eq!((sim.restarts("c"), sim.last_state("c").as_str()), (2, "terminated Error 2"));
    sim.restart_without_checkpoint(5);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 2));
    assert_eq!(sim.last_state("c"), "terminated Error 2");
    // The same during the backoff.
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 7)]);
    sim.pass(5);
    sim.restart_without_checkpoint(0);
    assert_eq!((sim.restarts("c"), sim.last_state("c").as_str()), (2, "terminated Error 7"));
}

#[test]
fn lost_container_exits_with_137_and_is_restarted() {
    for checkpoint in [true, false] {
        let mut sim = Sim::of("Always", &["c"]);
        sim.pass(10);
        sim.runtime.containers.clear();
        sim.runtime.sandboxes.clear();
        restart_kubelet(&mut sim, checkpoint, 10);
        sim.pass(10);
        assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1), "checkpoint: {checkpoint}");
        assert_eq!(sim.last_state("c"), "terminated ContainerStatusUnknown 137", "checkpoint: {checkpoint}");
        let last = sim.container("c").last_state.unwrap().terminated.unwrap();
        assert!(last.message.unwrap().starts_with("The container could not be located"), "checkpoint: {checkpoint}");
    }
    let mut sim = Sim::of("Never", &["c"]);
    sim.pass(10);
    sim.runtime.containers.clear();
    sim.restart(10);
    sim.pass(10);
    assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Failed", "terminated ContainerStatusUnknown 137"));
}

/// The runtime lost the second container while the first one's exit was its `lastState`, and then the kubelet lost its
/// checkpoint: until the first relist the status must not change, and then it must have both exits.
#[test]
fn restored_status_is_kept_until_the_first_relist() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 143), Run::Forever]);
    sim.pass(5);
    sim.runtime.containers.retain(|c| c.attempt == 0);
    sim.relist();
    sim.report();
    let before = sim.status();
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("waiting CrashLoopBackOff", 1));
    assert_eq!(sim.last_state("c"), "terminated ContainerStatusUnknown 137");
    sim.start_kubelet(true);
    sim.settle();
    assert_eq!(sim.status(), before);
    sim.relist();
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("terminated ContainerStatusUnknown 137", 1));
    assert_eq!(sim.last_state("c"), "terminated Error 143");
    sim.settle();
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 2));
    assert_eq!(sim.last_state("c"), "terminated ContainerStatusUnknown 137");
}

#[test]
fn created_container_is_started_after_kubelet_restart() {
    for policy in ["Always", "Never"] {
        let mut sim = Sim::of(policy, &["c"]);
        sim.runtime.image_failures = [("ErrImagePull", "no")].into();
        sim.settle();
        // The kubelet crashed after it created the container.
        let sandbox = sim.runtime.sandboxes[0].id.clone();
        sim.runtime.create("c", 0, &sandbox);
        sim.restart(30);
        sim.pass(1);
        assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 0), "{policy}");
        assert_eq!(sim.runtime.containers.len(), 1, "{policy}");
    }
}

#[test]
fn pod_is_not_terminated_before_the_first_relist() {
    let mut sim = Sim::of("Always", &["c"]);
    while !matches!(sim.next_action(), Some(Action::CreateSandbox { .. })) {
        let action = sim.next_action().unwrap();
        sim.begin(&action);
        sim.finish(&action);
    }
    let create = sim.next_action().unwrap();
    // The sandbox is created, and the kubelet crashes before it gets the result.
    let _lost = sim.answer(&create);
    sim.start_kubelet(false);
    sim.request_deletion(0);
    sim.settle();
    let is_torn_down =
        |sim: &Sim| sim.log.iter().any(|(_, a)| matches!(a, Action::UnmountVolumes | Action::DeleteFromApi));
    assert!(!is_torn_down(&sim) && sim.in_api, "{:?}", sim.log);
    sim.relist();
    sim.settle();
    assert!(sim.forgotten && !sim.runtime.sandboxes.iter().any(|s| s.ready));
}

#[test]
fn unready_sandbox_is_stopped_before_a_new_one_is_created() {
    let mut sim = Sim::of("Always", &["c"]);
    while !matches!(sim.next_action(), Some(Action::CreateSandbox { .. })) {
        let action = sim.next_action().unwrap();
        sim.begin(&action);
        sim.finish(&action);
    }
    let create = sim.next_action().unwrap();
    let _lost = sim.answer(&create);
    sim.runtime.sandboxes[0].ready = false;
    sim.log.clear();
    sim.restart(5);
    let of_sandboxes = |a: &Action| match a {
        Action::StopSandbox { .. } => Some("stop".to_owned()),
        Action::CreateSandbox { attempt } => Some(format!("create {attempt}")),
        _ => None,
    };
    assert_eq!(sim.log.iter().filter_map(|(_, a)| of_sandboxes(a)).collect::<Vec<_>>(), ["stop", "create 1"]);
    assert_eq!(sim.state("c"), "running");
}

/// Crashes the kubelet during a container start, with this container state in the runtime (`None`: not created), and
/// starts it again.
fn interrupted_start(policy: &str, state: Option<RuntimeContainerState>) -> Sim {
    let mut sim = Sim::of(policy, &["c"]);
    loop {
        let action = sim.next_action().unwrap();
        sim.begin(&action);
        if matches!(action, Action::StartContainer { .. }) {
            break;
        }
        sim.finish(&action);
    }
    if let Some(state) = state {
        let sandbox = sim.runtime.sandboxes[0].id.clone();
        let made = sim.runtime.create("c", 0, &sandbox);
        sim.runtime.containers[made].state = state;
    }
    sim.restart(5);
    sim.pass(1);
    sim
}

/// State that a runtime keeps of an aborted start.
fn aborted_start(message: &str) -> RuntimeContainerState {
    RuntimeContainerState::Exited(ContainerExit {
        code: 128,
        reason: "StartError".to_owned(),
        message: message.to_owned(),
        started_at: None,
        finished_at: start(),
    })
}

#[test]
fn interrupted_start_is_retried_although_runtime_still_starts() {
    let mut sim = Sim::of("Never", &["c"]);
    while !matches!(sim.next_action(), Some(Action::StartContainer { .. })) {
        let action = sim.next_action().unwrap();
        sim.begin(&action);
        sim.finish(&action);
    }
    sim.begin(&sim.next_action().unwrap());
    let sandbox = sim.runtime.sandboxes[0].id.clone();
    let made = sim.runtime.create("c", 0, &sandbox);
    sim.start_kubelet(false);
    sim.relist();
    // The runtime still starts the container, so it cannot be removed.
    let retry = sim.next_action().unwrap();
    assert!(matches!(retry, Action::StartContainer { .. }), "{retry:?}");
    sim.begin(&retry);
    sim.observe(PodLifecycleEvent::ActionFailed {
        key: retry.key(),
        message: "container is in starting state".to_owned(),
    });
    sim.begun.clear();
    sim.runtime.containers[made].state = aborted_start("failed to create containerd task: context canceled");
    // Other triggers may relist, too.
    sim.relist();
    sim.relist();
    sim.pass(1);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c"), sim.phase().as_str()), ("running", 0, "Running"));
}

#[test]
fn nothing_is_created_before_the_first_relist() {
    let is_create = |action: &Action| matches!(action, Action::CreateSandbox { .. } | Action::StartContainer { .. });
    for made_before in [0, 1] {
        let mut sim = Sim::of("Always", &["c"]);
        let mut made = 0;
        while let Some(action) = sim.next_action() {
            sim.begin(&action);
            if is_create(&action) && made == made_before {
                break;
            }
            made += usize::from(is_create(&action));
            sim.finish(&action);
        }
        sim.start_kubelet(false);
        while let Some(action) = sim.next_action() {
            assert!(!is_create(&action), "made before: {made_before}, {action:?}");
            sim.begin(&action);
            sim.finish(&action);
        }
        sim.relist();
        sim.pass(1);
        assert_eq!(sim.state("c"), "running", "made before: {made_before}");
    }
}

#[test]
fn container_started_before_a_kubelet_crash_is_adopted() {
    for policy in ["Always", "OnFailure", "Never"] {
        for state in
            [None, Some(RuntimeContainerState::Created), Some(RuntimeContainerState::Running { started_at: start() })]
        {
            let sim = interrupted_start(policy, state.clone());
            assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 0), "{policy} {state:?}");
            assert_eq!(sim.runtime.containers.len(), 1, "{policy} {state:?}");
        }
    }
}

#[test]
fn interrupted_start_does_not_count_as_a_run() {
    for policy in ["Always", "Never"] {
        let sim = interrupted_start(policy, Some(aborted_start("failed to create containerd task: context canceled")));
        assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 0), "{policy}");
    }
}

#[test]
fn interrupted_start_that_may_have_run_follows_restart_policy() {
    let state = aborted_start("failed to start containerd task \"c\": context canceled");
    let sim = interrupted_start("Never", Some(state.clone()));
    assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Failed", "terminated StartError 128"));
    for policy in ["OnFailure", "Always"] {
        let mut sim = interrupted_start(policy, Some(state.clone()));
        sim.pass(20);
        assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1), "{policy}");
    }
}

#[test]
fn container_that_failed_to_start_is_removed() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.start_failures = [(StartFailureStage::Start, "no"), (StartFailureStage::Start, "no")].into();
    sim.pass(60);
    assert_eq!(sim.runtime.containers.len(), 1);
    assert!(matches!(sim.runtime.containers[0].state, RuntimeContainerState::Running { .. }));
}

#[test]
fn deletion_grace_continues_after_kubelet_restart() {
    let mut sim = Sim::of("Always", &["c"]).on_stop("c", 1000, 0);
    sim.pass(10);
    sim.delete(30);
    sim.runtime.containers[0].end = None;
    sim.restart(10);
    sim.pass(19);
    assert!(!sim.forgotten);
    sim.pass(1);
    assert!(sim.forgotten);
}

#[test]
fn dead_containers_are_removed_except_the_newest() {
    let mut sim =
        Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 1), Run::Ends(1, 2), Run::Ends(1, 3), Run::Forever]);
    sim.pass(5);
    let sandbox = sim.runtime.sandboxes[0].id.clone();
    sim.pass(60);
    // A container that an earlier kubelet failed to remove.
    let at = sim.runtime.create("c", 0, &sandbox);
    sim.runtime.containers[at].id = "forgotten".to_owned();
    sim.restart(1);
    sim.pass(1);
    let remaining: Vec<u32> = sim.runtime.containers.iter().map(|c| c.attempt).collect();
    assert_eq!(remaining, [2, 3]);
}

#[test]
fn active_deadline_that_expires_during_downtime_applies() {
    let spec =
        json!({"restartPolicy": "Always", "activeDeadlineSeconds": 20, "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec);
    sim.pass(10);
    sim.restart(100);
    sim.pass(5);
    assert_eq!((sim.phase().as_str(), sim.status().reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
}

#[test]
fn recreated_container_replaces_the_lost_one_at_relist() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.image_failures = [("ErrImagePull", "no")].into();
    sim.settle();
    let sandbox = sim.runtime.sandboxes[0].id.clone();
    sim.runtime.create("c", 0, &sandbox);
    sim.start_kubelet(false);
    sim.relist();
    sim.runtime.containers.clear();
    let at = sim.runtime.create("c", 0, &sandbox);
    let id = sim.runtime.containers[at].id.clone();
    sim.restart(10);
    sim.pass(60);
    assert_eq!(sim.container("c").container_id, Some(format!("containerd://{id}")));
    assert_eq!(sim.state("c"), "running");
}

/// Returns the delay of the first probe after a kubelet restart, in milliseconds.
fn first_probe_delay_ms(random: u64, handler: &Value, period: i32, timeout: i32) -> i64 {
    let mut probe = handler.clone();
    (probe["periodSeconds"], probe["timeoutSeconds"]) = (json!(period), json!(timeout));
    let mut sim = Sim::new(json!({"containers": [{"name": "c", "image": "i", "livenessProbe": probe}]}));
    sim.pass(100);
    sim.random = random;
    sim.restart(0);
    let next = lifecycle::plan(&sim.pod, &sim.policy, sim.now).wake.unwrap();
    i64::try_from(next.duration_since(sim.now).as_millis()).unwrap()
}

#[test]
fn probes_resume_at_random_offset_and_never_overlap() {
    let tcp = json!({"tcpSocket": {"port": 80}});
    let first: Vec<i64> = (0..50).map(|random| first_probe_delay_ms(random, &tcp, 10, 1)).collect();
    assert!(first.iter().all(|ms| (1_000..10_000).contains(ms)), "{first:?}");
    assert!(first.iter().any(|ms| *ms < 4_000) && first.iter().any(|ms| *ms > 7_000), "{first:?}");
    assert_eq!(
        first,
        (0..50).map(|random| first_probe_delay_ms(random, &tcp, 10, 1)).collect::<Vec<_>>(),
        "the offset is deterministic"
    );
    // A probe of the previous kubelet may still run until its timeout.
    let exec = json!({"exec": {"command": ["true"]}});
    for (period, timeout) in [(1, 1), (2, 2), (2, 5)] {
        let timeout_ms = i64::from(timeout) * 1000;
        assert!(
            (0..50).all(|random| first_probe_delay_ms(random, &tcp, period, timeout) == timeout_ms),
            "period: {period}, timeout: {timeout}"
        );
        // An exec probe needs a moment more than its timeout to end.
        assert!(
            (0..50).all(|random| first_probe_delay_ms(random, &exec, period, timeout) == timeout_ms + 1000),
            "period: {period}, timeout: {timeout}"
        );
    }
}

#[test]
fn container_started_after_kubelet_is_probed_at_once() {
    let probe = json!({"tcpSocket": {"port": 80}});
    let mut sim = Sim::new(json!({"containers": [{"name": "c", "image": "i", "readinessProbe": probe}]}));
    sim.observe(PodLifecycleEvent::KubeletStarted { at: sim.now, random: 7 });
    sim.pass(0);
    assert_eq!(sim.times("Readiness c"), [0]);
}
