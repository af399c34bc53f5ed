//! Preemption against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use fake_api::FakeApi;
use scheduler::{Options, Scheduler};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Starts a cluster with nodes of 4 CPUs.
fn start(nodes: &[&str]) -> FakeApi {
    let api = FakeApi::new();
    for name in nodes {
        node(&api, name);
    }
    schedule(&api);
    api
}

fn node(api: &FakeApi, name: &str) {
    let allocatable = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
    let node = json!({ "metadata": { "name": name }, "status": { "allocatable": allocatable } });
    api.put(&format!("api/v1/nodes/{name}"), node);
}

fn schedule(api: &FakeApi) -> CancellationToken {
    let stop = CancellationToken::new();
    let scheduler = Scheduler::new(api.client(), Options::default());
    tokio::spawn(scheduler.run(stop.clone()));
    stop
}

fn path(pod: &str) -> String {
    format!("api/v1/namespaces/default/pods/{pod}")
}

fn pod(api: &FakeApi, name: &str, priority: i32, cpu: &str, change: impl FnOnce(&mut Value)) {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name, "generation": 3, "labels": { "app": name } },
        "spec": {
            "priority": priority, "schedulerName": "default-scheduler",
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }],
        },
        "status": { "phase": "Pending", "conditions": [] },
    });
    change(&mut pod);
    api.put(&path(name), pod);
}

/// Creates a Pod that runs on a node.
fn running(api: &FakeApi, name: &str, priority: i32, cpu: &str, node: &str) {
    pod(api, name, priority, cpu, |pod| {
        pod["spec"]["nodeName"] = node.into();
        pod["status"]["phase"] = "Running".into();
    });
}

fn condition(api: &FakeApi, name: &str, type_: &str) -> Value {
    let pod = api.get(&path(name)).expect("a Pod");
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == type_).unwrap_or(Value::Null)
}

fn nominated(api: &FakeApi, name: &str) -> Option<String> {
    Some(api.get(&path(name))?["status"]["nominatedNodeName"].as_str()?.to_owned())
}

fn leaves(api: &FakeApi, name: &str) -> bool {
    api.get(&path(name)).is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
}

fn events(api: &FakeApi, reason: &str) -> Vec<Value> {
    api.list("apis/events.k8s.io/v1/events").into_iter().filter(|event| event["reason"] == reason).collect()
}

async fn bound(api: &FakeApi, name: &str) -> String {
    let node_of = |api: &FakeApi| Some(api.get(&path(name))?["spec"]["nodeName"].as_str()?.to_owned());
    api.wait_until(&format!("{name} is bound"), |api| node_of(api).is_some()).await;
    node_of(api).expect("it is bound")
}

async fn refused(api: &FakeApi, name: &str) -> String {
    let reason = |api: &FakeApi| condition(api, name, "PodScheduled")["reason"] == "Unschedulable";
    api.wait_until(&format!("{name} is refused"), reason).await;
    condition(api, name, "PodScheduled")["message"].as_str().expect("a message").to_owned()
}

