//! Other OCI runtimes by RuntimeClass, and as the default runtime.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tests::{ClusterBuilder, PodBuilder, e2e_test, eventually, podium_binary};

/// crun does not start containers where both cgroup versions have controllers. This hides cgroup v2 from it.
const HIDE_CGROUP_V2: &str = "mount --make-rprivate /sys/fs/cgroup; umount /sys/fs/cgroup/unified 2>/dev/null";

/// Writes a `crun` wrapper that logs its calls.
fn write_crun_wrapper(dir: &Path) -> PathBuf {
    let (program, calls) = (dir.join("crun"), dir.join("calls"));
    let real = ["/usr/bin/crun", "/usr/sbin/crun"].into_iter().find(|path| Path::new(path).exists());
    let real = real.expect("crun is installed: `cargo xtask test` does that");
    let calls = calls.display();
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {calls}\nexec unshare --mount --propagation unchanged \
         sh -c '{HIDE_CGROUP_V2}; exec {real} \"$@\"' crun \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn search_path(first: &Path) -> String {
    format!("{}:{}", first.display(), std::env::var("PATH").unwrap_or_default())
}

fn calls(dir: &Path) -> String {
    fs::read_to_string(dir.join("calls")).unwrap_or_default()
}

#[e2e_test("Pods of the RuntimeClass crun behave like those of runc")]
fn crun_class_behaves_like_runc() {
    let dir = tempfile::tempdir().unwrap();
    write_crun_wrapper(dir.path());
    let cluster = ClusterBuilder::default().env("PATH", &search_path(dir.path())).start();
    let kubectl = cluster.kubectl_in("default");
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "fast"}, "handler": "crun"});
    kubectl.apply(&class.to_string());
    let pod = |name: &str, container: Value| {
        let pod = PodBuilder::new(name).restart_policy("Never").spec(&json!({"runtimeClassName": "fast"}));
        kubectl.apply(&pod.container(&container).to_string());
    };
    let ended = |name: &str, reason: &str, code: i32| {
        let pod = format!("pod/{name}");
        kubectl.wait_value(&pod, "/status/containerStatuses/0/state/terminated/reason", &json!(reason));
        assert_eq!(kubectl.value(&pod, "/status/containerStatuses/0/state/terminated/exitCode"), json!(code));
    };
    pod("fails", json!({"command": ["sh", "-c", "exit 3"]}));
    pod("missing", json!({"command": ["/no-such-program"]}));
    pod(
        "greedy",
        json!({"command": ["sh", "-c", "x=a; while :; do x=$x$x; done"], "resources": {"limits": {"memory": "16Mi"}}}),
    );
    pod(
        "polite",
        json!({"command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"],
        "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 30}}),
    );
    ended("fails", "Error", 3);
    ended("missing", "StartError", 128);
    ended("greedy", "OOMKilled", 137);
    kubectl.wait_ready("polite");
    assert_eq!(kubectl.run("exec polite -- echo here").ok(), "here\n");
    let refused = kubectl.args(&["exec", "polite", "--", "sh", "-c", "exit 5"], "");
    assert!(refused.failed().contains("exit code 5"));
    assert_eq!(kubectl.value("pod/polite", "/status/containerStatuses/0/restartCount"), json!(0));
    kubectl.run("delete pod polite --timeout=60s").ok();
    let calls = calls(dir.path());
    // The engine creates and starts with one call.
    assert!([" create ", " run "].iter().any(|call| calls.contains(call)), "{calls}");
    assert!([" exec ", " delete "].iter().all(|call| calls.contains(call)), "{calls}");
}

#[e2e_test("--default-runtime crun runs all Pods with crun")]
fn default_runtime_crun_runs_all_pods() {
    let dir = tempfile::tempdir().unwrap();
    write_crun_wrapper(dir.path());
    let manifest = dir.path().join("pod.yaml");
    let pod = PodBuilder::new("p").restart_policy("Never").command(&["echo", "by crun"]);
    fs::write(&manifest, pod.to_string()).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{HIDE_CGROUP_V2}; exec \"$@\""), "sh"]).arg(podium_binary());
    let image = dir.path().join("busybox.tar");
    test_images::busybox(&image, &[test_images::BUSYBOX], &test_images::ImageConfig::default()).unwrap();
    command.args(["run", "--default-runtime", "crun", "--timeout", "60s", "--image"]).arg(&image);
    command.arg("--kubelet-config").arg(tests::write_kubelet_config(dir.path()));
    let ran = command.arg(&manifest).env("PATH", search_path(dir.path())).output().unwrap();
    let output = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && output.contains("by crun"), "{output}{}", String::from_utf8_lossy(&ran.stderr));
    assert!([" create ", " run "].iter().any(|call| calls(dir.path()).contains(call)));
}

