//! The manifests in `examples/` behave as their comments say.

use serde_json::json;
use std::path::{Path, PathBuf};
use tests::{Cluster, Kubectl, e2e_test, eventually};

const TESTED: [&str; 6] = ["config.yaml", "graceful.yaml", "hello.yaml", "parts.yaml", "retry.yaml", "rollout.yaml"];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

#[e2e_test("every example has a test")]
fn every_example_has_a_test(_: &Cluster) {
    let mut files: Vec<String> =
        std::fs::read_dir(examples()).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    files.sort();
    assert_eq!(files, TESTED);
}

fn applied(cluster: &Cluster, file: &str) -> Kubectl {
    let kubectl = cluster.kubectl();
    kubectl.args(&["apply", "-f", examples().join(file).to_str().unwrap()], "").ok();
    kubectl
}

#[e2e_test("examples/hello.yaml prints a line and succeeds")]
fn hello_prints_and_succeeds(cluster: &Cluster) {
    let kubectl = applied(cluster, "hello.yaml");
    kubectl.wait_value("pod/hello", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs hello").ok(), "hello from hello\ngood bye\n");
}

#[e2e_test("examples/rollout.yaml rolls out behind its Service")]
fn rollout_rolls_out_behind_its_service(cluster: &Cluster) {
    let kubectl = applied(cluster, "rollout.yaml");
    let rolled_out = || kubectl.run("rollout status deployment/rollout --timeout=120s").ok();
    rolled_out();
    kubectl.run("set env deployment/rollout WORD=bye").ok();
    rolled_out();
    let says = |word: &str| {
        let list = kubectl.run("get endpointslices -l kubernetes.io/service-name=rollout -o json").ok();
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let endpoints = list["items"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        let name = |e: &serde_json::Value| e["targetRef"]["name"].as_str().unwrap_or("").to_owned();
        let output = |e: &serde_json::Value| kubectl.run(&format!("exec {} -- wget -qO- localhost:8080", name(e)));
        endpoints.len() == 2 && endpoints.iter().all(|e| output(e).stdout.trim() == word)
    };
    eventually("both Pods to print bye", || says("bye"));
    kubectl.run("rollout undo deployment/rollout").ok();
    rolled_out();
    eventually("both Pods to print hello", || says("hello"));
    kubectl.run("delete deployment,service rollout").ok();
}

#[e2e_test("examples/parts.yaml runs each of its containers")]
fn parts_runs_each_container(cluster: &Cluster) {
    let kubectl = applied(cluster, "parts.yaml");
    kubectl.run("wait --for=condition=Complete --timeout=120s job/parts").ok();
    assert_eq!(kubectl.value("job/parts", "/status/completedIndexes"), json!("0-3"));
    let logs = kubectl.run("logs -l job-name=parts").ok();
    let mut output: Vec<&str> = logs.lines().collect();
    output.sort_unstable();
    assert_eq!(output, ["part 0 of 4", "part 1 of 4", "part 2 of 4", "part 3 of 4"]);
}

#[e2e_test("examples/retry.yaml succeeds at the third attempt")]
fn retry_succeeds_at_third_attempt(cluster: &Cluster) {
    let kubectl = applied(cluster, "retry.yaml");
    kubectl.wait_value("pod/retry", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.value("pod/retry", "/status/containerStatuses/0/restartCount"), json!(2));
    assert_eq!(kubectl.run("logs retry").ok(), "try 3\n");
}

#[e2e_test("examples/graceful.yaml finishes its work before it ends")]
fn graceful_finishes_before_it_ends(cluster: &Cluster) {
    let kubectl = applied(cluster, "graceful.yaml");
    kubectl.wait_ready("graceful");
    let logs = kubectl.follow(&["logs", "--follow", "graceful"]);
    kubectl.run("delete pod graceful --grace-period=100 --timeout=90s").ok();
    assert_eq!(logs.until_end(), ["serving", "finishing", "done"]);
}

#[e2e_test("examples/config.yaml reads its ConfigMap")]
fn config_reads_its_config_map(cluster: &Cluster) {
    let kubectl = applied(cluster, "config.yaml");
    kubectl.wait_value("pod/config", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs config").ok(), "hello, the token has 6 letters\nhello from a file\n6\n");
}
