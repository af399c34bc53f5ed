//! Kubelet admission and its rejection messages (`pkg/kubelet/lifecycle`).

use api::{
    quantity::Amount,
    resources::{self, Amounts},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use lifecycle::{Admission, AdmissionDecision, AdmissionNodeInfo, NodePressure, admit};
use serde_json::{Value, json};
use std::sync::Arc;

fn pod(spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec.as_object_mut().unwrap().entry("containers").or_insert(json!([{"name": "c"}]));
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn requesting(requests: &Value) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
}

fn node() -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "n", "labels": {"disk": "fast"}},
        "spec": {"taints": [{"key": "broken", "effect": "NoExecute"}, {"key": "full", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "9", "example.com/gpu": "1"}},
    }))
    .unwrap()
}

fn allocatable() -> Amounts {
    let list = json!({"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi", "pods": "3"});
    resources::amounts(Some(&serde_json::from_value(list).unwrap()))
}

#[derive(Default)]
struct NodeState {
    others: Vec<Value>,
    pressures: Vec<NodePressure>,
    without_node: bool,
    shutting_down: bool,
    apparmor: bool,
}

fn admission(pod: &Pod, state: &NodeState) -> Option<(String, String)> {
    let others: Vec<Arc<Pod>> = state.others.iter().map(|spec| Arc::new(self::pod(spec))).collect();
    let (node, allocatable) = (node(), allocatable());
    let node = (!state.without_node).then_some(&node);
    let (others, pressures) = (others.as_slice(), state.pressures.as_slice());
    let unsafe_sysctls = ["net.core.*".to_owned()];
    let view = AdmissionNodeInfo {
        name: "n",
        node,
        allocatable: &allocatable,
        others,
        pressures,
        shutting_down: state.shutting_down,
        unsafe_sysctls: &unsafe_sysctls,
        apparmor: state.apparmor,
    };
    match admit(pod, &view) {
        AdmissionDecision::Decided(Admission::Admitted) => None,
        AdmissionDecision::Decided(Admission::Rejected { reason, message }) => Some((reason, message)),
        AdmissionDecision::Preempts(preemption) => panic!("{preemption:?}"),
    }
}

/// Adds tolerations for the node's taints, so that they do not affect the test.
fn tolerant(mut spec: Value) -> Value {
    spec["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
    spec
}

#[track_caller]
fn check_rejected(spec: Value, state: &NodeState, reason: &str, message: &str) {
    assert_eq!(admission(&pod(&tolerant(spec)), state), Some((reason.to_owned(), message.to_owned())));
}

#[track_caller]
fn check_admitted(spec: Value, state: &NodeState) {
    assert_eq!(admission(&pod(&tolerant(spec)), state), None);
}

#[test]
fn admission_checks_allocatable_resources() {
    let two_pods = || NodeState {
        others: vec![requesting(&json!({"cpu": "1500m", "memory": "512Mi"})), json!({})],
        ..NodeState::default()
    };
    check_admitted(requesting(&json!({"cpu": "500m", "memory": "512Mi"})), &two_pods());
    for (requests, reason, message) in [
        (json!({"cpu": "501m"}), "OutOfcpu", "cpu, requested: 501, used: 1500, capacity: 2000"),
        (
            json!({"memory": "513Mi"}),
            "OutOfmemory",
            "memory, requested: 537919488, used: 536870912, capacity: 1073741824",
        ),
        (
            json!({"ephemeral-storage": "2Gi"}),
            "OutOfephemeral-storage",
            "ephemeral-storage, requested: 2147483648, used: 0, capacity: 1073741824",
        ),
        (
            json!({"example.com/gpu": "2"}),
            "OutOfexample.com/gpu",
            "example.com/gpu, requested: 2, used: 0, capacity: 1",
        ),
        (
            json!({"hugepages-2Mi": "2Mi"}),
            "OutOfhugepages-2Mi",
            "hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
        ),
        // The first resource determines the reason.
        (json!({"cpu": "3", "memory": "2Gi"}), "OutOfcpu", "cpu, requested: 3000, used: 1500, capacity: 2000"),
        (
            json!({"ephemeral-storage": "2Gi", "memory": "1Gi"}),
            "OutOfmemory",
            "memory, requested: 1073741824, used: 536870912, capacity: 1073741824",
        ),
    ] {
        let message = format!("Node didn't have enough resource: {message}");
        check_rejected(requesting(&requests), &two_pods(), reason, &message);
    }
    // The node does not check cluster-level resources.
    check_admitted(requesting(&json!({"example.com/license": "1"})), &two_pods());
    let full = NodeState { others: vec![json!({}), json!({}), json!({})], ..NodeState::default() };
    let message = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
    check_rejected(json!({}), &full, "OutOfpods", message);
    assert_eq!(Amount::units(3).value(), allocatable()["pods"].value());
}

#[test]
fn admission_rejects_pod_by_node_predicates() {
    let none = NodeState::default();
    let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    check_admitted(json!({"nodeSelector": {"disk": "fast"}}), &none);
    check_rejected(json!({"nodeSelector": {"disk": "slow"}}), &none, "NodeAffinity", affinity);
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    check_rejected(json!({"nodeName": "m"}), &none, "NodeName", message);
    check_admitted(json!({"nodeName": "n"}), &none);
    let port = |port: u16| json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port}]}]});
    let held = NodeState { others: vec![port(8080)], ..NodeState::default() };
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    check_rejected(port(8080), &held, "NodePorts", message);
    check_admitted(port(8081), &held);
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    check_rejected(json!({"os": {"name": "windows"}}), &none, "PodOSNotSupported", message);
    check_admitted(json!({"os": {"name": "linux"}}), &none);
    let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    let groups = |policy: &str| json!({"securityContext": {"supplementalGroupsPolicy": policy}});
    check_rejected(groups("Strict"), &none, "SupplementalGroupsPolicyNotSupported", message);
    check_admitted(groups("Merge"), &none);
    // Insufficient resources take precedence over predicates.
    let mut large = requesting(&json!({"cpu": "3"}));
    large["nodeSelector"] = json!({"disk": "slow"});
    let message = "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000";
    check_rejected(large, &none, "OutOfcpu", message);
}

