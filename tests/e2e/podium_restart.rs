//! Containers survive restarts of Podium.

use crate::failures::uid;
use nix::{
    sys::{signal::Signal, stat::Mode},
    unistd::mkfifo,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use tests::{Cluster, ClusterBuilder, ContainerRuntime, Kubectl, PodBuilder, Process, e2e_test};

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
    kubectl.run("delete pod p --timeout=30s").ok();
}

#[e2e_test("an exit while Podium is down keeps its code and counts once")]
fn exit_while_podium_is_down_counts_once() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&pod("p", "Never", "sleep 3; exit 42"));
    kubectl.wait_ready("p");
    let uid = uid(&kubectl, "p");
    cluster.stop_podium(Signal::SIGKILL);
    // The container exits while Podium is down: only the pause process is left in the Pod's cgroups.
    tests::eventually("the container to exit", || Process::of_pod(&uid).all(|process| process.name() == "pause"));
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
    let hook = json!({"exec": {"command": ["sh", "-c", "echo hook >> /out/log; sleep 4"]}});
    let pod = PodBuilder::new("p")
        .grace_period(60)
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
    cluster.start_podium();
    kubectl.run("wait --for=delete --timeout=60s pod/p").ok();
    assert_eq!(log(), "hook\nhook\nstopped\n");
}

/// Starts a shim that containerd does not know, with an old bundle, and returns the bundle.
fn start_unknown_shim(cluster: &Cluster, id: &str) -> std::path::PathBuf {
    let state = cluster.data_dir().join("containerd/state/io.containerd.runtime.v2.task/k8s.io");
    let configs = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path().join("config.json"));
    let known = configs.into_iter().find(|config| config.exists()).unwrap();
    let (bundle, socket) = (state.join(id), cluster.data_dir().join("containerd/containerd.sock"));
    std::fs::create_dir(&bundle).unwrap();
    let mut spec: Value = serde_json::from_slice(&std::fs::read(known).unwrap()).unwrap();
    // It needs its own group, or the existing shim would get one more task.
    spec["annotations"] = json!({});
    std::fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
    // The FIFO from which containerd would read the shim's log.
    mkfifo(&bundle.join("log"), Mode::S_IRWXU).unwrap();
    let _log = std::fs::File::options().read(true).write(true).open(bundle.join("log")).unwrap();
    let mut shim = std::process::Command::new("containerd-shim-runc-v2");
    shim.args(["-namespace", "k8s.io", "-publish-binary", "containerd", "-id", id, "-address"])
        .arg(&socket)
        .arg("start");
    let started = shim.current_dir(&bundle).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    std::fs::write(bundle.join("address"), &started.stdout).unwrap();
    wait_for_shim(std::str::from_utf8(&started.stdout).unwrap());
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    std::fs::File::open(bundle.join("config.json")).unwrap().set_modified(old).unwrap();
    bundle
}

/// Waits until a shim answers a ttRPC request, here an unknown one. Before that it needs its bundle.
fn wait_for_shim(address: &str) {
    let path = address.trim().strip_prefix("unix://").unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    // ttRPC header: length 0, stream 1, type request, no flags.
    stream.write_all(&[0, 0, 0, 0, 0, 0, 0, 1, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
}

/// containerd forgets a task whose deletion times out. Here it never knew the task.
#[e2e_test("a shim that containerd does not know is ended")]
fn unknown_shim_is_ended() {
    let mut cluster = ClusterBuilder::default().runtime(ContainerRuntime::Containerd).start();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&pod("p", "Always", "sleep 100000"));
    kubectl.wait_ready("p");
    let before = identity(&kubectl);
    // A running Podium checks for such shims periodically.
    cluster.stop_podium(Signal::SIGTERM);
    let ids = ["0", "1"].map(|digit| digit.repeat(64));
    let bundles = ids.each_ref().map(|id| start_unknown_shim(&cluster, id));
    // containerd has removed the files of one shim.
    std::fs::remove_dir_all(&bundles[1]).unwrap();
    let shims =
        || Process::all().filter(|process| ids.iter().any(|id| process.command().contains(id.as_str()))).count();
    assert_eq!(shims(), 2);
    cluster.start_podium();
    tests::eventually("the shims to end", || shims() == 0 && !bundles[0].exists());
    assert_eq!(identity(&kubectl), before);
}
