//! The end of a Pod, step by step (seeds 000 and 003, "Pod termination flow"), with kills in the middle.

use crate::{Alone, Shared};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{Cluster, Kubectl, Process, eventually, wait_for};

pub(crate) const TESTS: &[Shared] = &[
    ("a deleted Pod is shown as Terminating with its grace period", deleted_pod_is_terminating_with_grace_period),
    ("all processes of a Pod end, in a shared process namespace too", all_processes_of_pod_end),
    ("a Pod can be recreated after a forced deletion of the same name", same_name_pod_runs_after_forced_deletion),
];
pub(crate) const ALONE: &[Alone] = &[
    ("a grace period continues through a SIGKILL of Podium", grace_period_survives_podium_sigkill),
    ("a grace period continues through a SIGKILL of containerd", grace_period_survives_containerd_sigkill),
];

/// Does not end at SIGTERM, and says that it came.
const DEAF: &str = "trap 'echo term' TERM; echo ready; while :; do sleep 0.1; done";

fn pod(name: &str, script: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": test_images::BUSYBOX, "command": ["sh", "-c", script]}]}});
    spec.as_object().unwrap().iter().for_each(|(key, value)| pod["spec"][key] = value.clone());
    pod
}

/// Creates it and waits for its first word: its traps are set then.
fn start(kubectl: &Kubectl, pod: &Value) {
    kubectl.apply(&pod.to_string());
    let name = pod["metadata"]["name"].as_str().unwrap();
    kubectl.run(&format!("wait --for=condition=Ready --timeout=60s pod/{name}")).ok();
    eventually("its first word", || kubectl.run(&format!("logs {name} -c c")).is_ok_and(|said| said.contains("ready")));
}

fn processes(marker: &str) -> usize {
    Process::all().filter(|process| process.command().contains(marker)).count()
}

fn deleted_pod_is_terminating_with_grace_period(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    start(&kubectl, &pod("p", DEAF, json!({"terminationGracePeriodSeconds": 40})));
    kubectl.run("delete pod p --wait=false").ok();
    eventually("the stop signal", || kubectl.run("logs p").is_ok_and(|said| said.contains("term")));
    let described = kubectl.run("describe pod p").ok();
    let words = ["Terminating (lasts", "Termination Grace Period:  40s", "Stopping container c"];
    assert!(words.iter().all(|w| described.contains(w)), "{described}");
    let pod = kubectl.get("pod/p").unwrap();
    assert_eq!(
        (&pod["metadata"]["deletionGracePeriodSeconds"], &pod["status"]["phase"]),
        (&json!(40), &json!("Running")),
        "terminal only when nothing runs"
    );
    kubectl.run("delete pod p --grace-period=1 --timeout=30s").ok();
}

fn all_processes_of_pod_end(cluster: &Cluster) {
    for share in [false, true] {
        let kubectl = cluster.kubectl();
        let marker = format!("left-behind-{share}");
        // The main process goes at once and leaves a child that hears nothing.
        let script = format!(
            "setsid sh -c \"trap '' TERM HUP; while :; do sleep 0.1; done # {marker}\" & trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"
        );
        start(&kubectl, &pod("p", &script, json!({"shareProcessNamespace": share})));
        assert_ne!(processes(&marker), 0);
        kubectl.run("delete pod p --timeout=25s").ok();
        wait_for("the child to end", Duration::from_secs(10), || match processes(&marker) {
            0 => Ok(()),
            n => Err(format!("{n} processes")),
        });
    }
}

fn same_name_pod_runs_after_forced_deletion(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let deaf = format!("{DEAF} # namesake-{}", kubectl.namespace());
    start(&kubectl, &pod("p", &deaf, json!({})));
    let uid = kubectl.value("pod/p", "/metadata/uid");
    kubectl.run("delete pod p --grace-period=0 --force").ok();
    // The API has forgotten it at once; on the node it has a moment to end.
    start(&kubectl, &pod("p", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done", json!({})));
    assert_ne!(kubectl.value("pod/p", "/metadata/uid"), uid);
    wait_for("the first one to end", Duration::from_secs(20), || match processes(&deaf) {
        0 => Ok(()),
        n => Err(format!("{n} processes")),
    });
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/restartCount"), json!(0));
    kubectl.run("delete pod p --timeout=30s").ok();
}

const GRACE: Duration = Duration::from_secs(10);

/// Deletes the Pod, and gives when that was, once the stop signal came.
fn ending(kubectl: &Kubectl) -> Instant {
    start(kubectl, &pod("p", DEAF, json!({"terminationGracePeriodSeconds": GRACE.as_secs()})));
    let begin = Instant::now();
    kubectl.run("delete pod p --wait=false").ok();
    eventually("the stop signal", || kubectl.run("logs p").is_ok_and(|said| said.contains("term")));
    begin
}

#[track_caller]
fn ends_in_time(kubectl: &Kubectl, begin: Instant) {
    kubectl.run("wait --for=delete --timeout=60s pod/p").ok();
    let took = begin.elapsed();
    assert!(took >= GRACE, "it was killed after {took:?}, before its grace was over");
    assert!(took < GRACE + Duration::from_secs(30), "{took:?}");
}

fn grace_period_survives_podium_sigkill() {
    let mut cluster = Cluster::start(&[]);
    let begin = ending(&cluster.kubectl_in("default"));
    cluster.kill(Signal::SIGKILL);
    cluster.up();
    ends_in_time(&cluster.kubectl_in("default"), begin);
}

fn grace_period_survives_containerd_sigkill() {
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let begin = ending(&kubectl);
    nix::sys::signal::kill(cluster.containerd(), Signal::SIGKILL).expect("containerd runs");
    ends_in_time(&kubectl, begin);
}
