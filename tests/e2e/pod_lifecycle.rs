//! Pod lifecycle: start, readiness, crash loops, image errors, deletion.

use serde_json::json;
use std::time::{Duration, Instant};
use tests::{Cluster, Kubectl, PodBuilder, Process, e2e_test, eventually, wait_for};

fn pod(script: &str) -> PodBuilder {
    PodBuilder::new("p").grace_period(5).script(script)
}

const SERVE: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

fn run_ready(kubectl: &Kubectl, pod: &PodBuilder) {
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
}

/// Runs a script, and returns when it has set its traps.
fn run_trapped(kubectl: &Kubectl, trap: &str, grace: u64) {
    run_ready(kubectl, &pod(&format!("{trap}; echo up; sleep 100000 & wait; sleep 100000")).grace_period(grace));
    kubectl.wait_for_output("logs p", "up\n");
}

#[e2e_test("a running Pod shows its node, addresses, conditions and container")]
fn running_pod_has_complete_status(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run_ready(&kubectl, &pod(SERVE));
    let status = kubectl.value("pod/p", "/status");
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["podIPs"][0]["ip"], status["podIP"]);
    assert!(status["hostIP"].is_string() && status["startTime"].is_string(), "{status}");
    let container = &status["containerStatuses"][0];
    assert_eq!(
        (&container["ready"], &container["started"], &container["restartCount"]),
        (&json!(true), &json!(true), &json!(0))
    );
    let node = format!("node/{}", kubectl.value("pod/p", "/spec/nodeName").as_str().unwrap());
    let version = kubectl.value(&node, "/status/nodeInfo/containerRuntimeVersion");
    let (runtime, _) = version.as_str().unwrap().split_once("://").unwrap();
    assert!(container["containerID"].as_str().unwrap().starts_with(&format!("{runtime}://")), "{container}");
    assert!(container["state"]["running"]["startedAt"].is_string(), "{container}");
    let mut conditions: Vec<String> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
        .collect();
    conditions.sort();
    assert_eq!(
        conditions,
        [
            "ContainersReady=True",
            "Initialized=True",
            "PodReadyToStartContainers=True",
            "PodScheduled=True",
            "Ready=True"
        ]
    );
    let row = kubectl.run("get pod p --no-headers").ok();
    assert_eq!(row.split_whitespace().take(4).collect::<Vec<_>>(), ["p", "1/1", "Running", "0"]);
}

#[e2e_test("the Events of a Pod are emitted in order")]
fn pod_events_are_emitted_in_order(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run_ready(&kubectl, &pod(SERVE));
    kubectl.run("delete pod p").ok();
    wait_for("the Killing event", Duration::from_secs(60), || {
        let reasons: Vec<String> = kubectl.events("p").into_iter().map(|(reason, _)| reason).collect();
        let expected = ["Scheduled", "Pulled", "Created", "Started", "Killing"];
        if expected.iter().all(|e| reasons.iter().any(|r| r == e)) { Ok(()) } else { Err(format!("{reasons:?}")) }
    });
    let messages = kubectl.events("p");
    let message = |reason: &str| messages.iter().find(|(r, _)| r == reason).unwrap().1.clone();
    assert!(message("Scheduled").starts_with(&format!("Successfully assigned {}/p to ", kubectl.namespace())));
    assert!(message("Pulled").contains("already present on machine"), "{}", message("Pulled"));
    assert_eq!(message("Killing"), "Stopping container c");
}

#[e2e_test("a crash loop backs off and keeps the last state")]
fn crash_loop_backs_off_and_keeps_last_state(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&pod("echo out of luck; exit 7").to_string());
    let waiting = "/status/containerStatuses/0/state/waiting/reason";
    let status = &kubectl.wait_value("pod/p", waiting, &json!("CrashLoopBackOff"))["status"];
    let container = &status["containerStatuses"][0];
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        (&container["lastState"]["terminated"]["exitCode"], &container["lastState"]["terminated"]["reason"]),
        (&json!(7), &json!("Error"))
    );
    let message = container["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("back-off 10s restarting failed container=c pod=p_"), "{message}");
    assert_eq!(container["restartCount"], 1, "the first restart is immediate");
    assert_eq!(kubectl.run("logs p --previous").ok(), "out of luck\n");
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(2));
    assert!(kubectl.run("get pod p --no-headers").ok().contains("ago)"));
}

