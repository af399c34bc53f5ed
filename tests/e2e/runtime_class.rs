//! RuntimeClasses: handlers, overhead, and errors.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

/// Creates a RuntimeClass for this test, and returns its name.
fn class(kubectl: &Kubectl, handler: &str, fields: &Value) -> String {
    let name = format!("{}-{handler}", kubectl.namespace());
    let mut class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler});
    for (key, value) in fields.as_object().into_iter().flatten() {
        class[key] = value.clone();
    }
    kubectl.apply(&class.to_string());
    name
}

fn pod(class: &str) -> PodBuilder {
    PodBuilder::new("p")
        .grace_period(0)
        .command(&["sleep", "100000"])
        .resources(&json!({"limits": {"memory": "20Mi"}}))
        .spec(&json!({"runtimeClassName": class}))
}

/// Waits for a FailedCreatePodSandBox Event whose message ends with this text.
fn wait_for_sandbox_error(kubectl: &Kubectl, message: &str) {
    eventually(&format!("FailedCreatePodSandBox: {message}"), || {
        let is_expected = |(reason, text): &(String, String)| {
            reason == "FailedCreatePodSandBox"
                && text.starts_with("Failed to create pod sandbox: ")
                && text.ends_with(message)
        };
        kubectl.events("p").iter().any(is_expected)
    });
    assert_eq!(kubectl.value("pod/p", "/status/phase"), "Pending");
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/state/waiting/reason"), "ContainerCreating");
}

#[e2e_test("a Pod uses the handler and overhead of its RuntimeClass")]
fn pod_uses_handler_and_overhead_of_runtime_class(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let name = class(&kubectl, "runc", &json!({"overhead": {"podFixed": {"memory": "44Mi", "cpu": "10m"}}}));
    let row = kubectl.run(&format!("get runtimeclass {name} --no-headers")).ok();
    assert_eq!(row.split_whitespace().take(2).collect::<Vec<_>>(), [name.as_str(), "runc"]);
    kubectl.apply(&pod(&name).to_string());
    kubectl.wait_ready("p");
    assert_eq!(kubectl.value("pod/p", "/spec/overhead"), json!({"memory": "44Mi", "cpu": "10m"}));
    assert_eq!(kubectl.value("pod/p", "/status/qosClass"), "Burstable", "overhead does not count");
    // The Pod's cgroup limit is that of the container plus the overhead.
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let group = tests::pod_cgroup("memory", uid.as_str().unwrap());
    let limit =
        ["memory.limit_in_bytes", "memory.max"].iter().find_map(|f| std::fs::read_to_string(group.join(f)).ok());
    assert_eq!(limit.unwrap().trim(), (64u64 << 20).to_string());
    let heavy = class(&kubectl, "runc2", &json!({"overhead": {"podFixed": {"cpu": "1k"}}}));
    kubectl.run("delete pod p").ok();
    kubectl.apply(&pod(&heavy).to_string());
    eventually("the scheduler to count the overhead", || {
        kubectl
            .events("p")
            .iter()
            .any(|(reason, text)| reason == "FailedScheduling" && text.contains("Insufficient cpu"))
    });
    kubectl.run("delete pod p").ok();
}

#[e2e_test("an unknown handler fails sandbox creation")]
fn unknown_handler_fails_sandbox_creation(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let name = class(&kubectl, "nobody", &json!({}));
    kubectl.apply(&pod(&name).to_string());
    wait_for_sandbox_error(&kubectl, "no runtime for \"nobody\" is configured");
    kubectl.run("delete pod p --timeout=90s").ok();
}

#[e2e_test("a missing RuntimeClass is reported")]
fn missing_runtime_class_is_reported(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let refused = kubectl.args(&["create", "-f", "-"], &pod("nothing").to_string()).failed();
    assert!(refused.contains("pods \"p\" is forbidden: pod rejected: RuntimeClass \"nothing\" not found"), "{refused}");
    // A class that is deleted while its Pod is Pending.
    let name = class(&kubectl, "runc", &json!({}));
    kubectl.apply(&pod(&name).spec(&json!({"schedulingGates": [{"name": "x.io/wait"}]})).to_string());
    kubectl.run(&format!("delete runtimeclass {name}")).ok();
    kubectl.args(&["patch", "pod", "p", "--type=merge", "-p", r#"{"spec":{"schedulingGates":null}}"#], "").ok();
    wait_for_sandbox_error(&kubectl, &format!("runtimeclasses.node.k8s.io {name:?} not found"));
    // The Pod is retried, and runs when the class is created.
    class(&kubectl, "runc", &json!({}));
    kubectl.wait_ready("p");
    kubectl.run("delete pod p").ok();
}
