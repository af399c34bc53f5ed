//! Init containers, and their rerun after the death of a sandbox.

use crate::failures::uid;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{fs, path::PathBuf, time::Duration};
use tests::{Cluster, Kubectl, PodBuilder, Process, e2e_test, wait_for};

fn container(name: &str, script: &str) -> Value {
    let mut container = tests::container(name, script);
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    container
}

/// Returns a Pod with an emptyDir `v`.
fn pod(name: &str, init: &[Value], app: &Value) -> PodBuilder {
    let pod = PodBuilder::new(name).volume("v", &json!({"emptyDir": {}}));
    pod.spec(&json!({"initContainers": init})).container(app)
}

fn apply(kubectl: &Kubectl, name: &str, policy: &str, init: &[Value], app: &Value) {
    kubectl.apply(&pod(name, init, app).restart_policy(policy).grace_period(1).to_string());
}

/// Waits for the columns READY and STATUS of `kubectl get`.
fn wait_for_columns(kubectl: &Kubectl, name: &str, ready: &str, status: &str) {
    wait_for(&format!("{name} {ready} {status}"), Duration::from_secs(60), || {
        let row = kubectl.run(&format!("get pod {name} --no-headers")).ok();
        let columns: Vec<_> = row.split_whitespace().skip(1).take(2).collect();
        if columns == [ready, status] { Ok(()) } else { Err(row) }
    });
}

/// Returns status, reason and message of a condition.
fn condition(kubectl: &Kubectl, name: &str, kind: &str) -> [Value; 3] {
    let found = kubectl.condition(&format!("pod/{name}"), kind);
    ["status", "reason", "message"].map(|field| found[field].clone())
}

#[e2e_test("init containers run in order, are retried and block app containers")]
fn init_containers_run_in_order_and_block_app(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let first = container("first", "echo first >> /v/log; until [ -f /v/go ]; do sleep 0.1; done");
    let second = container("second", "echo second >> /v/log; [ $(wc -l < /v/log) -ge 3 ]");
    apply(&kubectl, "p", "OnFailure", &[first, second], &container("c", "cat /v/log; sleep 100000"));
    kubectl.wait_value("pod/p", "/status/initContainerStatuses/0/started", &json!(true));
    wait_for_columns(&kubectl, "p", "0/1", "Init:0/2");
    let status = kubectl.value("pod/p", "/status");
    let waits = |pointer: &str| status.pointer(&format!("{pointer}/state/waiting/reason")).cloned();
    assert_eq!(waits("/initContainerStatuses/1"), Some(json!("PodInitializing")));
    assert_eq!(waits("/containerStatuses/0"), Some(json!("PodInitializing")));
    assert_eq!(status["phase"], "Pending");
    let words = json!("containers with incomplete status: [first second]");
    assert_eq!(condition(&kubectl, "p", "Initialized"), [json!("False"), json!("ContainersNotInitialized"), words]);
    kubectl.run("exec p -c first -- touch /v/go").ok();
    kubectl.wait_ready("p");
    kubectl.wait_for_output("logs p -c c", "first\nsecond\nsecond\n");
    assert_eq!(condition(&kubectl, "p", "Initialized"), [json!("True"), Value::Null, Value::Null]);
    let counts = |n| kubectl.value("pod/p", &format!("/status/initContainerStatuses/{n}/restartCount"));
    assert_eq!((counts(0), counts(1)), (json!(0), json!(1)));
}

#[e2e_test("a failing init container backs off, and fails a Pod under Never")]
fn failing_init_container_backs_off_or_fails_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let app = container("c", "sleep 100000");
    apply(&kubectl, "loops", "Always", &[container("i", "exit 3")], &app);
    apply(&kubectl, "never", "Never", &[container("i", "exit 3"), container("j", "exit 0")], &app);
    wait_for_columns(&kubectl, "loops", "0/1", "Init:CrashLoopBackOff");
    assert_eq!(kubectl.value("pod/loops", "/status/phase"), "Pending");
    wait_for_columns(&kubectl, "never", "0/1", "Init:Error");
    kubectl.wait_value("pod/never", "/status/phase", &json!("Failed"));
    let mut probed = container("i", "exit 0");
    probed["livenessProbe"] = json!({"exec": {"command": ["true"]}});
    let refused = kubectl.args(&["apply", "-f", "-"], &pod("probed", &[probed], &app).to_string()).failed();
    let words = "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always";
    assert!(refused.contains(words), "{refused}");
}

/// Returns the process of the Pod's sandbox and the processes of its containers.
fn processes(kubectl: &Kubectl) -> (Pid, Vec<Pid>) {
    let uid = uid(kubectl, "p");
    let sandbox = Process::of_sandbox(&uid).expect("a sandbox has a process");
    (sandbox.0, Process::of_pod(&uid).filter(|process| *process != sandbox).map(|process| process.0).collect())
}

#[e2e_test("a new sandbox runs the init containers again")]
fn new_sandbox_reruns_init_containers(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    apply(&kubectl, "p", "Always", &[container("i", "echo i >> /v/log")], &container("c", "cat /v/log; sleep 100000"));
    kubectl.wait_ready("p");
    let has_sandbox = "{.status.conditions[?(@.type==\"PodReadyToStartContainers\")].status}{\"\\n\"}";
    let mut has_sandbox = kubectl.follow(&["get", "pod", "p", "--watch", "-o", &format!("jsonpath={has_sandbox}")]);
    kill(processes(&kubectl).0, Signal::SIGKILL).unwrap();
    has_sandbox.wait_for_line("that the sandbox is lost", |status| status == "False");
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(1));
    kubectl.wait_ready("p");
    // The volumes are kept: the line of the first run is present.
    kubectl.wait_for_output("logs p -c c", "i\ni\n");
    kubectl.wait_for_event("p", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
    assert_eq!(condition(&kubectl, "p", "PodReadyToStartContainers")[0], "True");
}

#[e2e_test("the larger requests of init containers count")]
fn larger_init_container_requests_count(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let requires = |name: &str, cpu: &str, script: &str| {
        let mut c = container(name, script);
        c["resources"] = json!({"requests": {"cpu": cpu}});
        c
    };
    apply(&kubectl, "large", "Always", &[requires("i", "1000", "true")], &requires("c", "1m", "true"));
    apply(&kubectl, "p", "Always", &[requires("i", "250m", "true")], &requires("c", "50m", "sleep 100000"));
    wait_for("the Pod to be unschedulable", Duration::from_secs(60), || {
        let words = condition(&kubectl, "large", "PodScheduled")[2].to_string();
        if words.contains("Insufficient cpu") { Ok(()) } else { Err(words) }
    });
    kubectl.wait_ready("p");
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", processes(&kubectl).1[0])).unwrap();
    // Cgroup v1 has a line for the controller, v2 one for all.
    let line = groups.lines().find(|l| l.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == "cpu")));
    let (root, file, expected) = match line {
        Some(_) => ("/sys/fs/cgroup/cpu", "cpu.shares", "256"),
        None => ("/sys/fs/cgroup", "cpu.weight", "10"),
    };
    let path = line.or(groups.lines().last()).and_then(|l| l.splitn(3, ':').nth(2)).unwrap();
    let pod = PathBuf::from(format!("{root}{path}"));
    assert_eq!(fs::read_to_string(pod.parent().unwrap().join(file)).unwrap().trim(), expected, "{pod:?}");
}
