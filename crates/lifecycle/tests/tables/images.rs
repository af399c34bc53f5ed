//! Image pulls, presence checks and backoff (`pkg/kubelet/images`).

use crate::common::{Run, Sim};
use api::feature_gates::FeatureGates;
use lifecycle::{ImageEvent, PodLifecycleEvent};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Returns the times of this action, in seconds.
#[track_caller]
fn times(sim: &Sim, action: &str) -> Vec<u64> {
    sim.done().iter().filter_map(|d| d.strip_suffix(action)?.strip_suffix(' ')?.parse().ok()).collect()
}

fn fail_pulls(sim: &mut Sim, times: usize) {
    sim.runtime.image_failures = std::iter::repeat_n(("ErrImagePull", "not found"), times).collect();
    sim.runtime.requires_pull = true;
}

fn message(sim: &Sim, name: &str) -> String {
    let waiting = sim.container(name).state.and_then(|state| state.waiting);
    waiting.and_then(|waiting| waiting.message).expect("a waiting message")
}

#[test]
fn image_pull_backoff_doubles_from_10s_to_300s() {
    let mut sim = Sim::of("Always", &["c"]);
    fail_pulls(&mut sim, 8);
    sim.pass(2000);
    assert_eq!(times(&sim, "image c"), [0, 10, 30, 70, 150, 310, 610, 910, 1210]);
    assert_eq!(sim.state("c"), "running");
}

#[test]
fn image_is_checked_during_pull_backoff() {
    let mut sim = Sim::of("Always", &["c"]);
    fail_pulls(&mut sim, 8);
    sim.pass(95);
    assert_eq!(
        (times(&sim, "image c"), times(&sim, "look for c")),
        (vec![0, 10, 30, 70], vec![20, 40, 50, 60, 80, 90])
    );
    fail_pulls(&mut sim, 0);
    sim.runtime.requires_pull = false;
    sim.pass(5);
    assert_eq!((sim.state("c"), sim.starts("c")), ("running".to_owned(), vec![100]));
}

#[test]
fn pull_backoff_is_shared_by_containers_with_the_image() {
    let mut sim = Sim::new(json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "i"}, {"name": "b", "image": "i"}, {"name": "c", "image": "other"}]}));
    fail_pulls(&mut sim, 3);
    sim.settle();
    assert_eq!((times(&sim, "image a"), times(&sim, "image b"), times(&sim, "look for b")), (vec![0], vec![], vec![0]));
    // Another image has its own backoff.
    assert_eq!((times(&sim, "image c"), sim.state("c").as_str()), (vec![0], "waiting ErrImagePull"));
    sim.pass(5);
    assert_eq!(sim.state("b"), "waiting ImagePullBackOff");
    assert_eq!(message(&sim, "b"), "Back-off pulling image \"i\": ErrImagePull: not found");
    sim.pass(100);
    assert!(["a", "b", "c"].iter().all(|name| sim.state(name) == "running"));
}

#[test]
fn pull_backoff_survives_success_and_resets_after_10_minutes() {
    // Each start requests the image (`imagePullPolicy: Always`).
    let pull_times = |run: u64, failures: usize| {
        let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(run, 0), Run::Forever]);
        fail_pulls(&mut sim, 3);
        sim.pass(100);
        assert_eq!((times(&sim, "image c"), sim.starts("c")), (vec![0, 10, 30, 70], vec![70]));
        fail_pulls(&mut sim, failures);
        sim.pass(run + 1000);
        times(&sim, "image c").split_off(4)
    };
    assert_eq!(pull_times(60, 1), [130, 210], "the fourth consecutive failure");
    assert_eq!(pull_times(700, 1), [770, 780], "the first failure again");
}

#[test]
fn new_image_is_pulled_without_backoff() {
    let mut sim = Sim::of("Always", &["c"]);
    fail_pulls(&mut sim, 1);
    sim.pass(2);
    sim.api.spec.as_mut().unwrap().containers[0].image = Some("right".to_owned());
    sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
    sim.pass(0);
    assert_eq!((sim.state("c"), sim.starts("c")), ("running".to_owned(), vec![2]));
}

#[test]
fn unpullable_image_is_checked_every_10_seconds() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.runtime.image_failures = [("ErrImageNeverPull", "not present"); 4].into();
    sim.pass(60);
    assert_eq!(times(&sim, "image c"), [0, 10, 20, 30, 40]);
}

#[test]
fn pull_error_prefix_sets_the_waiting_reason() {
    for (error, reason, message) in [
        ("not found", "ErrImagePull", "not found"),
        (
            "RegistryUnavailable: no route",
            "RegistryUnavailable",
            "image pull failed for i because the registry is unavailable: no route",
        ),
        (
            "SignatureValidationFailed",
            "SignatureValidationFailed",
            "image pull failed for i because the signature validation failed",
        ),
        ("rpc: RegistryUnavailable", "ErrImagePull", "rpc: RegistryUnavailable"),
    ] {
        let sim = Sim::of("Always", &["c"]);
        let event = ImageEvent::PullFailed { error: error.to_owned() };
        let mut pod = lifecycle::Pod::new(Arc::new(sim.api.clone()), sim.now);
        lifecycle::observe(
            &mut pod,
            PodLifecycleEvent::Image { container: "c".to_owned(), image: "i".to_owned(), event },
            &sim.policy,
            sim.now,
        );
        let status = lifecycle::status(&pod, &sim.policy, sim.now);
        let waiting = status.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!((waiting.reason.as_deref(), waiting.message.as_deref()), (Some(reason), Some(message)), "{error}");
        let later = lifecycle::status(&pod, &sim.policy, sim.now + Duration::from_secs(1));
        let waiting = later.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        let text = format!("Back-off pulling image \"i\": {reason}: {message}");
        assert_eq!((waiting.reason.as_deref(), waiting.message), (Some("ImagePullBackOff"), Some(text)), "{error}");
    }
}

