//! Failures of containers, sandboxes and nodes.

use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use tests::{Cluster, Kubectl, PodBuilder, Process, e2e_test, wait_for};

const SERVE: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

fn pod(name: &str, script: &str) -> PodBuilder {
    PodBuilder::new(name).grace_period(1).script(script)
}

fn container(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.value(&format!("pod/{name}"), "/status/containerStatuses/0")
}

#[e2e_test("an OOM-killed container reports OOMKilled and 137")]
fn oom_killed_container_reports_reason(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let limit = json!({"resources": {"limits": {"memory": "16Mi"}}});
    let eat = "exec dd if=/dev/zero of=/dev/null bs=64M count=1";
    kubectl.apply(&pod("never", eat).restart_policy("Never").container(&limit).to_string());
    kubectl.apply(&pod("always", eat).container(&limit).to_string());
    kubectl.wait_value("pod/never", "/status/phase", &json!("Failed"));
    let ended = &container(&kubectl, "never")["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)), "{ended}");
    kubectl.wait_value("pod/always", "/status/containerStatuses/0/state/waiting/reason", &json!("CrashLoopBackOff"));
    let last = &container(&kubectl, "always")["lastState"]["terminated"];
    assert_eq!((&last["reason"], &last["exitCode"]), (&json!("OOMKilled"), &json!(137)), "{last}");
    assert!(kubectl.run("get pod never --no-headers").ok().contains("OOMKilled"));
}

#[e2e_test("a container killed by SIGKILL is not reported as OOMKilled")]
fn sigkilled_container_is_not_oom_killed(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let limit = json!({"resources": {"limits": {"memory": "64Mi"}}});
    kubectl.apply(&pod("limited", SERVE).container(&limit).to_string());
    kubectl.apply(&pod("never", SERVE).restart_policy("Never").to_string());
    for name in ["limited", "never"] {
        kubectl.wait_ready(name);
        let uid = uid(&kubectl, name);
        let shell = wait_for("its process", Duration::from_secs(60), || {
            Process::of_pod(&uid).find(|process| process.name() == "sh").ok_or_else(|| "it has none".to_owned())
        });
        kill(shell.0, Signal::SIGKILL).unwrap();
    }
    kubectl.wait_value("pod/never", "/status/phase", &json!("Failed"));
    kubectl.wait_value("pod/limited", "/status/containerStatuses/0/restartCount", &json!(1));
    let ended = &container(&kubectl, "never")["state"]["terminated"];
    let last = &container(&kubectl, "limited")["lastState"]["terminated"];
    for end in [ended, last] {
        assert_eq!((&end["reason"], &end["exitCode"]), (&json!("Error"), &json!(137)), "{end}");
    }
}

#[e2e_test("a missing command reports StartError and backs off")]
fn missing_command_reports_error_and_backs_off(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let missing = json!({"command": ["/no/such/program"]});
    kubectl.apply(&pod("p", "").container(&missing).to_string());
    let reason = "/status/containerStatuses/0/state/waiting/reason";
    // The state changes after a second, so both values are read from one response.
    let shown = kubectl.wait_value("pod/p", reason, &json!("RunContainerError"));
    let message = shown["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("exec: \"/no/such/program\": stat /no/such/program: no such file"), "{shown}");
    let shown = kubectl.wait_value("pod/p", reason, &json!("CrashLoopBackOff"));
    let last = &shown["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["reason"], &last["exitCode"]), (&json!("StartError"), &json!(128)), "{last}");
    kubectl.wait_for_event("p", "Failed", "Error: ");
    // A shell that does not find a command has started.
    kubectl.apply(&pod("shell", "no-such-command").restart_policy("Never").to_string());
    kubectl.wait_value("pod/shell", "/status/phase", &json!("Failed"));
    let ended = &container(&kubectl, "shell")["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("Error"), &json!(127)), "{ended}");
}

#[e2e_test("a missing Secret blocks a container until it is created")]
fn missing_secret_blocks_container(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let env = json!({"env": [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "words", "key": "word"}}}]});
    kubectl.apply(&pod("p", &format!("echo $WORD; {SERVE}")).container(&env).to_string());
    let reason = "/status/containerStatuses/0/state/waiting/reason";
    let message = "/status/containerStatuses/0/state/waiting/message";
    kubectl.wait_value("pod/p", reason, &json!("CreateContainerConfigError"));
    assert_eq!(kubectl.value("pod/p", message), "secret \"words\" not found");
    kubectl.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: words}\nstringData: {other: hello}");
    let expected = format!("couldn't find key word in Secret {}/words", kubectl.namespace());
    kubectl.wait_value("pod/p", message, &json!(expected));
    kubectl.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: words}\nstringData: {word: hello}");
    kubectl.wait_ready("p");
    kubectl.wait_for_output("logs p", "hello\n");
    assert_eq!(container(&kubectl, "p")["restartCount"], 0);
}

