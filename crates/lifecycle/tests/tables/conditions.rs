//! Pod conditions over the Pod's lifecycle (`pkg/kubelet/status/generate.go`).

use crate::common::{Run, Sim};
use api::feature_gates::FeatureGates;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use lifecycle::{HandlerSupport, PodLifecycleEvent, resolve_recursive_read_only};
use serde_json::json;
use std::sync::Arc;

const UNREADY: &str = "False ContainersNotReady: containers with unready status: [c]";

/// Asserts the conditions; PodScheduled is always true on a node.
#[track_caller]
fn check(sim: &Sim, sandbox: &str, initialized: &str, containers_ready: &str, ready: &str) {
    let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "PodScheduled"]
        .map(|kind| sim.condition(kind));
    assert_eq!(conditions, [sandbox, initialized, containers_ready, ready, "True"]);
}

#[test]
fn ready_to_start_condition_follows_the_sandbox() {
    let mut sim = Sim::of("Always", &["c"]);
    check(&sim, "False", "True", UNREADY, UNREADY);
    sim.runtime.sandbox_failures = 1;
    sim.settle();
    check(&sim, "False", "True", UNREADY, UNREADY);
    sim.runtime.image_failures = [("ErrImagePull", "no")].into();
    sim.pass(1);
    check(&sim, "True", "True", UNREADY, UNREADY);
    sim.pass(30);
    check(&sim, "True", "True", "True", "True");
}

#[test]
fn waiting_container_makes_pod_unready() {
    let mut sim = Sim::of("Always", &["c", "d"]).script("c", &[Run::Ends(1, 1)]).script("d", &[Run::Ends(3, 1)]);
    sim.pass(2);
    check(&sim, "True", "True", UNREADY, UNREADY);
    sim.pass(2);
    let both = "False ContainersNotReady: containers with unready status: [c]";
    check(&sim, "True", "True", both, both);
    sim.pass(3);
    let both = "False ContainersNotReady: containers with unready status: [c d]";
    check(&sim, "True", "True", both, both);
}

#[test]
fn terminal_pod_is_unready_and_has_no_sandbox() {
    let ended = |code| {
        let mut sim = Sim::of("Never", &["c"]).script("c", &[Run::Ends(1, code)]);
        sim.pass(2);
        sim
    };
    check(&ended(0), "False", "True PodCompleted", "False PodCompleted", "False PodCompleted");
    check(&ended(1), "False", "True", "False PodFailed", "False PodFailed");
}

