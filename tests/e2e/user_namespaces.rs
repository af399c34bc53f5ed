//! User namespaces of Pods (`hostUsers: false`) on Podium's engine.
//!
//! They need an OCI runtime with ID-mapped mounts, which `cargo xtask setup` fetches. Without it, a test reports that it did not
//! run. `PODIUM_TEST_RUNC` and `PODIUM_TEST_CRUN` are paths of other ones.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tests::{
    Cluster, ClusterBuilder, Kubectl, PodBuilder, Process, container, e2e_test, eventually, podium_binary, wait_for,
};

/// Where root file systems of Pods with user namespaces are mounted.
const ROOT_FILE_SYSTEMS: &str = "/run/podium/rootfs";

/// Soft limit of open files with which Podium is started, and which it raises for itself.
const FILE_LIMIT: &str = "500";

/// Returns the OCI runtime with this name that has ID-mapped mounts.
fn oci_runtime(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(format!("PODIUM_TEST_{}", name.to_uppercase())).map(PathBuf::from);
    let fetched = tests::fetched_tool(&format!("oci-runtimes/{name}"));
    let installed = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
    let found = named.into_iter().chain(fetched).chain(installed).find(|program| {
        let features = Command::new(program).arg("features").output().map(|output| output.stdout).unwrap_or_default();
        let features: Value = serde_json::from_slice(&features).unwrap_or_default();
        features["linux"]["mountExtensions"]["idmap"]["enabled"] == true
    });
    if found.is_none() {
        eprintln!("WARNING: DID NOT RUN: no {name} has ID-mapped mounts; `cargo xtask setup` fetches one");
    }
    found
}

fn exec(kubectl: &Kubectl, pod: &str, script: &str) -> String {
    kubectl.args(&["exec", pod, "-c", "c", "--", "sh", "-c", script], "").ok()
}

/// Returns the first ID of the Pod's range.
fn host_id(kubectl: &Kubectl, pod: &str) -> u32 {
    let map = exec(kubectl, pod, "cat /proc/self/uid_map /proc/self/gid_map");
    let fields: Vec<u32> = map.split_whitespace().map(|field| field.parse().unwrap()).collect();
    assert_eq!((fields[0], fields[2], &fields[..3]), (0, 65_536, &fields[3..]), "{map}");
    fields[1]
}

