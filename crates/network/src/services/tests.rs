//! From objects of the API to rules.

use super::rules::{Place, table};
use super::stale::gone;
use super::traffic::{ServicePort, traffic};
use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::sync::Arc;

/// The Service `default/web` with this spec, and port 80 called `http` unless it says otherwise.
fn service(spec: &Value) -> Arc<Service> {
    let mut object = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
        "clusterIP": "10.96.7.7", "type": "ClusterIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object["status"] = object["spec"]["status"].take();
    Arc::new(serde_json::from_value(object).expect("a Service"))
}

/// A slice of it: `address` with words of `not ready`, `serving`, `terminating`, `here`.
fn slice(endpoints: &[&str]) -> Arc<EndpointSlice> {
    let endpoint = |text: &&str| {
        let (address, words) = text.split_once(' ').unwrap_or((text, ""));
        let conditions = json!({"ready": !words.contains("not ready"), "serving": words.contains("serving"),
            "terminating": words.contains("terminating")});
        let node = if words.contains("here") { "node" } else { "other" };
        json!({"addresses": [address], "conditions": conditions, "nodeName": node})
    };
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    let object = json!({"metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints});
    Arc::new(serde_json::from_value(object).expect("an EndpointSlice"))
}

fn led(spec: &Value, endpoints: &[&str]) -> Vec<ServicePort> {
    traffic(&[service(spec)], &[slice(endpoints)], "node")
}

/// Which endpoints are asked from inside, and of this node.
#[track_caller]
fn check_endpoints(endpoints: &[&str], anywhere: &[&str], here: &[&str]) {
    let found = led(&json!({}), endpoints);
    let text = |all: &std::collections::BTreeSet<std::net::SocketAddrV4>| -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    };
    assert_eq!((text(&found[0].endpoints), text(&found[0].local_endpoints)), (owned(anywhere), owned(here)));
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn those_that_are_ready_are_asked_and_else_those_that_still_serve() {
    check_endpoints(&[], &[], &[]);
    check_endpoints(&["10.0.0.2", "10.0.0.1 here"], &["10.0.0.1:8080", "10.0.0.2:8080"], &["10.0.0.1:8080"]);
    check_endpoints(&["10.0.0.1 not ready here", "10.0.0.2 here"], &["10.0.0.2:8080"], &["10.0.0.2:8080"]);
    let ending = "10.0.0.3 not ready serving terminating here";
    check_endpoints(&[ending, "10.0.0.2"], &["10.0.0.2:8080"], &["10.0.0.3:8080"]);
    check_endpoints(&[ending, "10.0.0.4 not ready terminating"], &["10.0.0.3:8080"], &["10.0.0.3:8080"]);
}

#[test]
fn who_has_no_address_and_who_belongs_to_another_proxy_is_not_led() {
    let none = |spec: Value| assert_eq!(led(&spec, &["10.0.0.1"]), []);
    none(json!({"clusterIP": "None"}));
    none(json!({"clusterIP": "fd00::1"}));
    none(json!({"type": "ExternalName", "clusterIP": null, "externalName": "x.example"}));
    let mut others = (*service(&json!({}))).clone();
    others.metadata.labels = Some([("service.kubernetes.io/service-proxy-name".to_owned(), "mine".to_owned())].into());
    assert_eq!(traffic(&[Arc::new(others)], &[], "node"), []);
}

/// What the Service adds to the rules, as `nft` is told it.
#[track_caller]
fn check_rules(spec: &Value, endpoints: &[&str], sees_bridge: bool, expected: &Expect) {
    let place = Place {
        bridge: "pd-1".into(),
        pods: "10.0.0.0/24".parse().expect("a CIDR"),
        services: "10.96.0.0/16".parse().expect("a CIDR"),
        sees_bridge,
    };
    let empty = table(&[], &place);
    expected.assert_eq(&table(&led(spec, endpoints), &place).script("t", Some(&empty)));
}

#[test]
fn without_services_the_table_only_looks() {
    let place = Place {
        bridge: "pd-1".into(),
        pods: "10.0.0.0/24".parse().expect("a CIDR"),
        services: "10.96.0.0/16".parse().expect("a CIDR"),
        sees_bridge: true,
    };
    expect![[r#""#]].assert_eq(&table(&[], &place).script("t", None));
}

#[test]
fn an_address_leads_to_one_of_the_endpoints() {
    check_rules(&json!({}), &["10.0.0.1 here", "10.0.0.2 here"], true, &expect![[r#""#]]);
}

#[test]
fn where_nobody_answers_it_is_refused() {
    check_rules(&json!({}), &[], true, &expect![[r#""#]]);
}

#[test]
fn a_client_stays_with_its_endpoint_when_it_is_asked_for() {
    let spec = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}});
    check_rules(&spec, &["10.0.0.1 here"], false, &expect![[r#""#]]);
}

#[test]
fn who_comes_from_outside_comes_with_the_nodes_address() {
    let spec = json!({"type": "LoadBalancer", "externalIPs": ["192.0.2.8"],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}],
        "loadBalancerSourceRanges": ["198.51.100.0/24"],
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"ip": "192.0.2.10", "ipMode": "Proxy"}]}}});
    check_rules(&spec, &["10.0.0.1 here"], true, &expect![[r#""#]]);
}

#[test]
fn a_local_policy_asks_only_endpoints_of_the_node() {
    let spec = json!({"type": "NodePort", "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}]});
    check_rules(&spec, &["10.0.0.1 here", "10.1.0.1"], true, &expect![[r#""#]]);
    check_rules(&spec, &["10.1.0.1"], true, &expect![[r#""#]]);
}

#[test]
fn only_udp_is_forgotten_and_only_of_endpoints_that_are_gone() {
    let udp = |endpoints: &[&str]| {
        let mut ports = led(&json!({}), endpoints);
        ports[0].protocol = "udp";
        ports
    };
    let check = |before: &[ServicePort], now: &[ServicePort], expected: &[&str]| {
        let found: Vec<String> = gone(before, now).iter().map(ToString::to_string).collect();
        assert_eq!(found, owned(expected));
    };
    check(&udp(&["10.0.0.1", "10.0.0.2"]), &udp(&["10.0.0.2", "10.0.0.3"]), &["10.0.0.1"]);
    check(&udp(&["10.0.0.1"]), &[], &["10.0.0.1"]);
    check(&[], &udp(&["10.0.0.1"]), &[]);
    check(&led(&json!({}), &["10.0.0.1"]), &[], &[]);
}
