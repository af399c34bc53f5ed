//! Tests of the load balancer controller against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::Options;
use fake_api::FakeApi;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn path(name: &str) -> String {
    format!("api/v1/namespaces/x/services/{name}")
}

fn put(api: &FakeApi, name: &str, spec: Value) {
    api.put(&path(name), json!({"metadata": {"name": name, "namespace": "x", "uid": name}, "spec": spec}));
}

fn address(api: &FakeApi, name: &str) -> Value {
    api.get(&path(name)).expect("a Service")["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
}

async fn until(api: &FakeApi, name: &str, ip: &str) {
    api.wait_until(&format!("{name} has {ip}"), |api| address(api, name) == ip).await;
}

async fn start() -> FakeApi {
    let api = FakeApi::new();
    let pool = Some("10.9.8.0/30".parse().expect("a block"));
    let options = Options { load_balancer_pool: pool, ..Options::default() };
    tokio::spawn(controllers::run(api.client(), options, CancellationToken::new()));
    api
}

/// Returns reasons and messages of a Service's Events.
fn recorded_events(api: &FakeApi, name: &str) -> Vec<(String, String)> {
    let events = api.list("api/v1/namespaces/x/events").into_iter();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    events.filter(|e| e["involvedObject"]["name"] == name).map(|e| (text(&e, "reason"), text(&e, "message"))).collect()
}

#[tokio::test(start_paused = true)]
async fn services_get_distinct_addresses_or_wait() {
    let api = start().await;
    let balanced = json!({"type": "LoadBalancer"});
    put(&api, "a", balanced.clone());
    until(&api, "a", "10.9.8.1").await;
    put(&api, "b", balanced.clone());
    put(&api, "other", json!({"type": "NodePort"}));
    until(&api, "b", "10.9.8.2").await;
    let ensured = ("EnsuredLoadBalancer".to_owned(), "Ensured load balancer".to_owned());
    api.wait_until("the Event is recorded", |api| recorded_events(api, "b").contains(&ensured)).await;
    put(&api, "c", balanced.clone());
    let full = "Error syncing load balancer: failed to ensure load balancer: all addresses of 10.9.8.0/30 are taken";
    let full = ("SyncLoadBalancerFailed".to_owned(), full.to_owned());
    api.wait_until("the Event about the exhausted pool is recorded", |api| recorded_events(api, "c").contains(&full))
        .await;
    assert_eq!((address(&api, "c"), address(&api, "other")), (Value::Null, Value::Null));
    api.remove(&path("a"));
    until(&api, "c", "10.9.8.1").await;
    // When a Service changes its type, the API server clears its status, which releases the address.
    put(&api, "d", json!({"type": "LoadBalancer", "loadBalancerIP": "10.9.8.2"}));
    api.wait_until("it waits", |api| !recorded_events(api, "d").is_empty()).await;
    put(&api, "b", json!({"type": "ClusterIP"}));
    until(&api, "d", "10.9.8.2").await;
}

#[tokio::test(start_paused = true)]
async fn address_that_was_never_written_is_released() {
    let api = start().await;
    let balanced = json!({"type": "LoadBalancer"});
    for (name, change) in [("deleted", None), ("changed", Some(json!({"type": "ClusterIP"})))] {
        (0..20).for_each(|_| api.refuse_next(&format!("PUT {}/status", path(name)), 500));
        put(&api, name, balanced.clone());
        api.wait_until("the write fails", |api| {
            recorded_events(api, name).iter().any(|(reason, _)| reason == "SyncLoadBalancerFailed")
        })
        .await;
        let waits = ["one", "two"].map(|other| format!("{name}-{other}"));
        waits.iter().for_each(|other| put(&api, other, balanced.clone()));
        api.wait_until("one waits", |api| {
            waits.iter().any(|other| recorded_events(api, other).iter().any(|(_, text)| text.ends_with("are taken")))
        })
        .await;
        match change {
            Some(spec) => put(&api, name, spec),
            None => api.remove(&path(name)),
        }
        api.wait_until("both have addresses", |api| waits.iter().all(|other| address(api, other).is_string())).await;
        waits.iter().for_each(|other| api.remove(&path(other)));
    }
}

#[tokio::test(start_paused = true)]
async fn assigned_address_survives_a_restart() {
    let api = FakeApi::new();
    let has = json!({"loadBalancer": {"ingress": [{"ip": "10.9.8.1"}]}});
    let metadata = json!({"name": "a", "namespace": "x", "uid": "a"});
    api.put(&path("a"), json!({"metadata": metadata, "spec": {"type": "LoadBalancer"}, "status": has}));
    put(&api, "b", json!({"type": "LoadBalancer"}));
    let pool = Some("10.9.8.0/30".parse().expect("a block"));
    let options = Options { load_balancer_pool: pool, ..Options::default() };
    tokio::spawn(controllers::run(api.client(), options, CancellationToken::new()));
    until(&api, "b", "10.9.8.2").await;
    assert_eq!(address(&api, "a"), "10.9.8.1");
}
