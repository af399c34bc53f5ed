//! In-place resize of Pods, and pod-level resources.

use serde_json::{Value, json};
use std::path::Path;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually, pod_cgroup};

fn amounts(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

fn pod(script: &str, requests: &Value, limits: &Value) -> PodBuilder {
    PodBuilder::new("p")
        .grace_period(1)
        .script(script)
        .resources(&json!({"requests": requests, "limits": limits}))
        .container(&json!({"resizePolicy": []}))
}

fn run(kubectl: &Kubectl, pod: &PodBuilder) {
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
}

fn patch(resources: &Value) -> String {
    json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}).to_string()
}

fn resize(kubectl: &Kubectl, resources: &Value) {
    kubectl.args(&["patch", "pod", "p", "--subresource", "resize", "-p", &patch(resources)], "").ok();
}

const STATUS: &str = "/status/containerStatuses/0";

/// Waits until the container has these requests and the resize is complete.
fn wait_for_resize(kubectl: &Kubectl, requests: &Value) {
    kubectl.wait_value("pod/p", &format!("{STATUS}/resources/requests"), requests);
    assert_eq!(kubectl.value("pod/p", &format!("{STATUS}/allocatedResources")), *requests);
    eventually("the resize to be complete", || kubectl.condition("pod/p", "PodResizeInProgress").is_null());
}

/// Reads the number in one of these files of a cgroup, v1 or v2.
fn number(dir: &Path, files: [&str; 2]) -> i64 {
    let text = files.iter().find_map(|f| std::fs::read_to_string(dir.join(f)).ok()).unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{}: {text:?}", dir.display()))
}

/// Returns CPU quota and memory limit of the Pod, or of its only container.
fn limits(kubectl: &Kubectl, container: bool) -> (i64, i64) {
    let text = |pointer: &str| kubectl.value("pod/p", pointer).as_str().unwrap().to_owned();
    let (uid, id) = (text("/metadata/uid"), text(&format!("{STATUS}/containerID")));
    let dir = |controller: &str| {
        let pod = pod_cgroup(controller, &uid);
        if container { pod.join(id.rsplit('/').next().unwrap()) } else { pod }
    };
    let quota = number(&dir("cpu"), ["cpu.cfs_quota_us", "cpu.max"]);
    (quota, number(&dir("memory"), ["memory.limit_in_bytes", "memory.max"]))
}

#[e2e_test("a resize changes cgroups without a restart")]
fn resize_changes_cgroups_without_restart(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl, &pod("sleep 100000", &amounts("20m", "20Mi"), &amounts("100m", "40Mi")));
    assert_eq!((limits(&kubectl, true), limits(&kubectl, false)), ((10_000, 40 << 20), (10_000, 40 << 20)));
    let id = kubectl.value("pod/p", &format!("{STATUS}/containerID"));
    for (requests, limit, expected) in [
        (amounts("30m", "20Mi"), amounts("200m", "60Mi"), (20_000, 60 << 20)),
        (amounts("10m", "20Mi"), amounts("50m", "30Mi"), (5_000, 30 << 20)),
    ] {
        resize(&kubectl, &json!({"requests": requests, "limits": limit}));
        wait_for_resize(&kubectl, &requests);
        assert_eq!((limits(&kubectl, true), limits(&kubectl, false)), (expected, expected), "{requests}");
    }
    assert_eq!(kubectl.value("pod/p", &format!("{STATUS}/containerID")), id);
    assert_eq!(kubectl.value("pod/p", &format!("{STATUS}/restartCount")), 0);
    let has_event = |reason: &str| kubectl.events("p").iter().any(|(r, _)| r == reason);
    eventually("the Events of the resize", || has_event("ResizeStarted") && has_event("ResizeCompleted"));
    let patch = json!([{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "15m"}]);
    kubectl.args(&["patch", "pod", "p", "--subresource=resize", "--type=json", "-p", &patch.to_string()], "").ok();
    wait_for_resize(&kubectl, &amounts("15m", "20Mi"));
    let shown = kubectl.run("get pod p --subresource resize --no-headers").ok();
    assert!(shown.starts_with("p "), "{shown}");
    kubectl.run("delete pod p").ok();
}

