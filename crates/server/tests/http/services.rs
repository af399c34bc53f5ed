//! Services: defaults, allocation and validation.

use crate::common::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";

pub(crate) fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

pub(crate) fn web_spec(fields: Value) -> Value {
    let mut spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    fields.as_object().unwrap().iter().for_each(|(k, v)| spec[k] = v.clone());
    spec
}

async fn check_invalid(spec: Value, message: &str) {
    let expected_message = format!("Service \"s\" is invalid: {message}");
    TestApi::new().await.check(post(SERVICES, &service("s", spec)), 422, json!({"message": expected_message})).await;
}

#[tokio::test]
async fn service_gets_upstream_defaults_and_cluster_ip() {
    let api = TestApi::new().await;
    let created = api.check(post(SERVICES, &service("s", web_spec(json!({})))), 201, json!({})).await.body;
    let ip = created["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(ip.starts_with("10.96."), "{ip}");
    let expected = json!({"clusterIP": ip, "clusterIPs": [ip], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"app": "web"}, "sessionAffinity": "None", "type": "ClusterIP"});
    assert_eq!((&created["spec"], &created["status"]), (&expected, &json!({"loadBalancer": {}})));
    let row = api.send(&get_table(SERVICES)).await.body["rows"][0]["cells"].clone();
    assert_eq!(
        row.as_array().unwrap()[..5],
        [json!("s"), json!("ClusterIP"), json!(ip), json!("<none>"), json!("80/TCP")]
    );
    // A PUT may omit allocated fields, and may not change them.
    let path = format!("{SERVICES}/s");
    api.check(put(&path, &service("s", web_spec(json!({})))), 200, json!({"spec": {"clusterIP": ip}})).await;
    let message =
        "Service \"s\" is invalid: spec.clusterIPs[0]: Invalid value: [\"10.96.9.9\"]: may not change once set";
    api.check(merge_patch(&path, &json!({"spec": {"clusterIP": "10.96.9.9"}})), 422, json!({"message": message})).await;
    let kind = json!({"spec": {"type": "NodePort"}});
    let changed = api
        .check(merge_patch(&path, &kind), 200, json!({"spec": {"externalTrafficPolicy": "Cluster", "clusterIP": ip}}))
        .await
        .body;
    let port = changed["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30_000..=32_767).contains(&port));
    let again = json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}]}});
    api.check(merge_patch(&path, &again), 200, json!({"spec": {"ports": [{"nodePort": port, "targetPort": "http"}]}}))
        .await;
}

#[tokio::test]
async fn cluster_ips_and_node_ports_are_unique() {
    let api = TestApi::new().await;
    // The explicit addresses are allocated first, so that no other Service gets them.
    let own =
        web_spec(json!({"clusterIP": "10.96.0.77", "type": "NodePort", "ports": [{"port": 1, "nodePort": 31_000}]}));
    api.check(post(SERVICES, &service("own", own)), 201, json!({"spec": {"clusterIPs": ["10.96.0.77"]}})).await;
    let request = |n: usize| post(SERVICES, &service(&format!("s{n}"), web_spec(json!({"type": "NodePort"}))));
    let requests: Vec<TestRequest> = (0..40).map(request).collect();
    let responses = futures::future::join_all(requests.iter().map(|a| api.send(a))).await;
    let values = |pointer: &str| -> BTreeSet<String> {
        responses.iter().map(|a| a.body.pointer(pointer).unwrap_or_else(|| panic!("{}", a.body)).to_string()).collect()
    };
    assert_eq!((values("/spec/clusterIP").len(), values("/spec/ports/0/nodePort").len()), (40, 40));
    let message = "Service \"x\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.77\"]: failed to allocate IP 10.96.0.77: provided IP is already allocated";
    api.check(
        post(SERVICES, &service("x", web_spec(json!({"clusterIP": "10.96.0.77"})))),
        422,
        json!({"message": message}),
    )
    .await;
    let message =
        "Service \"x\" is invalid: spec.ports[0].nodePort: Invalid value: 31000: provided port is already allocated";
    let port = web_spec(json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 31_000}]}));
    api.check(post(SERVICES, &service("x", port)), 422, json!({"message": message})).await;
    api.check(delete(format!("{SERVICES}/own")), 200, json!({})).await;
    api.check(post(SERVICES, &service("x", web_spec(json!({"clusterIP": "10.96.0.77"})))), 201, json!({})).await;
}

