//! Container restarts: restart policies and rules, `RestartAllContainers`, image changes, back-off.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, container, e2e_test, eventually, wait_for};

/// Returns a Pod whose containers share an emptyDir `/data`.
fn pod(name: &str, mut spec: Value) -> String {
    for list in ["initContainers", "containers"] {
        for c in spec[list].as_array_mut().into_iter().flatten() {
            c["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        }
    }
    let pod = PodBuilder::new(name).spec(&spec).volume("data", &json!({"emptyDir": {}}));
    pod.grace_period(30).to_string()
}

fn with(mut container: Value, fields: &Value) -> Value {
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    container
}

fn rule(action: &str, operator: &str, codes: &[i32]) -> Value {
    json!({"restartPolicy": "Never",
        "restartPolicyRules": [{"action": action, "exitCodes": {"operator": operator, "values": codes}}]})
}

/// Returns a container that exits with these codes in turn, and appends a line in each run.
fn ends(name: &str, codes: &[i32]) -> Value {
    let cases: String = codes.iter().enumerate().map(|(n, code)| format!("{}) exit {code};; ", n + 1)).collect();
    container(name, &format!("echo x >> /data/{name}; case $(wc -l < /data/{name}) in {cases} esac"))
}

#[e2e_test("restartPolicyRules restart a container under Never")]
fn restart_policy_rules_restart_container_under_never(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&pod(
        "p",
        json!({"restartPolicy": "Never",
        "initContainers": [with(ends("init", &[3, 0]), &rule("Restart", "NotIn", &[0, 1]))],
        "containers": [
            with(ends("c", &[42, 7]), &rule("Restart", "In", &[41, 42])),
            with(ends("other", &[7]), &rule("Restart", "In", &[42])),
        ]}),
    ));
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    let status = kubectl.value("pod/p", "/status");
    let init = &status["initContainerStatuses"][0];
    assert_eq!((&init["restartCount"], &init["lastState"]["terminated"]["exitCode"]), (&json!(1), &json!(3)));
    let [c, other] = [0, 1].map(|n| &status["containerStatuses"][n]);
    assert_eq!((&c["restartCount"], &c["lastState"]["terminated"]["exitCode"]), (&json!(1), &json!(42)));
    assert_eq!(c["state"]["terminated"]["exitCode"], 7);
    assert_eq!((&other["restartCount"], &other["state"]["terminated"]["exitCode"]), (&json!(0), &json!(7)));
    // Without the feature gate of a later test its action is refused.
    let all = rule("RestartAllContainers", "In", &[42]);
    let refused = kubectl.args(&["create", "-f", "-"], &pod("q", json!({"containers": [with(ends("c", &[1]), &all)]})));
    let words = refused.failed();
    let expected = "spec.containers[0].restartPolicyRules[0].action: Unsupported value: \"RestartAllContainers\": supported values: \"Restart\"";
    assert!(words.contains(expected), "{words}");
}

/// The documentation's examples: a container and an init container without restarts, and a sidecar, which always restarts.
#[e2e_test("a container's own restartPolicy overrides that of the Pod")]
fn container_restart_policy_overrides_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let never = json!({"restartPolicy": "Never"});
    kubectl.apply(&pod(
        "once",
        json!({"restartPolicy": "OnFailure",
            "containers": [with(ends("c", &[1]), &never), ends("other", &[1, 0])]}),
    ));
    kubectl.apply(&pod(
        "init",
        json!({"restartPolicy": "Always",
            "initContainers": [with(ends("c", &[1]), &never)], "containers": [container("other", SERVE)]}),
    ));
    let sidecar = with(rule("Restart", "In", &[9]), &json!({"restartPolicy": "Always"}));
    kubectl.apply(&pod(
        "sidecar",
        json!({"restartPolicy": "Never",
            "initContainers": [with(ends("side", &[0, 1]), &sidecar)], "containers": [container("c", SERVE)]}),
    ));
    for (name, list, restarts) in [("once", "containerStatuses", [0, 1]), ("init", "initContainerStatuses", [0, 0])] {
        kubectl.wait_value(&format!("pod/{name}"), "/status/phase", &json!("Failed"));
        let status = kubectl.value(&format!("pod/{name}"), "/status");
        assert_eq!(status[list][0]["state"]["terminated"]["exitCode"], 1, "{name}: {status}");
        let counts = [&status[list][0], status["containerStatuses"].as_array().and_then(|a| a.last()).unwrap()];
        assert_eq!(counts.map(|c| c["restartCount"].as_i64()), restarts.map(Some), "{name}: {status}");
    }
    assert_eq!(kubectl.value("pod/init", "/status/containerStatuses/0/state/waiting/reason"), "PodInitializing");
    eventually("a restart of the sidecar", || {
        kubectl.value("pod/sidecar", "/status/initContainerStatuses/0/restartCount").as_i64() >= Some(1)
    });
    let words = kubectl
        .args(
            &["create", "-f", "-"],
            &pod("q", json!({"containers": [with(container("c", SERVE), &without_policy())]})),
        )
        .failed();
    let expected =
        "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used";
    assert!(words.contains(expected), "{words}");
}