#[e2e_test("a downwardAPI volume follows a resize")]
fn downward_api_volume_follows_resize(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let field = json!({"containerName": "c", "resource": "requests.cpu", "divisor": "1m"});
    let volume = json!({"downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": field}]}});
    let pod =
        pod("sleep 100000", &amounts("20m", "20Mi"), &amounts("100m", "40Mi")).volume("v", &volume).mount("v", "/v");
    run(&kubectl, &pod);
    assert_eq!(kubectl.run("exec p -- cat /v/cpu").ok().trim(), "20");
    resize(&kubectl, &json!({"requests": amounts("30m", "20Mi")}));
    eventually("the file to be updated", || {
        kubectl.run("exec p -- cat /v/cpu").is_ok_and(|output| output.trim() == "30")
    });
    kubectl.run("delete pod p").ok();
}

#[e2e_test("a resize restarts a container with resizePolicy RestartContainer")]
fn resize_restarts_by_resize_policy(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let pod = pod(script, &amounts("10m", "20Mi"), &amounts("100m", "40Mi"))
        .restart_policy("OnFailure")
        .container(&json!({"resizePolicy": policy}));
    run(&kubectl, &pod);
    resize(&kubectl, &json!({"requests": amounts("10m", "30Mi"), "limits": amounts("100m", "64Mi")}));
    kubectl.wait_value("pod/p", &format!("{STATUS}/restartCount"), &json!(1));
    wait_for_resize(&kubectl, &amounts("10m", "30Mi"));
    kubectl.wait_ready("p");
    assert_eq!((limits(&kubectl, true), limits(&kubectl, false)), ((10_000, 64 << 20), (10_000, 64 << 20)));
    let killing =
        |(reason, text): &(String, String)| reason == "Killing" && text == "Container c resize requires restart";
    eventually("the reason of the restart", || kubectl.events("p").iter().any(killing));
    kubectl.run("delete pod p").ok();
}

#[e2e_test("an unfitting resize is Deferred, and an impossible one Infeasible")]
fn unfitting_resize_is_deferred_or_infeasible(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let node = kubectl.run("get nodes -o name").ok().trim().to_owned();
    let capacity = kubectl.value(&node, "/status/allocatable/cpu");
    let milli = match capacity.as_str().unwrap() {
        m if m.ends_with('m') => m.trim_end_matches('m').parse().unwrap(),
        units => units.parse::<i64>().unwrap() * 1000,
    };
    // A neighbour requests half of the node, and the Pod more than half.
    let half = format!("{}m", milli / 2);
    let neighbour = PodBuilder::new("neighbour")
        .grace_period(0)
        .command(&["sleep", "100000"])
        .resources(&json!({"requests": {"cpu": half}}));
    kubectl.apply(&neighbour.to_string());
    kubectl.wait_ready("neighbour");
    run(&kubectl, &pod("sleep 100000", &json!({"cpu": "1m"}), &json!({})));
    resize(&kubectl, &json!({"requests": {"cpu": "9k"}}));
    let has_event = |reason: &str, words: &str| {
        let c = kubectl.condition("pod/p", "PodResizePending");
        c["reason"] == reason && c["message"].as_str().is_some_and(|m| m.starts_with(words))
    };
    eventually("Infeasible", || {
        has_event("Infeasible", "Node didn't have enough capacity: cpu, requested: 9000000, capacity: ")
    });
    let cpu = format!("{}m", milli / 2 + 1);
    resize(&kubectl, &json!({"requests": {"cpu": cpu}}));
    eventually("Deferred", || has_event("Deferred", "Node didn't have enough resource: cpu, requested: "));
    assert_eq!(kubectl.value("pod/p", &format!("{STATUS}/allocatedResources")), json!({"cpu": "1m"}));
    kubectl.run("delete pod neighbour").ok();
    wait_for_resize(&kubectl, &json!({"cpu": cpu}));
    assert_eq!(kubectl.condition("pod/p", "PodResizePending"), Value::Null);
    kubectl.run("delete pod p --now").ok();
}