/// Asserts the Events that follow from one image event.
#[track_caller]
fn events(event: ImageEvent, gates: &str, expected: &[&str]) {
    let mut sim = Sim::of("Always", &["c"]);
    sim.policy.gates = FeatureGates::parse(gates).expect("gates");
    let mut pod = lifecycle::Pod::new(Arc::new(sim.api.clone()), sim.now);
    lifecycle::observe(
        &mut pod,
        PodLifecycleEvent::Image { container: "c".to_owned(), image: "i".to_owned(), event },
        &sim.policy,
        sim.now,
    );
    sim.pod = pod;
    let plan = lifecycle::plan(&sim.pod, &sim.policy, sim.now);
    let recorded: Vec<String> = plan
        .actions
        .iter()
        .filter_map(|a| match a {
            lifecycle::Action::Record(e) => Some(format!("{} {}: {}", e.kind.as_str(), e.reason, e.message)),
            _ => None,
        })
        .collect();
    assert_eq!(recorded, expected);
}

#[test]
fn image_events_match_upstream() {
    let present = || ImageEvent::Present { image_ref: "sha".to_owned() };
    events(
        present(),
        "",
        &["Normal Pulled: Container image \"i\" already present on machine and can be accessed by the pod"],
    );
    events(
        present(),
        "KubeletEnsureSecretPulledImages=false",
        &["Normal Pulled: Container image \"i\" already present on machine"],
    );
    let (took, took_with_wait) = (Duration::from_micros(345_678), Duration::from_micros(61_050_900));
    events(
        ImageEvent::Pulled { image_ref: "sha".to_owned(), took, took_with_wait, size: 12_345 },
        "",
        &[
            "Normal Pulled: Successfully pulled image \"i\" in 345ms (1m1.05s including waiting). Image size: 12345 bytes.",
        ],
    );
    events(
        ImageEvent::SecretsMissing { names: vec!["a".to_owned(), "b".to_owned()] },
        "",
        &[
            "Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (a, b); attempting to pull the image may not succeed.",
        ],
    );
    let failed = |reason: &str| ImageEvent::Failed { reason: reason.to_owned(), message: "words".to_owned() };
    for reason in ["InvalidImageName", "ImageInspectError"] {
        events(failed(reason), "", &["Warning InspectFailed: words", &format!("Warning Failed: Error: {reason}")]);
    }
    events(
        ImageEvent::PullFailed { error: "RegistryUnavailable: x".to_owned() },
        "",
        &[
            "Warning Failed: Failed to pull image \"i\": RegistryUnavailable: x",
            "Warning Failed: Error: RegistryUnavailable",
            "Normal BackOff: Back-off pulling image \"i\"",
            "Warning Failed: Error: ImagePullBackOff",
        ],
    );
}

/// Creates a Pod whose container mounts the image `data` as a volume.
fn with_image_volume() -> Sim {
    Sim::new(json!({"restartPolicy": "Always", "volumes": [{"name": "v", "image": {"reference": "data"}}],
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}))
}

#[test]
fn image_volume_pull_blocks_the_container_start() {
    let mut sim = with_image_volume();
    fail_pulls(&mut sim, 2);
    sim.runtime.failing_volume = Some("data".to_owned());
    sim.pass(2);
    assert_eq!(sim.state("c"), "waiting ImagePullBackOff");
    assert_eq!(message(&sim, "c"), "Back-off pulling image \"data\": ErrImagePull: not found");
    sim.pass(100);
    // The volume's image has its own backoff; the container's image is not pulled meanwhile.
    assert_eq!((times(&sim, "image c"), sim.state("c").as_str()), (vec![0, 10, 30], "running"));
}

#[test]
fn image_volume_events_are_about_the_pod() {
    let sim = with_image_volume();
    let recorded = |image: &str, event: ImageEvent| {
        let mut pod = lifecycle::Pod::new(Arc::new(sim.api.clone()), sim.now);
        let event = PodLifecycleEvent::Image { container: "c".to_owned(), image: image.to_owned(), event };
        lifecycle::observe(&mut pod, event, &sim.policy, sim.now);
        let plan = lifecycle::plan(&pod, &sim.policy, sim.now);
        let events = plan.actions.into_iter().filter_map(|action| match action {
            lifecycle::Action::Record(event) => Some((event.message, event.field_path.is_some())),
            _ => None,
        });
        events.collect::<Vec<_>>()
    };
    let event = |text: &str, of_container| (text.to_owned(), of_container);
    assert_eq!(recorded("data", ImageEvent::Pulling), [event("Pulling image \"data\"", false)]);
    assert_eq!(recorded("i", ImageEvent::Pulling), [event("Pulling image \"i\"", true)]);
    assert_eq!(recorded("old", ImageEvent::Pulling), []);
    let failed = recorded("data", ImageEvent::PullFailed { error: "no".to_owned() });
    let expected = [("Failed to pull image \"data\": no", false), ("Error: ErrImagePull", true)];
    assert_eq!(failed[..2], expected.map(|(text, of_container)| event(text, of_container)));
}
