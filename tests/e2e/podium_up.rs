//! `podium up` and `podium down`: isolation, removal, and startup errors.

use nix::sys::signal::Signal;
use serde_json::json;
use std::{
    collections::BTreeSet,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use tests::{Cluster, Kubectl, PodBuilder, Process, e2e_test, podium_binary, wait_for};

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name)
        .grace_period(1)
        .script("trap 'exit 0' TERM; sleep 100000 & wait")
        .volume("v", &json!({"emptyDir": {"medium": "Memory"}}))
        .mount("v", "/v")
}

pub(crate) fn run_ready(kubectl: &Kubectl, name: &str) -> String {
    kubectl.apply(&pod(name).to_string());
    kubectl.wait_ready(name);
    kubectl
        .value(&format!("pod/{name}"), "/status/podIP")
        .as_str()
        .expect("a Pod that is Ready has an address")
        .to_owned()
}

#[e2e_test("two clusters on one machine are isolated from each other")]
fn clusters_are_isolated_from_each_other() {
    let (one, other) = (Cluster::start(&["--node-name", "one"]), Cluster::start(&["--node-name", "other"]));
    let (kubectl_one, kubectl_other) = (one.kubectl_in("default"), other.kubectl_in("default"));
    let addresses = [run_ready(&kubectl_one, "p"), run_ready(&kubectl_other, "p")];
    assert_ne!(addresses[0], addresses[1], "each cluster has addresses of its own");
    assert_eq!(kubectl_one.run("get nodes -o name").ok(), "node/one\n");
    assert_eq!(kubectl_other.run("get nodes -o name").ok(), "node/other\n");
    drop(one);
    // The removal of one does not affect the other.
    assert_eq!(kubectl_other.run("exec p -- echo still here").ok(), "still here\n");
    run_ready(&kubectl_other, "q");
}

/// Returns processes and mounts of a cluster with this data directory.
fn traces(data_dir: &Path) -> BTreeSet<String> {
    let marker = data_dir.display().to_string();
    let commands = Process::all().map(Process::command);
    let processes = commands.filter(|c| c.contains(&marker) && !c.contains("kubectl")).map(|c| format!("process {c}"));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|l| l.contains(&marker)).map(|l| format!("mount {l}"));
    let files = data_dir.exists().then(|| format!("directory {marker}"));
    processes.chain(mounts).chain(files).collect()
}

/// Returns the links of a cluster: its bridge, and the bridge's ports. Other clusters on the machine may start and stop
/// meanwhile.
fn networks(data_dir: &Path, pod_ip: &str) -> BTreeSet<PathBuf> {
    let subnet = pod_ip.rsplit_once('.').unwrap().0.to_owned() + ".";
    let links = Path::new("/sys/class/net");
    let addresses = nix::ifaddrs::getifaddrs().unwrap();
    let bridge = addresses
        .filter(|a| a.address.is_some_and(|s| s.to_string().starts_with(&subnet)))
        .map(|a| links.join(a.interface_name))
        .next()
        .expect("a bridge has an address of the Pods' network");
    let ports = std::fs::read_dir(bridge.join("brif")).unwrap().map(|e| links.join(e.unwrap().file_name()));
    let namespace = |process: Process| std::fs::metadata(process.dir().join("ns/net")).ok().map(|m| m.ino());
    let theirs: BTreeSet<u64> = children(data_dir).filter_map(namespace).collect();
    let named = std::fs::read_dir("/run/netns").into_iter().flatten().map(|e| e.unwrap().path());
    let named: Vec<PathBuf> = named.filter(|p| std::fs::metadata(p).is_ok_and(|m| theirs.contains(&m.ino()))).collect();
    assert_eq!(named, [""; 0].map(PathBuf::from), "keepers hold the network namespaces, which have no names");
    ports.chain([bridge.clone()]).collect()
}

/// Returns the child processes of a cluster's keepers.
fn children(data_dir: &Path) -> impl Iterator<Item = Process> {
    let marker = data_dir.display().to_string();
    let is_parent = move |p: &Process| p.command().starts_with("podium-keeper") && p.command().contains(&marker);
    Process::all().filter(move |p| p.parent().as_ref().is_some_and(&is_parent))
}

