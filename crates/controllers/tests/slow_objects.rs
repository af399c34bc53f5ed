//! Tests that an object whose reconcile hangs delays no other one, on a paused clock.

use controllers::Options;
use fake_api::FakeApi;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn start() -> FakeApi {
    let api = FakeApi::new();
    tokio::spawn(controllers::run(api.client(), Options::default(), CancellationToken::new()));
    api
}

fn path(namespace: &str) -> String {
    format!("api/v1/namespaces/{namespace}")
}

fn terminating_namespace(api: &FakeApi, name: &str) {
    let object =
        json!({"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    api.put(&path(name), object);
    let map = json!({"metadata": {"name": "m", "namespace": name}});
    api.put(&format!("{}/configmaps/m", path(name)), map);
    api.delete(&path(name));
}

#[tokio::test(start_paused = true)]
async fn hanging_namespace_deletion_delays_no_other() {
    const PODS: &str = "GET api/v1/namespaces/hangs/pods";
    let api = start();
    api.hang_next(PODS);
    terminating_namespace(&api, "hangs");
    api.wait_until("the list of Pods hangs", |api| api.is_hanging(PODS)).await;
    let others: Vec<String> = (0..1000).map(|n| format!("other-{n}")).collect();
    others.iter().for_each(|name| terminating_namespace(&api, name));
    let mut left = others.as_slice();
    let all_end = |api: &FakeApi| {
        while let Some((first, rest)) = left.split_first().filter(|(first, _)| api.get(&path(first)).is_none()) {
            assert!(api.removed(&path(first)).is_some());
            left = rest;
        }
        left.is_empty() || !api.is_hanging(PODS)
    };
    api.wait_until("all others end", all_end).await;
    assert!(left.is_empty(), "{} namespaces waited for the one that hangs", left.len());
    assert!(api.get(&path("hangs")).is_some() && api.is_hanging(PODS));
    // The request is abandoned and repeated.
    api.wait_until("the last one ends", |api| api.get(&path("hangs")).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_replica_set_delays_no_other() {
    const CREATE: &str = "POST api/v1/namespaces/hangs/pods";
    let api = start();
    let put = |namespace: &str| {
        let labels = json!({"app": "a"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
        let meta = json!({"name": "set", "namespace": namespace});
        api.put(
            &format!("apis/apps/v1/namespaces/{namespace}/replicasets/set"),
            json!({"metadata": meta, "spec": spec}),
        );
    };
    api.hang_next(CREATE);
    put("hangs");
    api.wait_until("the creation hangs", |api| api.is_hanging(CREATE)).await;
    let began = Instant::now();
    ["x", "y"].into_iter().for_each(put);
    let has_pod = |api: &FakeApi, namespace: &str| !api.list(&format!("api/v1/namespaces/{namespace}/pods")).is_empty();
    api.wait_until("the others have Pods", |api| has_pod(api, "x") && has_pod(api, "y")).await;
    assert!(api.is_hanging(CREATE), "they waited {:?}", began.elapsed());
    api.wait_until("the last one has a Pod", |api| has_pod(api, "hangs")).await;
}
