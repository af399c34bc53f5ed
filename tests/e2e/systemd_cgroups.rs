//! The cgroup driver `systemd`, on machines whose init system is systemd: `PODIUM_VM_INIT=systemd cargo xtask vm-test`.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, eventually, podium_binary};

/// Returns whether systemd is the init system (`sd_booted(3)`).
fn is_booted() -> bool {
    let is_booted = Path::new("/run/systemd/system").is_dir();
    if !is_booted {
        eprintln!("skipped: systemd is not the init system of this machine");
    }
    is_booted
}

fn cluster() -> Cluster {
    ClusterBuilder::default().kubelet_config(json!({"cgroupDriver": "systemd", "podPidsLimit": 200})).start()
}

/// Runs a program of systemd, which must succeed.
fn systemd(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("SYSTEMD_PAGER", "").output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn property(unit: &str, name: &str) -> String {
    systemd("systemctl", &["show", unit, "--value", "-p", name]).trim().to_owned()
}

/// Returns Podium's units.
fn units() -> Vec<String> {
    let list = systemd("systemctl", &["list-units", "--all", "--plain", "--no-legend", "podium_*", "cri-podium-*"]);
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Returns the unit of a Pod's slice.
fn slice(kubectl: &Kubectl, pod: &str) -> String {
    let uid = kubectl.value(&format!("pod/{pod}"), "/metadata/uid").as_str().unwrap().replace('-', "_");
    let found = units().into_iter().find(|unit| unit.ends_with(&format!("-pod{uid}.slice")));
    found.unwrap_or_else(|| panic!("the Pod {uid} has no slice: {:?}", units()))
}

/// Returns the scope of a Pod's only container.
fn scope(kubectl: &Kubectl, pod: &str) -> String {
    let id = kubectl.value(&format!("pod/{pod}"), "/status/containerStatuses/0/containerID");
    format!("cri-podium-{}.scope", id.as_str().unwrap().rsplit('/').next().unwrap())
}

/// Returns the directory of a unit's cgroup for a controller, with cgroup v1 and v2.
fn cgroup(unit: &str, controller: &str) -> PathBuf {
    let v1 = Path::new("/sys/fs/cgroup").join(controller);
    let root = if v1.is_dir() { v1 } else { PathBuf::from("/sys/fs/cgroup") };
    let dir = root.join(property(unit, "ControlGroup").trim_start_matches('/'));
    // crun makes a cgroup below the scope, which systemd does not change.
    let below = dir.join("container");
    if below.is_dir() { below } else { dir }
}

/// Reads the first word of a file that has these names with cgroup v1 and v2.
fn word(unit: &str, controller: &str, names: [&str; 2]) -> String {
    let dir = cgroup(unit, controller);
    let text = names.iter().find_map(|name| std::fs::read_to_string(dir.join(name)).ok());
    let text = text.unwrap_or_else(|| panic!("{} has none of {names:?}", dir.display()));
    text.split_whitespace().next().unwrap().to_owned()
}

/// Returns CPU quota in µs and memory limit in bytes of a unit's cgroup.
fn limits(unit: &str) -> (String, String) {
    let quota = word(unit, "cpu", ["cpu.cfs_quota_us", "cpu.max"]);
    (quota, word(unit, "memory", ["memory.limit_in_bytes", "memory.max"]))
}

/// Asserts that the cgroup of all Pods has a memory limit: Node Allocatable is less than the machine's memory.
fn assert_is_limited(kubepods: &str) {
    let text = word(kubepods, "memory", ["memory.limit_in_bytes", "memory.max"]);
    // Without a limit cgroup v2 has `max`, and cgroup v1 the largest number of pages.
    assert!(text.parse::<u64>().is_ok_and(|bytes| bytes < 1 << 50), "{kubepods}: {text}");
}

fn both(quota: &str, memory: u64) -> (String, String) {
    (quota.to_owned(), memory.to_string())
}

fn pod(name: &str, limits: &Value) -> PodBuilder {
    PodBuilder::new(name).grace_period(1).script("sleep 100000").resources(&json!({"limits": limits}))
}

#[e2e_test("the systemd cgroup driver puts Pods in slices with their limits")]
fn pods_have_slices_with_limits() {
    if !is_booted() {
        return;
    }
    let cluster = cluster();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&pod("p", &json!({"cpu": "100m", "memory": "40Mi"})).to_string());
    kubectl.apply(&PodBuilder::new("best").grace_period(1).script("sleep 100000").to_string());
    ["p", "best"].iter().for_each(|pod| kubectl.wait_ready(pod));
    let (unit, scope, best) = (slice(&kubectl, "p"), scope(&kubectl, "p"), slice(&kubectl, "best"));
    assert!(best.contains("-kubepods-besteffort-pod") && unit.contains("-kubepods-pod"), "{best} {unit}");
    let check = || {
        for unit in [&unit, &scope] {
            assert_eq!(limits(unit), both("10000", 40 << 20), "{unit}");
            assert_eq!(property(unit, "ActiveState"), "active", "{unit}");
        }
        assert_eq!(word(&unit, "pids", ["pids.max", "pids.max"]), "200");
    };
    check();
    assert_eq!(property(&scope, "Slice"), unit);
    let kubepods = format!("{}-kubepods.slice", unit.split('-').next().unwrap());
    assert_is_limited(&kubepods);
    let status = systemd("systemctl", &["status", "--no-pager", &unit]);
    assert!(status.contains("Pod default/p") && status.contains(&scope), "{status}");
    let root = format!("{}.slice", kubepods.split('-').next().unwrap());
    let tree = systemd("systemd-cgls", &["--no-pager", "-u", &root]);
    assert!(tree.contains(&unit) && tree.contains(&scope), "{tree}");
    // systemd sets all limits again.
    systemd("systemctl", &["daemon-reload"]);
    check();
    systemd("systemctl", &["daemon-reexec"]);
    kubectl.apply(&pod("later", &json!({"cpu": "100m", "memory": "40Mi"})).to_string());
    kubectl.wait_ready("later");
    check();
    let later = slice(&kubectl, "later");
    assert_eq!(limits(&later), both("10000", 40 << 20));
    kubectl.run("exec later -- true").ok();
    kubectl.run("delete pod p best later --timeout=120s").ok();
    let left = || units().into_iter().filter(|unit| unit.contains("-pod") || unit.ends_with(".scope")).count();
    eventually("the units of the Pods to be removed", || left() == 0);
    assert!(!cgroup(&kubepods, "memory").join(&unit).exists());
    drop(cluster);
    assert_eq!(units(), Vec::<String>::new());
}

#[e2e_test("with the systemd cgroup driver a Pod is resized, OOMKilled and adopted")]
fn pod_is_resized_oom_killed_and_adopted() {
    if !is_booted() {
        return;
    }
    let mut cluster = cluster();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(
        &pod("p", &json!({"cpu": "100m", "memory": "40Mi"})).container(&json!({"resizePolicy": []})).to_string(),
    );
    kubectl.wait_ready("p");
    let (unit, scope) = (slice(&kubectl, "p"), scope(&kubectl, "p"));
    let resources = json!({"requests": {"cpu": "200m", "memory": "60Mi"}, "limits": {"cpu": "200m", "memory": "60Mi"}});
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}).to_string();
    kubectl.args(&["patch", "pod", "p", "--subresource", "resize", "-p", &patch], "").ok();
    eventually("the limits to be changed", || {
        limits(&unit) == both("20000", 60 << 20) && limits(&scope) == limits(&unit)
    });
    assert_eq!(property(&unit, "MemoryMax"), (60 << 20).to_string());
    let id = kubectl.value("pod/p", "/status/containerStatuses/0/containerID");
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    let kubectl = cluster.kubectl_in("default");
    kubectl.wait_ready("p");
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/containerID"), id);
    assert_eq!(
        (kubectl.value("pod/p", "/status/containerStatuses/0/restartCount"), limits(&unit)),
        (json!(0), both("20000", 60 << 20))
    );
    let greedy = PodBuilder::new("greedy").restart_policy("Never").script("x=a; while :; do x=$x$x; done");
    kubectl.apply(&greedy.resources(&json!({"limits": {"memory": "16Mi"}})).to_string());
    let terminated = "/status/containerStatuses/0/state/terminated";
    kubectl.wait_value("pod/greedy", &format!("{terminated}/reason"), &json!("OOMKilled"));
    assert_eq!(kubectl.value("pod/greedy", &format!("{terminated}/exitCode")), json!(137));
    eventually("kubectl top to show the Pod", || kubectl.run("top pod p").is_ok_and(|output| output.contains("Mi")));
    kubectl.run("delete pod p greedy --timeout=120s").ok();
    let left = || units().into_iter().filter(|unit| unit.contains("-pod") || unit.ends_with(".scope")).count();
    eventually("the units of the Pods to be removed", || left() == 0);
}