#[e2e_test("a resize does not lower the memory limit below current usage")]
fn resize_keeps_memory_in_use(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let script = "dd if=/dev/zero of=/dev/shm/x bs=1M count=30 2>/dev/null; echo full; sleep 100000";
    run(&kubectl, &pod(script, &amounts("10m", "10Mi"), &amounts("500m", "60Mi")));
    eventually("the memory to be used", || kubectl.run("logs p").is_ok_and(|output| output == "full\n"));
    resize(&kubectl, &json!({"limits": {"memory": "20Mi"}}));
    eventually("the error of the resize", || {
        let c = kubectl.condition("pod/p", "PodResizeInProgress");
        let words = "attempting to set container \"c\" memory limit (20971520) below current usage (";
        c["reason"] == "Error" && c["message"].as_str().is_some_and(|m| m.contains(words))
    });
    assert_eq!(limits(&kubectl, true).1, 60 << 20);
    // The resize is retried.
    kubectl.run("exec p -- rm /dev/shm/x").ok();
    eventually("the limit to be lower", || limits(&kubectl, true).1 == 20 << 20);
    eventually("the resize to be complete", || kubectl.condition("pod/p", "PodResizeInProgress").is_null());
    assert_eq!(kubectl.value("pod/p", &format!("{STATUS}/restartCount")), 0);
    kubectl.run("delete pod p --now").ok();
}

#[e2e_test("a resize that changes forbidden fields is refused")]
fn invalid_resize_is_refused(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl, &pod("sleep 100000", &amounts("10m", "10Mi"), &amounts("50m", "20Mi")));
    for (resources, expected) in [
        (
            json!({"requests": amounts("50m", "20Mi")}),
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
        ),
        (
            json!({"limits": {"cpu": null}}),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (json!({"limits": {"ephemeral-storage": "1Gi"}}), "spec: Forbidden: only cpu and memory resources are mutable"),
    ] {
        let reported =
            kubectl.args(&["patch", "pod", "p", "--subresource", "resize", "-p", &patch(&resources)], "").failed();
        assert!(reported.contains(expected), "{resources}: {reported}");
    }
    // An update without the resize subresource cannot change resources.
    let reported = kubectl.args(&["patch", "pod", "p", "-p", &patch(&json!({"limits": {"cpu": "60m"}}))], "").failed();
    assert!(reported.contains("spec: Forbidden: pod updates may not change fields other than"), "{reported}");
    kubectl.run("delete pod p --now").ok();
}

#[e2e_test("pod-level resources are shared among containers")]
fn pod_level_resources_are_shared(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = pod("sleep 100000", &json!({"cpu": "10m"}), &json!({}))
        .spec(&json!({"resources": {"limits": amounts("200m", "64Mi")}}));
    run(&kubectl, &pod);
    assert_eq!(kubectl.value("pod/p", "/spec/resources/requests"), amounts("10m", "64Mi"));
    assert_eq!(kubectl.value("pod/p", "/status/qosClass"), "Burstable");
    assert_eq!((limits(&kubectl, true), limits(&kubectl, false)), ((20_000, 64 << 20), (20_000, 64 << 20)));
    let reported = kubectl
        .args(&["patch", "pod", "p", "--subresource", "resize", "-p", &patch(&json!({"requests": {"cpu": "20m"}}))], "")
        .failed();
    assert!(reported.contains("pods with pod-level resources cannot be resized"), "{reported}");
    let large =
        pod.metadata(&json!({"name": "q"})).resources(&json!({"limits": {"cpu": "300m"}, "requests": {"cpu": "300m"}}));
    let reported = kubectl.args(&["create", "-f", "-"], &large.to_string()).failed();
    assert!(reported.contains("spec.resources.containers[0][cpu].limits: Invalid value: \"300m\": must be less than or equal to pod limits of 200m"), "{reported}");
    kubectl.run("delete pod p --now").ok();
}