fn without_policy() -> Value {
    let mut fields = rule("Restart", "In", &[42]);
    fields.as_object_mut().unwrap().remove("restartPolicy");
    fields
}

#[e2e_test("restarts by restartPolicyRules back off")]
fn restart_by_rule_backs_off(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let restarting = with(ends("c", &[42, 42, 42]), &rule("Restart", "In", &[42]));
    kubectl.apply(&pod("p", json!({"restartPolicy": "Never", "containers": [restarting]})));
    let waiting = "/status/containerStatuses/0/state/waiting";
    let pod = kubectl.wait_value("pod/p", &format!("{waiting}/reason"), &json!("CrashLoopBackOff"));
    let message = &pod.pointer(waiting).unwrap()["message"];
    assert!(message.as_str().unwrap().starts_with("back-off 10s restarting failed container=c"), "{message}");
}

const SERVE: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

#[e2e_test("an image change stops the container and starts the new image")]
fn image_change_restarts_container(cluster: &Cluster) {
    const OTHER: &str = "docker.io/library/other:2";
    let (kubectl, dir) = (cluster.kubectl(), tempfile::tempdir().unwrap());
    let tar = dir.path().join("other.tar");
    // The runtime reports an image by its first name: this one differs.
    let config = test_images::ImageConfig { user: Some("root".to_owned()), ..Default::default() };
    test_images::busybox(&tar, &[OTHER], &config).unwrap();
    cluster.import(&tar);
    kubectl.apply(&pod(
        "p",
        json!({"restartPolicy": "Never",
            "initContainers": [with(container("side", SERVE), &json!({"restartPolicy": "Always"}))],
            "containers": [container("c", SERVE), container("other", SERVE)]}),
    ));
    kubectl.wait_ready("p");
    let before = kubectl.value("pod/p", "/status");
    kubectl.run(&format!("set image pod/p c={OTHER} side={OTHER}")).ok();
    for place in ["/status/containerStatuses/0", "/status/initContainerStatuses/0"] {
        kubectl.wait_value("pod/p", &format!("{place}/restartCount"), &json!(1));
        kubectl.wait_value("pod/p", &format!("{place}/ready"), &json!(true));
        let container = kubectl.value("pod/p", place);
        assert_eq!(
            (&container["image"], &container["lastState"]["terminated"]["exitCode"]),
            (&json!(OTHER), &json!(0)),
            "{place}"
        );
    }
    let output = kubectl.events("p");
    for message in ["Container c definition changed, will be restarted", "Init container side definition changed"] {
        assert!(output.contains(&("Killing".to_owned(), message.to_owned())), "{message}: {output:?}");
    }
    let after = kubectl.value("pod/p", "/status");
    assert_eq!((&after["phase"], &after["podIP"]), (&json!("Running"), &before["podIP"]));
    assert_eq!(after["containerStatuses"][1]["containerID"], before["containerStatuses"][1]["containerID"]);
    let generation = kubectl.value("pod/p", "/metadata/generation");
    assert_eq!(after["observedGeneration"], generation);
    for condition in after["conditions"].as_array().unwrap() {
        assert_eq!(condition["observedGeneration"], generation, "{condition}");
    }
    let patch = json!({"spec": {"containers": [{"name": "c", "command": ["true"]}]}}).to_string();
    let words = kubectl.args(&["patch", "pod", "p", "-p", &patch], "").failed();
    assert!(words.contains("pod updates may not change fields other than `spec.containers[*].image`"), "{words}");
}

const GATES: &str = "RestartAllContainersOnContainerExits=true,NodeDeclaredFeatures=true";

fn counts(kubectl: &Kubectl) -> Vec<i64> {
    let status = kubectl.value("pod/p", "/status");
    let all = ["initContainerStatuses", "containerStatuses"].iter().flat_map(|l| status[*l].as_array().cloned());
    all.flatten().filter_map(|c| c["restartCount"].as_i64()).collect()
}