#[e2e_test("a container that restarts in a stopped slice has its limits")]
fn restarted_container_has_the_limits_of_a_stopped_slice() {
    if !is_booted() {
        return;
    }
    let cluster = cluster();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&pod("p", &json!({"cpu": "100m", "memory": "40Mi"})).to_string());
    kubectl.wait_ready("p");
    let (unit, old_scope) = (slice(&kubectl, "p"), scope(&kubectl, "p"));
    let kubepods = format!("{}-kubepods.slice", unit.split('-').next().unwrap());
    // systemd kills the container.
    systemd("systemctl", &["stop", &kubepods]);
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(1));
    kubectl.wait_ready("p");
    let scope = scope(&kubectl, "p");
    assert_ne!(scope, old_scope);
    for unit in [&unit, &scope] {
        assert_eq!(limits(unit), both("10000", 40 << 20), "{unit}");
    }
    assert_eq!(property(&unit, "MemoryMax"), (40 << 20).to_string());
    assert_eq!(word(&unit, "pids", ["pids.max", "pids.max"]), "200");
    assert_is_limited(&kubepods);
}

/// Starts Podium, which must refuse to, and returns what it prints.
fn refused(data_dir: &Path, driver: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("kubelet.yaml");
    let text =
        json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "cgroupDriver": driver});
    std::fs::write(&config, text.to_string()).unwrap();
    let mut command = Command::new("timeout");
    command.arg("120").arg(podium_binary()).args(["up", "--bind", "127.0.0.1:0", "--data-dir"]).arg(data_dir);
    let output = command.arg("--kubelet-config").arg(config).output().unwrap();
    // 124 is the exit code of `timeout`.
    assert!(!output.status.success() && output.status.code() != Some(124), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[e2e_test("Pods of one cgroup driver are not run with another one")]
fn pods_of_one_driver_are_not_run_with_another() {
    if !is_booted() {
        return;
    }
    let mut cluster = cluster();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&pod("p", &json!({"memory": "40Mi"})).to_string());
    kubectl.wait_ready("p");
    let id = kubectl.value("pod/p", "/status/containerStatuses/0/containerID");
    cluster.stop_podium(Signal::SIGTERM);
    let error = refused(&cluster.data_dir(), "cgroupfs");
    assert!(error.contains("have the cgroup driver systemd, not cgroupfs: delete them first"), "{error}");
    cluster.start_podium();
    let kubectl = cluster.kubectl_in("default");
    kubectl.wait_ready("p");
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/containerID"), id);
}

#[e2e_test("the systemd cgroup driver is refused without systemd")]
fn systemd_driver_is_refused_without_systemd() {
    if Path::new("/run/systemd/system").is_dir() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let error = refused(&data_dir, "systemd");
    assert!(error.contains("cgroupDriver systemd: systemd is not the init system of this machine"), "{error}");
    // The store and the network exist already.
    let down = Command::new(podium_binary()).args(["down", "--data-dir"]).arg(&data_dir).output().unwrap();
    assert!(down.status.success(), "{down:?}");
}