pub(crate) fn uid(kubectl: &Kubectl, name: &str) -> String {
    kubectl.value(&format!("pod/{name}"), "/metadata/uid").as_str().unwrap().to_owned()
}

#[e2e_test("a dead sandbox is recreated, and fails a Pod under Never")]
fn dead_sandbox_is_recreated_unless_never(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&pod("always", SERVE).to_string());
    kubectl.apply(&pod("never", SERVE).restart_policy("Never").to_string());
    // It exits with 0 when it is stopped, and the Pod must not be Succeeded.
    kubectl.apply(&pod("failed", SERVE).restart_policy("OnFailure").to_string());
    ["always", "never", "failed"].iter().for_each(|name| kubectl.wait_ready(name));
    let before = container(&kubectl, "always");
    for name in ["always", "never", "failed"] {
        let sandbox = Process::of_sandbox(&uid(&kubectl, name)).expect("a sandbox has a process");
        kill(sandbox.0, Signal::SIGKILL).unwrap();
    }
    for name in ["always", "failed"] {
        kubectl.wait_value(&format!("pod/{name}"), "/status/containerStatuses/0/restartCount", &json!(1));
        kubectl.wait_ready(name);
    }
    let after = container(&kubectl, "always");
    assert_eq!(after["lastState"]["terminated"]["containerID"], before["containerID"], "{after}");
    let changed = "Pod sandbox changed, it will be killed and re-created.";
    assert!(kubectl.events("always").contains(&("SandboxChanged".to_owned(), changed.to_owned())));
    kubectl.wait_value("pod/never", "/status/conditions/0/status", &json!("False"));
    wait_for("the Pod that never restarts to end", Duration::from_secs(60), || {
        let phase = kubectl.value("pod/never", "/status/phase");
        if phase == "Succeeded" || phase == "Failed" { Ok(()) } else { Err(phase.to_string()) }
    });
    assert_eq!(container(&kubectl, "never")["restartCount"], 0);
}

fn node(kubectl: &Kubectl) -> String {
    kubectl.run("get nodes -o jsonpath={.items[0].metadata.name}").ok()
}

#[track_caller]
fn refused(kubectl: &Kubectl, name: &str, reason: &str, message: &str) {
    kubectl.wait_value(&format!("pod/{name}"), "/status/phase", &json!("Failed"));
    let status = kubectl.value(&format!("pod/{name}"), "/status");
    let message = format!("Pod was rejected: {message}");
    assert_eq!((&status["reason"], &status["message"]), (&json!(reason), &json!(message)), "{status}");
    assert_eq!(status["containerStatuses"], Value::Null);
    let words = kubectl.run(&format!("logs {name}")).failed();
    assert!(words.contains(&format!("container \"c\" in pod \"{name}\" is not available")), "{words}");
}

#[e2e_test("the kubelet rejects Pods with another OS or a used host port")]
fn kubelet_rejects_wrong_os_and_used_host_port(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let name = node(&kubectl);
    let windows = json!({"nodeName": name, "os": {"name": "windows"}});
    kubectl.apply(&pod("windows", SERVE).spec(&windows).to_string());
    refused(&kubectl, "windows", "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    let port = json!({"ports": [{"containerPort": 80, "hostPort": 17811}]});
    let bound = json!({"nodeName": name});
    kubectl.apply(&pod("first", SERVE).spec(&bound).container(&port).to_string());
    kubectl.wait_ready("first");
    kubectl.apply(&pod("second", SERVE).spec(&bound).container(&port).to_string());
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    refused(&kubectl, "second", "NodePorts", message);
    let memory = json!({"resources": {"requests": {"memory": "1Ei"}}});
    kubectl.apply(&pod("large", SERVE).spec(&bound).container(&memory).to_string());
    kubectl.wait_value("pod/large", "/status/reason", &json!("OutOfmemory"));
}

#[e2e_test("an admitted Pod is not rejected after a restart of Podium")]
fn admitted_pod_is_not_rejected_after_restart() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let name = node(&kubectl);
    kubectl.run(&format!("label node {name} disk=fast")).ok();
    let fast = json!({"nodeName": name, "nodeSelector": {"disk": "fast"}});
    kubectl.apply(&pod("before", SERVE).spec(&fast).to_string());
    kubectl.wait_ready("before");
    let before = container(&kubectl, "before");
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_api();
    kubectl.run(&format!("label node {name} disk-")).ok();
    kubectl.apply(&pod("after", SERVE).spec(&fast).to_string());
    let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    refused(&kubectl, "after", "NodeAffinity", message);
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    kubectl.wait_ready("before");
    assert_eq!(container(&kubectl, "before"), before);
    refused(&kubectl, "after", "NodeAffinity", message);
}

