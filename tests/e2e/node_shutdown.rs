//! Graceful node shutdown by Pod priority (KEP-2000, KEP-2712).

use fake_logind::FakeLogind;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, eventually, wait_for};
use tokio::runtime::Runtime;

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Starts a node with static Pod manifests in this directory, and logind at this address.
fn node(manifests: &Path, logind: &str) -> Cluster {
    let kubelet = json!({"shutdownGracePeriod": "150s", "shutdownGracePeriodCriticalPods": "60s",
        "staticPodPath": manifests, "fileCheckFrequency": "1h"});
    let setup = ClusterBuilder::default().kubelet_config(kubelet).args(&["--node-name", "node-1"]);
    setup.env("DBUS_SYSTEM_BUS_ADDRESS", logind).start()
}

/// Returns a Pod that needs a second to terminate.
fn pod(name: &str) -> PodBuilder {
    let ready = json!({"readinessProbe": {"exec": {"command": ["cat", "/tmp/up"]}, "periodSeconds": 1}});
    PodBuilder::new(name)
        .grace_period(150)
        .script("trap 'sleep 1; exit 3' TERM; touch /tmp/up; while :; do sleep 0.1; done")
        .container(&ready)
}

/// Waits until a Pod is ready. `kubectl wait` would fail between the deletion of a static Pod's mirror and its creation for
/// the restarted Pod.
fn running(kubectl: &Kubectl, name: &str) {
    eventually("the Pod to be ready", || kubectl.condition(name, "Ready")["status"] == "True");
}

/// Waits until the shutdown has terminated a Pod, and returns its container's finishedAt.
fn terminated(kubectl: &Kubectl, name: &str) -> String {
    kubectl.wait_value(name, "/status/phase", &json!("Failed"));
    let status = kubectl.value(name, "/status");
    assert_eq!((&status["reason"], &status["message"]), (&json!("Terminated"), &json!(MESSAGE)));
    let conditions = status["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&target["reason"], &target["message"]), (&json!("TerminationByKubelet"), &json!(MESSAGE)));
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 3, "it had its grace");
    ended["finishedAt"].as_str().unwrap().to_owned()
}

fn ready(kubectl: &Kubectl) -> (Value, Value, Value) {
    let conditions = kubectl.value("node/node-1", "/status/conditions");
    let ready = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap().clone();
    (ready["status"].clone(), ready["reason"].clone(), ready["message"].clone())
}

fn wait_for_not_ready(kubectl: &Kubectl) {
    let down = (json!("False"), json!("KubeletNotReady"), json!("node is shutting down"));
    eventually("the node to report the shutdown", || ready(kubectl) == down);
}

#[e2e_test("graceful node shutdown ends ordinary Pods before critical ones")]
fn node_shutdown_ends_ordinary_pods_first() {
    let runtime = Runtime::new().unwrap();
    let logind = runtime.block_on(FakeLogind::start(Duration::from_secs(300)));
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = node(dir.path(), logind.address());
    let kubectl = cluster.kubectl_in("default");
    std::fs::write(dir.path().join("fixed.json"), pod("fixed").to_string()).unwrap();
    kubectl.apply(&pod("ordinary").to_string());
    kubectl.apply(&pod("critical").spec(&json!({"priorityClassName": "system-node-critical"})).to_string());
    for name in ["pod/ordinary", "pod/critical", "pod/fixed-node-1"] {
        running(&kubectl, name);
    }
    eventually("the inhibitor lock", || logind.locks() == ["shutdown podium delay"]);

    runtime.block_on(logind.prepare_for_shutdown(true));
    wait_for_not_ready(&kubectl);
    let (ordinary, critical) = (terminated(&kubectl, "pod/ordinary"), terminated(&kubectl, "pod/critical"));
    assert!(ordinary < critical, "{ordinary} {critical}");
    terminated(&kubectl, "pod/fixed-node-1");
    eventually("the inhibitor lock to be released", || logind.locks().is_empty());
    kubectl.apply(&pod("late").spec(&json!({"nodeName": "node-1"})).to_string());
    kubectl.wait_value("pod/late", "/status/reason", &json!("NodeShutdown"));
    let message = kubectl.value("pod/late", "/status/message");
    assert_eq!(message, "Pod was rejected: Pod was rejected as the node is shutting down.");
    let events = "get events -A --field-selector reason=NodeShutdown,involvedObject.kind=Node -o wide";
    eventually("the Event", || kubectl.run(events).ok().contains("Shutdown manager detected shutdown event"));
    let metrics = kubectl.run("get --raw /api/v1/nodes/node-1/proxy/metrics").ok();
    assert!(metrics.contains("kubelet_graceful_shutdown_end_time_seconds 1"), "{metrics}");

    // A Podium started during the shutdown notices it.
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_api();
    wait_for_not_ready(&kubectl);
    terminated(&kubectl, "pod/fixed-node-1");

    runtime.block_on(logind.prepare_for_shutdown(false));
    eventually("the node to be Ready again", || ready(&kubectl).0 == "True");
    eventually("the inhibitor lock to be acquired again", || logind.locks().len() == 1);
    // Pods from the API have failed; static Pods run again.
    running(&kubectl, "pod/fixed-node-1");
    terminated(&kubectl, "pod/ordinary");
}

#[e2e_test("without systemd-logind, node shutdown is not graceful and logs so")]
fn missing_logind_disables_graceful_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = format!("unix:path={}", dir.path().join("none").display());
    let cluster = node(dir.path(), &nowhere);
    wait_for("the log line", Duration::from_secs(30), || {
        let log = cluster.log();
        if log.contains("graceful node shutdown is disabled") { Ok(()) } else { Err(log) }
    });
}
