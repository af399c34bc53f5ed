//! `kubectl top` without metrics-server.

use nix::sys::signal::Signal;
use serde_json::json;
use std::time::Duration;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, wait_for};

/// Returns Pods: a container that uses its whole CPU limit beside an idle one, and a Pod that ends.
fn pods() -> String {
    let busy = PodBuilder::new("busy")
        .label("app", "busy")
        .grace_period(0)
        .container(&json!({"name": "burns"}))
        .script("while :; do :; done")
        .resources(&json!({"limits": {"cpu": "500m", "memory": "64Mi"}}))
        .add_container(json!({"name": "rests", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]}));
    let ended = PodBuilder::new("ended").restart_policy("Never").command(&["true"]);
    json!({"apiVersion": "v1", "kind": "List", "items": [busy.build(), ended.build()]}).to_string()
}

/// Splits each line into words.
fn lines(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Parses millicores.
#[track_caller]
fn millis(word: &str) -> u32 {
    word.strip_suffix('m').and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{word} is no CPU"))
}

#[track_caller]
fn mebibytes(word: &str) -> u32 {
    word.strip_suffix("Mi").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{word} is no memory"))
}

fn check_usage(kubectl: &Kubectl) {
    let text = wait_for("the Pod to use half a CPU", Duration::from_secs(60), || {
        let shown = kubectl.run("top pod busy --containers --no-headers");
        let text = shown.stdout.clone();
        let burns = lines(&text).iter().find(|l| l.get(1) == Some(&"burns")).map(|l| millis(l[2]));
        // A busy machine may give less CPU time than the limit, but never more.
        if burns.is_some_and(|m| (100..=600).contains(&m)) { Ok(text) } else { Err(format!("{shown:?}")) }
    });
    let all = lines(&text);
    let rests = all.iter().find(|l| l[1] == "rests").unwrap_or_else(|| panic!("{text}"));
    assert!(millis(rests[2]) < 50 && mebibytes(rests[3]) < 64, "{text}");
    let text = kubectl.run("top pod --no-headers --sort-by=cpu --sum -l app").ok();
    let all = lines(&text);
    assert_eq!((all[0][0], all.len()), ("busy", 3), "the Pod, a line and the sum, and nothing that has ended: {text}");
    assert!(millis(all[0][1]) >= 100, "{text}");
    assert_eq!(lines(&kubectl.run("top pod --no-headers").ok()).len(), 1);
    assert!(kubectl.run("top pod -A").ok().contains("busy"));
    let text = kubectl.run("top node --no-headers").ok();
    let all = lines(&text);
    // NAME CPU CPU(%) MEMORY MEMORY(%)
    assert!(all.len() == 1 && millis(all[0][1]) >= 100 && mebibytes(all[0][3]) > 0, "{text}");
    let message = kubectl.run("get --raw /apis/metrics.k8s.io/v1beta1/namespaces/default/pods/ended").failed();
    assert!(message.contains("podmetrics.metrics.k8s.io \"default/ended\" not found"), "{message}");
}

#[e2e_test("kubectl top shows resource usage, after a restart too")]
fn top_shows_resource_usage() {
    check_usage_through_restart(Cluster::start(&[]));
}

pub(crate) fn check_usage_through_restart(mut cluster: Cluster) {
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&pods());
    kubectl.wait_value("pod/ended", "/status/phase", &json!("Succeeded"));
    kubectl.wait_ready("busy");
    check_usage(&kubectl);
    let shown = kubectl.run("get pods.metrics.k8s.io").ok();
    assert_eq!(lines(&shown)[0], ["NAME", "CPU", "MEMORY", "WINDOW"], "{shown}");
    let services = kubectl.run("get apiservices v1beta1.metrics.k8s.io --no-headers").ok();
    assert_eq!(lines(&services)[0][1..3], ["Local", "True"], "{services}");
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    check_usage(&kubectl);
    // A namespace is deleted although its PodMetrics cannot be deleted.
    kubectl.run("create namespace short").ok();
    kubectl.run("delete namespace short --timeout=60s").ok();
}
