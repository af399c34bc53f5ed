//! Preemption of Pods for a critical Pod (KEP-3329).

use api::resources::{self, Amounts};
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Admission, AdmissionDecision, AdmissionNodeInfo, admit};
use serde_json::json;
use std::sync::Arc;

const CRITICAL: i32 = 2_000_000_000;

/// Creates a Pod with these requests (millicores, MiB); with limits it is Guaranteed.
fn pod(name: &str, priority: Option<i32>, cpu: u32, memory: u32, limited: bool) -> Pod {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    let resources = match (cpu + memory, limited) {
        (0, _) => json!({}),
        (_, true) => json!({"requests": amounts, "limits": amounts}),
        (_, false) => json!({"requests": amounts}),
    };
    let mut spec = json!({"containers": [{"name": "c", "resources": resources}]});
    if let Some(priority) = priority {
        spec["priority"] = json!(priority);
    }
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn allocatable() -> Amounts {
    let list = json!({"cpu": "1", "memory": "1000Mi", "pods": "5"});
    resources::amounts(Some(&serde_json::from_value(list).unwrap()))
}

fn admission(pod: &Pod, others: Vec<Pod>, shutting_down: bool) -> AdmissionDecision {
    let others: Vec<Arc<Pod>> = others.into_iter().map(Arc::new).collect();
    let view = AdmissionNodeInfo {
        name: "n",
        node: None,
        allocatable: &allocatable(),
        others: &others,
        pressures: &[],
        shutting_down,
        apparmor: false,
        unsafe_sysctls: &[],
    };
    admit(pod, &view)
}

#[track_caller]
fn check(pod: &Pod, others: Vec<Pod>, resource: &str, expected: &[&str]) {
    let AdmissionDecision::Preempts(preemption) = admission(pod, others, false) else { panic!("no Pod is preempted") };
    let names: Vec<&str> = preemption.pods.iter().filter_map(|p| p.metadata.name.as_deref()).collect();
    assert_eq!((preemption.resource.as_str(), names.as_slice()), (resource, expected));
}

#[track_caller]
fn check_rejected(pod: &Pod, others: Vec<Pod>, reason: &str, message: &str) {
    let rejected = Admission::Rejected { reason: reason.to_owned(), message: message.to_owned() };
    assert_eq!(admission(pod, others, false), AdmissionDecision::Decided(rejected));
}

fn critical(cpu: u32, memory: u32) -> Pod {
    pod("critical", Some(CRITICAL), cpu, memory, false)
}

#[test]
fn pod_that_fits_or_is_not_critical_preempts_nothing() {
    let settled = AdmissionDecision::Decided(Admission::Admitted);
    assert_eq!(admission(&critical(500, 0), vec![pod("a", None, 500, 0, false)], false), settled);
    let message = "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000";
    check_rejected(
        &pod("p", Some(CRITICAL - 1), 600, 0, false),
        vec![pod("a", None, 500, 0, false)],
        "OutOfcpu",
        message,
    );
}

#[test]
fn preemption_takes_lowest_qos_class_first() {
    let all = || {
        vec![
            pod("none", None, 0, 0, false),
            pod("burstable", None, 300, 0, false),
            pod("guaranteed", None, 600, 100, true),
        ]
    };
    check(&critical(400, 0), all(), "cpu", &["burstable"]);
    check(&critical(500, 0), all(), "cpu", &["guaranteed"]);
    check(&critical(1000, 0), all(), "cpu", &["burstable", "guaranteed"]);
    // Only the number of Pods exceeds the node's capacity.
    let mut full = all();
    full.extend([pod("x", None, 10, 0, false), pod("y", None, 10, 0, false)]);
    check(&critical(10, 0), full, "pods", &["none"]);
}

#[test]
fn preemption_minimizes_victims_then_their_size() {
    let small = |name: &str| pod(name, None, 100, 0, false);
    check(
        &critical(300, 0),
        vec![small("a"), small("b"), small("c"), pod("d", None, 300, 0, false), pod("e", None, 400, 0, false)],
        "pods",
        &["d"],
    );
    check(
        &critical(300, 0),
        vec![small("a"), pod("b", None, 500, 10, false), pod("c", None, 400, 20, false)],
        "cpu",
        &["b"],
    );
    check(
        &critical(300, 0),
        vec![pod("a", None, 400, 900, false), pod("b", None, 400, 20, false), small("c")],
        "cpu",
        &["b"],
    );
    check(
        &critical(900, 0),
        vec![small("a"), pod("b", None, 400, 0, false), pod("c", None, 500, 0, false)],
        "cpu",
        &["c", "b"],
    );
}

#[test]
fn preemption_weighs_resources_equally() {
    let others = || {
        vec![pod("cpu", None, 500, 10, false), pod("memory", None, 10, 500, false), pod("both", None, 400, 400, false)]
    };
    check(&critical(400, 400), others(), "cpu", &["both"]);
    check(&critical(500, 100), others(), "cpu", &["cpu"]);
}

#[test]
fn preemption_victim_must_be_less_important() {
    let others = || vec![pod("critical-too", Some(CRITICAL), 900, 0, false), pod("small", None, 100, 0, false)];
    let message = "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 100), ]";
    check_rejected(&critical(200, 0), others(), "UnexpectedAdmissionError", message);
    let node_critical = pod("node-critical", Some(CRITICAL + 1000), 200, 0, false);
    check(&node_critical, others(), "cpu", &["critical-too"]);
    let mut fixed = pod("fixed", None, 150, 0, false);
    fixed.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    check(&critical(100, 0), vec![fixed.clone(), pod("a", None, 800, 0, false)], "cpu", &["a"]);
    check(&fixed, vec![pod("a", None, 900, 0, false)], "cpu", &["a"]);
}

#[test]
fn pod_with_another_rejection_preempts_nothing() {
    let mut assigned_elsewhere = critical(600, 0);
    assigned_elsewhere.spec.as_mut().unwrap().node_name = Some("m".to_owned());
    let others = || vec![pod("a", None, 500, 0, false)];
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    check_rejected(&assigned_elsewhere, others(), "NodeName", message);
    let AdmissionDecision::Decided(Admission::Rejected { reason, .. }) = admission(&critical(600, 0), others(), true)
    else {
        panic!("it is admitted")
    };
    assert_eq!(reason, "NodeShutdown");
}

#[test]
fn preemption_victim_gets_upstream_message() {
    let AdmissionDecision::Preempts(preemption) =
        admission(&critical(600, 0), vec![pod("a", None, 500, 0, false)], false)
    else {
        panic!("no Pod is preempted")
    };
    let mut sim = crate::common::Sim::of("Always", &["c"]).on_stop("c", 1, 0);
    sim.pass(10);
    sim.observe(lifecycle::PodLifecycleEvent::Evicted(preemption.eviction));
    sim.pass(5);
    let status = sim.status();
    assert_eq!((sim.phase().as_str(), status.reason.as_deref()), ("Failed", Some("Preempting")));
    assert_eq!(status.message.as_deref(), Some("Preempted in order to admit critical pod"));
    let target = status.conditions.unwrap().into_iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
    let message = "Pod was preempted by Kubelet to accommodate a critical pod.";
    assert_eq!((target.reason.as_deref(), target.message.as_deref()), (Some("TerminationByKubelet"), Some(message)));
    let event = sim.events.iter().find(|event| event.reason == "Preempting").unwrap();
    assert_eq!(event.message, "Preempted in order to admit critical pod");
}
