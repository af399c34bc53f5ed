//! AppArmor profiles of containers: the engine's default profile, and profiles of the node.
//!
//! On a node without AppArmor, these tests report that they are skipped. `cargo xtask vm-test` has a kernel with it.

use serde_json::{Value, json};
use std::{fs, io::Write, path::Path, process::Stdio};
use tests::{Cluster, Kubectl, PodBuilder, container, e2e_test, eventually};

const DEFAULT: &str = "podium-default (enforce)\n";
/// Prints the profile of the process.
const SHOW: &str = "cat /proc/self/attr/current";
/// Changes of the node that only AppArmor denies to a container with `CAP_SYS_ADMIN` and these volumes.
const CHANGES: &str = "mkdir /m; if mount -t tmpfs none /m; then echo mounted; fi; \
    value=$(cat /sys/kernel/mm/ksm/run); if (echo $value > /sys/kernel/mm/ksm/run); then echo written; fi; \
    cat /proc/self/attr/current";

/// Returns whether the node has AppArmor; reports that the test is skipped.
fn has_apparmor() -> bool {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'));
    // A container may not have the file system, and a minimal system not the program.
    let usable = Path::new("/sys/kernel/security/apparmor/profiles").exists()
        && ["/usr/sbin", "/sbin", "/usr/bin"].iter().any(|dir| Path::new(dir).join("apparmor_parser").exists());
    if !(enabled && usable) {
        eprintln!("skipped: AppArmor is disabled, or securityfs or apparmor_parser is missing");
    }
    enabled && usable
}

/// Returns a Pod that runs a script once, with this security context.
fn pod(script: &str, context: &Value) -> PodBuilder {
    let script = format!("{{ {script}; }} 2>/dev/null");
    PodBuilder::new("p").script(&script).runs_once(context)
}

#[e2e_test("the default AppArmor profile denies changes of the node")]
fn default_profile_denies_changes_of_node(cluster: &Cluster) {
    if !has_apparmor() {
        return;
    }
    let kubectl = cluster.kubectl();
    let ksm = json!({"hostPath": {"path": "/sys/kernel/mm/ksm", "type": "Directory"}});
    for (profile, expected) in [
        (Value::Null, DEFAULT),
        (json!({"type": "RuntimeDefault"}), DEFAULT),
        (json!({"type": "Unconfined"}), "mounted\nwritten\nunconfined\n"),
    ] {
        let context = json!({"capabilities": {"add": ["SYS_ADMIN"]}, "appArmorProfile": profile});
        let pod = pod(CHANGES, &context).volume("ksm", &ksm).mount("ksm", "/sys/kernel/mm/ksm");
        assert_eq!(kubectl.output_of(&pod), expected, "{profile}");
    }
    assert_eq!(kubectl.output_of(&pod(SHOW, &json!({"privileged": true}))), "unconfined\n");
    assert_eq!(kubectl.output_of(&pod(SHOW, &json!({"allowPrivilegeEscalation": false, "runAsUser": 1000}))), DEFAULT);
    assert!(!cluster.log().contains("default AppArmor profile"), "{}", cluster.log());
}

/// Starts a Pod that reports its signals and hooks in `out/log`.
fn start_reporting(kubectl: &Kubectl, out: &Path, fields: &Value) {
    let script = "trap 'echo stopped >> /out/log; exit 0' TERM; touch /out/log; while :; do sleep 0.1; done";
    let hook = |command: &str| json!({"exec": {"command": ["sh", "-c", command]}});
    let pod = PodBuilder::new("p")
        .grace_period(100)
        .script(script)
        .volume("out", &json!({"hostPath": {"path": out}}))
        .mount("out", "/out")
        .container(&json!({
            "lifecycle": {"preStop": hook("cat /proc/self/attr/current >> /out/log")},
            "readinessProbe": hook("grep podium-default /proc/self/attr/current"),
        }))
        .spec(fields);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
}

