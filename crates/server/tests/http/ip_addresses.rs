//! IPAddress and ServiceCIDR objects.

use crate::common::*;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service_named(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["ports"] = json!([{"port": 80}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn cluster_ip(service: &Value) -> String {
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn cluster_ip_has_an_ip_address_object() {
    let api = TestApi::new().await;
    let one = format!("{SERVICES}/one");
    let ip = cluster_ip(&api.check(post(SERVICES, &service_named("one", json!({}))), 201, json!({})).await.body);
    let parent = json!({"resource": "services", "namespace": "default", "name": "one"});
    let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
    let expected = json!({"metadata": {"labels": labels}, "spec": {"parentRef": parent}});
    api.check(get(format!("{ADDRESSES}/{ip}")), 200, expected.clone()).await;
    // A deleted IPAddress of a Service is recreated.
    api.check(delete(format!("{ADDRESSES}/{ip}")), 200, json!({})).await;
    api.check(get(format!("{ADDRESSES}/{ip}")), 200, expected).await;
    let elsewhere =
        json!({"spec": {"type": "ExternalName", "externalName": "example.com", "clusterIP": null, "clusterIPs": null}});
    api.check(merge_patch(&one, &elsewhere), 200, json!({})).await;
    api.check(get(ADDRESSES), 200, json!({"items": []})).await;
    let back = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let other = cluster_ip(&api.check(merge_patch(&one, &back), 200, json!({})).await.body);
    api.check(get(format!("{ADDRESSES}/{other}")), 200, json!({})).await;
    api.check(delete(&one), 200, json!({})).await;
    api.check(get(format!("{ADDRESSES}/{other}")), 404, json!({})).await;
    api.check(post(SERVICES, &service_named("none", json!({"clusterIP": "None"}))), 201, json!({})).await;
    api.check(get(ADDRESSES), 200, json!({"items": []})).await;
}

#[tokio::test]
async fn existing_ip_address_object_is_not_allocated() {
    let api = TestApi::new().await;
    let address = json!({"metadata": {"name": "10.96.7.7"},
        "spec": {"parentRef": {"group": "example.com", "resource": "things", "name": "one"}}});
    api.check(post(ADDRESSES, &address), 201, json!({})).await;
    let message = "Service \"one\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.7.7\"]: failed to allocate IP 10.96.7.7: provided IP is already allocated";
    let requests = service_named("one", json!({"clusterIP": "10.96.7.7"}));
    api.check(post(SERVICES, &requests), 422, json!({"message": message})).await;
    api.check(delete(format!("{ADDRESSES}/10.96.7.7")), 200, json!({})).await;
    api.check(post(SERVICES, &requests), 201, json!({})).await;
}

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

#[tokio::test]
async fn default_service_cidr_is_ready_and_recreated() {
    let api = TestApi::new().await;
    let early = cluster_ip(&api.check(post(SERVICES, &service_named("early", json!({}))), 201, json!({})).await.body);
    api.server.bootstrap_addresses().await;
    api.server.bootstrap_addresses().await;
    let ready = json!({"type": "Ready", "status": "True", "message": "Kubernetes default Service CIDR is ready"});
    let range = json!({"spec": {"cidrs": ["10.96.0.0/16"]}, "status": {"conditions": [ready]}});
    api.check(get(format!("{RANGES}/kubernetes")), 200, range.clone()).await;
    api.check(get(format!("{ADDRESSES}/{early}")), 200, json!({})).await;
    api.check(delete(format!("{RANGES}/kubernetes")), 200, json!({})).await;
    api.check(get(format!("{RANGES}/kubernetes")), 200, range).await;
}

fn check_rejected(name: &str, ip: &str, reason: &str) -> Value {
    json!({"message": format!("Service {name:?} is invalid: spec.clusterIPs: Invalid value: [{ip:?}]: failed to allocate IP {ip}: {reason}")})
}

#[tokio::test]
async fn added_service_cidr_allocates_until_deleted() {
    let api = TestApi::new().await;
    api.server.bootstrap_addresses().await;
    let requests = |name: &str, ip: &str| post(SERVICES, &service_named(name, json!({"clusterIP": ip})));
    let outside = check_rejected("one", "10.97.0.7", "the provided network does not match the current range");
    api.check(requests("one", "10.97.0.7"), 422, outside.clone()).await;
    let own = json!({"metadata": {"name": "own", "finalizers": ["networking.k8s.io/service-cidr-finalizer"]}, "spec": {"cidrs": ["10.97.0.0/29"]}});
    api.check(post(RANGES, &own), 201, json!({})).await;
    api.check(requests("one", "10.97.0.6"), 201, json!({"spec": {"clusterIPs": ["10.97.0.6"]}})).await;
    api.check(get(format!("{ADDRESSES}/10.97.0.6")), 200, json!({})).await;
    api.check(
        requests("two", "10.97.0.6"),
        422,
        check_rejected("two", "10.97.0.6", "provided IP is already allocated"),
    )
    .await;
    let edge = "the provided IP (10.97.0.7) is not in the valid range. The range of valid IPs is 10.97.0.0/29";
    api.check(requests("one", "10.97.0.7"), 422, check_rejected("one", "10.97.0.7", edge)).await;
    // A terminating ServiceCIDR allocates no addresses, and keeps those in use.
    api.check(delete(format!("{RANGES}/own")), 200, json!({})).await;
    let other = "the provided network does not match the current range";
    api.check(requests("two", "10.97.0.5"), 422, check_rejected("two", "10.97.0.5", other)).await;
    api.check(merge_patch(format!("{SERVICES}/one"), &json!({"metadata": {"labels": {"a": "b"}}})), 200, json!({}))
        .await;
    api.check(get(format!("{SERVICES}/one")), 200, json!({"spec": {"clusterIP": "10.97.0.6"}})).await;
}

#[tokio::test]
async fn added_service_cidr_is_used_when_default_is_full() {
    let api = TestApi::new().await;
    api.server.bootstrap_addresses().await;
    api.check(post(RANGES, &json!({"metadata": {"name": "own"}, "spec": {"cidrs": ["10.97.0.0/30"]}})), 201, json!({}))
        .await;
    let closed = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Terminating", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    api.check(merge_patch(format!("{RANGES}/kubernetes/status"), &closed), 200, json!({})).await;
    let mut given = Vec::new();
    for name in ["one", "two"] {
        given.push(cluster_ip(&api.check(post(SERVICES, &service_named(name, json!({}))), 201, json!({})).await.body));
    }
    given.sort();
    assert_eq!(given, ["10.97.0.1", "10.97.0.2"]);
    let message = "Internal error occurred: failed to allocate a serviceIP: range is full";
    api.check(post(SERVICES, &service_named("three", json!({}))), 500, json!({"message": message})).await;
}

#[tokio::test]
async fn service_cidr_is_immutable() {
    let api = TestApi::new().await;
    api.check(post(RANGES, &json!({"metadata": {"name": "own"}, "spec": {"cidrs": ["10.97.0.0/24"]}})), 201, json!({}))
        .await;
    let path = format!("{RANGES}/own");
    let message = "ServiceCIDR.networking.k8s.io \"own\" is invalid: spec.cidrs[0]: Invalid value: \"10.98.0.0/24\": field is immutable";
    api.check(merge_patch(&path, &json!({"spec": {"cidrs": ["10.98.0.0/24"]}})), 422, json!({"message": message}))
        .await;
    api.check(merge_patch(&path, &json!({"spec": {"cidrs": ["10.97.0.0/24", "2001:db8::/64"]}})), 200, json!({})).await;
    let two = json!({"metadata": {"name": "two"}, "spec": {"cidrs": ["10.97.0.0/24", "10.98.0.0/24"]}});
    api.check(post(RANGES, &two), 422, json!({"reason": "Invalid"})).await;
}