#[tokio::test]
async fn invalid_service_is_rejected() {
    check_invalid(json!({}), "spec.ports: Required value").await;
    check_invalid(web_spec(json!({"type": "Magic"})), "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"").await;
    check_invalid(json!({"type": "ExternalName"}), "spec.externalName: Required value").await;
    check_invalid(web_spec(json!({"ports": [{"port": 70_000}]})), "[spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive, spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive]").await;
    check_invalid(
        web_spec(json!({"ports": [{"port": 1, "name": "a"}, {"port": 2}]})),
        "spec.ports[1].name: Required value",
    )
    .await;
    let range = "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP 10.0.0.1: the provided network does not match the current range";
    check_invalid(web_spec(json!({"clusterIP": "10.0.0.1"})), range).await;
    let api = TestApi::new().await;
    api.check(post(SERVICES, &service("1s", web_spec(json!({})))), 422, json!({"reason": "Invalid"})).await;
    api.check(
        post(SERVICES, &service("headless", json!({"clusterIP": "None"}))),
        201,
        json!({"spec": {"clusterIPs": ["None"]}}),
    )
    .await;
    let name = json!({"type": "ExternalName", "externalName": "x.example"});
    let created = api.check(post(SERVICES, &service("name", name)), 201, json!({"spec": {"clusterIP": null}})).await;
    assert_eq!(created.body["spec"].get("internalTrafficPolicy"), None);
}

/// Service specs that are merged into that of [`web`], and the expected errors.
const INVALID_SPECS: &[(&str, &str)] = &[
    (
        r#"{"externalTrafficPolicy": "Local"}"#,
        r#"spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services"#,
    ),
    (
        r#"{"type": "NodePort", "externalTrafficPolicy": "Near"}"#,
        r#"spec.externalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local""#,
    ),
    (
        r#"{"internalTrafficPolicy": "Near"}"#,
        r#"spec.internalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local""#,
    ),
    (
        r#"{"trafficDistribution": "Near"}"#,
        r#"spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameZone", "PreferSameNode""#,
    ),
    (
        r#"{"loadBalancerClass": "a.example/b"}"#,
        "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
    ),
    (
        r#"{"allocateLoadBalancerNodePorts": true}"#,
        "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
    ),
    (
        r#"{"loadBalancerSourceRanges": ["10.0.0.0/8"]}"#,
        "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
    ),
    (
        r#"{"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0"]}"#,
        r#"spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#,
    ),
    (
        r#"{"type": "LoadBalancer", "healthCheckNodePort": 30001}"#,
        "spec.healthCheckNodePort: Invalid value: 30001: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
    ),
    (
        r#"{"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 70000}"#,
        "spec.healthCheckNodePort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    (
        r#"{"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 7}"#,
        "spec.healthCheckNodePort: Invalid value: 7: provided port is not in the valid range. The range of valid ports is 30000-32767",
    ),
    (
        r#"{"ports": [{"port": 80, "nodePort": 30001}]}"#,
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
    ),
    (
        r#"{"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": 30001}]}"#,
        "spec.ports[1].nodePort: Duplicate value: 30001",
    ),
    (
        r#"{"ports": [{"port": 80, "appProtocol": "a/b/c"}]}"#,
        "spec.ports[0].appProtocol: Invalid value: \"a/b/c\": a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
    ),
    (
        r#"{"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}"#,
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
    ),
    (
        r#"{"externalIPs": ["127.0.0.1"]}"#,
        r#"spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
    ),
    (
        r#"{"externalIPs": ["here"]}"#,
        r#"spec.externalIPs[0]: Invalid value: "here": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
    ),
    (
        r#"{"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}"#,
        r#"[spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster, spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services]"#,
    ),
    (
        r#"{"ipFamilies": ["IPv4", "IPv4", "IPv5"], "ipFamilyPolicy": "Some"}"#,
        r#"[spec.ipFamilies[1]: Duplicate value: "IPv4", spec.ipFamilies[2]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6", spec.ipFamilyPolicy: Unsupported value: "Some": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"]"#,
    ),
    (
        r#"{"clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.9"]}"#,
        r#"spec.clusterIPs: Invalid value: ["10.96.0.9"]: first value must match `clusterIP`"#,
    ),
    (
        r#"{"clusterIPs": ["10.96.0.9"]}"#,
        r#"spec.clusterIPs: Invalid value: ["10.96.0.9"]: must be empty when `clusterIP` is not specified"#,
    ),
    (
        r#"{"clusterIP": "here"}"#,
        r#"spec.clusterIPs[0]: Invalid value: "here": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
    ),
    (
        r#"{"type": "NodePort", "clusterIP": "None"}"#,
        r#"spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services"#,
    ),
    (
        r#"{"type": "ExternalName", "externalName": "x.example", "clusterIP": "10.96.0.9"}"#,
        "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
    ),
];

#[tokio::test]
async fn fields_of_another_service_type_are_rejected() {
    let api = TestApi::new().await;
    for (fields, expected_message) in INVALID_SPECS {
        let spec = web_spec(serde_json::from_str(fields).unwrap());
        let response = api.send(&post(SERVICES, &service("s", spec))).await;
        let message = format!("Service \"s\" is invalid: {expected_message}");
        assert_eq!((response.status, response.body["message"].as_str()), (422, Some(message.as_str())), "{fields}");
    }
}

#[tokio::test]
async fn source_ranges_annotation_is_validated() {
    let (api, key) = (TestApi::new().await, "service.beta.kubernetes.io/load-balancer-source-ranges");
    let at = format!("metadata.annotations[{key}]");
    let bad = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    for (kind, ranges, reason) in [
        ("ClusterIP", "10.0.0.0/8", format!("{at}: Forbidden: may only be used when `type` is 'LoadBalancer'")),
        ("LoadBalancer", "10.0.0.0/8, foo.bar", format!("{at}: Invalid value: \"foo.bar\": {bad}")),
    ] {
        let mut object = service("s", web_spec(json!({"type": kind})));
        object["metadata"]["annotations"][key] = json!(ranges);
        let message = format!("Service \"s\" is invalid: {reason}");
        api.check(post(SERVICES, &object), 422, json!({"message": message})).await;
    }
    let mut object = service("s", web_spec(json!({"type": "LoadBalancer"})));
    object["metadata"]["annotations"][key] = json!(" ");
    api.check(post(SERVICES, &object), 201, json!({})).await;
}

#[tokio::test]
async fn service_type_change_drops_unused_fields() {
    let api = TestApi::new().await;
    let path = format!("{SERVICES}/s");
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "a.example/b"});
    let created = api.check(post(SERVICES, &service("s", web_spec(spec.clone()))), 201, json!({})).await.body;
    let health = created["spec"]["healthCheckNodePort"].as_i64().unwrap();
    let port = created["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30_000..=32_767).contains(&health) && health != port, "{created:#}");
    // A PUT without the allocated ports keeps them.
    let same = json!({"spec": {"healthCheckNodePort": health, "ports": [{"nodePort": port}]}});
    api.check(put(&path, &service("s", web_spec(spec))), 200, same).await;
    let message = "Service \"s\" is invalid: spec.loadBalancerClass: Invalid value: \"c\": may not change once set";
    api.check(merge_patch(&path, &json!({"spec": {"loadBalancerClass": "c"}})), 422, json!({"message": message})).await;
    let message = "Service \"s\" is invalid: spec.healthCheckNodePort: Forbidden: field is immutable";
    api.check(merge_patch(&path, &json!({"spec": {"healthCheckNodePort": 30_123}})), 422, json!({"message": message}))
        .await;
    let balanced = json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.10"}]}}});
    api.check(merge_patch(format!("{path}/status"), &balanced), 200, balanced.clone()).await;
    // Fields that change with the type are validated; unchanged ones are dropped.
    let invalid = json!({"spec": {"type": "ClusterIP", "externalTrafficPolicy": "Cluster"}});
    let message = "Service \"s\" is invalid: spec.externalTrafficPolicy: Invalid value: \"Cluster\": may only be set for externally-accessible services";
    api.check(merge_patch(&path, &invalid), 422, json!({"message": message})).await;
    let inside = api.check(merge_patch(&path, &json!({"spec": {"type": "ClusterIP"}})), 200, json!({})).await.body;
    let gone = ["externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts", "loadBalancerClass"];
    let left: Vec<&&str> = gone.iter().filter(|f| !inside["spec"][**f].is_null()).collect();
    assert!(left.is_empty() && inside["spec"]["ports"][0]["nodePort"].is_null(), "{left:?} {inside:#}");
    assert_eq!(inside["spec"]["clusterIP"], created["spec"]["clusterIP"]);
    assert_eq!(inside["status"]["loadBalancer"], json!({}));
    let name = json!({"spec": {"type": "ExternalName", "externalName": "x.example"}});
    let named = api.check(merge_patch(&path, &name), 200, json!({})).await.body;
    let gone = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];
    let left: Vec<&&str> = gone.iter().filter(|f| !named["spec"][**f].is_null()).collect();
    assert!(left.is_empty(), "{left:?} {named:#}");
    // Node ports are not allocated if they are disabled.
    let none = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let created = api.check(post(SERVICES, &service("t", web_spec(none))), 201, json!({})).await.body;
    assert!(created["spec"]["ports"][0]["nodePort"].is_null(), "{created:#}");
}