#[e2e_test("confined containers have confined execs and hooks, and end at signals")]
fn confined_containers_have_confined_execs_and_end_at_signals(cluster: &Cluster) {
    if !has_apparmor() {
        return;
    }
    let kubectl = cluster.kubectl();
    for handler in ["runc", "crun"] {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": format!("apparmor-{handler}")}, "handler": handler});
        kubectl.apply(&class.to_string());
        let class = json!({"runtimeClassName": class["metadata"]["name"]});
        let out = tempfile::tempdir().unwrap();
        start_reporting(&kubectl, out.path(), &class);
        assert_eq!(kubectl.args(&["exec", "p", "--", "sh", "-c", SHOW], "").ok(), DEFAULT, "{handler}");
        kubectl.run("delete pod p --timeout=60s").ok();
        assert_eq!(fs::read_to_string(out.path().join("log")).unwrap(), [DEFAULT, "stopped\n"].concat(), "{handler}");
        // This one ignores SIGTERM.
        let script = "trap '' TERM; while :; do sleep 0.1; done";
        let stubborn = PodBuilder::new("p").grace_period(1).script(script).spec(&class);
        kubectl.apply(&stubborn.to_string());
        kubectl.wait_ready("p");
        kubectl.run("delete pod p --timeout=60s").ok();
        kubectl.run(&format!("delete runtimeclass apparmor-{handler}")).ok();
    }
}

#[e2e_test("confined containers of a Pod signal each other, and not the node")]
fn confined_containers_signal_each_other(cluster: &Cluster) {
    if !has_apparmor() {
        return;
    }
    let kubectl = cluster.kubectl();
    let other = container("other", "trap 'exit 7' USR1; while :; do sleep 0.1; done");
    let shared = PodBuilder::new("p")
        .restart_policy("Never")
        .grace_period(1)
        .script("trap '' USR1; while :; do sleep 0.1; done")
        .add_container(other)
        .spec(&json!({"shareProcessNamespace": true}));
    kubectl.apply(&shared.to_string());
    kubectl.wait_ready("p");
    kubectl.args(&["exec", "p", "--", "sh", "-c", "kill -USR1 -1"], "").ok();
    eventually("the other container to end", || {
        let statuses = kubectl.value("pod/p", "/status/containerStatuses");
        let codes = statuses.as_array().unwrap().iter().map(|status| &status["state"]["terminated"]["exitCode"]);
        codes.filter(|code| **code == json!(7)).count() == 1
    });
    // Process 1 of the Pod, and all processes of the node, have other profiles.
    kubectl.args(&["exec", "p", "--", "sh", "-c", "kill -TERM 1"], "").failed();
    kubectl.run("delete pod p --timeout=60s").ok();
    let script = format!("kill -USR1 {}", cluster.pid());
    let pod = pod(&format!("if {script}; then echo signalled; fi"), &json!({})).spec(&json!({"hostPID": true}));
    assert_eq!(kubectl.output_of(&pod), "");
}

/// A loaded profile, removed on drop.
struct Loaded(String);

impl Loaded {
    fn new(text: &str) -> Self {
        parser("--replace", text);
        Self(text.to_owned())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        parser("--remove", &self.0);
    }
}

fn parser(action: &str, profile: &str) {
    let mut command = std::process::Command::new("apparmor_parser");
    let mut child = command.args(["--skip-cache", action]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(profile.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

fn message(kubectl: &Kubectl) -> String {
    let waiting = kubectl.value("pod/p", "/status/containerStatuses/0/state/waiting");
    waiting["message"].as_str().unwrap_or_default().to_owned()
}

#[e2e_test("a Localhost AppArmor profile applies when it is loaded")]
fn localhost_profile_applies_when_loaded(cluster: &Cluster) {
    if !has_apparmor() {
        return;
    }
    let kubectl = cluster.kubectl();
    let name = format!("podium-test-{}", kubectl.namespace());
    let context = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}});
    let script = format!("if echo 1 > /a; then echo a; fi; if echo 1 > /b; then echo b; fi; {SHOW}");
    kubectl.apply(&pod(&script, &context).to_string());
    eventually("the missing profile to be reported", || message(&kubectl).contains("apparmor profile not found"));
    let rules = "file, network, capability, signal, deny /b w,";
    let _loaded = Loaded::new(&format!("profile {name} flags=(attach_disconnected) {{ {rules} }}\n"));
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs p").ok(), format!("a\n{name} (enforce)\n"));
    kubectl.run("delete pod p --wait").ok();
}
