//! Waiting reasons and Events that clients match on (`pkg/kubelet/events`).

use crate::common::{Run, Sim};
use lifecycle::StartFailureStage;
use serde_json::json;

/// Asserts the states of a container over time, in seconds.
#[track_caller]
fn check(mut sim: Sim, name: &str, expected: &[(u64, &str)]) {
    let mut at = 0;
    for (seconds, state) in expected {
        sim.pass(seconds - at);
        at = *seconds;
        assert_eq!(sim.state(name), *state, "after {seconds} s");
    }
}

fn failing_image(reason: &'static str) -> Sim {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.image_failures = [(reason, "words")].into();
    sim
}

fn failing_start(stage: StartFailureStage) -> Sim {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.start_failures = [(stage, "words")].into();
    sim
}

#[test]
fn waiting_reason_follows_the_failed_step() {
    let mut no_sandbox = Sim::of("Always", &["c"]);
    no_sandbox.runtime.sandbox_failures = 1;
    check(no_sandbox, "c", &[(0, "waiting ContainerCreating"), (1, "running")]);
    let mut no_volume = Sim::of("Always", &["c"]);
    no_volume.runtime.volume_failures = 1;
    check(no_volume, "c", &[(0, "waiting ContainerCreating"), (1, "running")]);
    for reason in ["ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"] {
        let (shown, backs_off) = (format!("waiting {reason}"), "waiting ImagePullBackOff");
        check(failing_image(reason), "c", &[(0, &shown), (1, backs_off), (9, backs_off), (10, "running")]);
    }
    for reason in ["ErrImageNeverPull", "InvalidImageName", "ImageInspectError"] {
        let shown = format!("waiting {reason}");
        check(failing_image(reason), "c", &[(0, &shown), (9, &shown), (10, "running")]);
    }
    check(failing_start(StartFailureStage::Config), "c", &[(0, "waiting CreateContainerConfigError"), (1, "running")]);
    check(failing_start(StartFailureStage::Create), "c", &[(0, "waiting CreateContainerError"), (1, "running")]);
    check(failing_start(StartFailureStage::Start), "c", &[(0, "waiting RunContainerError"), (1, "running")]);
    let looping = Sim::of("Always", &["c"]).script("c", &[Run::Ends(1, 1)]);
    check(looping, "c", &[(1, "running"), (2, "waiting CrashLoopBackOff"), (12, "running")]);
}

#[test]
fn start_failure_shows_error_then_crash_loop_backoff() {
    let looping = || Sim::of("Always", &["c"]).script("c", &[Run::CannotStart]);
    check(
        looping(),
        "c",
        &[
            (0, "waiting RunContainerError"),
            (1, "waiting CrashLoopBackOff"),
            (9, "waiting CrashLoopBackOff"),
            (10, "waiting RunContainerError"),
            (11, "waiting CrashLoopBackOff"),
        ],
    );
    let mut sim = looping();
    sim.settle();
    let waiting = sim.container("c").state.unwrap().waiting.unwrap();
    assert_eq!(waiting.message.as_deref(), Some("failed to create containerd task"));
    assert_eq!((sim.phase().as_str(), sim.last_state("c").as_str()), ("Running", "terminated StartError 128"));
    let mut never = Sim::of("Never", &["c"]).script("c", &[Run::CannotStart]);
    never.settle();
    assert_eq!((never.phase().as_str(), never.state("c").as_str()), ("Failed", "terminated StartError 128"));
    let started_at = never.container("c").state.unwrap().terminated.unwrap().started_at.unwrap();
    assert_eq!(started_at.0.to_string(), "1970-01-01T00:00:00Z", "upstream's zero");
}

#[test]
fn app_container_waits_in_pod_initializing() {
    let spec = json!({"initContainers": [{"name": "i", "image": "i"}], "containers": [{"name": "c", "image": "i"}]});
    let sim = || Sim::new(spec.clone()).script("i", &[Run::Ends(5, 0)]);
    check(sim(), "c", &[(0, "waiting PodInitializing"), (4, "waiting PodInitializing"), (5, "running")]);
    check(sim(), "i", &[(0, "running"), (5, "terminated Completed 0")]);
}

#[test]
fn phase_is_pending_until_all_containers_have_run_once() {
    for (case, sim) in [
        ("image", failing_image("ErrImagePull")),
        ("config", failing_start(StartFailureStage::Config)),
        ("start", failing_start(StartFailureStage::Start)),
    ] {
        let mut sim = sim.script("c", &[Run::Ends(1, 1)]);
        sim.settle();
        assert_eq!(sim.phase(), "Pending", "{case}");
        sim.pass(11);
        assert_eq!(sim.phase(), "Running", "{case}");
        sim.runtime.image_failures = [("ErrImagePull", "words"); 20].into();
        sim.pass(60);
        assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Running", "waiting ImagePullBackOff"), "{case}");
        assert_eq!(sim.last_state("c"), "terminated Error 1", "{case}");
    }
}

