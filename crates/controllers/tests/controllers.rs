//! Tests of the controllers against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::Options;
use fake_api::FakeApi;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn start() -> FakeApi {
    let api = FakeApi::new();
    let options = Options { root_ca_pem: Some("PEM".into()), terminated_pod_gc_threshold: 2, ..Options::default() };
    tokio::spawn(controllers::run(api.client(), options, CancellationToken::new()));
    api
}

fn namespace(api: &FakeApi, name: &str) {
    let namespace = json!({
        "metadata": { "name": name },
        "spec": { "finalizers": ["kubernetes"] },
        "status": { "phase": "Active" },
    });
    api.put(&format!("api/v1/namespaces/{name}"), namespace);
}

fn node(api: &FakeApi, name: &str, change: &Value) {
    let mut node = json!({ "metadata": { "name": name }, "spec": {}, "status": {} });
    for (key, value) in change.as_object().expect("an object") {
        node[key] = value.clone();
    }
    api.put(&format!("api/v1/nodes/{name}"), node);
}

fn ready(status: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } })
}

fn pod(api: &FakeApi, name: &str, change: impl FnOnce(&mut Value)) {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "x" },
        "spec": { "containers": [], "tolerations": [{ "operator": "Exists" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    change(&mut pod);
    api.put(&pod_path(name), pod);
}

fn pod_path(name: &str) -> String {
    format!("api/v1/namespaces/x/pods/{name}")
}

fn taints(api: &FakeApi, name: &str) -> Vec<String> {
    let node = api.get(&format!("api/v1/nodes/{name}")).expect("a node");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |t: &Value| format!("{}:{}", t["key"].as_str().unwrap_or(""), t["effect"].as_str().unwrap_or(""));
    taints.iter().map(text).collect()
}

fn condition(object: &Value, name: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == name).unwrap_or(Value::Null)
}

const ACCOUNT: &str = "api/v1/namespaces/x/serviceaccounts/default";
const CA: &str = "api/v1/namespaces/x/configmaps/kube-root-ca.crt";

#[tokio::test(start_paused = true)]
async fn namespace_keeps_default_service_account_and_root_ca() {
    let api = start();
    let began = Instant::now();
    namespace(&api, "x");
    api.wait_until("both are made", |api| api.get(ACCOUNT).is_some() && api.get(CA).is_some()).await;
    assert!(began.elapsed() < Duration::from_millis(10), "they are made at once");
    assert_eq!(api.get(CA).expect("made")["data"], json!({ "ca.crt": "PEM" }));

    api.delete(ACCOUNT);
    api.wait_until("it is made again", |api| api.get(ACCOUNT).is_some()).await;
    api.put(CA, json!({ "metadata": { "name": "kube-root-ca.crt", "namespace": "x" }, "data": { "ca.crt": "?" } }));
    api.wait_until("it is put right", |api| api.get(CA).is_some_and(|ca| ca["data"]["ca.crt"] == "PEM")).await;
}

#[tokio::test(start_paused = true)]
async fn rejected_creation_is_retried() {
    let api = start();
    api.refuse_next("POST api/v1/namespaces/x/serviceaccounts", 500);
    namespace(&api, "x");
    api.wait_until("it is made", |api| api.get(ACCOUNT).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn namespace_deletion_deletes_pods_before_other_content() {
    let api = start();
    namespace(&api, "x");
    api.wait_until("the account is made", |api| api.get(ACCOUNT).is_some() && api.get(CA).is_some()).await;
    node(&api, "n", &ready("True"));
    pod(&api, "p", |pod| {
        pod["spec"]["nodeName"] = "n".into();
        pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    api.put(
        "apis/coordination.k8s.io/v1/namespaces/x/leases/l",
        json!({ "metadata": { "name": "l", "namespace": "x" } }),
    );
    api.put("api/v1/namespaces/y/configmaps/c", json!({ "metadata": { "name": "c", "namespace": "y" } }));

    api.delete("api/v1/namespaces/x");
    api.wait_until("the Pod terminates", |api| {
        api.get(&pod_path("p")).is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(api.get(CA).is_some(), "a Pod that shuts down may need its configuration");
    let namespace = api.get("api/v1/namespaces/x").expect("it waits");
    let message = |name: &str| condition(&namespace, name)["message"].clone();
    assert_eq!(message("NamespaceContentRemaining"), "Some resources are remaining: pods. has 1 resource instances");
    assert_eq!(
        message("NamespaceFinalizersRemaining"),
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );

    api.remove(&pod_path("p"));
    api.wait_until("the namespace is gone", |api| api.get("api/v1/namespaces/x").is_none()).await;
    let left = |path: &str| api.list(path).len();
    assert_eq!(left("api/v1/namespaces/x/configmaps") + left("api/v1/namespaces/x/serviceaccounts"), 0);
    assert_eq!(left("apis/coordination.k8s.io/v1/namespaces/x/leases"), 0);
    assert_eq!(left("api/v1/namespaces/y/configmaps"), 1, "what is elsewhere stays");
}

#[tokio::test(start_paused = true)]
async fn undeletable_content_is_reported_and_blocks_nothing_else() {
    let api = start();
    namespace(&api, "x");
    api.wait_until("the account is made", |api| api.get(ACCOUNT).is_some() && api.get(CA).is_some()).await;
    (0..20).for_each(|_| api.refuse_next("DELETE api/v1/namespaces/x/configmaps", 403));
    api.delete("api/v1/namespaces/x");
    let failure = |api: &FakeApi| {
        api.get("api/v1/namespaces/x").map(|x| condition(&x, "NamespaceDeletionContentFailure")["reason"].clone())
    };
    api.wait_until("the condition is reported", |api| failure(api) == Some("ContentDeletionFailed".into())).await;
    assert!(api.get(ACCOUNT).is_none(), "the others went");
    api.wait_until("the namespace is gone", |api| api.get("api/v1/namespaces/x").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn unscheduled_terminating_pod_is_deleted_at_once() {
    let api = start();
    let began = Instant::now();
    pod(&api, "p", |pod| {
        pod["status"] = json!({ "phase": "Pending" });
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    api.wait_until("it is gone", |api| api.get(&pod_path("p")).is_none()).await;
    assert_eq!(api.removed(&pod_path("p")).expect("it was there")["status"]["phase"], "Failed");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn oldest_terminated_pods_beyond_threshold_are_deleted() {
    let api = start();
    for (name, day, reason) in [("a", 2, ""), ("b", 1, ""), ("c", 3, "Evicted"), ("d", 4, "")] {
        pod(&api, name, |pod| {
            pod["status"] = json!({ "phase": "Failed", "reason": reason });
            pod["metadata"]["creationTimestamp"] = format!("2026-01-0{day}T00:00:00Z").into();
        });
    }
    api.wait_until("two are left", |api| api.list("api/v1/pods").len() == 2).await;
    assert!(["a", "d"].iter().all(|name| api.get(&pod_path(name)).is_some()), "the evicted and the oldest went");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_fail_after_40_seconds() {
    let api = start();
    node(&api, "n", &ready("True"));
    pod(&api, "p", |pod| pod["spec"]["nodeName"] = "n".into());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    api.remove("api/v1/nodes/n");
    api.wait_until("it is gone", |api| api.get(&pod_path("p")).is_none()).await;
    let waited = began.elapsed();
    assert!((40..42).contains(&waited.as_secs()), "{waited:?}");
    let last = api.removed(&pod_path("p")).expect("it was there");
    assert_eq!(last["status"]["phase"], "Failed");
    let target = condition(&last, "DisruptionTarget");
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("DeletionByPodGC")));
    assert_eq!(target["message"], "PodGC: node no longer exists");
}

#[tokio::test(start_paused = true)]
async fn terminating_pods_on_out_of_service_node_are_deleted() {
    let api = start();
    let taints = json!({"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]});
    // The out-of-service taint has no effect on a ready node, and NotReady has none without the taint.
    let nodes = [("out", "False", &taints), ("ready", "True", &taints), ("silent", "False", &json!({}))];
    for (name, is_ready, spec) in nodes {
        let mut change = ready(is_ready);
        change["spec"] = spec.clone();
        node(&api, name, &change);
        for (state, ends) in [("ends", true), ("stays", false)] {
            pod(&api, &format!("{name}-{state}"), |pod| {
                pod["spec"]["nodeName"] = name.into();
                if ends {
                    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                }
            });
        }
    }
    api.wait_until("it is gone", |api| api.get(&pod_path("out-ends")).is_none()).await;
    assert_eq!(api.removed(&pod_path("out-ends")).expect("it was there")["status"]["phase"], "Failed");
    tokio::time::sleep(Duration::from_secs(40)).await;
    for name in ["out-stays", "ready-ends", "ready-stays", "silent-ends", "silent-stays"] {
        assert!(api.get(&pod_path(name)).is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_taints_are_reconciled_from_registration() {
    let api = start();
    // Without a ready node no Pod is evicted.
    node(&api, "other", &ready("True"));
    node(&api, "n", &json!({}));
    let not_ready = "node.kubernetes.io/not-ready:NoSchedule";
    api.wait_until("it is tainted", |api| taints(api, "n") == [not_ready]).await;
    node(&api, "n", &ready("True"));
    api.wait_until("it is not", |api| taints(api, "n").is_empty()).await;
    node(&api, "n", &ready("False"));
    api.wait_until("it is again", |api| taints(api, "n").len() == 2).await;
    node(&api, "other", &ready("False"));
    api.wait_until("no Pod has to leave", |api| taints(api, "n") == [not_ready] && taints(api, "other") == [not_ready])
        .await;
}

#[tokio::test(start_paused = true)]
async fn node_labels_are_copied_to_deprecated_names() {
    let api = start();
    let labels = |labels: &Value| json!({ "metadata": { "name": "n", "uid": "n", "labels": labels }, "spec": {} });
    let new = json!({ "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64" });
    api.put("api/v1/nodes/n", labels(&new));
    let expected = json!({ "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/arch": "arm64" });
    api.wait_until("they have", |api| api.get("api/v1/nodes/n").is_some_and(|n| n["metadata"]["labels"] == expected))
        .await;
    let old = json!({ "beta.kubernetes.io/os": "linux" });
    api.put("api/v1/nodes/n", labels(&old));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(api.get("api/v1/nodes/n").expect("a node")["metadata"]["labels"], old);
}

#[tokio::test(start_paused = true)]
async fn node_without_heartbeat_becomes_unknown_unless_lease_renews() {
    let api = start();
    for name in ["silent", "alive"] {
        node(&api, name, &ready("True"));
    }
    pod(&api, "p", |pod| pod["spec"]["nodeName"] = "silent".into());
    let began = Instant::now();
    let lease = api.clone();
    tokio::spawn(async move {
        for second in 0..60 {
            let spec = json!({ "renewTime": format!("2026-01-01T00:{second:02}:00.000000Z") });
            let object = json!({ "metadata": { "name": "alive", "namespace": "kube-node-lease" }, "spec": spec });
            lease.put("apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/alive", object);
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    });
    api.wait_until("it is unreachable", |api| taints(api, "silent").len() == 2).await;
    let waited = began.elapsed();
    assert!((50..52).contains(&waited.as_secs()), "{waited:?}");
    let node = api.get("api/v1/nodes/silent").expect("a node");
    let is_ready = condition(&node, "Ready");
    assert_eq!((&is_ready["status"], &is_ready["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
    assert_eq!(is_ready["message"], "Kubelet stopped posting node status.");
    api.wait_until("its Pod is not ready", |api| {
        api.get(&pod_path("p")).is_some_and(|pod| condition(&pod, "Ready")["status"] == "False")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(taints(&api, "alive").is_empty());
}

#[tokio::test(start_paused = true)]
async fn stale_disruption_target_is_cleared() {
    let api = start();
    node(&api, "n", &ready("True"));
    let to_be = |name: &str, reason: &str| {
        pod(&api, name, |pod| {
            pod["spec"]["nodeName"] = "n".into();
            pod["status"]["conditions"] = json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason,
                "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        });
    };
    to_be("late", "TerminationByKubelet");
    to_be("old", "EvictionByEvictionAPI");
    let target = |api: &FakeApi, name: &str| {
        condition(&api.get(&pod_path(name)).expect("a Pod"), "DisruptionTarget")["status"].clone()
    };
    api.wait_until("it is not to be", |api| target(api, "old") == "False").await;
    assert_eq!(target(&api, "late"), "True", "the kubelet takes its time");
}

#[tokio::test(start_paused = true)]
async fn idle_controllers_write_nothing() {
    let api = start();
    namespace(&api, "x");
    pod(&api, "p", |_| {});
    api.wait_until("both are made", |api| api.get(ACCOUNT).is_some() && api.get(CA).is_some()).await;
    let before = api.writes();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(api.writes(), before);
}

#[tokio::test(start_paused = true)]
async fn aggregated_cluster_role_follows_its_parts() {
    let api = start();
    let path = |name: &str| format!("apis/rbac.authorization.k8s.io/v1/clusterroles/{name}");
    let part = |name: &str, verb: &str| {
        let rules = json!([{ "verbs": [verb], "apiGroups": [""], "resources": ["pods"] }]);
        let metadata = json!({ "name": name, "labels": { "to": "whole" } });
        api.put(&path(name), json!({ "metadata": metadata, "rules": rules }));
    };
    let selector = json!({ "matchLabels": { "to": "whole" } });
    let whole = json!({ "metadata": { "name": "whole" }, "aggregationRule": { "clusterRoleSelectors": [selector] } });
    api.put(&path("whole"), whole);
    let verbs = |api: &FakeApi| {
        let role = api.get(&path("whole")).unwrap_or_default();
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().map(|rule| rule["verbs"][0].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>().join(" ")
    };
    part("b", "list");
    part("a", "get");
    api.wait_until("both are in it", |api| verbs(api) == "get list").await;
    part("a", "watch");
    api.wait_until("it follows", |api| verbs(api) == "watch list").await;
    api.delete(&path("b"));
    api.wait_until("what is gone is gone from it", |api| verbs(api) == "watch").await;
}
