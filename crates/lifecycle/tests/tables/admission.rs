//! What a node takes, and in which words it refuses (`pkg/kubelet/events`).

use api::{
    quantity::Amount,
    resources::{self, Amounts},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use lifecycle::{Admission, NodeView, Pressure, Verdict, admit};
use serde_json::{Value, json};
use std::sync::Arc;

fn pod(spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec.as_object_mut().unwrap().entry("containers").or_insert(json!([{"name": "c"}]));
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn asking(requests: &Value) -> Value {
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
struct Given {
    others: Vec<Value>,
    pressures: Vec<Pressure>,
    without_node: bool,
    shutting_down: bool,
    apparmor: bool,
}

fn ask(pod: &Pod, given: &Given) -> Option<(String, String)> {
    let others: Vec<Arc<Pod>> = given.others.iter().map(|spec| Arc::new(self::pod(spec))).collect();
    let (node, allocatable) = (node(), allocatable());
    let node = (!given.without_node).then_some(&node);
    let (others, pressures) = (others.as_slice(), given.pressures.as_slice());
    let unsafe_sysctls = ["net.core.*".to_owned()];
    let view = NodeView {
        name: "n",
        node,
        allocatable: &allocatable,
        others,
        pressures,
        shutting_down: given.shutting_down,
        unsafe_sysctls: &unsafe_sysctls,
        apparmor: given.apparmor,
    };
    match admit(pod, &view) {
        Verdict::Settled(Admission::Admitted) => None,
        Verdict::Settled(Admission::Rejected { reason, message }) => Some((reason, message)),
        Verdict::Preempts(preemption) => panic!("{preemption:?}"),
    }
}

/// Tolerates what the node has, so that only what the test is about counts.
fn tolerant(mut spec: Value) -> Value {
    spec["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
    spec
}

#[track_caller]
fn refuses(spec: Value, given: &Given, reason: &str, message: &str) {
    assert_eq!(ask(&pod(&tolerant(spec)), given), Some((reason.to_owned(), message.to_owned())));
}

#[track_caller]
fn takes(spec: Value, given: &Given) {
    assert_eq!(ask(&pod(&tolerant(spec)), given), None);
}

#[test]
fn admission_checks_allocatable_resources() {
    let two =
        || Given { others: vec![asking(&json!({"cpu": "1500m", "memory": "512Mi"})), json!({})], ..Given::default() };
    takes(asking(&json!({"cpu": "500m", "memory": "512Mi"})), &two());
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
        // The first one speaks.
        (json!({"cpu": "3", "memory": "2Gi"}), "OutOfcpu", "cpu, requested: 3000, used: 1500, capacity: 2000"),
        (
            json!({"ephemeral-storage": "2Gi", "memory": "1Gi"}),
            "OutOfmemory",
            "memory, requested: 1073741824, used: 536870912, capacity: 1073741824",
        ),
    ] {
        let message = format!("Node didn't have enough resource: {message}");
        refuses(asking(&requests), &two(), reason, &message);
    }
    // A resource of the cluster is not the node's affair.
    takes(asking(&json!({"example.com/license": "1"})), &two());
    let full = Given { others: vec![json!({}), json!({}), json!({})], ..Given::default() };
    let message = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
    refuses(json!({}), &full, "OutOfpods", message);
    assert_eq!(Amount::units(3).value(), allocatable()["pods"].value());
}

#[test]
fn admission_rejects_pod_by_node_predicates() {
    let none = Given::default();
    let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    takes(json!({"nodeSelector": {"disk": "fast"}}), &none);
    refuses(json!({"nodeSelector": {"disk": "slow"}}), &none, "NodeAffinity", affinity);
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    refuses(json!({"nodeName": "m"}), &none, "NodeName", message);
    takes(json!({"nodeName": "n"}), &none);
    let port = |port: u16| json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": port}]}]});
    let held = Given { others: vec![port(8080)], ..Given::default() };
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    refuses(port(8080), &held, "NodePorts", message);
    takes(port(8081), &held);
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    refuses(json!({"os": {"name": "windows"}}), &none, "PodOSNotSupported", message);
    takes(json!({"os": {"name": "linux"}}), &none);
    let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    let groups = |policy: &str| json!({"securityContext": {"supplementalGroupsPolicy": policy}});
    refuses(groups("Strict"), &none, "SupplementalGroupsPolicyNotSupported", message);
    takes(groups("Merge"), &none);
    // What is missing comes before what does not match.
    let mut large = asking(&json!({"cpu": "3"}));
    large["nodeSelector"] = json!({"disk": "slow"});
    let message = "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000";
    refuses(large, &none, "OutOfcpu", message);
}

#[test]
fn admission_rejects_pod_with_another_os_label() {
    let mut labelled = pod(&tolerant(json!({})));
    let label = |os: &str| Some([("kubernetes.io/os".to_owned(), os.to_owned())].into());
    labelled.metadata.labels = label("windows");
    let refusal = ask(&labelled, &Given::default()).unwrap();
    assert_eq!(refusal.0, "PodOSSelectorNodeLabelDoesNotMatch");
    assert_eq!(refusal.1, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label");
    labelled.metadata.labels = label("linux");
    assert_eq!(ask(&labelled, &Given::default()), None);
}

#[test]
fn admission_checks_no_execute_taints_except_for_static_pods() {
    let mut plain = pod(&json!({}));
    let refusal = ask(&plain, &Given::default()).unwrap();
    let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    assert_eq!(refusal, ("TaintToleration".to_owned(), message.to_owned()));
    plain.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    assert_eq!(ask(&plain, &Given::default()), None);
}

#[test]
fn admission_without_node_object_checks_only_resources() {
    let alone = || Given { without_node: true, ..Given::default() };
    takes(json!({"nodeSelector": {"disk": "slow"}}), &alone());
    let message = "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000";
    refuses(asking(&json!({"cpu": "3"})), &alone(), "OutOfcpu", message);
}

#[test]
fn admission_rejects_pod_under_node_pressure() {
    let lacking = |pressures: &[Pressure]| Given { pressures: pressures.to_vec(), ..Given::default() };
    let (best_effort, burstable) = (|| json!({}), || asking(&json!({"memory": "1Mi"})));
    let memory = lacking(&[Pressure::Memory]);
    refuses(best_effort(), &memory, "Evicted", "The node had condition: [MemoryPressure]. ");
    takes(burstable(), &memory);
    let disk = lacking(&[Pressure::Disk]);
    refuses(burstable(), &disk, "Evicted", "The node had condition: [DiskPressure]. ");
    let both = lacking(&[Pressure::Disk, Pressure::Memory]);
    refuses(burstable(), &both, "Evicted", "The node had condition: [DiskPressure MemoryPressure]. ");
    refuses(best_effort(), &lacking(&[Pressure::Pid]), "Evicted", "The node had condition: [PIDPressure]. ");
    let mut tolerant = pod(&json!({"tolerations": [{"operator": "Exists"}]}));
    assert_eq!(ask(&tolerant, &memory), None);
    assert!(ask(&tolerant, &disk).is_some(), "only lack of memory can be tolerated");
    tolerant.spec.as_mut().unwrap().priority = Some(2_000_001_000);
    assert_eq!(ask(&tolerant, &both), None, "what the system cannot do without is always taken");
}

#[test]
fn admission_rejects_every_pod_during_node_shutdown() {
    let down = Given { shutting_down: true, ..Given::default() };
    refuses(json!({}), &down, "NodeShutdown", "Pod was rejected as the node is shutting down.");
    refuses(
        json!({"priority": 2_000_001_000}),
        &down,
        "NodeShutdown",
        "Pod was rejected as the node is shutting down.",
    );
    // Upstream asks about that last.
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    refuses(json!({"nodeName": "m"}), &down, "NodeName", message);
}

#[test]
fn admission_rejects_sysctl_that_is_not_allowed() {
    let of = |name: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
    takes(of("net.ipv4.tcp_syncookies"), &Given::default());
    takes(of("net.core.somaxconn"), &Given::default());
    let message = "forbidden sysctl: \"kernel.msgmax\" not allowlisted";
    refuses(of("kernel.msgmax"), &Given::default(), "SysctlForbidden", message);
    let mut shared = of("net.ipv4.tcp_syncookies");
    shared["hostNetwork"] = json!(true);
    let message = "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled";
    refuses(shared, &Given::default(), "SysctlForbidden", message);
}

#[test]
fn admission_rejects_apparmor_profile_without_apparmor() {
    let with = || Given { apparmor: true, ..Given::default() };
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    let of_pod = |kind: &str| json!({"securityContext": {"appArmorProfile": {"type": kind}}});
    let of_container =
        |kind: &str| json!({"containers": [{"name": "c", "securityContext": {"appArmorProfile": {"type": kind}}}]});
    for spec in [of_pod("RuntimeDefault"), of_pod("Localhost"), of_container("RuntimeDefault")] {
        refuses(spec.clone(), &Given::default(), "AppArmor", message);
        takes(spec, &with());
    }
    takes(of_pod("Unconfined"), &Given::default());
    takes(json!({}), &Given::default());
    // What a container says counts more than what its Pod says.
    let mut own = of_container("Unconfined");
    own["securityContext"] = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    takes(own, &Given::default());
}
