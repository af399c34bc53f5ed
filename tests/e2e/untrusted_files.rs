//! Files that containers write cannot exhaust Podium's memory, block it, or expose the node's files.

use serde_json::json;
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::symlink,
    path::PathBuf,
};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, eventually};

const HUGE_SIZE: u64 = 1 << 30;
/// Allowed growth of Podium's memory in bytes: far less than the file, far more than the variance of a debug build.
const MAX_GROWTH: u64 = 200 << 20;

/// Returns Podium's peak resident memory, in bytes.
fn peak_memory(cluster: &Cluster) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", cluster.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[track_caller]
fn assert_peak_since(cluster: &Cluster, before: u64) {
    let rise = peak_memory(cluster).saturating_sub(before);
    assert!(rise < MAX_GROWTH, "Podium's memory has risen by {} MiB", rise >> 20);
}

/// Returns a Pod that the Pod Security Standard `restricted` allows.
fn pod(script: &str, policy: &str) -> PodBuilder {
    let user = json!({"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}});
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    PodBuilder::new("p")
        .restart_policy("Never")
        .grace_period(0)
        .spec(&json!({"securityContext": user}))
        .script(script)
        .resources(&json!({"limits": {"memory": "32Mi"}}))
        .container(&json!({"terminationMessagePolicy": policy, "securityContext": context}))
}

fn message(kubectl: &Kubectl) -> String {
    let terminated = "/status/containerStatuses/0/state/terminated";
    eventually("the container to terminate", || kubectl.value("pod/p", terminated).is_object());
    kubectl.value("pod/p", &format!("{terminated}/message")).as_str().unwrap_or_default().to_owned()
}

#[e2e_test("a huge termination message does not grow Podium's memory")]
fn huge_termination_message_uses_no_memory() {
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl();
    let before = peak_memory(&cluster);
    let sparse = format!("dd if=/dev/null of=/dev/termination-log bs=1 seek={HUGE_SIZE} count=0");
    let end = "yes | tr -d '\\n' | head -c 5000 >> /dev/termination-log; printf end >> /dev/termination-log";
    kubectl.apply(&pod(&format!("{sparse}; {end}"), "File").to_string());
    assert_eq!(message(&kubectl), format!("{}end", "y".repeat(4093)));
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let size = fs::metadata(message_file(&cluster, uid.as_str().unwrap())).unwrap().len();
    assert!(size > HUGE_SIZE, "the file must be large: {size}");
    assert_peak_since(&cluster, before);
}

/// Script that waits until `/tmp/go` exists.
const WAITS: &str = "echo ready; while [ ! -e /tmp/go ]; do sleep 0.1; done";

fn start_waiting(kubectl: &Kubectl, pod: &PodBuilder) {
    kubectl.apply(&pod.to_string());
    eventually("the first line of the log", || kubectl.run("logs p").is_ok_and(|output| output.contains("ready")));
}

/// Starts a waiting Pod, calls `meanwhile` with its UID, and lets the Pod continue.
fn start(kubectl: &Kubectl, pod: &PodBuilder, meanwhile: impl FnOnce(&str)) {
    start_waiting(kubectl, pod);
    meanwhile(kubectl.value("pod/p", "/metadata/uid").as_str().unwrap());
    kubectl.args(&["exec", "p", "--", "touch", "/tmp/go"], "").ok();
}

/// Starts a cluster that does not rotate the logs of these tests.
fn without_rotation() -> Cluster {
    ClusterBuilder::default().kubelet_config(json!({"containerLogMaxSize": "10Gi"})).start()
}

/// Opens the log of the container for appending, as the runtime does.
fn open_log(cluster: &Cluster, kubectl: &Kubectl, uid: &str) -> File {
    let log = format!("kubelet/logs/{}_p_{uid}/c/0.log", kubectl.namespace());
    OpenOptions::new().append(true).open(cluster.data_dir().join(log)).unwrap()
}

#[e2e_test("tailing a huge log does not grow Podium's memory")]
fn tail_of_huge_log_uses_no_memory() {
    let cluster = without_rotation();
    let kubectl = cluster.kubectl();
    let before = peak_memory(&cluster);
    start_waiting(&kubectl, &pod(WAITS, "File"));
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let mut log = open_log(&cluster, &kubectl, uid.as_str().unwrap());
    let line = |text: &str| format!("2026-01-01T00:00:00.000000000Z stdout F {text}\n");
    let lines = line(&"x".repeat(1000)).repeat(1000);
    while log.metadata().unwrap().len() < 2 * MAX_GROWTH {
        log.write_all(lines.as_bytes()).unwrap();
    }
    log.write_all(line("last").as_bytes()).unwrap();
    assert_eq!(kubectl.run("logs p --tail=1").ok(), "last\n");
    assert_eq!(kubectl.run("logs p --limit-bytes=10").ok(), "ready\nxxxx");
    assert_peak_since(&cluster, before);
}

#[e2e_test("a message from a huge log does not grow Podium's memory")]
fn message_from_huge_log_uses_no_memory() {
    let cluster = without_rotation();
    let kubectl = cluster.kubectl();
    let before = peak_memory(&cluster);
    let waits = pod(&format!("{WAITS}; echo last; exit 1"), "FallbackToLogsOnError");
    start(&kubectl, &waits, |uid| {
        open_log(&cluster, &kubectl, uid).set_len(HUGE_SIZE).unwrap();
    });
    // The zeros of the hole are part of the last line, which makes it an invalid CRI log line.
    assert!(message(&kubectl).ends_with("last\n"), "{}", message(&kubectl));
    assert_peak_since(&cluster, before);
}

fn message_file(cluster: &Cluster, uid: &str) -> PathBuf {
    cluster.data_dir().join(format!("kubelet/pods/{uid}/containers/c/0.termination"))
}

#[e2e_test("a termination message that is a symlink or a FIFO is not read")]
fn symlink_or_fifo_termination_message_is_not_read() {
    let cluster = Cluster::start(&[]);
    let link: fn(&PathBuf) = |file| symlink("/etc/hostname", file).unwrap();
    let fifo: fn(&PathBuf) = |file| nix::unistd::mkfifo(file, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    for (case, replace) in [("link", link), ("fifo", fifo)] {
        let kubectl = cluster.kubectl();
        start(&kubectl, &pod(WAITS, "File"), |uid| {
            let file = message_file(&cluster, uid);
            fs::remove_file(&file).unwrap();
            replace(&file);
        });
        let message = message(&kubectl);
        assert!(message.starts_with("Error on reading termination log "), "{case}: {message}");
        assert!(message.ends_with(": not a regular file"), "{case}: {message}");
    }
}
