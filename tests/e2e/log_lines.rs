//! Podium's own log lines: format, spans and levels.

use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, ClusterBuilder, PodBuilder, e2e_test, wait_for};

/// A webhook that nothing serves, for the creation of `resource`.
fn unreachable_webhook(resource: &str, policy: &str) -> Value {
    json!({"name": format!("{resource}.example.com"), "failurePolicy": policy, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "objectSelector": {"matchLabels": {"reviewed": "true"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]})
}

/// Splits Podium's output into log lines, which are JSON, and the lines for the user.
fn parse(log: &str) -> (Vec<Value>, Vec<&str>) {
    let (json, printed): (Vec<_>, Vec<_>) = log.lines().partition(|line| line.starts_with('{'));
    let parsed = json.into_iter().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    (parsed.collect(), printed)
}

/// Waits for a log line with this message, in a span with these fields.
fn wait_line(cluster: &Cluster, message: &str, span: &Value) -> Value {
    wait_for(&format!("the line {message:?} in {span}"), Duration::from_secs(60), || {
        let log = cluster.log();
        let (mut lines, _) = parse(log.rsplit_once('\n').map_or("", |(complete, _)| complete));
        lines.retain(|line| line["fields"]["message"] == message);
        let has_span = |line: &&Value| line["spans"].as_array().into_iter().flatten().any(|s| contains(s, span));
        lines.iter().find(has_span).cloned().ok_or(log)
    })
}

fn contains(span: &Value, fields: &Value) -> bool {
    fields.as_object().unwrap().iter().all(|(name, value)| span[name] == *value)
}

#[e2e_test("JSON log lines have the ids of their request, Pod and reconcile")]
fn json_log_lines_have_ids_of_request_pod_and_reconcile() {
    let cluster = ClusterBuilder::default().args(&["--log-format", "json"]).start();
    let kubectl = cluster.kubectl();
    let webhooks = [unreachable_webhook("configmaps", "Ignore"), unreachable_webhook("pods", "Fail")];
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "unreachable"},
        "kind": "ValidatingWebhookConfiguration", "webhooks": webhooks});
    kubectl.apply(&configuration.to_string());

    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "labels": {"reviewed": "true"}}});
    kubectl.apply(&map.to_string());
    let path = format!("/api/v1/namespaces/{}/configmaps", kubectl.namespace());
    let span = json!({"name": "request", "method": "POST", "path": path, "user": "kubernetes-admin"});
    let line = wait_line(&cluster, "failed to call webhook, failing open", &span);
    assert_eq!(line["level"], "WARN", "{line}");

    let labels = json!({"reviewed": "true"});
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "1"]});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "set"}, "spec": {"replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    kubectl.apply(&set.to_string());
    let key = format!("{}/set", kubectl.namespace());
    let span = json!({"name": "reconcile", "controller": "replicaset-controller", "key": key});
    wait_line(&cluster, "reconcile failed, requeueing", &span);

    let hook = json!({"postStart": {"exec": {"command": ["false"]}}});
    let pod = PodBuilder::new("p").command(&["sleep", "1"]).container(&json!({"lifecycle": hook}));
    kubectl.apply(&pod.to_string());
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let span = json!({"name": "pod_worker", "namespace": kubectl.namespace(), "pod": "p", "uid": uid});
    wait_line(&cluster, "lifecycle hook failed", &span);

    let log = cluster.log();
    let (_, printed) = parse(&log);
    let is_for_user = |line: &&str| ["API serves at ", "Node "].iter().any(|start| line.starts_with(start));
    assert!(printed.iter().all(|line| line.is_empty() || is_for_user(line)), "{printed:?}");
}

#[e2e_test("a cluster logs nothing at info while it starts and runs a Pod")]
fn info_of_a_calm_cluster_is_silent() {
    let cluster = ClusterBuilder::default().args(&["--log-format", "json"]).env("RUST_LOG", "info").start();
    let kubectl = cluster.kubectl();
    let pod = PodBuilder::new("p").restart_policy("Never").command(&["sleep", "1"]);
    let seen = cluster.log().len();
    kubectl.apply(&pod.to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    kubectl.run("delete pod p --timeout=60s").ok();
    let log = cluster.log();
    assert!(parse(&log[seen..]).0.is_empty(), "{}", &log[seen..]);
}