#[test]
fn initialized_condition_follows_init_containers() {
    let spec = json!({"restartPolicy": "Always",
        "initContainers": [{"name": "i1", "image": "i"}, {"name": "i2", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i1", &[Run::Ends(5, 0)]).script("i2", &[Run::Ends(5, 0)]);
    let incomplete =
        |names: &str| format!("False ContainersNotInitialized: containers with incomplete status: [{names}]");
    sim.pass(1);
    check(&sim, "True", &incomplete("i1 i2"), UNREADY, UNREADY);
    sim.pass(5);
    check(&sim, "True", &incomplete("i2"), UNREADY, UNREADY);
    sim.pass(5);
    check(&sim, "True", "True", "True", "True");
}

#[test]
fn readiness_gates_apply_after_containers_are_ready() {
    let spec = json!({"readinessGates": [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}],
        "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec);
    check(&sim, "False", "True", UNREADY, UNREADY);
    sim.pass(1);
    let missing_gate = |gate: &str| format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.");
    let none =
        format!("False ReadinessGatesNotReady: {}, {}", missing_gate("example.com/a"), missing_gate("example.com/b"));
    check(&sim, "True", "True", "True", &none);
    let mut set_gates = |a: &str, b: &str| {
        let gate = |kind: &str, status: &str| PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            ..PodCondition::default()
        };
        let conditions = Some(vec![gate("example.com/a", a), gate("example.com/b", b)]);
        sim.api.status = Some(PodStatus { conditions, ..sim.status() });
        sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
        sim.condition("Ready")
    };
    assert_eq!(
        set_gates("True", "False"),
        "False ReadinessGatesNotReady: the status of pod readiness gate \"example.com/b\" is not \"True\", but False"
    );
    assert_eq!(set_gates("True", "True"), "True");
    assert_eq!(sim.condition("example.com/a"), "True", "foreign conditions are preserved");
}

#[test]
fn condition_keeps_its_last_transition_time() {
    let mut sim = Sim::of("Always", &["c"]).script("c", &[Run::Ends(100, 1), Run::Forever]);
    let since = |sim: &Sim, kind: &str| {
        let conditions = sim.status().conditions.unwrap();
        conditions.into_iter().find(|c| c.type_ == kind).unwrap().last_transition_time.unwrap().0
    };
    sim.runtime.sandbox_failures = 1;
    sim.pass(50);
    let ready = since(&sim, "Ready");
    assert_eq!(ready.to_string(), "2026-01-01T00:00:01Z");
    assert_eq!(since(&sim, "Initialized").to_string(), "2026-01-01T00:00:00Z");
    sim.pass(60);
    assert_eq!(since(&sim, "Ready").to_string(), "2026-01-01T00:01:41Z");
    sim.restart(10);
    assert_eq!(since(&sim, "Ready").to_string(), "2026-01-01T00:01:41Z");
}

#[test]
fn status_and_conditions_have_the_observed_generation() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.pass(1);
    sim.api.metadata.generation = Some(2);
    sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
    let status = sim.status();
    assert_eq!(status.observed_generation, Some(2));
    assert!(status.conditions.unwrap().iter().all(|c| c.observed_generation == Some(2)));
}

#[test]
fn container_status_shows_volume_mounts_before_and_after_start() {
    let mounts = json!([{"name": "a", "mountPath": "/a", "subPath": "x"},
        {"name": "b", "mountPath": "/b", "readOnly": true, "recursiveReadOnly": "IfPossible"},
        {"name": "c", "mountPath": "/c", "readOnly": true}]);
    let mounts_in_status = json!([{"name": "a", "mountPath": "/a"},
        {"name": "b", "mountPath": "/b", "readOnly": true, "recursiveReadOnly": "Disabled"},
        {"name": "c", "mountPath": "/c", "readOnly": true, "recursiveReadOnly": "Disabled"}]);
    let mut sim = Sim::new(
        json!({"containers": [{"name": "c", "image": "i", "volumeMounts": mounts}, {"name": "d", "image": "i"}]}),
    );
    for _ in 0..2 {
        let statuses = json!(sim.status().container_statuses);
        assert_eq!((&statuses[0]["volumeMounts"], &statuses[1]["volumeMounts"]), (&mounts_in_status, &json!(null)));
        sim.pass(1);
    }
    let recursive = |sim: &Sim, index: usize| {
        json!(sim.status().container_statuses)[0]["volumeMounts"][index]["recursiveReadOnly"].clone()
    };
    sim.policy.recursive_read_only_mounts = HandlerSupport { default_handler: true, all_handlers: false };
    assert_eq!([1, 2].map(|index| recursive(&sim, index)), [json!("Enabled"), json!("Disabled")]);
    // The handler of a RuntimeClass may have less.
    sim.policy.recursive_read_only_mounts = HandlerSupport { default_handler: false, all_handlers: true };
    assert_eq!(recursive(&sim, 1), json!("Disabled"));
}

#[test]
fn ready_to_start_condition_requires_its_feature_gate() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.pass(1);
    assert_eq!(sim.condition("PodReadyToStartContainers"), "True");
    sim.policy.gates = FeatureGates::parse("PodReadyToStartContainersCondition=false").unwrap();
    assert_eq!(
        (sim.condition("PodReadyToStartContainers").as_str(), sim.condition("Ready").as_str()),
        ("none", "True")
    );
}

#[test]
fn recursive_read_only_is_resolved_as_upstream() {
    let resolve = |fields: serde_json::Value, is_supported| {
        let mut mount = json!({"name": "v", "mountPath": "/v", "readOnly": true});
        mount.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        resolve_recursive_read_only(&serde_json::from_value(mount).unwrap(), is_supported)
    };
    let mode = |mode: &str| json!({"recursiveReadOnly": mode});
    assert_eq!((resolve(json!({}), true), resolve(mode("Disabled"), true)), (Ok(false), Ok(false)));
    assert_eq!((resolve(mode("IfPossible"), true), resolve(mode("IfPossible"), false)), (Ok(true), Ok(false)));
    assert_eq!(resolve(mode("Enabled"), true), Ok(true));
    let refused = |problem| Err(format!("volume \"v\" requested recursive read-only mode, but it is {problem}"));
    assert_eq!(resolve(mode("Enabled"), false), refused("not supported by the runtime"));
    let writable = json!({"recursiveReadOnly": "Enabled", "readOnly": false});
    assert_eq!(resolve(writable, true), refused("not read-only"));
    let shared = json!({"recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"});
    assert_eq!(resolve(shared, true), refused("not compatible with propagation \"HostToContainer\""));
}
