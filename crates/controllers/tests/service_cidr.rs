//! Tests of the ServiceCIDR controller against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::Options;
use fake_api::FakeApi;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const RANGE: &str = "apis/networking.k8s.io/v1/servicecidrs/own";
const WIDER: &str = "apis/networking.k8s.io/v1/servicecidrs/wider";
const ADDRESS: &str = "apis/networking.k8s.io/v1/ipaddresses/10.97.0.1";

fn range(name: &str, cidr: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}})
}

fn address(managed: bool) -> Value {
    let by = if managed { "ipallocator.k8s.io" } else { "somebody" };
    let labels = json!({"ipaddress.kubernetes.io/managed-by": by, "ipaddress.kubernetes.io/ip-family": "IPv4"});
    json!({"metadata": {"name": "10.97.0.1", "labels": labels}, "spec": {"parentRef": {"resource": "services", "name": "s", "namespace": "x"}}})
}

fn ready(api: &FakeApi, path: &str) -> (String, String, String) {
    let range = api.get(path).expect("a range");
    let condition = &range["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

async fn start() -> FakeApi {
    let api = FakeApi::new();
    tokio::spawn(controllers::run(api.client(), Options::default(), CancellationToken::new()));
    api.put(RANGE, range("own", "10.97.0.0/24"));
    let held = json!(["networking.k8s.io/service-cidr-finalizer"]);
    let ready_condition = ("True".to_owned(), String::new(), "Kubernetes Service CIDR is ready".to_owned());
    api.wait_until("it is held and ready", |api| {
        api.get(RANGE).expect("a range")["metadata"]["finalizers"] == held && ready(api, RANGE) == ready_condition
    })
    .await;
    api
}

#[tokio::test(start_paused = true)]
async fn range_is_kept_for_its_only_addresses() {
    let api = start().await;
    api.put(ADDRESS, address(true));
    api.delete(RANGE);
    let message =
        "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
    let ready_condition = ("False".to_owned(), "Terminating".to_owned(), message.to_owned());
    api.wait_until("it says why", |api| ready(api, RANGE) == ready_condition).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(api.get(RANGE).is_some(), "it is held");
    api.remove(ADDRESS);
    api.wait_until("it is let go", |api| api.get(RANGE).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn range_is_deleted_when_a_wider_one_covers_it() {
    let api = start().await;
    api.put(ADDRESS, address(true));
    api.delete(RANGE);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(api.get(RANGE).is_some(), "it is held");
    api.put(WIDER, range("wider", "10.96.0.0/12"));
    api.wait_until("it is let go", |api| api.get(RANGE).is_none()).await;
    api.wait_until("the other is ready", |api| ready(api, WIDER).0 == "True").await;
}

#[tokio::test(start_paused = true)]
async fn unused_range_is_deleted_after_the_grace_period() {
    let api = start().await;
    // No Service has this address.
    api.put(ADDRESS, address(false));
    let began = Instant::now();
    api.delete(RANGE);
    api.wait_until("it is let go", |api| api.get(RANGE).is_none()).await;
    let took = began.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(15)).contains(&took), "{took:?}");
}