/// Stands in for gVisor's `runsc`, with its rules.
const SANDBOX_RUNTIME: &str = include_str!("../../crates/engine/tests/keepers/sandbox_runtime.sh");

#[e2e_test("a Pod in a sandbox of its runtime gets a new one when that ends")]
fn sandbox_of_the_runtime_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sandbox-runtime");
    fs::write(&program, SANDBOX_RUNTIME).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut cluster = ClusterBuilder::default().start();
    cluster.stop_podium(Signal::SIGTERM);
    let handlers = json!({"defaultHandler": "runc", "handlers": {"runc": {"program": "runc"},
        "sandboxed": {"program": program, "sandboxContainer": true}}});
    fs::write(cluster.data_dir().join("runtimes.yaml"), handlers.to_string()).unwrap();
    cluster.start_podium();
    let kubectl = cluster.kubectl_in("default");
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"},
        "handler": "sandboxed"});
    kubectl.apply(&class.to_string());
    let in_sandbox = |pod: PodBuilder| pod.spec(&json!({"runtimeClassName": "gvisor"}));
    let server = in_sandbox(PodBuilder::new("server").grace_period(1)).container(&json!({
        "command": ["sh", "-c", "echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"],
        "readinessProbe": {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1},
        "livenessProbe": {"exec": {"command": ["test", "-e", "/tmp/index.html"]}, "periodSeconds": 1,
            "timeoutSeconds": 30}}));
    kubectl.apply(&server.to_string());
    let fails = in_sandbox(PodBuilder::new("fails").restart_policy("Never")).command(&["sh", "-c", "exit 3"]);
    kubectl.apply(&fails.to_string());
    kubectl.wait_value("pod/fails", "/status/containerStatuses/0/state/terminated/exitCode", &json!(3));
    kubectl.wait_ready("server");
    assert_eq!(kubectl.run("exec server -- cat /tmp/index.html").ok(), "hello\n");
    let refused = kubectl.args(&["exec", "server", "--", "sh", "-c", "exit 5"], "");
    assert!(refused.failed().contains("exit code 5"));

    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    kubectl.wait_ready("server");
    assert_eq!(kubectl.value("pod/server", "/status/containerStatuses/0/restartCount"), json!(0));
    let uid = kubectl.value("pod/server", "/metadata/uid");
    kill(sandbox_process(&cluster.data_dir(), uid.as_str().unwrap()), Signal::SIGKILL).unwrap();
    kubectl.wait_value("pod/server", "/status/containerStatuses/0/restartCount", &json!(1));
    assert_eq!(kubectl.value("pod/server", "/status/containerStatuses/0/lastState/terminated/exitCode"), json!(137));
    kubectl.wait_ready("server");
    kubectl.run("delete pods --all --timeout=60s").ok();
    let pods = cluster.data_dir().join("engine/pods");
    eventually("the removal of all sandboxes", || fs::read_dir(&pods).unwrap().next().is_none());
}

/// Returns the process of the sandbox container of a Pod.
fn sandbox_process(data_dir: &Path, uid: &str) -> Pid {
    let sandboxes = fs::read_dir(data_dir.join("engine/pods")).unwrap().map(|entry| entry.unwrap().path());
    let is_its = |dir: &PathBuf| fs::read_to_string(dir.join("sandbox.json")).unwrap_or_default().contains(uid);
    let sandbox = sandboxes.into_iter().find(is_its).expect("a sandbox");
    let process = Path::new("/run/podium/oci").join(sandbox.file_name().unwrap()).join("stand-in/sandbox");
    Pid::from_raw(fs::read_to_string(process).unwrap().trim().parse().unwrap())
}
