//! Cluster IPs as objects, and the range that they are of.

use crate::common::*;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn named(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["ports"] = json!([{"port": 80}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn ip_of(service: &Value) -> String {
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_address_of_a_service_is_an_object_while_the_service_has_it() {
    let api = Api::new().await;
    let one = format!("{SERVICES}/one");
    let ip = ip_of(&api.check(post(SERVICES, &named("one", json!({}))), 201, json!({})).await.body);
    let parent = json!({"resource": "services", "namespace": "default", "name": "one"});
    let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
    let expected = json!({"metadata": {"labels": labels}, "spec": {"parentRef": parent}});
    api.check(get(format!("{ADDRESSES}/{ip}")), 200, expected.clone()).await;
    // One that somebody deletes comes back.
    api.check(delete(format!("{ADDRESSES}/{ip}")), 200, json!({})).await;
    api.check(get(format!("{ADDRESSES}/{ip}")), 200, expected).await;
    let elsewhere =
        json!({"spec": {"type": "ExternalName", "externalName": "example.com", "clusterIP": null, "clusterIPs": null}});
    api.check(merge(&one, &elsewhere), 200, json!({})).await;
    api.check(get(ADDRESSES), 200, json!({"items": []})).await;
    let back = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let other = ip_of(&api.check(merge(&one, &back), 200, json!({})).await.body);
    api.check(get(format!("{ADDRESSES}/{other}")), 200, json!({})).await;
    api.check(delete(&one), 200, json!({})).await;
    api.check(get(format!("{ADDRESSES}/{other}")), 404, json!({})).await;
    api.check(post(SERVICES, &named("none", json!({"clusterIP": "None"}))), 201, json!({})).await;
    api.check(get(ADDRESSES), 200, json!({"items": []})).await;
}

#[tokio::test]
async fn an_address_that_somebody_has_noted_down_is_no_services() {
    let api = Api::new().await;
    let address = json!({"metadata": {"name": "10.96.7.7"},
        "spec": {"parentRef": {"group": "example.com", "resource": "things", "name": "one"}}});
    api.check(post(ADDRESSES, &address), 201, json!({})).await;
    let message = "Service \"one\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.7.7\"]: failed to allocate IP 10.96.7.7: provided IP is already allocated";
    let asked = named("one", json!({"clusterIP": "10.96.7.7"}));
    api.check(post(SERVICES, &asked), 422, json!({"message": message})).await;
    api.check(delete(format!("{ADDRESSES}/10.96.7.7")), 200, json!({})).await;
    api.check(post(SERVICES, &asked), 201, json!({})).await;
}

#[tokio::test]
async fn the_range_of_addresses_is_known_and_no_other_gives_any() {
    let api = Api::new().await;
    let early = ip_of(&api.check(post(SERVICES, &named("early", json!({}))), 201, json!({})).await.body);
    api.server.bootstrap_addresses().await;
    api.server.bootstrap_addresses().await;
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let ready = json!({"type": "Ready", "status": "True", "message": "Kubernetes default Service CIDR is ready"});
    let range = json!({"spec": {"cidrs": ["10.96.0.0/16"]}, "status": {"conditions": [ready]}});
    api.check(get(format!("{ranges}/kubernetes")), 200, range).await;
    api.check(get(format!("{ADDRESSES}/{early}")), 200, json!({})).await;
    let own = json!({"metadata": {"name": "own"}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    let made = api.check(post(ranges, &own), 201, json!({})).await.body;
    assert_eq!(made["status"]["conditions"], Value::Null);
    let message = "Service \"one\" is invalid: spec.clusterIPs: Invalid value: [\"10.97.0.7\"]: failed to allocate IP 10.97.0.7: the provided IP (10.97.0.7) is not in the valid range. The range of valid IPs is 10.96.0.0/16";
    api.check(post(SERVICES, &named("one", json!({"clusterIP": "10.97.0.7"}))), 422, json!({"message": message})).await;
}
