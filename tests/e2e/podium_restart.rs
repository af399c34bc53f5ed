//! Containers survive restarts of Podium.

use crate::failures::uid;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, Process, e2e_test};

fn pod(name: &str, policy: &str, script: &str) -> String {
    PodBuilder::new(name).restart_policy(policy).grace_period(1).script(script).to_string()
}

/// Returns the fields that must be the same before and after a restart.
fn identity(kubectl: &Kubectl) -> Value {
    let status = kubectl.value("pod/p", "/status");
    let container = &status["containerStatuses"][0];
    json!([
        container["containerID"],
        container["restartCount"],
        container["ready"],
        status["podIP"],
        status["startTime"]
    ])
}

#[e2e_test("containers survive a restart of Podium and are adopted")]
fn containers_survive_podium_restart() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&pod("p", "Always", "trap 'exit 0' TERM; sleep 100000 & wait"));
    kubectl.wait_ready("p");
    let before = identity(&kubectl);
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        cluster.stop_podium(signal);
        cluster.start_podium();
        kubectl.wait_ready("p");
        assert_eq!(identity(&kubectl), before, "after {signal}");
    }
    kubectl.run("delete pod p --timeout=90s").ok();
}

#[e2e_test("an exit while Podium is down keeps its code and counts once")]
fn exit_while_podium_is_down_counts_once() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let out = tempfile::tempdir().unwrap();
    let pod = PodBuilder::new("p")
        .restart_policy("Never")
        .script("until [ -e /out/go ]; do sleep 0.1; done; exit 42")
        .volume("out", &json!({"hostPath": {"path": out.path()}}))
        .mount("out", "/out");
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    let uid = uid(&kubectl, "p");
    cluster.stop_podium(Signal::SIGKILL);
    std::fs::write(out.path().join("go"), "").unwrap();
    tests::eventually("the container to exit", || Process::of_pod(&uid).next().is_none());
    cluster.start_podium();
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    let container = kubectl.value("pod/p", "/status/containerStatuses/0");
    assert_eq!((&container["state"]["terminated"]["exitCode"], &container["restartCount"]), (&json!(42), &json!(0)));
}

/// A hook runs at least once, because a restart cannot find out whether an interrupted hook was complete.
#[e2e_test("a preStop hook interrupted by a restart of Podium runs again")]
fn interrupted_pre_stop_hook_runs_again() {
    let mut cluster = Cluster::start(&[]);
    let (kubectl, out) = (cluster.kubectl_in("default"), tempfile::tempdir().unwrap());
    let script = "trap 'echo stopped >> /out/log; exit 0' TERM; sleep 100000 & wait";
    let hook = "echo hook >> /out/log; until [ -e /out/go ]; do sleep 0.1; done";
    let hook = json!({"exec": {"command": ["sh", "-c", hook]}});
    let pod = PodBuilder::new("p")
        .grace_period(300)
        .script(script)
        .volume("out", &json!({"hostPath": {"path": out.path()}}))
        .mount("out", "/out")
        .container(&json!({"lifecycle": {"preStop": hook}}));
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    kubectl.run("delete pod p --wait=false").ok();
    let log = || std::fs::read_to_string(out.path().join("log")).unwrap_or_default();
    tests::eventually("the hook to run", || log() == "hook\n");
    cluster.stop_podium(Signal::SIGKILL);
    std::fs::write(out.path().join("go"), "").unwrap();
    cluster.start_podium();
    kubectl.run("wait --for=delete --timeout=60s pod/p").ok();
    assert_eq!(log(), "hook\nhook\nstopped\n");
}