#[e2e_test("RestartAllContainers restarts all containers in the same sandbox")]
fn restart_all_containers_keeps_sandbox() {
    let mut cluster = Cluster::start(&["--feature-gates", GATES]);
    let kubectl = cluster.kubectl_in("default");
    let hook = json!({"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo x >> /data/hook; sleep 20"]}}}});
    let source = "while [ ! -e /data/go ]; do sleep 0.1; done; rm /data/go; exit 42";
    kubectl.apply(&pod(
        "p",
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 600,
        "initContainers": [ends("init", &[0, 0, 0]), with(container("side", SERVE), &json!({"restartPolicy": "Always"}))],
        "containers": [
            container("done", "exit 0"),
            with(container("main", "trap '' TERM; sleep 100000 & wait; sleep 1000"), &hook),
            with(container("source", source), &rule("RestartAllContainers", "In", &[42])),
        ]}),
    ));
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/state/terminated/exitCode", &json!(0));
    kubectl.wait_value("pod/p", "/status/containerStatuses/1/ready", &json!(true));
    kubectl.wait_value("pod/p", "/status/containerStatuses/2/ready", &json!(true));
    let before = kubectl.value("pod/p", "/status");
    kubectl.run("exec p -c side -- touch /data/go").ok();
    // There is no grace period, which would exceed the timeout, and no hook.
    eventually("all to be restarted", || counts(&kubectl) == [1; 5]);
    kubectl.wait_value("pod/p", "/status/containerStatuses/2/ready", &json!(true));
    kubectl.run("exec p -c side -- test ! -e /data/hook").ok();
    let after = kubectl.value("pod/p", "/status");
    assert_eq!((&after["phase"], &after["podIP"]), (&json!("Running"), &before["podIP"]));
    let conditions = after["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|c| c["type"] == "AllContainersRestarting").unwrap();
    assert_eq!(condition["status"], "False");
    assert_eq!(after["containerStatuses"][2]["lastState"]["terminated"]["exitCode"], 42);
    assert_eq!(after["containerStatuses"][1]["lastState"]["terminated"]["reason"], "RestartingAllContainers");
    // The volume is kept: the init container ran a second time, and no hook ran.
    assert_eq!(kubectl.run("exec p -c side -- wc -l /data/init").ok().trim(), "2 /data/init");
    kubectl.run("exec p -c side -- ls /data/hook").failed();
    // Podium is killed during the restart or before; the next one completes it.
    let later = "(sleep 1; touch /data/go) > /dev/null 2>&1 &";
    kubectl.args(&["exec", "p", "-c", "side", "--", "sh", "-c", later], "").ok();
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    eventually("all to be restarted once more", || counts(&kubectl) == [2; 5]);
    assert_eq!(kubectl.value("pod/p", "/status/podIP"), before["podIP"]);
    kubectl.run("delete pod p --grace-period=1 --timeout=90s").ok();
}

#[e2e_test("ReduceDefaultCrashLoopBackOffDecay shortens the back-off")]
fn reduced_decay_gate_shortens_backoff() {
    let cluster = Cluster::start(&["--feature-gates", "ReduceDefaultCrashLoopBackOffDecay=true"]);
    let kubectl = cluster.kubectl_in("default");
    // Restarts at once and after 1, 2 and 4 s; with the default they would take more than a minute.
    let begun = Instant::now();
    kubectl.apply(&pod("p", json!({"containers": [container("c", "exit 1")]})));
    wait_for("four restarts", Duration::from_secs(60), || {
        let count = kubectl.value("pod/p", "/status/containerStatuses/0/restartCount");
        if count.as_i64() >= Some(4) { Ok(()) } else { Err(count.to_string()) }
    });
    assert!(begun.elapsed() > Duration::from_secs(6), "{:?}", begun.elapsed());
    let waiting = "/status/containerStatuses/0/state/waiting";
    let pod = kubectl.wait_value("pod/p", &format!("{waiting}/reason"), &json!("CrashLoopBackOff"));
    let message = &pod.pointer(waiting).unwrap()["message"];
    let expected = [8, 16, 32].map(|seconds| format!("back-off {seconds}s restarting failed container=c"));
    assert!(expected.iter().any(|words| message.as_str().unwrap().starts_with(words)), "{message}");
    kubectl.run("delete pod p --grace-period=1 --timeout=90s").ok();
}

/// The node's maximum overrides the defaults of the feature gate and of upstream, and limits the first back-off too.
#[e2e_test("crashLoopBackOff.maxContainerRestartPeriod limits the back-off")]
fn max_restart_period_limits_backoff() {
    for (gates, restarts, seconds) in [("", 2, 3), ("ReduceDefaultCrashLoopBackOffDecay=true", 4, 3)] {
        let longest = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": format!("{seconds}s")}});
        let cluster = ClusterBuilder::default().kubelet_config(longest).args(&["--feature-gates", gates]).start();
        let kubectl = cluster.kubectl_in("default");
        kubectl.apply(&pod("p", json!({"containers": [container("c", "exit 1")]})));
        let expected = format!("back-off {seconds}s restarting failed container=c");
        wait_for(&expected, Duration::from_secs(60), || {
            let status = kubectl.value("pod/p", "/status/containerStatuses/0");
            let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default();
            let so_far = status["restartCount"].as_i64() >= Some(restarts);
            if so_far && message.starts_with(&expected) { Ok(()) } else { Err(status.to_string()) }
        });
        kubectl.run("delete pod p --grace-period=1 --timeout=90s").ok();
    }
}
