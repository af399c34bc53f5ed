//! Probes: each handler, each kind of probe, and their Events.

use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually, wait_for};

/// Returns a script that runs `setup` and serves `/www` on 8080.
fn serve(setup: &str) -> String {
    format!(
        "mkdir -p /www; echo ok > /www/index.html; {setup} httpd -p 8080 -h /www; trap 'exit 0' TERM; sleep 100000 & wait"
    )
}

/// Returns a Pod with a port `web` and these fields of its container.
fn pod(name: &str, script: &str, fields: &Value) -> PodBuilder {
    let ports = json!({"ports": [{"name": "web", "containerPort": 8080}]});
    PodBuilder::new(name).grace_period(2).script(script).container(&ports).container(fields)
}

fn apply(kubectl: &Kubectl, name: &str, script: &str, fields: &Value) {
    kubectl.apply(&pod(name, script, fields).to_string());
}

/// Returns a probe that fails at once when the file does not exist, but not when the machine is slow.
fn file(path: &str) -> Value {
    json!({"exec": {"command": ["cat", path]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 30})
}

fn container(kubectl: &Kubectl, pod: &str) -> Value {
    kubectl.value(&format!("pod/{pod}"), "/status/containerStatuses/0")
}

#[e2e_test("a container is ready when its readiness probe passes")]
fn readiness_probe_success_makes_ready(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let handlers = [
        ("exec", json!({"exec": {"command": ["test", "-f", "/www/$(PAGE)"]}})),
        ("http", json!({"httpGet": {"path": "/", "port": "web"}})),
        ("tcp", json!({"tcpSocket": {"port": 8080}})),
    ];
    for (name, handler) in &handlers {
        let env = json!([{"name": "PAGE", "value": "index.html"}]);
        apply(&kubectl, name, &serve(""), &json!({"readinessProbe": handler, "env": env}));
    }
    for (name, _) in &handlers {
        kubectl.wait_ready(name);
    }
}

#[e2e_test("a failed readiness probe reports its reason and restarts nothing")]
fn readiness_failure_is_reported_without_restart(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let cases = [
        ("exec", json!({"exec": {"command": ["cat", "/none"]}}), "cat: can't open '/none': No such file or directory"),
        ("late", json!({"exec": {"command": ["sleep", "30"]}}), "command \"sleep 30\" timed out"),
        ("http", json!({"httpGet": {"path": "/none", "port": "web"}}), "HTTP probe failed with statuscode: 404"),
        ("gone", json!({"httpGet": {"port": 9}}), "Get \"http://IP:9/\": dial tcp IP:9: connect: connection refused"),
        ("tcp", json!({"tcpSocket": {"port": 9}}), "dial tcp IP:9: connect: connection refused"),
        (
            "grpc",
            json!({"grpc": {"port": 9}}),
            "timeout: failed to connect service \"IP:9\" within 1s: context deadline exceeded",
        ),
    ];
    for (name, handler, _) in &cases {
        let mut probe = handler.clone();
        probe["periodSeconds"] = json!(1);
        apply(&kubectl, name, &serve(""), &json!({"readinessProbe": probe}));
    }
    for (name, _, words) in &cases {
        kubectl.wait_value(&format!("pod/{name}"), "/status/phase", &json!("Running"));
        let ip = kubectl.value(&format!("pod/{name}"), "/status/podIP");
        let words = words.replace("IP", ip.as_str().unwrap());
        kubectl.wait_for_event(name, "Unhealthy", &format!("Readiness probe failed: {words}"));
        let seen = container(&kubectl, name);
        assert_eq!((&seen["ready"], &seen["restartCount"]), (&json!(false), &json!(0)), "{name}");
    }
}

#[e2e_test("readiness follows the results of the probe")]
fn readiness_follows_probe_results(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let probe = file("/tmp/ready");
    apply(&kubectl, "p", &serve(""), &json!({"readinessProbe": probe}));
    kubectl.wait_value("pod/p", "/status/phase", &json!("Running"));
    assert_eq!(container(&kubectl, "p")["ready"], false);
    for (command, ready) in [("touch", "True"), ("rm", "False"), ("touch", "True")] {
        kubectl.run(&format!("exec p -- {command} /tmp/ready")).ok();
        kubectl.run(&format!("wait --for=condition=Ready={ready} --timeout=60s pod/p")).ok();
    }
    assert_eq!(container(&kubectl, "p")["restartCount"], 0);
}

#[e2e_test("liveness failure restarts the container after the threshold")]
fn liveness_failure_restarts_container_after_threshold(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let probe = json!({"httpGet": {"path": "/alive", "port": "web"}, "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 30});
    apply(&kubectl, "p", &serve("touch /www/alive;"), &json!({"livenessProbe": probe}));
    kubectl.wait_ready("p");
    kubectl.run("exec p -- rm /www/alive").ok();
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(1));
    kubectl.wait_for_event("p", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 404");
    kubectl.wait_for_event("p", "Killing", "Container c failed liveness probe, will be restarted");
    kubectl.wait_ready("p");
}

/// Under OnFailure an exit with 0 is not followed by a restart, except after a liveness failure.
#[e2e_test("a container killed by its liveness probe restarts despite exit code 0")]
fn liveness_kill_restarts_despite_exit_code_0(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let probe = json!({"exec": {"command": ["test", "!", "-e", "/tmp/broken"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 30});
    let script = "trap 'exit 0' TERM; echo up; sleep 100000 & wait";
    let pod =
        PodBuilder::new("p").restart_policy("OnFailure").script(script).container(&json!({"livenessProbe": probe}));
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    eventually("the trap to be set", || kubectl.run("logs p").is_ok_and(|output| output == "up\n"));
    kubectl.run("exec p -- touch /tmp/broken").ok();
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(1));
    kubectl.wait_ready("p");
    let status = kubectl.value("pod/p", "/status/containerStatuses/0");
    assert_eq!(status["lastState"]["terminated"]["reason"], "Completed", "{status}");
    assert!(status["state"]["running"].is_object(), "{status}");
}

#[e2e_test("other probes wait until the startup probe has succeeded")]
fn startup_probe_delays_other_probes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mut startup = file("/tmp/started");
    startup["failureThreshold"] = json!(300);
    // The liveness probe would fail at once and kill the container, so it must not run yet.
    let fields =
        json!({"startupProbe": startup, "livenessProbe": file("/tmp/alive"), "readinessProbe": file("/tmp/alive")});
    apply(&kubectl, "p", &serve(""), &fields);
    kubectl.wait_for_event("p", "Unhealthy", "Startup probe failed: cat: can't open '/tmp/started'");
    let seen = container(&kubectl, "p");
    assert_eq!((&seen["started"], &seen["ready"], &seen["restartCount"]), (&json!(false), &json!(false), &json!(0)));
    kubectl.args(&["exec", "p", "--", "sh", "-c", "touch /tmp/alive /tmp/started"], "").ok();
    kubectl.wait_ready("p");
    let seen = container(&kubectl, "p");
    assert_eq!((&seen["started"], &seen["restartCount"]), (&json!(true), &json!(0)));
    let events = kubectl.events("p");
    assert!(events.iter().all(|(_, message)| !message.contains("Liveness")), "{events:?}");
}

#[e2e_test("startup probe failure restarts the container")]
fn startup_failure_restarts_container(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let probe = json!({"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 2});
    apply(&kubectl, "p", &serve(""), &json!({"startupProbe": probe}));
    kubectl.wait_for_event("p", "Killing", "Container c failed startup probe, will be restarted");
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(1));
}

#[e2e_test("terminationGracePeriodSeconds of a probe overrides that of the Pod")]
fn probe_grace_period_overrides_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mut probe = json!({"exec": {"command": ["test", "!", "-e", "/tmp/broken"]}, "periodSeconds": 1,
        "failureThreshold": 1, "timeoutSeconds": 30});
    probe["terminationGracePeriodSeconds"] = json!(1);
    let script = "trap '' TERM; while :; do sleep 1; done";
    let pod = pod("p", script, &json!({"livenessProbe": probe})).grace_period(300);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    kubectl.run("exec p -- touch /tmp/broken").ok();
    // The grace period of the Pod exceeds this timeout.
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(1));
    assert_eq!(container(&kubectl, "p")["lastState"]["terminated"]["exitCode"], 137);
    kubectl.run("delete pod p --grace-period=0 --force").ok();
}

#[e2e_test("a redirect to another host is a success with a warning")]
fn redirect_to_another_host_is_a_warning(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let answer = "HTTP/1.1 302 Found\\r\\nLocation: http://example.com/\\r\\nContent-Length: 5\\r\\n\\r\\nmoved";
    let script = format!("while :; do printf '{answer}' | nc -l -p 8080; done");
    let probe = json!({"httpGet": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 60});
    apply(&kubectl, "p", &script, &json!({"livenessProbe": probe}));
    kubectl.wait_for_event(
        "p",
        "ProbeWarning",
        "Liveness probe warning: Probe terminated redirects, Response body: moved",
    );
    assert_eq!(container(&kubectl, "p")["restartCount"], 0);
}

#[e2e_test("a sidecar supports all three probes, and its readiness counts")]
fn sidecar_probes_count_for_readiness(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mut startup = file("/tmp/started");
    startup["failureThreshold"] = json!(300);
    let mut sidecar = tests::container("s", &serve(""));
    sidecar["restartPolicy"] = json!("Always");
    sidecar["startupProbe"] = startup;
    sidecar["readinessProbe"] = file("/tmp/ready");
    // Each failure is an Event, of which a Pod has 25 at once: the last one must not be dropped.
    for probe in ["startupProbe", "readinessProbe"] {
        sidecar[probe]["periodSeconds"] = json!(4);
    }
    sidecar["livenessProbe"] = file("/tmp/alive");
    let pod = PodBuilder::new("p").grace_period(2).script(&serve("")).init_container(sidecar);
    kubectl.apply(&pod.to_string());
    kubectl.wait_for_event("p", "Unhealthy", "Startup probe failed");
    let status = kubectl.value("pod/p", "/status");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing", "{status}");
    kubectl.args(&["exec", "p", "-c", "s", "--", "sh", "-c", "touch /tmp/alive /tmp/started"], "").ok();
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/ready", &json!(true));
    let row = kubectl.run("get pod p --no-headers").ok();
    assert_eq!(row.split_whitespace().skip(1).take(2).collect::<Vec<_>>(), ["1/2", "Running"], "{row}");
    kubectl.run("exec p -c s -- touch /tmp/ready").ok();
    kubectl.wait_ready("p");
    kubectl.run("exec p -c s -- rm /tmp/alive").ok();
    kubectl.wait_value("pod/p", "/status/initContainerStatuses/0/restartCount", &json!(1));
    kubectl.wait_for_event("p", "Killing", "Init container s failed liveness probe");
    assert_eq!(container(&kubectl, "p")["restartCount"], 0);
}

#[e2e_test("readiness probes continue while a Pod terminates")]
fn readiness_probes_continue_during_termination(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let probe = file("/tmp/ready");
    let script = "trap '' TERM; touch /tmp/ready; while :; do sleep 1; done";
    let pod = pod("p", script, &json!({"readinessProbe": probe})).grace_period(600);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    kubectl.run("delete pod p --wait=false").ok();
    for (command, ready) in [("rm", "False"), ("touch", "True")] {
        kubectl.run(&format!("exec p -- {command} /tmp/ready")).ok();
        kubectl.run(&format!("wait --for=condition=Ready={ready} --timeout=60s pod/p")).ok();
    }
    let row = kubectl.run("get pod p --no-headers").ok();
    assert_eq!(row.split_whitespace().skip(1).take(2).collect::<Vec<_>>(), ["1/1", "Terminating"], "{row}");
    kubectl.run("delete pod p --grace-period=0 --force").ok();
}

#[e2e_test("a timed-out exec probe ends with all its child processes")]
fn exec_probe_timeout_kills_process_tree(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // A child, a daemonized child, and one in another session.
    let script = "sleep 4711 & (sleep 4712 &) & setsid sleep 4713 & sleep 4714; true";
    let probe = json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 600, "failureThreshold": 10});
    apply(&kubectl, "p", &serve("sleep 4710 &"), &json!({"readinessProbe": probe}));
    kubectl.wait_for_event("p", "Unhealthy", "timed out");
    let left = || kubectl.args(&["exec", "p", "--", "sh", "-c", "ps -o args | grep '^sleep 47' | sort"], "").ok();
    wait_for("all child processes to end, and no others", Duration::from_secs(60), || {
        let left = left();
        if left == "sleep 4710\n" { Ok(()) } else { Err(left) }
    });
}
