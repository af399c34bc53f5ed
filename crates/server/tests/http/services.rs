//! Services: defaults, addresses that are had once, and what may not be.

use crate::common::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn web(more: Value) -> Value {
    let mut spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    more.as_object().unwrap().iter().for_each(|(k, v)| spec[k] = v.clone());
    spec
}

async fn check_invalid(spec: Value, message: &str) {
    let words = format!("Service \"s\" is invalid: {message}");
    Api::new().await.check(post(SERVICES, &service("s", spec)), 422, json!({"message": words})).await;
}

#[tokio::test]
async fn a_service_gets_upstreams_defaults_and_an_address() {
    let api = Api::new().await;
    let made = api.check(post(SERVICES, &service("s", web(json!({})))), 201, json!({})).await.body;
    let ip = made["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(ip.starts_with("10.96."), "{ip}");
    let expected = json!({"clusterIP": ip, "clusterIPs": [ip], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"app": "web"}, "sessionAffinity": "None", "type": "ClusterIP"});
    assert_eq!((&made["spec"], &made["status"]), (&expected, &json!({"loadBalancer": {}})));
    let row = api.ask(&table(SERVICES)).await.body["rows"][0]["cells"].clone();
    assert_eq!(
        row.as_array().unwrap()[..5],
        [json!("s"), json!("ClusterIP"), json!(ip), json!("<none>"), json!("80/TCP")]
    );
    // An update need not repeat what the server has filled in, and may not change it.
    let path = format!("{SERVICES}/s");
    api.check(put(&path, &service("s", web(json!({})))), 200, json!({"spec": {"clusterIP": ip}})).await;
    let words = "Service \"s\" is invalid: spec.clusterIPs[0]: Invalid value: [\"10.96.9.9\"]: may not change once set";
    api.check(merge(&path, &json!({"spec": {"clusterIP": "10.96.9.9"}})), 422, json!({"message": words})).await;
    let kind = json!({"spec": {"type": "NodePort"}});
    let changed = api
        .check(merge(&path, &kind), 200, json!({"spec": {"externalTrafficPolicy": "Cluster", "clusterIP": ip}}))
        .await
        .body;
    let port = changed["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30_000..=32_767).contains(&port));
    let again = json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}]}});
    api.check(merge(&path, &again), 200, json!({"spec": {"ports": [{"nodePort": port, "targetPort": "http"}]}})).await;
}

#[tokio::test]
async fn addresses_and_node_ports_are_had_once() {
    let api = Api::new().await;
    // First, or one of the others might have what it asks for.
    let own = web(json!({"clusterIP": "10.96.0.77", "type": "NodePort", "ports": [{"port": 1, "nodePort": 31_000}]}));
    api.check(post(SERVICES, &service("own", own)), 201, json!({"spec": {"clusterIPs": ["10.96.0.77"]}})).await;
    let ask = |n: usize| post(SERVICES, &service(&format!("s{n}"), web(json!({"type": "NodePort"}))));
    let asks: Vec<Ask> = (0..40).map(ask).collect();
    let answers = futures::future::join_all(asks.iter().map(|a| api.ask(a))).await;
    let of = |pointer: &str| -> BTreeSet<String> {
        answers.iter().map(|a| a.body.pointer(pointer).unwrap_or_else(|| panic!("{}", a.body)).to_string()).collect()
    };
    assert_eq!((of("/spec/clusterIP").len(), of("/spec/ports/0/nodePort").len()), (40, 40));
    let words = "Service \"x\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.77\"]: failed to allocate IP 10.96.0.77: provided IP is already allocated";
    api.check(post(SERVICES, &service("x", web(json!({"clusterIP": "10.96.0.77"})))), 422, json!({"message": words}))
        .await;
    let words =
        "Service \"x\" is invalid: spec.ports[0].nodePort: Invalid value: 31000: provided port is already allocated";
    let port = web(json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 31_000}]}));
    api.check(post(SERVICES, &service("x", port)), 422, json!({"message": words})).await;
    api.check(delete(format!("{SERVICES}/own")), 200, json!({})).await;
    api.check(post(SERVICES, &service("x", web(json!({"clusterIP": "10.96.0.77"})))), 201, json!({})).await;
}

#[tokio::test]
async fn what_makes_no_service_is_refused_in_upstreams_words() {
    check_invalid(json!({}), "spec.ports: Required value").await;
    check_invalid(web(json!({"type": "Magic"})), "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"").await;
    check_invalid(json!({"type": "ExternalName"}), "spec.externalName: Required value").await;
    check_invalid(web(json!({"ports": [{"port": 70_000}]})), "[spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive, spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive]").await;
    check_invalid(web(json!({"ports": [{"port": 1, "name": "a"}, {"port": 2}]})), "spec.ports[1].name: Required value")
        .await;
    let range = "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP 10.0.0.1: the provided IP (10.0.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16";
    check_invalid(web(json!({"clusterIP": "10.0.0.1"})), range).await;
    let api = Api::new().await;
    api.check(post(SERVICES, &service("1s", web(json!({})))), 422, json!({"reason": "Invalid"})).await;
    api.check(
        post(SERVICES, &service("headless", json!({"clusterIP": "None"}))),
        201,
        json!({"spec": {"clusterIPs": ["None"]}}),
    )
    .await;
    let name = json!({"type": "ExternalName", "externalName": "x.example"});
    let made = api.check(post(SERVICES, &service("name", name)), 201, json!({"spec": {"clusterIP": null}})).await;
    assert_eq!(made.body["spec"].get("internalTrafficPolicy"), None);
}

#[tokio::test]
async fn the_api_has_a_service_of_its_own() {
    let api = Api::new().await;
    for _ in 0..2 {
        api.server.bootstrap_service("127.0.0.1:6443".parse().unwrap()).await;
    }
    let expected = json!({"metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}}, "spec": {
        "clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]}});
    api.check(get(format!("{SERVICES}/kubernetes")), 200, expected).await;
}

#[tokio::test]
async fn the_api_says_where_it_answers() {
    let api = Api::new().await;
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    for (address, ip, port) in [
        ("192.0.2.7:6443", Some("192.0.2.7"), 6443),
        ("127.0.0.1:1234", None, 1234),
        ("[2001:db8::1]:6443", Some("2001:db8::1"), 6443),
    ] {
        api.server.bootstrap_service(address.parse().unwrap()).await;
        let found = api.check(get(slice), 200, json!({"metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}}, "ports": [{"name": "https", "port": port}]})).await;
        assert_eq!(found.body["endpoints"][0]["addresses"][0].as_str(), ip, "{address}");
        let subset = api.ask(&get(endpoints)).await.body["subsets"][0].clone();
        assert_eq!(
            (subset["addresses"][0]["ip"].as_str(), subset["ports"][0]["port"].as_i64()),
            (ip, ip.map(|_| port)),
            "{address}"
        );
    }
    // Another start at the same address writes nothing.
    let before = api.ask(&get(slice)).await.body;
    api.server.bootstrap_service("[2001:db8::1]:6443".parse().unwrap()).await;
    assert_eq!(api.ask(&get(slice)).await.body, before);
}