fn waiting_reason(kubectl: &Kubectl, reason: &str) -> String {
    let waiting = "/status/containerStatuses/0/state/waiting";
    let pod = kubectl.wait_value("pod/p", &format!("{waiting}/reason"), &json!(reason));
    pod.pointer(waiting).and_then(|w| w["message"].as_str()).unwrap_or("").to_owned()
}

fn image_pod(image: &str, policy: &str) -> String {
    PodBuilder::new("p").image(image).container(&json!({"imagePullPolicy": policy})).to_string()
}

#[e2e_test("a missing image with pull policy Never waits with ErrImageNeverPull")]
fn missing_image_waits_with_err_image_never_pull(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&image_pod("docker.io/library/nothing:1", "Never"));
    let message = waiting_reason(&kubectl, "ErrImageNeverPull");
    assert_eq!(message, "Container image \"docker.io/library/nothing:1\" is not present with pull policy of Never");
    assert_eq!(kubectl.value("pod/p", "/status/phase"), "Pending");
}

#[e2e_test("an invalid image name waits with InvalidImageName")]
fn invalid_image_name_is_reported(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&image_pod("Not An Image!", "IfNotPresent"));
    let message = waiting_reason(&kubectl, "InvalidImageName");
    assert!(message.contains("couldn't parse image name \"Not An Image!\""), "{message}");
}

#[e2e_test("a failed image pull backs off")]
fn failed_image_pull_backs_off(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // Nothing listens on this loopback port, so the pull fails at once and needs no network.
    kubectl.apply(&image_pod("127.0.0.1:9/nothing:1", "Always"));
    let message = waiting_reason(&kubectl, "ImagePullBackOff");
    assert!(message.starts_with("Back-off pulling image \"127.0.0.1:9/nothing:1\""), "{message}");
}

#[e2e_test("a missing ConfigMap blocks a container until it is created")]
fn missing_config_map_blocks_container(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let env = json!([{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "word"}}}]);
    let pod = pod(&format!("echo $WORD; {SERVE}")).container(&json!({"env": env}));
    kubectl.apply(&pod.to_string());
    assert_eq!(waiting_reason(&kubectl, "CreateContainerConfigError"), "configmap \"words\" not found");
    kubectl.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words}\ndata: {word: hello}");
    kubectl.wait_ready("p");
    kubectl.wait_for_output("logs p", "hello\n");
}

#[e2e_test("a command that does not exist fails to start")]
fn missing_command_fails_to_start(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = PodBuilder::new("p").restart_policy("Never").grace_period(5).command(&["/no/such/program"]);
    kubectl.apply(&pod.to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    let terminated = kubectl.value("pod/p", "/status/containerStatuses/0/state/terminated");
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(128), &json!("StartError")));
    assert!(terminated["message"].as_str().unwrap().contains("/no/such/program"), "{terminated}");
}

/// Deletes the Pod, and returns the phases in a watch up to its last event.
fn phases_until_gone(kubectl: &Kubectl, delete: &str) -> Vec<String> {
    let columns = "jsonpath={.type} {.object.status.phase}{\"\\n\"}";
    let mut watch = kubectl.follow(&["get", "pod", "p", "--watch", "--output-watch-events", "-o", columns]);
    kubectl.run(delete).ok();
    let mut phases = Vec::new();
    loop {
        let line = watch.next_line().expect("the watch continues");
        let (event, phase) = line.split_once(' ').expect("two columns");
        phases.push(phase.to_owned());
        if event == "DELETED" {
            phases.dedup();
            return phases;
        }
    }
}

