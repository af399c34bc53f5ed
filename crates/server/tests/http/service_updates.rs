//! Updates of Services, and restoration of `kubernetes`.

use crate::{
    common::*,
    services::{SERVICES, service, web_spec},
};
use serde_json::{Value, json};

#[tokio::test]
async fn node_ports_are_kept_by_name() {
    let api = TestApi::new().await;
    let ports = |ports: Value| service("s", web_spec(json!({"type": "NodePort", "ports": ports})));
    let numbers = |response: &TestResponse| -> Vec<i64> {
        response.body["spec"]["ports"].as_array().unwrap().iter().map(|p| p["nodePort"].as_i64().unwrap()).collect()
    };
    let path = format!("{SERVICES}/s");
    api.check(post(SERVICES, &ports(json!([{"port": 80, "nodePort": 31_800}]))), 201, json!({})).await;
    let other = api.check(put(&path, &ports(json!([{"port": 8080}]))), 200, json!({})).await;
    assert_eq!(numbers(&other), [31_800]);
    let two = json!([{"name": "b", "port": 81}, {"name": "a", "port": 80}]);
    let named = api.check(put(&path, &ports(two.clone())), 200, json!({})).await;
    let [b, a] = numbers(&named)[..] else { panic!("{}", named.body) };
    assert!(a != b && a != 31_800 && b != 31_800, "{a} {b}");
    // The new port is first in the list, and does not take an allocated node port.
    let three = json!([{"name": "c", "port": 82}, {"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let updated = api.check(put(&path, &ports(three)), 200, json!({})).await;
    assert_eq!(numbers(&updated)[1..], [a, b]);
    assert!(![a, b].contains(&numbers(&updated)[0]));
    let swapped = json!([{"name": "a", "port": 80, "nodePort": b}, {"name": "b", "port": 81, "nodePort": a}]);
    assert_eq!(numbers(&api.check(put(&path, &ports(swapped)), 200, json!({})).await), [b, a]);
}

#[tokio::test]
async fn session_affinity_can_be_turned_off() {
    let api = TestApi::new().await;
    let stays = web_spec(json!({"sessionAffinity": "ClientIP"}));
    let config = json!({"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10_800}}}});
    api.check(post(SERVICES, &service("s", stays)), 201, config).await;
    let none = json!({"spec": {"sessionAffinity": "None"}});
    let expected = json!({"spec": {"sessionAffinity": "None", "sessionAffinityConfig": null}});
    api.check(merge_patch(format!("{SERVICES}/s"), &none), 200, expected).await;
}

#[tokio::test]
async fn headless_service_without_selector_may_be_dual_stack() {
    let api = TestApi::new().await;
    for (name, given, families, policy) in [
        ("a", json!({}), json!(["IPv4", "IPv6"]), "RequireDualStack"),
        ("b", json!({"ipFamilies": ["IPv6"]}), json!(["IPv6", "IPv4"]), "RequireDualStack"),
        ("c", json!({"ipFamilyPolicy": "SingleStack"}), json!(["IPv4"]), "SingleStack"),
        ("d", json!({"selector": {"a": "b"}}), json!(["IPv4"]), "SingleStack"),
    ] {
        let mut spec = json!({"clusterIP": "None", "ports": [{"port": 80}]});
        spec.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
        let expected = json!({"spec": {"ipFamilies": families, "ipFamilyPolicy": policy}});
        api.check(post(SERVICES, &service(name, spec)), 201, expected.clone()).await;
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        api.check(merge_patch(format!("{SERVICES}/{name}"), &label), 200, expected).await;
    }
}

/// Waits until an object exists.
async fn wait_for_object(api: &TestApi, path: &str) -> Value {
    for _ in 0..1000 {
        let response = api.send(&get(path)).await;
        if response.status == 200 {
            return response.body;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{path} was not created")
}

#[tokio::test]
async fn deleted_kubernetes_service_is_recreated() {
    let api = TestApi::new().await;
    api.server.bootstrap_service("192.0.2.7:6443".parse().unwrap()).await;
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    for path in [format!("{SERVICES}/kubernetes").as_str(), slice, endpoints] {
        let before = api.send(&get(path)).await.body["metadata"]["uid"].clone();
        api.check(delete(path), 200, json!({})).await;
        assert_ne!(wait_for_object(&api, path).await["metadata"]["uid"], before, "{path}");
    }
    api.check(delete(SERVICES), 200, json!({})).await;
    wait_for_object(&api, &format!("{SERVICES}/kubernetes")).await;
    api.check(merge_patch(slice, &json!({"endpoints": []})), 200, json!({})).await;
    for _ in 0..1000 {
        let response = api.send(&get(slice)).await;
        if response.body["endpoints"][0]["addresses"][0] == "192.0.2.7" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the EndpointSlice is not restored");
}