#[test]
fn admission_rejects_pod_with_another_os_label() {
    let mut labelled = pod(&tolerant(json!({})));
    let label = |os: &str| Some([("kubernetes.io/os".to_owned(), os.to_owned())].into());
    labelled.metadata.labels = label("windows");
    let rejection = admission(&labelled, &NodeState::default()).unwrap();
    assert_eq!(rejection.0, "PodOSSelectorNodeLabelDoesNotMatch");
    assert_eq!(rejection.1, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label");
    labelled.metadata.labels = label("linux");
    assert_eq!(admission(&labelled, &NodeState::default()), None);
}

#[test]
fn admission_checks_no_execute_taints_except_for_static_pods() {
    let mut plain = pod(&json!({}));
    let rejection = admission(&plain, &NodeState::default()).unwrap();
    let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    assert_eq!(rejection, ("TaintToleration".to_owned(), message.to_owned()));
    plain.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    assert_eq!(admission(&plain, &NodeState::default()), None);
}

#[test]
fn admission_without_node_object_checks_only_resources() {
    let without_node = || NodeState { without_node: true, ..NodeState::default() };
    check_admitted(json!({"nodeSelector": {"disk": "slow"}}), &without_node());
    let message = "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000";
    check_rejected(requesting(&json!({"cpu": "3"})), &without_node(), "OutOfcpu", message);
}

#[test]
fn admission_rejects_pod_under_node_pressure() {
    let under_pressure =
        |pressures: &[NodePressure]| NodeState { pressures: pressures.to_vec(), ..NodeState::default() };
    let (best_effort, burstable) = (|| json!({}), || requesting(&json!({"memory": "1Mi"})));
    let memory = under_pressure(&[NodePressure::Memory]);
    check_rejected(best_effort(), &memory, "Evicted", "The node had condition: [MemoryPressure]. ");
    check_admitted(burstable(), &memory);
    let disk = under_pressure(&[NodePressure::Disk]);
    check_rejected(burstable(), &disk, "Evicted", "The node had condition: [DiskPressure]. ");
    let both = under_pressure(&[NodePressure::Disk, NodePressure::Memory]);
    check_rejected(burstable(), &both, "Evicted", "The node had condition: [DiskPressure MemoryPressure]. ");
    check_rejected(
        best_effort(),
        &under_pressure(&[NodePressure::Pid]),
        "Evicted",
        "The node had condition: [PIDPressure]. ",
    );
    let mut tolerant = pod(&json!({"tolerations": [{"operator": "Exists"}]}));
    assert_eq!(admission(&tolerant, &memory), None);
    assert!(admission(&tolerant, &disk).is_some(), "only memory pressure can be tolerated");
    tolerant.spec.as_mut().unwrap().priority = Some(2_000_001_000);
    assert_eq!(admission(&tolerant, &both), None, "critical Pods are always admitted");
}

#[test]
fn admission_rejects_every_pod_during_node_shutdown() {
    let down = NodeState { shutting_down: true, ..NodeState::default() };
    check_rejected(json!({}), &down, "NodeShutdown", "Pod was rejected as the node is shutting down.");
    check_rejected(
        json!({"priority": 2_000_001_000}),
        &down,
        "NodeShutdown",
        "Pod was rejected as the node is shutting down.",
    );
    // Upstream checks the shutdown last.
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    check_rejected(json!({"nodeName": "m"}), &down, "NodeName", message);
}

#[test]
fn admission_rejects_sysctl_that_is_not_allowed() {
    let with_sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
    check_admitted(with_sysctl("net.ipv4.tcp_syncookies"), &NodeState::default());
    check_admitted(with_sysctl("net.core.somaxconn"), &NodeState::default());
    let message = "forbidden sysctl: \"kernel.msgmax\" not allowlisted";
    check_rejected(with_sysctl("kernel.msgmax"), &NodeState::default(), "SysctlForbidden", message);
    let mut shared = with_sysctl("net.ipv4.tcp_syncookies");
    shared["hostNetwork"] = json!(true);
    let message = "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled";
    check_rejected(shared, &NodeState::default(), "SysctlForbidden", message);
}

#[test]
fn admission_rejects_apparmor_profile_without_apparmor() {
    let with = || NodeState { apparmor: true, ..NodeState::default() };
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    let of_pod = |kind: &str| json!({"securityContext": {"appArmorProfile": {"type": kind}}});
    let of_container =
        |kind: &str| json!({"containers": [{"name": "c", "securityContext": {"appArmorProfile": {"type": kind}}}]});
    for spec in [of_pod("RuntimeDefault"), of_pod("Localhost"), of_container("RuntimeDefault")] {
        check_rejected(spec.clone(), &NodeState::default(), "AppArmor", message);
        check_admitted(spec, &with());
    }
    check_admitted(of_pod("Unconfined"), &NodeState::default());
    check_admitted(json!({}), &NodeState::default());
    // The container's profile overrides the Pod's.
    let mut container_profile = of_container("Unconfined");
    container_profile["securityContext"] = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    check_admitted(container_profile, &NodeState::default());
}
