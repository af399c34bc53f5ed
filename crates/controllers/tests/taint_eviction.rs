//! Tests of the taint eviction controller against a fake API server, on a paused clock.

use controllers::Options;
use fake_api::FakeApi;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn start() -> FakeApi {
    let api = FakeApi::new();
    tokio::spawn(controllers::run(api.client(), Options::default(), CancellationToken::new()));
    api
}

fn node(api: &FakeApi, name: &str, taints: &[&str]) {
    let taints: Vec<Value> = taints.iter().map(|key| json!({ "key": key, "effect": "NoExecute" })).collect();
    let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let node = json!({ "metadata": { "name": name }, "spec": { "taints": taints }, "status": status });
    api.put(&format!("api/v1/nodes/{name}"), node);
}

/// Creates a Pod on the node `n` with a toleration of the taint `broken`, if `seconds` is set.
fn pod(api: &FakeApi, name: &str, seconds: Option<u64>) {
    let toleration = |key: &str, seconds: Option<u64>| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
    // The nodes have no heartbeats.
    let mut tolerations = vec![toleration("node.kubernetes.io/unreachable", None)];
    tolerations.extend(seconds.map(|seconds| toleration("broken", Some(seconds))));
    let metadata = json!({ "name": name, "namespace": "x", "uid": name, "finalizers": ["example.com/look"] });
    let spec = json!({ "nodeName": "n", "containers": [], "tolerations": tolerations });
    let pod = json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Running" } });
    api.put(&path(name), pod);
}

fn path(name: &str) -> String {
    format!("api/v1/namespaces/x/pods/{name}")
}

fn goes(api: &FakeApi, name: &str) -> bool {
    api.get(&path(name)).is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string())
}

fn recorded_events(api: &FakeApi) -> Vec<String> {
    let events = api.list("api/v1/namespaces/x/events").into_iter();
    let evictions = events.filter(|e| e["reason"] == "TaintManagerEviction" && e["type"] == "Normal");
    evictions.map(|e| e["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn pod_is_evicted_after_its_toleration_seconds() {
    let api = start();
    node(&api, "n", &[]);
    pod(&api, "at-once", None);
    pod(&api, "later", Some(60));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!goes(&api, "at-once"), "nothing is wrong yet");
    let began = Instant::now();
    node(&api, "n", &["broken"]);
    api.wait_until("it goes", |api| goes(api, "at-once")).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    let conditions = api.get(&path("at-once")).expect("it is held")["status"]["conditions"].clone();
    let target = &conditions[0];
    assert_eq!((&target["type"], &target["status"]), (&json!("DisruptionTarget"), &json!("True")));
    assert_eq!(target["reason"], "DeletionByTaintManager");
    assert_eq!(target["message"], "Taint manager: deleting due to NoExecute taint");
    api.wait_until("the other goes", |api| goes(api, "later")).await;
    let waited = began.elapsed();
    assert!((60..62).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(recorded_events(&api), ["Marking for deletion Pod x/at-once", "Marking for deletion Pod x/later"]);
}

#[tokio::test(start_paused = true)]
async fn removed_taint_cancels_the_eviction() {
    let api = start();
    node(&api, "n", &["broken"]);
    pod(&api, "p", Some(60));
    tokio::time::sleep(Duration::from_secs(50)).await;
    node(&api, "n", &[]);
    api.wait_until("the Event is recorded", |api| !recorded_events(api).is_empty()).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!goes(&api, "p"));
    assert_eq!(recorded_events(&api), ["Cancelling deletion of Pod x/p"]);
    // The toleration time starts anew.
    node(&api, "n", &["broken"]);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!goes(&api, "p"));
    api.wait_until("it goes", |api| goes(api, "p")).await;
}

#[tokio::test(start_paused = true)]
async fn additional_taint_keeps_the_eviction_start() {
    let api = start();
    node(&api, "n", &["broken"]);
    pod(&api, "p", Some(60));
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(50)).await;
    node(&api, "n", &["broken", "burning"]);
    api.wait_until("it goes", |api| goes(api, "p")).await;
    let waited = began.elapsed();
    assert!((50..52).contains(&waited.as_secs()), "what is not tolerated at all counts at once: {waited:?}");
}
