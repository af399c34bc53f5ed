//! Pods in an external container runtime (`--runtime-endpoint`), here a containerd.

use crate::{
    crash_recovery::counting,
    failures::uid,
    kubectl_top::check_usage_through_restart,
    podium_up::run_ready,
    termination::{begin_deletion, check_grace_period},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, ClusterBuilder, Containerd, Kubectl, Process, e2e_test, wait_for};

/// Tests of the shared cluster that run on an external runtime, too: what Podium does by the CRI.
pub(crate) const TESTS: &[&str] = &[
    "a running Pod shows its node, addresses, conditions and container",
    "a crash loop backs off and keeps the last state",
    "deletion sends SIGTERM and the exit code decides the phase",
    "an OOM-killed container reports OOMKilled and 137",
    "a missing command reports StartError and backs off",
    "a dead sandbox is recreated, and fails a Pod under Never",
    "init containers run in order, are retried and block app containers",
    "sidecars end after the main containers, in reverse order",
    "a preStop hook runs before the stop signal",
    "liveness failure restarts the container after the threshold",
    "a timed-out exec probe ends with all its child processes",
    "exec carries stdout, stderr and exit codes",
    "exec ends with its command despite unread stdin",
    "attach connects to the container's process",
    "port-forward reaches a port on the Pod's loopback",
    "a pull without credentials fails, backs off and reports the reason",
    "image commands work on the images of the cluster's runtime",
];

/// A cluster on a containerd of its own. The cluster is removed first.
pub(crate) struct ExternalCluster {
    cluster: Cluster,
    containerd: Containerd,
}

impl ExternalCluster {
    pub(crate) fn start() -> Self {
        let containerd = Containerd::start().unwrap();
        Self { cluster: guest(&containerd), containerd }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn restart_containerd(&mut self) {
        self.containerd.kill().unwrap();
        self.containerd.restart().unwrap();
    }
}

fn guest(containerd: &Containerd) -> Cluster {
    ClusterBuilder::default().runtime_endpoint(&containerd.endpoint()).start()
}

fn container(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.value(&format!("pod/{name}"), "/status/containerStatuses/0")
}

#[e2e_test("an external container runtime is used and left unchanged")]
fn external_runtime_is_used_and_left_unchanged() {
    let containerd = Containerd::start().unwrap();
    let mut killed = guest(&containerd);
    let theirs = killed.kubectl_in("default");
    let address = run_ready(&theirs, "theirs");
    let (uid, before) = (uid(&theirs, "theirs"), container(&theirs, "theirs"));
    killed.stop_podium(Signal::SIGKILL);
    let other = guest(&containerd);
    let kubectl = other.kubectl_in("default");
    assert_ne!(run_ready(&kubectl, "ours"), address);
    assert_eq!(kubectl.run("exec ours -- echo hello").ok(), "hello\n");
    let output = other.podium(&["down"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(Process::of_sandbox(&uid).is_some(), "the Pod of the other Podium still runs");
    killed.start_podium();
    theirs.wait_ready("theirs");
    assert_eq!(theirs.run("exec theirs -- echo untouched").ok(), "untouched\n");
    assert_eq!(theirs.value("pod/theirs", "/status/podIP"), json!(address));
    let after = container(&theirs, "theirs");
    let identity = |container: &Value| (container["containerID"].clone(), container["restartCount"].clone());
    assert_eq!(identity(&after), identity(&before));
    assert!(after["containerID"].as_str().unwrap().starts_with("containerd://"), "{after}");
}

#[e2e_test("kubectl top shows the usage of an external runtime's containers")]
fn top_shows_usage_of_external_runtime() {
    let containerd = Containerd::start().unwrap();
    check_usage_through_restart(guest(&containerd));
}

#[e2e_test("a grace period continues through a SIGKILL of containerd")]
fn grace_period_survives_containerd_sigkill() {
    let mut external = ExternalCluster::start();
    let kubectl = external.cluster.kubectl_in("default");
    let begin = begin_deletion(&kubectl);
    external.restart_containerd();
    check_grace_period(&kubectl, begin);
}

#[track_caller]
fn check_end(kubectl: &Kubectl, pod: &str, phase: &str, expected: &Value) {
    kubectl.wait_value(&format!("pod/{pod}"), "/status/phase", &json!(phase));
    let container = container(kubectl, pod);
    let seen = json!({"exitCode": container["state"]["terminated"]["exitCode"], "restarts": container["restartCount"]});
    assert_eq!(&seen, expected, "{pod}: {container}");
}

#[e2e_test("containers survive a SIGKILL of containerd")]
fn containers_survive_containerd_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let mut external = ExternalCluster::start();
    let kubectl = external.cluster.kubectl_in("default");
    let serve = "trap 'exit 0' TERM; sleep 100000 & wait";
    let pods = [
        counting(dir.path(), "serves", "Always", serve),
        counting(dir.path(), "ends", "Never", "until [ -e /v/end ]; do sleep 0.1; done; exit 5"),
    ];
    for pod in &pods {
        kubectl.apply(&pod.to_string());
    }
    kubectl.run("wait --for=condition=Ready --timeout=60s pod --all").ok();
    let before = container(&kubectl, "serves");
    for _ in 0..2 {
        external.restart_containerd();
    }
    wait_for("exec through the new containerd", Duration::from_secs(60), || {
        let outcome = kubectl.run("exec ends -- touch /v/end");
        if outcome.code == 0 { Ok(()) } else { Err(outcome.stderr) }
    });
    check_end(&kubectl, "ends", "Failed", &json!({"exitCode": 5, "restarts": 0}));
    let serves = container(&kubectl, "serves");
    let expected = (&before["containerID"], &json!(0), &json!(true));
    assert_eq!((&serves["containerID"], &serves["restartCount"], &serves["ready"]), expected);
    kubectl.apply(&counting(dir.path(), "new", "Never", "exit 0").to_string());
    check_end(&kubectl, "new", "Succeeded", &json!({"exitCode": 0, "restarts": 0}));
}