#[e2e_test("deletion sends SIGTERM and the exit code decides the phase")]
fn deletion_sends_sigterm_and_exit_code_decides_phase(cluster: &Cluster) {
    for (code, phase) in [(0, "Succeeded"), (4, "Failed")] {
        let kubectl = cluster.kubectl();
        // No test waits until this ends by itself.
        run_trapped(&kubectl, &format!("trap 'exit {code}' TERM"), 600);
        let phases = phases_until_gone(&kubectl, "delete pod p --wait=false");
        assert_eq!(
            phases.last().map(String::as_str),
            Some(phase),
            "the terminal phase is shown before the Pod goes: {phases:?}"
        );
    }
}

#[e2e_test("a Pod that ignores SIGTERM is killed after its grace period")]
fn sigterm_ignored_kills_after_grace_period(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run_trapped(&kubectl, "trap '' TERM", 2);
    let start = Instant::now();
    assert_eq!(phases_until_gone(&kubectl, "delete pod p --wait=false").last().map(String::as_str), Some("Failed"));
    assert!(start.elapsed() >= Duration::from_secs(2), "SIGKILL came before the grace period was over");
}

#[e2e_test("a forced deletion leaves nothing on the node")]
fn forced_deletion_leaves_nothing_on_node(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run_ready(&kubectl, &pod("trap '' TERM; while :; do sleep 1; done # forced-deletion-marker"));
    let uid = kubectl.value("pod/p", "/metadata/uid").as_str().unwrap().to_owned();
    assert!(node_mentions(&cluster.data_dir(), &uid));
    kubectl.run("delete pod p --grace-period=0 --force").ok();
    assert!(kubectl.get("pod/p").is_none());
    wait_for("the node to remove the Pod", Duration::from_secs(60), || {
        if node_mentions(&cluster.data_dir(), &uid) {
            Err("directories or mounts of the Pod".to_owned())
        } else {
            Ok(())
        }
    });
    assert!(!Process::all().any(|process| process.command().contains("forced-deletion-marker")));
}

/// Returns whether a directory of the kubelet or a mount has the Pod's UID.
fn node_mentions(data_dir: &std::path::Path, uid: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut dirs = vec![data_dir.join("kubelet")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(uid) {
                return true;
            }
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                dirs.push(entry.path());
            }
        }
    }
    mounts.contains(uid)
}

#[e2e_test("a shorter grace period takes effect at once")]
fn shorter_grace_period_takes_effect_at_once(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run_trapped(&kubectl, "trap '' TERM", 300);
    kubectl.run("delete pod p --wait=false").ok();
    kubectl.wait_value("pod/p", "/metadata/deletionGracePeriodSeconds", &json!(300));
    kubectl.run("delete pod p --grace-period=1 --timeout=90s").ok();
    assert!(kubectl.get("pod/p").is_none());
}

#[e2e_test("a finalizer keeps a Pod that has ended")]
fn finalizer_keeps_ended_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run_trapped(&kubectl, "trap 'exit 0' TERM", 600);
    kubectl.args(&["patch", "pod", "p", "-p", r#"{"metadata":{"finalizers":["example.com/hold"]}}"#], "").ok();
    kubectl.run("delete pod p --wait=false").ok();
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    assert!(kubectl.get("pod/p").is_some());
    kubectl.args(&["patch", "pod", "p", "-p", r#"{"metadata":{"finalizers":null}}"#], "").ok();
    kubectl.run("wait --for=delete pod/p --timeout=90s").ok();
}

#[e2e_test("activeDeadlineSeconds fails a Pod")]
fn active_deadline_fails_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&pod(SERVE).spec(&json!({"activeDeadlineSeconds": 2})).to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    assert_eq!(kubectl.value("pod/p", "/status/reason"), "DeadlineExceeded");
    let overdue = || kubectl.run("get events --field-selector reason=DeadlineExceeded -o jsonpath={..message}").ok();
    eventually("the Event", || overdue() == "Pod was active on the node longer than the specified deadline");
}