#[tokio::test]
async fn kubernetes_service_exists() {
    let api = TestApi::new().await;
    for _ in 0..2 {
        api.server.bootstrap_service("127.0.0.1:6443".parse().unwrap()).await;
    }
    let expected = json!({"metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}}, "spec": {
        "clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]}});
    api.check(get(format!("{SERVICES}/kubernetes")), 200, expected).await;
}

#[tokio::test]
async fn kubernetes_service_endpoints_name_the_api_address() {
    let api = TestApi::new().await;
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
        let subset = api.send(&get(endpoints)).await.body["subsets"][0].clone();
        assert_eq!(
            (subset["addresses"][0]["ip"].as_str(), subset["ports"][0]["port"].as_i64()),
            (ip, ip.map(|_| port)),
            "{address}"
        );
    }
    // A restart at the same address writes nothing.
    let before = api.send(&get(slice)).await.body;
    api.server.bootstrap_service("[2001:db8::1]:6443".parse().unwrap()).await;
    assert_eq!(api.send(&get(slice)).await.body, before);
}

#[tokio::test]
async fn kube_dns_service_exists_unless_taken() {
    let api = TestApi::new().await;
    let service = "/api/v1/namespaces/kube-system/services/kube-dns";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns-of-podium";
    for port in [53, 1053, 1053] {
        api.server.bootstrap_name_server(format!("10.244.0.1:{port}").parse().unwrap()).await;
        let expected = json!({"endpoints": [{"addresses": ["10.244.0.1"]}], "ports": [{"name": "dns", "port": port, "protocol": "UDP"}, {"name": "dns-tcp", "port": port}]});
        api.check(get(slice), 200, expected).await;
    }
    api.check(get(service), 200, json!({"spec": {"clusterIP": "10.96.0.10"}})).await;
    let own = json!({"spec": {"selector": {"k8s-app": "kube-dns"}}});
    api.check(merge_patch(service, &own), 200, own.clone()).await;
    api.check(delete(slice), 200, json!({})).await;
    api.server.bootstrap_name_server("10.244.0.1:53".parse().unwrap()).await;
    api.check(get(slice), 404, json!({})).await;
}

#[tokio::test]
async fn port_of_two_protocols_shares_one_node_port() {
    let api = TestApi::new().await;
    let both = |node: Value| {
        let port = |name: &str, protocol: &str| json!({"name": name, "port": 53, "protocol": protocol});
        let (mut first, second) = (port("udp", "UDP"), port("tcp", "TCP"));
        first["nodePort"] = node;
        json!({"type": "NodePort", "ports": [first, second]})
    };
    let ports = |service: &Value| [0, 1].map(|i| service["spec"]["ports"][i]["nodePort"].as_i64().unwrap());
    let created = api.check(post(SERVICES, &service("asked", both(json!(30053)))), 201, json!({})).await.body;
    assert_eq!(ports(&created), [30053, 30053]);
    let created = api.check(post(SERVICES, &service("given", both(Value::Null))), 201, json!({})).await.body;
    let [udp, tcp] = ports(&created);
    assert!(udp == tcp && udp != 30053, "{udp} {tcp}");
    // The node port is kept, and not allocated to another Service.
    let again = api.check(
        merge_patch(format!("{SERVICES}/given"), &json!({"metadata": {"labels": {"a": "b"}}})),
        200,
        json!({}),
    );
    assert_eq!(ports(&again.await.body), [udp, tcp]);
    let message = "Service \"other\" is invalid: spec.ports[0].nodePort: Invalid value: 30053: provided port is already allocated";
    api.check(post(SERVICES, &service("other", both(json!(30053)))), 422, json!({"message": message})).await;
}

#[tokio::test]
async fn load_balancer_status_is_validated() {
    let api = TestApi::new().await;
    api.check(post(SERVICES, &service("plain", web_spec(json!({})))), 201, json!({})).await;
    api.check(post(SERVICES, &service("lb", web_spec(json!({"type": "LoadBalancer"})))), 201, json!({})).await;
    let request = |name: &str, ingress: Value| {
        merge_patch(format!("{SERVICES}/{name}/status"), &json!({"status": {"loadBalancer": {"ingress": [ingress]}}}))
    };
    let rejected = |name: &str, reason: &str| json!({"message": format!("Service {name:?} is invalid: status.loadBalancer.ingress{reason}")});
    let reason = ": Forbidden: may only be used when `spec.type` is \"LoadBalancer\"";
    api.check(request("plain", json!({"ip": "192.0.2.1"})), 422, rejected("plain", reason)).await;
    for (ingress, reason) in [
        (json!({"ipMode": "VIP"}), "[0].ipMode: Forbidden: may not be specified when `ip` is not set"),
        (
            json!({"ip": "192.0.2.1", "ipMode": "Own"}),
            "[0].ipMode: Unsupported value: \"Own\": supported values: \"Proxy\", \"VIP\"",
        ),
        (
            json!({"hostname": "192.0.2.1"}),
            "[0].hostname: Invalid value: \"192.0.2.1\": must be a DNS name, not an IP address",
        ),
    ] {
        api.check(request("lb", ingress), 422, rejected("lb", reason)).await;
    }
    let returned = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}});
    api.check(request("lb", json!({"ip": "192.0.2.1"})), 200, returned).await;
}

