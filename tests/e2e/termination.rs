//! Pod termination (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow), with a kill of
//! Podium in between.

use nix::sys::signal::Signal;
use serde_json::json;
use std::time::{Duration, Instant};
use tests::{Cluster, Kubectl, PodBuilder, Process, e2e_test, eventually, wait_for};

/// Script that ignores SIGTERM and logs it.
const IGNORE_SIGTERM: &str = "trap 'echo term' TERM; echo ready; while :; do sleep 0.1; done";

fn pod(script: &str) -> PodBuilder {
    PodBuilder::new("p").script(script)
}

/// Creates the Pod and waits for its first line, after which its traps are set.
fn start(kubectl: &Kubectl, pod: &PodBuilder) {
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    eventually("the first line of the log", || kubectl.run("logs p -c c").is_ok_and(|output| output.contains("ready")));
}

fn processes(marker: &str) -> usize {
    Process::all().filter(|process| process.command().contains(marker)).count()
}

#[e2e_test("a deleted Pod is shown as Terminating with its grace period")]
fn deleted_pod_is_terminating_with_grace_period(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    start(&kubectl, &pod(IGNORE_SIGTERM).grace_period(40));
    kubectl.run("delete pod p --wait=false").ok();
    eventually("the stop signal", || kubectl.run("logs p").is_ok_and(|output| output.contains("term")));
    kubectl.wait_for_event("p", "Killing", "Stopping container c");
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

#[e2e_test("all processes of a Pod end, in a shared process namespace too")]
fn all_processes_of_pod_end(cluster: &Cluster) {
    for share in [false, true] {
        let kubectl = cluster.kubectl();
        let marker = format!("left-behind-{share}");
        // The main process exits at once and leaves a child that ignores signals.
        let script = format!(
            "setsid sh -c \"trap '' TERM HUP; while :; do sleep 0.1; done # {marker}\" & trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"
        );
        start(&kubectl, &pod(&script).spec(&json!({"shareProcessNamespace": share})));
        assert_ne!(processes(&marker), 0, "share: {share}");
        kubectl.run("delete pod p --timeout=60s").ok();
        wait_for("the child to end", Duration::from_secs(60), || match processes(&marker) {
            0 => Ok(()),
            n => Err(format!("{n} processes")),
        });
    }
}

#[e2e_test("a Pod can be recreated after a forced deletion of the same name")]
fn same_name_pod_runs_after_forced_deletion(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let ignoring = format!("{IGNORE_SIGTERM} # namesake-{}", kubectl.namespace());
    start(&kubectl, &pod(&ignoring));
    let uid = kubectl.value("pod/p", "/metadata/uid");
    kubectl.run("delete pod p --grace-period=0 --force").ok();
    // The API object is removed at once; on the node the Pod may still terminate.
    start(&kubectl, &pod("trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"));
    assert_ne!(kubectl.value("pod/p", "/metadata/uid"), uid);
    wait_for("the first Pod to end", Duration::from_secs(60), || match processes(&ignoring) {
        0 => Ok(()),
        n => Err(format!("{n} processes")),
    });
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/restartCount"), json!(0));
    kubectl.run("delete pod p --timeout=30s").ok();
}

const GRACE: Duration = Duration::from_secs(20);

/// Deletes the Pod, waits for the stop signal, and returns the time of the deletion.
pub(crate) fn begin_deletion(kubectl: &Kubectl) -> Instant {
    start(kubectl, &pod(IGNORE_SIGTERM).grace_period(GRACE.as_secs()));
    let begin = Instant::now();
    kubectl.run("delete pod p --wait=false").ok();
    eventually("the stop signal", || kubectl.run("logs p").is_ok_and(|output| output.contains("term")));
    begin
}

#[track_caller]
pub(crate) fn check_grace_period(kubectl: &Kubectl, begin: Instant) {
    kubectl.run("wait --for=delete --timeout=60s pod/p").ok();
    let took = begin.elapsed();
    assert!(took >= GRACE, "killed after {took:?}, before the end of the grace period");
    assert!(took < GRACE + Duration::from_secs(120), "{took:?}");
}

#[e2e_test("a grace period continues through a SIGKILL of Podium")]
fn grace_period_survives_podium_sigkill() {
    let mut cluster = Cluster::start(&[]);
    let begin = begin_deletion(&cluster.kubectl_in("default"));
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    check_grace_period(&cluster.kubectl_in("default"), begin);
}