/// Simulates a reboot: removes every process, mount and cgroup.
pub(crate) fn simulate_reboot(cluster: &mut Cluster, uids: &[String]) {
    let marker = cluster.data_dir().display().to_string();
    cluster.stop_podium(Signal::SIGKILL);
    wait_for("all processes to end", Duration::from_secs(90), || {
        // Keepers are killed first: they would see the exit codes.
        let is_keeper = |command: &str| command.starts_with("podium-keeper") && command.contains(&marker);
        let keepers = Process::all().filter(|process| is_keeper(&process.command()));
        let all: Vec<Process> = keepers.chain(uids.iter().flat_map(|uid| Process::of_pod(uid))).collect();
        for process in &all {
            let _ = kill(process.0, Signal::SIGKILL);
        }
        if all.is_empty() { Ok(()) } else { Err(format!("{all:?}")) }
    });
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for mount in mounts.lines().filter_map(|l| l.split(' ').nth(4)).filter(|m| m.starts_with(&marker)).rev() {
        umount2(Path::new(mount), MntFlags::MNT_DETACH).unwrap();
    }
}

#[e2e_test("after a reboot, Pods follow their restartPolicy")]
fn pods_follow_restart_policy_after_reboot() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let volumes = json!([{"name": "m", "emptyDir": {"medium": "Memory"}}, {"name": "v", "emptyDir": {}}]);
    let mounts = json!([{"name": "m", "mountPath": "/m"}, {"name": "v", "mountPath": "/v"}]);
    // A tmpfs is empty after a reboot only.
    let script = format!("[ -e /m/f ] && exit 9; touch /m/f; echo start >> /v/starts; {SERVE}");
    let spec = |policy: &str| json!({"restartPolicy": policy, "volumes": volumes});
    for (name, policy) in [("always", "Always"), ("never", "Never")] {
        kubectl.apply(&pod(name, &script).spec(&spec(policy)).container(&json!({"volumeMounts": mounts})).to_string());
        kubectl.wait_ready(name);
    }
    kubectl.apply(&pod("done", "true").spec(&spec("Never")).to_string());
    kubectl.wait_value("pod/done", "/status/phase", &json!("Succeeded"));
    let name = node(&kubectl);
    let patch = r#"{"status":{"nodeInfo":{"bootID":"another"}}}"#;
    kubectl.args(&["patch", "node", &name, "--subresource=status", "--type=merge", "-p", patch], "").ok();
    let uids: Vec<String> = ["always", "never"].iter().map(|name| uid(&kubectl, name)).collect();
    simulate_reboot(&mut cluster, &uids);
    cluster.start_podium();
    kubectl.wait_value("pod/always", "/status/containerStatuses/0/restartCount", &json!(1));
    kubectl.wait_ready("always");
    kubectl.wait_for_output("exec always -- cat /v/starts", "start\nstart\n");
    kubectl.wait_value("pod/never", "/status/phase", &json!("Failed"));
    for (name, at) in [("always", "lastState"), ("never", "state")] {
        let shown = container(&kubectl, name);
        let ended = &shown[at]["terminated"];
        let unknown = (&json!(137), &json!("ContainerStatusUnknown"));
        assert_eq!((&ended["exitCode"], &ended["reason"]), unknown, "{name}: {shown}");
    }
    assert_eq!(container(&kubectl, "never")["restartCount"], 0);
    assert_eq!(kubectl.value("pod/done", "/status/phase"), "Succeeded");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let expected = format!("Node {name} has been rebooted, boot id: {}", boot.trim());
    kubectl.wait_for_event(&name, "Rebooted", &expected);
}
