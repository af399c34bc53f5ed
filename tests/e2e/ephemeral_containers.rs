//! Ephemeral containers and `kubectl debug`.

use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    process::Stdio,
};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

fn run(kubectl: &Kubectl) {
    let pod = PodBuilder::new("p").grace_period(1).command(&["sleep", "54321"]);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
}

fn state(kubectl: &Kubectl, field: &str) -> Value {
    kubectl.value("pod/p", &format!("/status/ephemeralContainerStatuses/0/state/{field}"))
}

#[e2e_test("an ephemeral container shares its target's processes and never restarts")]
fn ephemeral_container_shares_target_processes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl);
    let image = format!("--image={}", test_images::BUSYBOX);
    let script = "ps; test -e /proc/1/root; exit 3";
    kubectl.args(&["debug", "p", &image, "--target=c", "--container=d", "--", "sh", "-c", script], "").ok();
    eventually("the debugger to end", || state(&kubectl, "terminated/exitCode") == json!(3));
    let seen = kubectl.run("logs p -c d").ok();
    assert!(seen.contains("sleep 54321"), "{seen}");
    let status = kubectl.value("pod/p", "/status");
    assert_eq!((&status["phase"], &status["containerStatuses"][0]["restartCount"]), (&json!("Running"), &json!(0)));
    let described = kubectl.run("describe pod p").ok();
    assert!(described.contains("Ephemeral Containers:"), "{described}");
    let error = kubectl
        .args(
            &[
                "patch",
                "pod",
                "p",
                "--subresource=ephemeralcontainers",
                "--type=merge",
                "-p",
                r#"{"spec":{"ephemeralContainers":[]}}"#,
            ],
            "",
        )
        .failed();
    assert!(error.contains("existing ephemeral containers \"d\" may not be removed"), "{error}");
    assert_eq!(state(&kubectl, "terminated/exitCode"), json!(3));
}

#[e2e_test("an ephemeral container supports attach and logs")]
fn ephemeral_container_supports_attach_and_logs(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl);
    let image = format!("--image={}", test_images::BUSYBOX);
    // containerd accepts input before it reads output, on a busy machine long before.
    let script = "read x; for i in $(seq 50); do echo got $x; sleep 0.1; done";
    let mut client = kubectl.command(&["debug", "-i", "p", &image, "--container=d", "--", "sh", "-c", script]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The input must stay open: without `stdinOnce` its end detaches the client.
    let mut input = client.stdin.take().unwrap();
    input.write_all(b"word\n").unwrap();
    let mut reported = String::new();
    client.stdout.take().unwrap().read_to_string(&mut reported).unwrap();
    assert!(reported.contains("got word"), "{reported}");
    drop(input);
    client.wait().unwrap();
    eventually("the debugger to end", || state(&kubectl, "terminated/reason") == json!("Completed"));
    kubectl.args(&["debug", "p", &image, "--container=e", "--", "sleep", "10000"], "").ok();
    eventually("exec to work", || kubectl.args(&["exec", "p", "-c", "e", "--", "hostname"], "").stdout == "p\n");
    kubectl.run("delete pod p --wait --timeout=90s").ok();
}

#[e2e_test("kubectl debug --copy-to copies a Pod")]
fn kubectl_debug_copies_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl);
    let image = format!("--image={}", test_images::BUSYBOX);
    let arguments = [
        "debug",
        "p",
        "--copy-to=copy",
        &image,
        "--share-processes",
        "--container=d",
        "--",
        "sh",
        "-c",
        "until ps | grep -q 'sleep 5432[1]'; do sleep 0.1; done; ps; sleep 1000",
    ];
    kubectl.args(&arguments, "").ok();
    kubectl.wait_ready("copy");
    eventually("the copy's processes to be seen", || {
        kubectl.run("logs copy -c d").is_ok_and(|output| output.contains("sleep 54321"))
    });
    assert_eq!(kubectl.value("pod/copy", "/spec/shareProcessNamespace"), json!(true));
}

#[e2e_test("an ephemeral container may be privileged in a Pod that is not")]
fn ephemeral_container_may_be_privileged(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    run(&kubectl);
    let image = format!("--image={}", test_images::BUSYBOX);
    let script = "grep CapEff /proc/self/status";
    let args = ["debug", "p", &image, "--profile=sysadmin", "--container=d", "--", "sh", "-c", script];
    kubectl.args(&args, "").ok();
    eventually("the debugger to end", || state(&kubectl, "terminated/exitCode") == json!(0));
    // The same capabilities as this process.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("CapEff")).unwrap();
    assert_eq!(kubectl.run("logs p -c d").ok().trim(), own);
}

#[e2e_test("kubectl debug node mounts the node's files and uses its namespaces")]
fn kubectl_debug_opens_node(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let node = kubectl.run("get nodes -o name").ok();
    let image = format!("--image={}", test_images::BUSYBOX);
    let mark = cluster.data_dir().join("mark");
    std::fs::write(&mark, "of the node").unwrap();
    let script = format!("cat /host{}; for kind in pid ipc net; do readlink /proc/self/ns/$kind; done", mark.display());
    kubectl.args(&["debug", node.trim(), &image, "--", "sh", "-c", &script], "").ok();
    let name = kubectl.run("get pods -o name").ok();
    kubectl.wait_value(name.trim(), "/status/phase", &json!("Succeeded"));
    let reported = kubectl.run(&format!("logs {}", name.trim())).ok();
    let own = |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string();
    for expected in ["of the node".to_owned(), own("pid"), own("ipc"), own("net")] {
        assert!(reported.contains(&expected), "{expected}: {reported}");
    }
}