#[tokio::test(start_paused = true)]
async fn preemptor_is_bound_after_victim_terminates() {
    let api = start(&["n1"]);
    running(&api, "low", 1, "4", "n1");
    pod(&api, "high", 10, "2", |_| {});
    api.wait_until("the victim is evicted with an Event", |api| !events(api, "Preempted").is_empty()).await;

    assert!(leaves(&api, "low"));
    let target = condition(&api, "low", "DisruptionTarget");
    assert_eq!((&target["status"], &target["observedGeneration"]), (&json!("True"), &json!(3)));
    assert_eq!(target["reason"], "PreemptionByScheduler");
    assert_eq!(target["message"], "default-scheduler: preempting to accommodate a higher priority pod");
    assert!(target["lastTransitionTime"].is_string());
    let event = events(&api, "Preempted").remove(0);
    assert_eq!((&event["type"], &event["action"]), (&json!("Normal"), &json!("Preempting")));
    assert_eq!(event["note"], "Preempted by pod high on node n1");
    assert_eq!((&event["regarding"]["name"], &event["related"]["name"]), (&json!("low"), &json!("high")));
    let writes = api.writes();
    let at = |write: &str| writes.iter().position(|w| w == write).expect(write);
    assert!(at(&format!("PATCH {}/status", path("low"))) < at(&format!("DELETE {}", path("low"))));

    assert_eq!(nominated(&api, "high").as_deref(), Some("n1"));
    assert_eq!(refused(&api, "high").await, "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(events(&api, "FailedScheduling").len(), 1);
    api.remove(&path("low"));
    assert_eq!(bound(&api, "high").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn preemptor_waits_for_victims_without_new_ones() {
    let api = FakeApi::new();
    node(&api, "n1");
    let first = schedule(&api);
    running(&api, "low", 5, "4", "n1");
    pod(&api, "high", 10, "4", |_| {});
    api.wait_until("it leaves", |api| leaves(api, "low")).await;
    // A node with less important victims.
    running(&api, "lowest", 1, "4", "n2");
    node(&api, "n2");
    let message = "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: \
                   not eligible due to a terminating pod on the nominated node.";
    api.wait_until("the condition is reported", |api| condition(api, "high", "PodScheduled")["message"] == message)
        .await;
    // A restart of the scheduler does not change that.
    first.cancel();
    schedule(&api);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!leaves(&api, "lowest"));
    assert_eq!(nominated(&api, "high").as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn preemption_policy_never_selects_no_victims() {
    let api = start(&["n1"]);
    running(&api, "low", 1, "4", "n1");
    pod(&api, "high", 10, "4", |pod| pod["spec"]["preemptionPolicy"] = "Never".into());
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
                   not eligible due to preemptionPolicy=Never.";
    assert_eq!(refused(&api, "high").await, message);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((leaves(&api, "low"), nominated(&api, "high")), (false, None));
}

#[tokio::test(start_paused = true)]
async fn pod_with_budget_is_spared_if_another_victim_fits() {
    let api = FakeApi::new();
    let budget = json!({
        "metadata": { "name": "b", "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "app": "guarded" } }, "minAvailable": 1 },
        "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
    });
    api.put("apis/policy/v1/namespaces/default/poddisruptionbudgets/b", budget);
    for name in ["n1", "n2"] {
        node(&api, name);
    }
    running(&api, "guarded", 1, "4", "n1");
    running(&api, "free", 5, "4", "n2");
    schedule(&api);
    pod(&api, "high", 10, "4", |_| {});
    api.wait_until("it leaves", |api| leaves(api, "free")).await;
    assert!(!leaves(&api, "guarded"));
    assert_eq!(nominated(&api, "high").as_deref(), Some("n2"));
}

#[tokio::test(start_paused = true)]
async fn freed_resources_are_reserved_for_nominated_pod() {
    let api = start(&["n1"]);
    running(&api, "low", 1, "4", "n1");
    pod(&api, "high", 10, "4", |_| {});
    api.wait_until("it leaves", |api| leaves(api, "low") && nominated(api, "high").is_some()).await;
    pod(&api, "quick", 9, "1", |_| {});
    assert!(refused(&api, "quick").await.starts_with("0/1 nodes are available: 1 Insufficient cpu."));
    api.remove(&path("low"));
    assert_eq!(bound(&api, "high").await, "n1");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(api.get(&path("quick")).expect("a Pod")["spec"]["nodeName"].is_null());
}

#[tokio::test(start_paused = true)]
async fn nomination_is_removed_with_its_pod() {
    let api = start(&["n1"]);
    running(&api, "low", 1, "2", "n1");
    pod(&api, "high", 10, "4", |_| {});
    api.wait_until("it leaves", |api| leaves(api, "low") && nominated(api, "high").is_some()).await;
    // Two CPUs are free, but reserved for the nominated Pod.
    pod(&api, "quick", 9, "1", |_| {});
    refused(&api, "quick").await;
    api.remove(&path("high"));
    let since = Instant::now();
    assert_eq!(bound(&api, "quick").await, "n1");
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn higher_priority_pod_replaces_lower_nomination() {
    for is_written_at_once in [true, false] {
        let api = start(&["n1"]);
        running(&api, "low", 1, "4", "n1");
        pod(&api, "high", 10, "4", |_| {});
        api.wait_until("it leaves", |api| leaves(api, "low") && nominated(api, "high").is_some()).await;
        if !is_written_at_once {
            api.refuse_next(&format!("PATCH {}/status", path("high")), 500);
        }
        let since = Instant::now();
        pod(&api, "higher", 11, "4", |_| {});
        api.wait_until("it is nominated", |api| nominated(api, "higher").is_some()).await;
        api.wait_until("the other one is not", |api| nominated(api, "high").is_none()).await;
        assert!(
            since.elapsed() < Duration::from_millis(500),
            "is_written_at_once: {is_written_at_once}, {:?}",
            since.elapsed()
        );
        api.remove(&path("low"));
        assert_eq!(bound(&api, "higher").await, "n1", "is_written_at_once: {is_written_at_once}");
        assert!(
            api.get(&path("high")).expect("a Pod")["spec"]["nodeName"].is_null(),
            "is_written_at_once: {is_written_at_once}"
        );
        assert!(
            refused(&api, "high").await.contains("No preemption victims found for incoming pod."),
            "is_written_at_once: {is_written_at_once}"
        );
        let deletions = api.writes().iter().filter(|write| write.starts_with("DELETE")).count();
        assert_eq!(deletions, 1, "is_written_at_once: {is_written_at_once}, {:#?}", api.writes());
    }
}

#[tokio::test(start_paused = true)]
async fn nomination_survives_a_failed_status_patch() {
    let api = start(&["n1"]);
    api.refuse_next(&format!("PATCH {}/status", path("high")), 500);
    running(&api, "low", 1, "2", "n1");
    pod(&api, "high", 10, "3", |_| {});
    api.wait_until("it leaves", |api| leaves(api, "low")).await;
    assert_eq!(nominated(&api, "high"), None);
    pod(&api, "quick", 9, "1500m", |_| {});
    pod(&api, "slim", 9, "1", |_| {});
    refused(&api, "quick").await;
    refused(&api, "slim").await;
    // The Pod is bound; its nomination ends.
    api.hang_next(&format!("POST {}/binding", path("high")));
    api.remove(&path("low"));
    let since = Instant::now();
    assert_eq!(bound(&api, "slim").await, "n1");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert!(api.get(&path("quick")).expect("a Pod")["spec"]["nodeName"].is_null());
}

#[tokio::test(start_paused = true)]
async fn failed_victim_deletion_is_retried() {
    for write in [format!("PATCH {}/status", path("low")), format!("DELETE {}", path("low"))] {
        let api = start(&["n1"]);
        api.refuse_next(&write, 500);
        running(&api, "low", 1, "4", "n1");
        pod(&api, "high", 10, "4", |_| {});
        api.wait_until("it leaves", |api| leaves(api, "low")).await;
        api.remove(&path("low"));
        assert_eq!(bound(&api, "high").await, "n1", "{write}");
    }
}

#[tokio::test(start_paused = true)]
async fn nominated_pod_binds_elsewhere_and_frees_its_node() {
    let api = start(&["n1"]);
    running(&api, "low", 1, "2", "n1");
    pod(&api, "high", 10, "4", |_| {});
    api.wait_until("it leaves", |api| leaves(api, "low") && nominated(api, "high").is_some()).await;
    pod(&api, "quick", 9, "2", |_| {});
    refused(&api, "quick").await;
    node(&api, "n2");
    assert_eq!(bound(&api, "high").await, "n2");
    assert_eq!(bound(&api, "quick").await, "n1");
}
