//! Restart backoff (`doBackOff`).

use crate::common::{Run, Sim};
use lifecycle::{BackoffPolicy, PodLifecycleEvent};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Asserts the delays between exits and restarts for runs of these lengths.
#[track_caller]
fn check(policy: Option<BackoffPolicy>, runs: &[u64], expected: &[u64]) {
    let script: Vec<Run> = runs.iter().map(|seconds| Run::Ends(*seconds, 1)).chain([Run::Forever]).collect();
    let mut sim = Sim::of("Always", &["c"]).script("c", &script);
    if let Some(policy) = policy {
        sim.policy.container_backoff = policy;
    }
    sim.pass(20_000);
    let starts = sim.starts("c");
    let delays: Vec<u64> = starts.windows(2).zip(runs).map(|(pair, run)| pair[1] - pair[0] - run).collect();
    assert_eq!(delays, expected);
    assert_eq!(usize::try_from(sim.restarts("c")).unwrap(), runs.len());
}

#[test]
fn restart_backoff_doubles_from_10s_to_300s() {
    check(None, &[1; 9], &[0, 10, 20, 40, 80, 160, 300, 300, 300]);
}

#[test]
fn restart_backoff_resets_after_10_minutes() {
    check(None, &[1, 1, 1, 600, 1], &[0, 10, 20, 40, 80]);
    check(None, &[1, 1, 1, 601, 1, 1], &[0, 10, 20, 0, 10, 20]);
}

#[test]
fn restart_backoff_uses_the_node_config() {
    let seconds = Duration::from_secs;
    let policy =
        |initial, max| Some(BackoffPolicy { initial: seconds(initial), max: seconds(max), reset_after: seconds(600) });
    check(policy(1, 60), &[1; 9], &[0, 1, 2, 4, 8, 16, 32, 60, 60]);
    check(policy(2, 2), &[1; 4], &[0, 2, 2, 2]);
}

#[test]
fn restart_backoff_is_per_container() {
    let mut sim = Sim::of("Always", &["a", "b"]).script("a", &[Run::Ends(1, 1)]).script("b", &[Run::Ends(100, 1)]);
    sim.pass(150);
    assert_eq!(sim.starts("a"), [0, 1, 12, 33, 74]);
    assert_eq!(sim.starts("b"), [0, 100]);
}

#[test]
fn restart_backoff_resets_on_new_image() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 1)]);
    sim.pass(40);
    assert_eq!((sim.starts("c"), sim.state("c")), (vec![0, 1, 12, 33], "waiting CrashLoopBackOff".to_owned()));
    sim.api.spec.as_mut().unwrap().containers[0].image = Some("other".to_owned());
    sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
    sim.pass(11);
    assert_eq!(sim.starts("c"), [0, 1, 12, 33, 40, 51]);
}

#[test]
fn container_stays_in_crash_loop_backoff_until_started() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 1)]);
    sim.pass(11);
    sim.now += Duration::from_secs(1);
    sim.tick();
    let start = sim.next_action().unwrap();
    assert_eq!(
        (sim.state("c").as_str(), sim.last_state("c").as_str()),
        ("waiting CrashLoopBackOff", "terminated Error 1")
    );
    sim.begin(&start);
    assert_eq!(sim.state("c"), "waiting CrashLoopBackOff");
    sim.finish(&start);
    sim.settle();
    assert_eq!(sim.state("c"), "running");
}

#[test]
fn crash_loop_backoff_message_shows_delay_and_next_retry() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 1)]);
    sim.pass(5);
    let waiting = sim.container("c").state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(
        waiting.message.as_deref(),
        Some("back-off 10s restarting failed container=c pod=p_ns(u), next try at 2026-01-01T00:00:12Z")
    );
    assert_eq!(sim.message_of("BackOff"), "Back-off restarting failed container c in pod p_ns(u)");
}

#[test]
fn failed_step_backoff_doubles_from_1s_to_60s() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.volume_failures = 3;
    sim.runtime.sandbox_failures = 8;
    sim.pass(2000);
    let times =
        |action: &str| -> Vec<u64> { sim.done().iter().filter_map(|d| d.strip_suffix(action)?.parse().ok()).collect() };
    assert_eq!(times(" mount"), [0, 1, 3, 7]);
    assert_eq!(times(" create sandbox 0"), [7, 8, 10, 14, 22, 38, 70, 130, 190]);
    assert_eq!(sim.state("c"), "running");
}

#[test]
fn failed_start_is_retried_under_any_restart_policy() {
    use lifecycle::StartFailureStage::{Config, Create, Start};
    for (stage, attempts) in [(Config, 0), (Create, 0), (Start, 2)] {
        for policy in ["Always", "OnFailure", "Never"] {
            let mut sim = Sim::of(policy, &["c"]);
            sim.runtime.start_failures = [(stage, "no"), (stage, "no")].into();
            sim.pass(60);
            assert_eq!(sim.starts("c"), [0, 1, 3], "{stage:?} {policy}");
            assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", attempts), "{stage:?} {policy}");
        }
    }
}

#[test]
fn restart_backoff_resets_on_new_resources() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "1"}}}]});
    let mut sim = Sim::new(spec).script("c", &[Run::Ends(1, 1)]);
    sim.pass(5);
    sim.api.spec.as_mut().unwrap().containers[0].resources = None;
    sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
    sim.pass(0);
    assert_eq!(sim.starts("c"), [0, 1, 5]);
}