/// Asserts the recorded Events in order.
#[track_caller]
fn check_events(mut sim: Sim, seconds: u64, expected: &[&str]) {
    sim.pass(seconds);
    let recorded: Vec<String> =
        sim.events.iter().map(|e| format!("{} {}: {}", e.kind.as_str(), e.reason, e.message)).collect();
    assert_eq!(recorded, expected);
    let sequences: Vec<u64> = sim.events.iter().map(|e| e.sequence).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "each Event has its own sequence number");
}

const PRESENT: &str = "Normal Pulled: Container image \"i\" already present on machine and can be accessed by the pod";

#[test]
fn events_match_upstream_in_order() {
    check_events(
        Sim::of("Always", &["c"]),
        10,
        &[PRESENT, "Normal Created: Container created", "Normal Started: Container started"],
    );
    check_events(
        failing_image("ErrImagePull"),
        5,
        &[
            "Warning Failed: Failed to pull image \"i\": words",
            "Warning Failed: Error: ErrImagePull",
            "Normal BackOff: Back-off pulling image \"i\"",
            "Warning Failed: Error: ImagePullBackOff",
        ],
    );
    check_events(
        failing_image("ErrImageNeverPull"),
        5,
        &["Warning ErrImageNeverPull: words", "Warning Failed: Error: ErrImageNeverPull"],
    );
    check_events(failing_start(StartFailureStage::Config), 0, &[PRESENT, "Warning Failed: Error: words"]);
    check_events(
        failing_start(StartFailureStage::Start),
        0,
        &[PRESENT, "Normal Created: Container created", "Warning Failed: Error: words"],
    );
    let mut broken = Sim::of("Always", &["c"]);
    broken.runtime.sandbox_failures = 1;
    broken.runtime.volume_failures = 1;
    check_events(
        broken,
        1,
        &[
            "Warning FailedMount: no such volume",
            "Warning FailedMount: no such file",
            "Warning FailedCreatePodSandBox: Failed to create pod sandbox: no network",
        ],
    );
}

/// Upstream's kubelet stops waiting for volumes after 2m3s, without an Event since 1.28.
#[test]
fn failed_mount_event_is_recorded_at_each_retry() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.volume_failures = 8;
    let attempts = |sim: &Sim| sim.event_reasons().iter().filter(|r| **r == "FailedMount").count() / 2;
    let mut at = Vec::new();
    for second in 0..200 {
        at.resize(attempts(&sim), second);
        sim.pass(1);
    }
    assert_eq!(at, [1, 1, 3, 7, 15, 31, 63, 123]);
    let timeouts: Vec<_> = sim.events.iter().filter(|e| e.message.contains("timed out")).collect();
    assert!(timeouts.is_empty(), "{timeouts:?}");
    assert_eq!(sim.event_reasons().last(), Some(&"Started"));
}

#[test]
fn failed_start_event_count_equals_pulled_event_count() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.start_failures = [(StartFailureStage::Config, "words"); 5].into();
    sim.pass(10);
    let count = |reason: &str| sim.event_reasons().iter().filter(|r| **r == reason).count();
    assert!(count("Failed") > 1);
    assert_eq!(count("Failed"), count("Pulled"));
}

#[test]
fn event_field_path_names_the_container() {
    let spec = json!({"initContainers": [{"name": "i", "image": "i"}], "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i", &[Run::Ends(1, 0)]);
    sim.pass(2);
    let paths: Vec<_> = sim.events.iter().filter(|e| e.reason == "Started").map(|e| e.field_path.clone()).collect();
    assert_eq!(paths, [Some("spec.initContainers{i}".to_owned()), Some("spec.containers{c}".to_owned())]);
}

/// Upstream's `MaxPodTerminationMessageLogLength`.
#[test]
fn termination_messages_share_the_pod_limit() {
    for (containers, expected) in [(1, 12 * 1024), (3, 4 * 1024), (4, 3072), (12, 1024)] {
        let names: Vec<String> = (0..containers).map(|n| format!("c{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut sim = Sim::of("Never", &names);
        sim.runtime.termination_message = "x".repeat(13 * 1024);
        let mut sim = names.iter().fold(sim, |sim, name| sim.script(name, &[Run::Ends(1, 0)]));
        sim.pass(5);
        let status = sim.status();
        let terminated = |c: &k8s_openapi::api::core::v1::ContainerStatus| c.state.clone()?.terminated?.message;
        let lengths = status.container_statuses.iter().flatten().map(|c| terminated(c).map(|m| m.len()));
        assert_eq!(lengths.collect::<Vec<_>>(), vec![Some(expected); containers], "{containers} containers");
    }
}