fn apply(kubectl: &Kubectl, host_path: &Path) {
    let script = "trap 'exit 0' TERM; echo out > /dev/stdout; echo err > /dev/stderr; httpd -p 8080 -h / ; \
                  touch /new; while :; do sleep 0.1; done";
    let pod = |name: &str| PodBuilder::new(name).grace_period(20).script(script).spec(&json!({"hostUsers": false}));
    let probe = json!({"httpGet": {"port": 8080, "path": "/new"}, "periodSeconds": 1});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"key": "value"}});
    kubectl.apply(&config.to_string());
    let first = pod("first")
        .container(&json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}, "readinessProbe": probe}))
        .volume("e", &json!({"emptyDir": {}}))
        .mount("e", "/e")
        .volume("m", &json!({"configMap": {"name": "m"}}))
        .mount("m", "/m")
        .volume("h", &json!({"hostPath": {"path": host_path}}))
        .mount("h", "/h");
    kubectl.apply(&first.to_string());
    let sysctls = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "77"},
        {"name": "kernel.shm_rmid_forced", "value": "1"}]);
    let mut unmasked = container("d", "sleep 10000");
    unmasked["securityContext"] = json!({"procMount": "Unmasked"});
    let second = pod("second")
        .add_container(unmasked)
        .container(&json!({"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}))
        .spec(&json!({"shareProcessNamespace": true, "securityContext": {"sysctls": sysctls}}));
    kubectl.apply(&second.to_string());
    kubectl.wait_ready("first");
    kubectl.wait_ready("second");
}

/// Checks owners of files inside and on the node.
fn check_files(cluster: &Cluster, kubectl: &Kubectl, host_path: &Path) {
    let owners =
        exec(kubectl, "first", "touch /e/f /dev/shm/f; stat -c '%n %u:%g' / /bin /new /e /e/f /m/key /h/f /dev/shm/f");
    let expected = "/ 0:0\n/bin 0:0\n/new 0:0\n/e 0:0\n/e/f 0:0\n/m/key 0:0\n/h/f 1000:1000\n/dev/shm/f 0:0\n";
    assert_eq!(owners, expected);
    assert_eq!(exec(kubectl, "first", "cat /m/key; chown 5:6 /e/f; touch /h/g"), "value");
    let uid = kubectl.value("pod/first", "/metadata/uid");
    let volume = format!("kubelet/pods/{}/volumes/e/f", uid.as_str().unwrap());
    let owner = |path: &Path| (fs::metadata(path).unwrap().uid(), fs::metadata(path).unwrap().gid());
    assert_eq!(owner(&cluster.data_dir().join(volume)), (5, 6));
    assert_eq!(owner(&host_path.join("g")), (0, 0));
}

/// Checks that the processes of a Pod are unprivileged on the node.
fn check_processes(kubectl: &Kubectl, pod: &str, host_id: u32) {
    let uid = kubectl.value(&format!("pod/{pod}"), "/metadata/uid");
    // Until it has entered the user namespace, the process of a probe is the node's root.
    wait_for("all processes to be unprivileged", Duration::from_secs(60), || {
        // Some end meanwhile: the containers execute commands in a loop.
        let found = Process::of_pod(uid.as_str().unwrap()).filter_map(|process| fs::metadata(process.dir()).ok());
        let owners: Vec<u32> = found.map(|process| process.uid()).collect();
        let are_unprivileged = owners.iter().all(|owner| *owner >= host_id && *owner - host_id < 65_536);
        if !owners.is_empty() && are_unprivileged { Ok(()) } else { Err(format!("{owners:?}")) }
    });
}

/// Writes a program that executes Podium with a soft limit of open files that is below the hard limit.
fn write_podium(dir: &Path) -> PathBuf {
    let program = dir.join("podium");
    let script = format!("#!/bin/sh\nulimit -Sn {FILE_LIMIT}\nexec {} \"$@\"\n", podium_binary().display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Checks that the limit of open files is raised for Podium and not for containers. Here, because `runc` 1.1 of Debian 12
/// raises it sometimes: its Go 1.19.8 does that at the start of a program.
fn check_file_limits(cluster: &Cluster, kubectl: &Kubectl) {
    let limits = |text: String| -> Vec<String> {
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit of open files");
        line.split_whitespace().take(2).map(str::to_owned).collect()
    };
    let raised = limits(fs::read_to_string(Process(cluster.pid()).dir().join("limits")).unwrap());
    assert_eq!(raised[0], raised[1], "Podium raises its limit");
    for file in ["/proc/1/limits", "/proc/self/limits"] {
        assert_eq!(limits(exec(kubectl, "first", &format!("cat {file}"))), [FILE_LIMIT, &raised[1]], "{file}");
    }
}

/// Checks that no path of /proc is hidden or read-only in the container with `procMount: Unmasked`, and only there.
fn check_proc_mounts(kubectl: &Kubectl) {
    let mounts = |container: &str| {
        kubectl.args(&["exec", "second", "-c", container, "--", "grep", " /proc", "/proc/mounts"], "").ok()
    };
    let (masked, unmasked) = (mounts("c"), mounts("d"));
    for path in ["/proc/acpi", "/proc/timer_list", "/proc/sys"] {
        assert!(masked.contains(&format!(" {path} ")), "{path}: {masked}");
    }
    let [proc] = unmasked.lines().collect::<Vec<_>>()[..] else { panic!("expected only /proc: {unmasked}") };
    assert!(proc.contains(" /proc proc rw,"), "{proc}");
    let read =
        |container: &str| kubectl.args(&["exec", "second", "-c", container, "--", "cat", "/proc/interrupts"], "").ok();
    assert_eq!(read("c"), "");
    assert!(read("d").contains("CPU0"), "{}", read("d"));
}

#[e2e_test("Pods with hostUsers false have user namespaces with ranges of their own")]
fn pods_without_host_users_have_user_namespaces() {
    check_user_namespaces("runc");
}

#[e2e_test("crun runs Pods with hostUsers false in user namespaces, too")]
fn crun_runs_pods_in_user_namespaces() {
    check_user_namespaces("crun");
}

fn check_user_namespaces(name: &str) {
    let Some(program) = oci_runtime(name) else { return };
    let (programs, images, volume) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(program, programs.path().join(name)).unwrap();
    fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(volume.path().join("f"), "").unwrap();
    chown(volume.path().join("f"), Some(1000), Some(1000)).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap_or_default());
    let builder = ClusterBuilder::default().env("PATH", &path).env("PODIUM_DEFAULT_RUNTIME", name);
    let builder = builder.env("PODIUM_IMAGE_STORE", &images.path().display().to_string());
    let mut cluster = builder.program(&write_podium(programs.path())).start();
    let kubectl = cluster.kubectl_in("default");
    apply(&kubectl, volume.path());
    let ids = ["first", "second"].map(|pod| host_id(&kubectl, pod));
    assert!(ids[0] != ids[1] && ids.iter().all(|id| *id >= 65_536), "{ids:?}");
    check_processes(&kubectl, "first", ids[0]);
    check_processes(&kubectl, "second", ids[1]);
    check_files(&cluster, &kubectl, volume.path());
    assert_eq!(kubectl.run("logs first").ok(), "out\nerr\n");

    // Capabilities are those over the Pod's own namespaces.
    let mtu = || fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
    let before = mtu();
    assert_eq!(exec(&kubectl, "first", "ip link set lo mtu 1400 && cat /sys/class/net/lo/mtu").trim(), "1400");
    assert_eq!(mtu(), before);
    let refused = exec(&kubectl, "first", "echo 1 > /proc/sys/kernel/panic 2>/dev/null || echo refused");
    assert_eq!(refused, "refused\n");
    let sysctls = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced";
    assert_eq!(exec(&kubectl, "second", sysctls), "77\n1\n");
    assert_eq!(exec(&kubectl, "second", "cat /proc/1/comm"), "podium-pod-init\n");
    assert!(exec(&kubectl, "second", "ps").contains("sleep 10000"));
    check_proc_mounts(&kubectl);
    check_file_limits(&cluster, &kubectl);

    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    kubectl.wait_ready("first");
    assert_eq!(host_id(&kubectl, "first"), ids[0]);
    assert_eq!(kubectl.value("pod/first", "/status/containerStatuses/0/restartCount"), json!(0));
    let sandboxes: Vec<_> = fs::read_dir(cluster.data_dir().join("engine/pods")).unwrap().flatten().collect();
    // The record has the default handler's name, so that another default does not apply to an existing Pod.
    for sandbox in &sandboxes {
        let record: Value = serde_json::from_slice(&fs::read(sandbox.path().join("sandbox.json")).unwrap()).unwrap();
        assert_eq!(record["runtimeHandler"], name);
    }
    let roots = || sandboxes.iter().filter(|dir| Path::new(ROOT_FILE_SYSTEMS).join(dir.file_name()).exists()).count();
    assert_eq!(roots(), 2);
    kubectl.run("delete pod first --timeout=60s").ok();
    eventually("the root file system of the Pod to be removed", || roots() == 1);
    cluster.stop_podium(Signal::SIGTERM);
    let down = cluster.podium(&["down"]).output().unwrap();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert_eq!(roots(), 0);
}