#[tokio::test]
async fn endpoints_reject_loopback_and_link_local() {
    let api = TestApi::new().await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    for (address, reason) in [
        ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("224.0.0.1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
    ] {
        let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": [address]}]});
        let message = format!(
            "EndpointSlice.discovery.k8s.io \"s\" is invalid: endpoints[0].addresses[0]: Invalid value: {address:?}: {reason}"
        );
        api.check(post(slices, &slice), 422, json!({"message": message})).await;
    }
}

#[tokio::test]
async fn new_external_ips_are_denied_unless_admission_is_off() {
    let path = SERVICES;
    let with = |name: &str, ips: Value| service(name, web_spec(json!({"externalIPs": ips})));
    let denied = |name: &str| {
        let reason = "Use of external IPs is denied by admission control";
        json!({"reason": "Forbidden", "message": format!("services {name:?} is forbidden: {reason}")})
    };
    let open = TestApi::new().await.without_plugin("DenyServiceExternalIPs");
    open.check(post(path, &with("old", json!(["192.0.2.1", "192.0.2.2"]))), 201, json!({})).await;
    let api = TestApi::reopen(open.engine.clone()).await;
    api.check(post(path, &with("new", json!(["192.0.2.1"]))), 403, denied("new")).await;
    api.check(post(path, &with("new", json!([]))), 201, json!({})).await;
    let add = json!({"spec": {"externalIPs": ["192.0.2.3"]}});
    for name in ["new", "old"] {
        api.check(merge_patch(format!("{path}/{name}"), &add), 403, denied(name)).await;
        let applied = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"externalIPs": ["192.0.2.3"]}});
        api.check(apply(format!("{path}/{name}?force=true"), "m", &applied), 403, denied(name)).await;
    }
    let fewer = json!({"spec": {"externalIPs": ["192.0.2.2"]}});
    api.check(merge_patch(format!("{path}/old"), &fewer), 200, fewer.clone()).await;
    api.check(delete(format!("{path}/old")), 200, json!({})).await;
}
