//! `--kubelet-config` with real containers.

use serde_json::json;
use std::{
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::Path,
};
use tests::{Cluster, ClusterBuilder, PodBuilder, e2e_test, eventually, pod_cgroup};

fn files_of(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns whether an inotify instance of Podium watches a directory.
fn is_watched(cluster: &Cluster, dir: &Path) -> bool {
    let inode = std::fs::metadata(dir).unwrap().ino();
    let files = std::fs::read_dir(format!("/proc/{}/fdinfo", cluster.pid())).unwrap().flatten();
    let infos: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    infos.lines().any(|line| line.starts_with("inotify ") && line.contains(&format!(" ino:{inode:x} ")))
}

#[e2e_test("kubectl logs -f continues across log rotation")]
fn logs_are_followed_across_rotation() {
    let kubelet = json!({"containerLogMaxSize": "5Ki", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s"});
    let cluster = ClusterBuilder::default().kubelet_config(kubelet).start();
    let kubectl = cluster.kubectl_in("default");
    // 400 lines of about 100 bytes in at least 12 s cause several rotations. The first one must not precede the follower.
    let script = "echo line 0; while ! [ -e /tmp/go ]; do sleep 0.1; done
        for i in $(seq 400); do echo \"line $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"; sleep 0.03; done; sleep 5";
    let pod = PodBuilder::new("p").restart_policy("Never").grace_period(1).script(script);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let logs = cluster.data_dir().join(format!("kubelet/logs/default_p_{}", uid.as_str().unwrap()));
    let followed = kubectl.follow(&["logs", "-f", "p"]);
    eventually("the log to be watched, not polled", || is_watched(&cluster, &logs.join("c")));
    kubectl.run("exec p -- touch /tmp/go").ok();
    let number = |line: &String| line.split(' ').nth(1).and_then(|number| number.parse().ok());
    let numbers: Vec<Option<usize>> = followed.until_end().iter().map(number).collect();
    assert_eq!(numbers, (0..=400).map(Some).collect::<Vec<_>>(), "every line once and in order");
    eventually("three files, of which one is compressed", || {
        let files = files_of(&logs.join("c"));
        files.len() == 3 && files.iter().any(|f| f.ends_with(".gz"))
    });
    kubectl.run("delete pod p --timeout=90s").ok();
    eventually("the logs to be removed with the Pod", || !logs.exists());
}

#[e2e_test("Pods have cgroups by QoS class, which are removed with them")]
fn pods_have_cgroups_by_qos_class() {
    let cluster = ClusterBuilder::default().kubelet_config(json!({"podPidsLimit": 100})).start();
    let kubectl = cluster.kubectl_in("default");
    let amounts = json!({"cpu": "100m", "memory": "32Mi"});
    for (name, resources) in [
        ("guaranteed", json!({"limits": amounts})),
        ("burstable", json!({"requests": amounts})),
        ("besteffort", json!({})),
    ] {
        let pod =
            PodBuilder::new(name).grace_period(1).script("cat /proc/self/cgroup; sleep 10000").resources(&resources);
        kubectl.apply(&pod.to_string());
        kubectl.wait_ready(name);
        let uid = kubectl.value(&format!("pod/{name}"), "/metadata/uid");
        let class = if name == "guaranteed" { String::new() } else { format!("{name}/") };
        let uid = uid.as_str().unwrap();
        let memory = pod_cgroup("memory", uid);
        assert!(memory.ends_with(format!("kubepods/{class}pod{uid}")), "{name}: {}", memory.display());
        let limit = ["memory.limit_in_bytes", "memory.max"].map(|f| std::fs::read_to_string(memory.join(f)));
        let limit = limit.into_iter().flatten().next().unwrap();
        assert_eq!(limit.trim() == (32 << 20).to_string(), name == "guaranteed", "{name}: {limit}");
        let pids = std::fs::read_to_string(pod_cgroup("pids", uid).join("pids.max")).unwrap();
        assert_eq!(pids.trim(), "100", "{name}");
        // A cgroup that the runtime does not know, as a crash of the runtime can leave. The Pod's own cgroup has no processes: v2
        // does not allow them beside controlled children.
        let lost = memory.join("lost");
        std::fs::create_dir(&lost).unwrap();
        let mut left = std::process::Command::new("sleep").arg("100000").spawn().unwrap();
        std::fs::write(lost.join("cgroup.procs"), left.id().to_string()).unwrap();
        kubectl.run(&format!("delete pod {name} --timeout=90s")).ok();
        assert_eq!(left.wait().unwrap().signal(), Some(9), "{name}");
        eventually("the cgroup to be removed with its Pod", || !memory.exists());
    }
}

#[e2e_test("a Pod has at most podPidsLimit processes")]
fn pod_has_at_most_pod_pids_limit_processes() {
    let cluster = ClusterBuilder::default().kubelet_config(json!({"podPidsLimit": 12})).start();
    let kubectl = cluster.kubectl_in("default");
    let script = "for i in $(seq 30); do sleep 1000 & done; echo no limit";
    kubectl.apply(&PodBuilder::new("forks").restart_policy("Never").grace_period(1).script(script).to_string());
    kubectl.wait_value("pod/forks", "/status/phase", &json!("Failed"));
    let log = kubectl.run("logs forks").ok();
    assert!(log.contains("can't fork") && !log.contains("no limit"), "{log}");
}

#[e2e_test("a KubeletConfiguration with an unknown field is refused by name")]
fn unknown_kubelet_config_field_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.yaml");
    std::fs::write(&path, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPod: 1\n")
        .unwrap();
    let mut command = std::process::Command::new(tests::podium_binary());
    command.args(["up", "--bind", "127.0.0.1:0", "--kubelet-config"]).arg(&path);
    let output = command.arg("--data-dir").arg(dir.path().join("data")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("unknown fields: maxPod"), "{error}");
}
