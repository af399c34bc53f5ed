//! Every manifest in `examples/` does what its comment says.

use crate::Shared;
use serde_json::json;
use std::path::{Path, PathBuf};
use tests::{Cluster, Kubectl};

pub(crate) const TESTS: &[Shared] = &[
    ("every example has a test", every_example_has_a_test),
    ("examples/hello.yaml says hello and ends", hello),
    ("examples/retry.yaml succeeds at the third try", retry),
    ("examples/graceful.yaml finishes before it ends", graceful),
    ("examples/config.yaml reads its configuration", config),
];

const TESTED: [&str; 4] = ["config.yaml", "graceful.yaml", "hello.yaml", "retry.yaml"];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

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

fn hello(cluster: &Cluster) {
    let kubectl = applied(cluster, "hello.yaml");
    kubectl.wait_value("pod/hello", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs hello").ok(), "hello from hello\ngood bye\n");
}

fn retry(cluster: &Cluster) {
    let kubectl = applied(cluster, "retry.yaml");
    kubectl.wait_value("pod/retry", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.value("pod/retry", "/status/containerStatuses/0/restartCount"), json!(2));
    assert_eq!(kubectl.run("logs retry").ok(), "try 3\n");
}

fn graceful(cluster: &Cluster) {
    let kubectl = applied(cluster, "graceful.yaml");
    kubectl.run("wait --for=condition=Ready --timeout=60s pod/graceful").ok();
    let mut command = kubectl.command(&["logs", "--follow", "graceful"]);
    let logs = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    kubectl.run("delete pod graceful --timeout=30s").ok();
    let said = logs.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&said), "serving\nfinishing\ndone\n");
}

fn config(cluster: &Cluster) {
    let kubectl = applied(cluster, "config.yaml");
    kubectl.wait_value("pod/config", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs config").ok(), "hello, the token has 6 letters\nhello from a file\n6\n");
}
