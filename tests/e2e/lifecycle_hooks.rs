//! Container lifecycle hooks.

use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, wait_for};

/// Script of a container that logs its start and stop in `/out/log`, and exits at SIGTERM.
const LOGGING_SCRIPT: &str =
    "trap 'echo stopped >> /out/log; exit 0' TERM; echo started >> /out/log; sleep 100000 & wait";

/// Applies a Pod of one container with these hooks, a hostPath volume `/out`, and these fields of the spec.
fn apply(kubectl: &Kubectl, out: &Path, script: &str, hooks: &Value, spec: &Value) {
    let pod = PodBuilder::new("p")
        .grace_period(300)
        .script(script)
        .volume("out", &json!({"hostPath": {"path": out}}))
        .mount("out", "/out")
        .container(&json!({"lifecycle": hooks}))
        .spec(spec);
    kubectl.apply(&pod.to_string());
}

fn log(out: &Path) -> String {
    fs::read_to_string(out.join("log")).unwrap_or_default()
}

fn sh(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

/// Waits until the container of [`LOGGING_SCRIPT`] has set its trap.
fn wait_for_start(out: &Path) {
    wait_for("the container to start", Duration::from_secs(60), || {
        if log(out).is_empty() { Err("it has said nothing".to_owned()) } else { Ok(()) }
    });
}

/// Deletes the Pod and returns the duration.
fn delete(kubectl: &Kubectl, flags: &str) -> Duration {
    let began = Instant::now();
    kubectl.run(&format!("delete pod p --timeout=60s {flags}")).ok();
    began.elapsed()
}

#[e2e_test("a container is Running only after its postStart hook")]
fn container_runs_after_post_start_hook(cluster: &Cluster) {
    for (hook, output) in
        [(sh("sleep 4; echo hook >> /out/log"), "started\nhook\n"), (json!({"sleep": {"seconds": 4}}), "started\n")]
    {
        let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
        apply(&kubectl, out.path(), LOGGING_SCRIPT, &json!({"postStart": hook}), &json!({}));
        wait_for_start(out.path());
        let began = Instant::now();
        kubectl.wait_ready("p");
        assert!(began.elapsed() > Duration::from_secs(1), "{hook}: {:?}", began.elapsed());
        assert_eq!(log(out.path()), output, "{hook}");
    }
}

#[e2e_test("a failed postStart hook kills its container")]
fn failed_post_start_kills_container(cluster: &Cluster) {
    let late = sh("until [ -s /out/log ]; do sleep 0.1; done; exit 3");
    for hook in [&late, &json!({"httpGet": {"port": 9}}), &json!({"tcpSocket": {"port": 9}})] {
        let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
        // The other hooks fail before the container can have set its trap: it may ignore the stop signal.
        let grace = json!({"terminationGracePeriodSeconds": if *hook == late { 300 } else { 1 }});
        apply(&kubectl, out.path(), LOGGING_SCRIPT, &json!({"postStart": hook}), &grace);
        kubectl.wait_for_event("p", "FailedPostStartHook", "PostStartHook failed");
        wait_for("a restart", Duration::from_secs(60), || {
            let count = kubectl.value("pod/p", "/status/containerStatuses/0/restartCount");
            if count.as_i64() >= Some(1) { Ok(()) } else { Err(count.to_string()) }
        });
        if *hook == late {
            assert!(log(out.path()).starts_with("started\nstopped\n"), "{hook}: {}", log(out.path()));
        }
    }
}

#[e2e_test("a preStop hook runs before the stop signal")]
fn pre_stop_runs_before_stop_signal(cluster: &Cluster) {
    for (hook, output) in [
        (sh("sleep 2; echo hook >> /out/log"), "started\nhook\nstopped\n"),
        (json!({"sleep": {"seconds": 2}}), "started\nstopped\n"),
    ] {
        let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
        apply(&kubectl, out.path(), LOGGING_SCRIPT, &json!({"preStop": hook}), &json!({}));
        kubectl.wait_ready("p");
        wait_for_start(out.path());
        let took = delete(&kubectl, "");
        assert!(took >= Duration::from_secs(2), "{hook}: {took:?}");
        assert_eq!(log(out.path()), output, "{hook}");
    }
}

#[e2e_test("a failed preStop hook does not block termination")]
fn failed_pre_stop_does_not_block_termination(cluster: &Cluster) {
    let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
    apply(&kubectl, out.path(), LOGGING_SCRIPT, &json!({"preStop": sh("exit 3")}), &json!({}));
    kubectl.wait_ready("p");
    wait_for_start(out.path());
    // The grace period exceeds the timeout of this.
    delete(&kubectl, "");
    kubectl.wait_for_event("p", "FailedPreStopHook", "PreStopHook failed");
    assert_eq!(log(out.path()), "started\nstopped\n");
}

#[e2e_test("a preStop hook ends with the grace period")]
fn pre_stop_ends_with_grace_period(cluster: &Cluster) {
    for hook in [sh("sleep 1000"), json!({"sleep": {"seconds": 3}})] {
        let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
        let spec = json!({"terminationGracePeriodSeconds": 3});
        apply(&kubectl, out.path(), LOGGING_SCRIPT, &json!({"preStop": hook}), &spec);
        kubectl.wait_ready("p");
        wait_for_start(out.path());
        let took = delete(&kubectl, "");
        assert!(took >= Duration::from_secs(3), "{hook}: {took:?}");
        // It still gets the stop signal and two seconds of grace.
        assert_eq!(log(out.path()), "started\nstopped\n", "{hook}");
    }
}

#[e2e_test("a shortened grace period ends a preStop hook")]
fn shortened_grace_period_ends_pre_stop(cluster: &Cluster) {
    let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
    let hook = sh("echo hook >> /out/log; sleep 1000");
    apply(
        &kubectl,
        out.path(),
        LOGGING_SCRIPT,
        &json!({"preStop": hook}),
        &json!({"terminationGracePeriodSeconds": 600}),
    );
    kubectl.wait_ready("p");
    kubectl.run("delete pod p --wait=false").ok();
    wait_for("the hook to run", Duration::from_secs(60), || {
        if log(out.path()).contains("hook") { Ok(()) } else { Err(log(out.path())) }
    });
    // The first grace period exceeds the timeout of this.
    delete(&kubectl, "--grace-period=1");
    assert!(kubectl.get("pod/p").is_none());
}

#[e2e_test("a preStop hook does not run when the container exits by itself")]
fn pre_stop_does_not_run_on_exit(cluster: &Cluster) {
    let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
    let hooks = json!({"preStop": sh("echo hook >> /out/log")});
    apply(&kubectl, out.path(), "echo started >> /out/log", &hooks, &json!({"restartPolicy": "Never"}));
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    delete(&kubectl, "");
    assert_eq!(log(out.path()), "started\n");
}

#[e2e_test("a preStop hook may be an HTTP request to the container")]
fn pre_stop_may_be_http_request(cluster: &Cluster) {
    let (kubectl, out) = (cluster.kubectl(), tempfile::tempdir().unwrap());
    let script = format!(
        "mkdir -p /www/cgi-bin; echo '#!/bin/sh' > /www/cgi-bin/bye; echo 'echo asked >> /out/log; printf \"\\n\"' >> /www/cgi-bin/bye; \
         chmod +x /www/cgi-bin/bye; httpd -p 8080 -h /www; {LOGGING_SCRIPT}"
    );
    let hook = json!({"httpGet": {"path": "/cgi-bin/bye", "port": 8080}});
    apply(&kubectl, out.path(), &script, &json!({"preStop": hook}), &json!({}));
    wait_for_start(out.path());
    delete(&kubectl, "");
    assert_eq!(log(out.path()), "started\nasked\nstopped\n");
}