#[e2e_test("podium down removes all processes, mounts, networks and files")]
fn down_removes_everything() {
    let cluster = Cluster::start(&[]);
    let dir = cluster.data_dir();
    let kubectl = cluster.kubectl_in("default");
    let address = run_ready(&kubectl, "p");
    let during = networks(&dir, &address);
    kubectl.apply(&pod("q").to_string());
    assert!(traces(&dir).len() > 3, "{:?}", traces(&dir));
    let output = cluster.podium(&["down"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(traces(&dir), BTreeSet::new());
    let left: Vec<_> = during.iter().filter(|p| p.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    let again = cluster.podium(&["down"]).output().unwrap();
    assert!(again.status.success(), "a second down must succeed: {again:?}");
}

#[e2e_test("the admin kubeconfig has mode 0600 and exists while the API serves")]
fn admin_kubeconfig_is_private() {
    let mut cluster = Cluster::start(&[]);
    let mode = std::fs::metadata(cluster.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    cluster.stop_podium(Signal::SIGTERM);
    assert!(!cluster.kubeconfig().exists(), "the kubeconfig exists only while the API serves");
    cluster.start_api();
    assert_eq!(cluster.kubectl_in("default").run("get --raw /readyz").ok(), "ok");
}

#[e2e_test("systemd gets READY=1 when the node is Ready")]
fn systemd_is_notified_when_node_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let data_dir = dir.path().join("data");
    let mut podium = up(&data_dir, &[]).env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).spawn().unwrap();
    let mut buffer = [0; 64];
    let printed = socket.recv(&mut buffer).map(|n| String::from_utf8_lossy(&buffer[..n]).into_owned());
    podium.kill().unwrap();
    podium.wait().unwrap();
    down(&data_dir);
    assert_eq!(printed.unwrap().trim(), "READY=1");
}

fn up(data_dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(podium_binary());
    command.args(["up", "--bind", "127.0.0.1:0", "--data-dir"]).arg(data_dir).args(args).stdin(Stdio::null());
    command
}

fn down(data_dir: &Path) {
    let output = Command::new(podium_binary()).args(["down", "--data-dir"]).arg(data_dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[e2e_test("podium up names what prevents its start")]
fn up_names_what_prevents_start() {
    let cluster = Cluster::start(&[]);
    let port = cluster.kubectl_in("default").run("config view -o jsonpath={.clusters[0].cluster.server}").ok();
    let address = port.trim_start_matches("https://");
    let dir = tempfile::tempdir().unwrap();
    let fresh = dir.path().join("data");
    let check = |command: &mut Command, expected: &[&str]| {
        let Output { status, stderr, .. } = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && expected.iter().all(|e| stderr.contains(e)), "{expected:?}: {stderr}");
    };
    check(&mut up(&cluster.data_dir(), &[]), &["another Podium uses this data directory", "--data-dir"]);
    assert!(cluster.data_dir().join("podium.lock").exists(), "files of the other cluster must be kept");
    let mut taken = Command::new(podium_binary());
    taken.args(["up", "--bind", address, "--data-dir"]).arg(&fresh);
    check(&mut taken, &["failed to listen on", "--bind"]);
    // runc is hidden from this process only.
    let hidden = "for d in /usr/bin /usr/sbin /usr/local/bin /usr/local/sbin; do \
                  [ ! -e $d/runc ] || mount --bind /dev/null $d/runc; done; exec \"$@\"";
    let mut without = Command::new("unshare");
    without.args(["--mount", "sh", "-c", hidden, "sh"]).arg(podium_binary());
    without.args(["up", "--bind", "127.0.0.1:0", "--data-dir"]).arg(&fresh);
    check(&mut without, &["runc", "apt-get install"]);
    check(&mut up(&fresh, &["--default-runtime", "kata"]), &["has runc and crun"]);
    check(&mut up(&fresh, &["--feature-gates", "Nope=true"]), &["unrecognized feature gate: Nope"]);
    let locked = "cannot set feature gate SidecarContainers to false, feature is locked to true";
    check(&mut up(&fresh, &["--feature-gates", "SidecarContainers=false"]), &[locked]);
    let alone = "RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: [NodeDeclaredFeatures]";
    check(&mut up(&fresh, &["--feature-gates", "RestartAllContainersOnContainerExits=true"]), &[alone]);
    check(&mut up(&fresh, &["--node-name", "Not a name"]), &["invalid node name"]);
    let long = format!("{}.example", "a".repeat(63));
    check(&mut up(&fresh, &["--node-name", &long]), &["invalid node name", "63"]);
    check(&mut up(&fresh, &["--pod-cidr", "10.0.0.0"]), &["--pod-cidr", "must be an IPv4 CIDR"]);
    check(&mut up(&fresh, &["--pod-cidr", "10.96.0.0/24"]), &["must not overlap with the Service CIDR"]);
    check(&mut up(&fresh, &["--load-balancer-cidr", "some"]), &["--load-balancer-cidr", "an IPv4 CIDR or none"]);
    check(&mut up(&fresh, &["--load-balancer-cidr", "127.0.0.0/24"]), &["overlap", "--load-balancer-cidr"]);
    let unmade = dir.path().join("unmade");
    // Another user in a user namespace, which is root to the files, so that it can read the binary.
    let mut nobody = Command::new("unshare");
    nobody.args(["--user", "--"]).arg(podium_binary()).args(["up", "--data-dir"]).arg(&unmade);
    check(&mut nobody, &["must be run as root"]);
    assert!(!unmade.exists());
    check(&mut up(&fresh, &["--runtime-endpoint", "tcp://127.0.0.1:1"]), &["use unix://"]);
    let nobody = format!("unix://{}", dir.path().join("nobody.sock").display());
    check(&mut up(&fresh, &["--runtime-endpoint", &nobody]), &["--runtime-endpoint", "no container runtime responds"]);
    let none = ["--max-requests-inflight", "0", "--max-mutating-requests-inflight", "0"];
    check(&mut up(&fresh, &none), &["must add up to something positive"]);
    assert!(!fresh.exists(), "a failed start must leave nothing");
    let theirs = dir.path().join("config");
    std::fs::write(&theirs, "my other clusters").unwrap();
    check(&mut up(&fresh, &["--kubeconfig", theirs.to_str().unwrap()]), &["was not written by Podium", "--kubeconfig"]);
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "my other clusters");
    down(&fresh);
}

/// Starts Podium and waits until its API serves.
fn serving(data_dir: &Path) -> Child {
    let podium = up(data_dir, &[]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("the API to serve", Duration::from_secs(60), || {
        if data_dir.join("admin.kubeconfig").exists() { Ok(()) } else { Err("no kubeconfig".to_owned()) }
    });
    podium
}

#[e2e_test("podium down keeps a data directory that is a mount point")]
fn down_keeps_mounted_data_directory() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("disk");
    std::fs::create_dir(&data_dir).unwrap();
    let mount =
        |args: &[&str]| assert!(Command::new(args[0]).args(&args[1..]).arg(&data_dir).status().unwrap().success());
    mount(&["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs"]);
    std::fs::write(data_dir.join("mine"), "mine").unwrap();
    let mut podium = serving(&data_dir);
    podium.kill().unwrap();
    podium.wait().unwrap();
    down(&data_dir);
    let left: Vec<_> = std::fs::read_dir(&data_dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    mount(&["umount"]);
    assert_eq!(left, ["mine"]);
    assert_eq!(std::fs::read_dir(&data_dir).unwrap().count(), 0, "it was a mount to the end");
}

#[e2e_test("a symlinked data directory is the same cluster")]
fn symlinked_data_directory_is_same_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut podium = serving(&link);
    podium.kill().unwrap();
    podium.wait().unwrap();
    down(&real);
    assert_eq!((traces(&real), traces(&link)), (BTreeSet::new(), BTreeSet::new()));
}

#[e2e_test("Podium keeps running when its output pipe is closed")]
fn closed_output_pipe_does_not_stop_podium() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let mut podium = up(&data_dir, &[]).stdout(Stdio::piped()).spawn().unwrap();
    drop(podium.stdout.take());
    let config = data_dir.join("admin.kubeconfig");
    let ready = "kubectl wait --for=condition=Ready node --all --timeout=60s";
    wait_for("a node", Duration::from_secs(60), || {
        let output = Command::new("sh").args(["-c", ready]).env("KUBECONFIG", &config).output().unwrap();
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    });
    assert_eq!(podium.try_wait().unwrap(), None, "it is still there");
    podium.kill().unwrap();
    podium.wait().unwrap();
    down(&data_dir);
}
