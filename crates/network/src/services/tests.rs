//! Tests of the rules, from API objects to nft scripts.

use super::{
    conntrack::{StaleEntry, stale_entries},
    reserved_ips::ReservedIps,
    rules::{ProxyConfig, table},
    service_ports::{ServicePort, service_ports},
};
use expect_test::{Expect, expect};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the Service `default/web` with this spec, and port 80 named `http` by default.
fn service(spec: &Value) -> Arc<Service> {
    let mut object = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
        "clusterIP": "10.96.7.7", "type": "ClusterIP", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object["status"] = object["spec"]["status"].take();
    Arc::new(serde_json::from_value(object).expect("a Service"))
}

/// Returns its EndpointSlice: `address` with the words `not ready`, `serving`, `terminating`, `here`.
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

fn proxied_ports(spec: &Value, endpoints: &[&str]) -> Vec<ServicePort> {
    service_ports(&[service(spec)], &[slice(endpoints)], "node", &reserved())
}

fn reserved() -> ReservedIps {
    let ProxyConfig { pods, services, .. } = config(true);
    ReservedIps::new(pods, services, vec!["192.0.2.1".parse().expect("an address")])
}

/// Checks the endpoints of the cluster and of this node.
#[track_caller]
fn check_endpoints(endpoints: &[&str], anywhere: &[&str], local_chain: &[&str]) {
    let found = proxied_ports(&json!({}), endpoints);
    let text = |all: &std::collections::BTreeSet<std::net::SocketAddrV4>| -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    };
    assert_eq!((text(&found[0].endpoints), text(&found[0].local_endpoints)), (owned(anywhere), owned(local_chain)));
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn ready_endpoints_precede_serving_terminating_ones() {
    check_endpoints(&[], &[], &[]);
    check_endpoints(&["10.0.0.2", "10.0.0.1 here"], &["10.0.0.1:8080", "10.0.0.2:8080"], &["10.0.0.1:8080"]);
    check_endpoints(&["10.0.0.1 not ready here", "10.0.0.2 here"], &["10.0.0.2:8080"], &["10.0.0.2:8080"]);
    let ending = "10.0.0.3 not ready serving terminating here";
    check_endpoints(&[ending, "10.0.0.2"], &["10.0.0.2:8080"], &["10.0.0.3:8080"]);
    check_endpoints(&[ending, "10.0.0.4 not ready terminating"], &["10.0.0.3:8080"], &["10.0.0.3:8080"]);
}

#[test]
fn headless_and_foreign_services_are_not_proxied() {
    let none = |spec: Value| assert_eq!(proxied_ports(&spec, &["10.0.0.1"]), []);
    none(json!({"clusterIP": "None"}));
    none(json!({"clusterIP": "fd00::1"}));
    none(json!({"type": "ExternalName", "clusterIP": null, "externalName": "x.example"}));
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        let mut others = (*service(&json!({}))).clone();
        others.metadata.labels = Some([(label.to_owned(), "mine".to_owned())].into());
        assert_eq!(service_ports(&[Arc::new(others)], &[], "node", &reserved()), [], "{label}");
    }
}

fn config(sees_bridge: bool) -> ProxyConfig {
    ProxyConfig {
        bridge: "pd-1".into(),
        pods: "10.0.0.0/24".parse().expect("a CIDR"),
        services: "10.96.0.0/16".parse().expect("a CIDR"),
        load_balancers: Some("10.97.0.0/24".parse().expect("a CIDR")),
        sees_bridge,
    }
}

/// Checks the nft script that the Service adds.
#[track_caller]
fn check_rules(spec: &Value, endpoints: &[&str], sees_bridge: bool, expected: &Expect) {
    let config = config(sees_bridge);
    let empty = table(&[], &config);
    expected.assert_eq(&table(&proxied_ports(spec, endpoints), &config).script("t", Some(&empty)));
}

#[test]
fn table_without_services_has_base_chains_only() {
    let config = config(true);
    expect![[r#"
        add table ip t
        delete table ip t
        add table ip t
        add map ip t cluster-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
        add map ip t external-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
        add map ip t known-ips { type ipv4_addr : verdict ; }
        add map ip t no-endpoint-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
        add map ip t no-endpoint-node-ports { type inet_proto . inet_service : verdict ; }
        add map ip t node-ports { type inet_proto . inet_service : verdict ; }
        add chain ip t drop-chain
        add chain ip t filter-input { type filter hook input priority -110 ; }
        add chain ip t filter-output { type filter hook output priority -90 ; }
        add chain ip t forward { type filter hook forward priority -110 ; }
        add chain ip t loopback { type filter hook prerouting priority -300 ; }
        add chain ip t mark-for-masquerade
        add chain ip t output { type nat hook output priority -100 ; }
        add chain ip t postrouting { type nat hook postrouting priority 90 ; }
        add chain ip t prerouting { type nat hook prerouting priority -100 ; }
        add chain ip t reject-chain
        add rule ip t drop-chain drop
        add rule ip t filter-input ct state new fib daddr type local meta l4proto . th dport vmap @no-endpoint-node-ports
        add rule ip t filter-output ct state new fib daddr type != local ip daddr . meta l4proto . th dport vmap @no-endpoint-ips
        add rule ip t filter-output ct state new fib daddr type local meta l4proto . th dport vmap @no-endpoint-node-ports
        add rule ip t filter-output ct state new ip daddr vmap @known-ips
        add rule ip t filter-output ct state new ip daddr 10.97.0.0/24 reject
        add rule ip t forward ip saddr 10.0.0.0/24 ct state new fib daddr type != local ip daddr . meta l4proto . th dport vmap @no-endpoint-ips
        add rule ip t forward ip saddr 10.0.0.0/24 ip daddr 10.96.0.0/16 reject
        add rule ip t forward ct state new ip daddr 10.97.0.0/24 reject
        add rule ip t loopback iifname pd-1 ip daddr 127.0.0.0/8 drop
        add rule ip t mark-for-masquerade meta mark set meta mark or 0x4000
        add rule ip t output ip daddr . meta l4proto . th dport vmap @cluster-ips
        add rule ip t output fib daddr type != local ip daddr . meta l4proto . th dport vmap @external-ips
        add rule ip t output fib daddr type local meta l4proto . th dport vmap @node-ports
        add rule ip t postrouting meta mark and 0x4000 == 0 return
        add rule ip t postrouting meta mark set meta mark xor 0x4000
        add rule ip t postrouting masquerade fully-random
        add rule ip t prerouting ip saddr 10.0.0.0/24 ip daddr . meta l4proto . th dport vmap @cluster-ips
        add rule ip t prerouting fib daddr type != local ip daddr . meta l4proto . th dport vmap @external-ips
        add rule ip t prerouting ip daddr != 127.0.0.0/8 fib daddr type local meta l4proto . th dport vmap @node-ports
        add rule ip t reject-chain reject
    "#]]
    .assert_eq(&table(&[], &config).script("t", None));
}

#[test]
fn cluster_ip_is_load_balanced_to_endpoints() {
    check_rules(
        &json!({}),
        &["10.0.0.1 here", "10.0.0.2 here"],
        true,
        &expect![[r#"
            add chain ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080
            add chain ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.2/8080
            add chain ip t service-95253A1D-default/web/tcp/http
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 ip saddr 10.0.0.1 jump mark-for-masquerade
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 meta l4proto tcp dnat to 10.0.0.1:8080
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.2/8080 ip saddr 10.0.0.2 jump mark-for-masquerade
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.2/8080 meta l4proto tcp dnat to 10.0.0.2:8080
            add rule ip t service-95253A1D-default/web/tcp/http ip daddr 10.96.7.7 ip saddr != 10.0.0.0/24 jump mark-for-masquerade
            add rule ip t service-95253A1D-default/web/tcp/http numgen random mod 2 vmap { 0 : goto endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080, 1 : goto endpoint-95253A1D-default/web/tcp/http__10.0.0.2/8080 }
            add element ip t cluster-ips { 10.96.7.7 . tcp . 80 : goto service-95253A1D-default/web/tcp/http }
            add element ip t known-ips { 10.96.7.7 : goto reject-chain }
        "#]],
    );
}

#[test]
fn service_without_endpoints_is_rejected() {
    check_rules(
        &json!({}),
        &[],
        true,
        &expect![[r#"
        add element ip t known-ips { 10.96.7.7 : goto reject-chain }
        add element ip t no-endpoint-ips { 10.96.7.7 . tcp . 80 : goto reject-chain }
    "#]],
    );
}

#[test]
fn session_affinity_keeps_a_clients_endpoint() {
    let spec = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}});
    check_rules(
        &spec,
        &["10.0.0.1 here"],
        false,
        &expect![[r#"
            add set ip t clients-DC435B36 { type ipv4_addr ; flags dynamic,timeout ; timeout 60s ; }
            add chain ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080
            add chain ip t service-95253A1D-default/web/tcp/http
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 ip saddr 10.0.0.0/24 jump mark-for-masquerade
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 update @clients-DC435B36 { ip saddr }
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 meta l4proto tcp dnat to 10.0.0.1:8080
            add rule ip t service-95253A1D-default/web/tcp/http ip daddr 10.96.7.7 ip saddr != 10.0.0.0/24 jump mark-for-masquerade
            add rule ip t service-95253A1D-default/web/tcp/http ip saddr @clients-DC435B36 goto endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080
            add rule ip t service-95253A1D-default/web/tcp/http numgen random mod 1 vmap { 0 : goto endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 }
            add element ip t cluster-ips { 10.96.7.7 . tcp . 80 : goto service-95253A1D-default/web/tcp/http }
            add element ip t known-ips { 10.96.7.7 : goto reject-chain }
        "#]],
    );
}

#[test]
fn external_traffic_is_masqueraded() {
    let spec = json!({"type": "LoadBalancer", "externalIPs": ["192.0.2.8"],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}],
        "loadBalancerSourceRanges": ["198.51.100.0/24"],
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"ip": "192.0.2.10", "ipMode": "Proxy"}]}}});
    check_rules(
        &spec,
        &["10.0.0.1 here"],
        true,
        &expect![[r#"
        add chain ip t balancer-95253A1D-default/web/tcp/http
        add chain ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080
        add chain ip t external-95253A1D-default/web/tcp/http
        add chain ip t service-95253A1D-default/web/tcp/http
        add rule ip t balancer-95253A1D-default/web/tcp/http ip saddr 198.51.100.0/24 goto external-95253A1D-default/web/tcp/http
        add rule ip t balancer-95253A1D-default/web/tcp/http drop
        add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 ip saddr 10.0.0.1 jump mark-for-masquerade
        add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 meta l4proto tcp dnat to 10.0.0.1:8080
        add rule ip t external-95253A1D-default/web/tcp/http jump mark-for-masquerade
        add rule ip t external-95253A1D-default/web/tcp/http goto service-95253A1D-default/web/tcp/http
        add rule ip t service-95253A1D-default/web/tcp/http ip daddr 10.96.7.7 ip saddr != 10.0.0.0/24 jump mark-for-masquerade
        add rule ip t service-95253A1D-default/web/tcp/http numgen random mod 1 vmap { 0 : goto endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 }
        add element ip t cluster-ips { 10.96.7.7 . tcp . 80 : goto service-95253A1D-default/web/tcp/http }
        add element ip t external-ips { 192.0.2.8 . tcp . 80 : goto external-95253A1D-default/web/tcp/http }
        add element ip t external-ips { 192.0.2.9 . tcp . 80 : goto balancer-95253A1D-default/web/tcp/http }
        add element ip t known-ips { 10.96.7.7 : goto reject-chain }
        add element ip t node-ports { tcp . 30080 : goto external-95253A1D-default/web/tcp/http }
    "#]],
    );
}

#[test]
fn ipv6_only_source_ranges_deny_ipv4_clients() {
    let chain = |ranges: Value| {
        let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges,
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
        let table = table(&proxied_ports(&spec, &["10.0.0.1"]), &config(true));
        table.chains["balancer-95253A1D-default/web/tcp/http"].rules.clone()
    };
    let open = "goto external-95253A1D-default/web/tcp/http";
    assert_eq!(chain(json!([])), [open]);
    assert_eq!(chain(json!(["fd00::/8"])), ["drop"]);
    let allowed = format!("ip saddr 198.51.100.0/24 {open}");
    assert_eq!(chain(json!(["fd00::/8", "198.51.100.0/24"])), [allowed.as_str(), "drop"]);
}

#[test]
fn reserved_addresses_get_no_service_rules() {
    let masqueraded_sources = ["192.0.2.8", "10.97.0.3"];
    // A Pod, its gateway, Services, a router, loopback, a metadata service, unspecified, multicast.
    let of_others = [
        "10.0.0.2",
        "10.0.0.1",
        "10.96.0.1",
        "10.96.7.9",
        "192.0.2.1",
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::ffff:10.96.0.1",
        "010.0.0.2",
    ];
    let all: Vec<&str> = of_others.into_iter().chain(masqueraded_sources).collect();
    let ingress: Vec<Value> = all.iter().map(|ip| json!({"ip": ip})).collect();
    let found = proxied_ports(
        &json!({"type": "LoadBalancer", "externalIPs": all, "status": {"loadBalancer": {"ingress": ingress}}}),
        &["10.0.0.1", "127.0.0.1", "169.254.169.254"],
    );
    let texts = |ips: &[std::net::Ipv4Addr]| -> Vec<String> { ips.iter().map(ToString::to_string).collect() };
    assert_eq!(texts(&found[0].external_ips), masqueraded_sources);
    assert_eq!(texts(&found[0].load_balancer_ips), masqueraded_sources);
    assert_eq!(found[0].endpoints.len(), 1, "{:?}", found[0].endpoints);
}

#[test]
fn local_traffic_policy_uses_only_local_endpoints() {
    let spec = json!({"type": "NodePort", "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}]});
    check_rules(
        &spec,
        &["10.0.0.1 here", "10.1.0.1"],
        true,
        &expect![[r#"
        add chain ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080
        add chain ip t endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080
        add chain ip t external-95253A1D-default/web/tcp/http
        add chain ip t local-95253A1D-default/web/tcp/http
        add chain ip t service-95253A1D-default/web/tcp/http
        add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 ip saddr 10.0.0.1 jump mark-for-masquerade
        add rule ip t endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 meta l4proto tcp dnat to 10.0.0.1:8080
        add rule ip t endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080 ip saddr 10.1.0.1 jump mark-for-masquerade
        add rule ip t endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080 meta l4proto tcp dnat to 10.1.0.1:8080
        add rule ip t external-95253A1D-default/web/tcp/http ip saddr 10.0.0.0/24 goto service-95253A1D-default/web/tcp/http
        add rule ip t external-95253A1D-default/web/tcp/http fib saddr type local jump mark-for-masquerade
        add rule ip t external-95253A1D-default/web/tcp/http fib saddr type local goto service-95253A1D-default/web/tcp/http
        add rule ip t external-95253A1D-default/web/tcp/http goto local-95253A1D-default/web/tcp/http
        add rule ip t local-95253A1D-default/web/tcp/http numgen random mod 1 vmap { 0 : goto endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080 }
        add rule ip t service-95253A1D-default/web/tcp/http ip daddr 10.96.7.7 ip saddr != 10.0.0.0/24 jump mark-for-masquerade
        add rule ip t service-95253A1D-default/web/tcp/http numgen random mod 2 vmap { 0 : goto endpoint-95253A1D-default/web/tcp/http__10.0.0.1/8080, 1 : goto endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080 }
        add element ip t cluster-ips { 10.96.7.7 . tcp . 80 : goto local-95253A1D-default/web/tcp/http }
        add element ip t known-ips { 10.96.7.7 : goto reject-chain }
        add element ip t node-ports { tcp . 30080 : goto external-95253A1D-default/web/tcp/http }
    "#]],
    );
    check_rules(
        &spec,
        &["10.1.0.1"],
        true,
        &expect![[r#"
            add chain ip t endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080
            add chain ip t external-95253A1D-default/web/tcp/http
            add chain ip t service-95253A1D-default/web/tcp/http
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080 ip saddr 10.1.0.1 jump mark-for-masquerade
            add rule ip t endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080 meta l4proto tcp dnat to 10.1.0.1:8080
            add rule ip t external-95253A1D-default/web/tcp/http ip saddr 10.0.0.0/24 goto service-95253A1D-default/web/tcp/http
            add rule ip t external-95253A1D-default/web/tcp/http fib saddr type local jump mark-for-masquerade
            add rule ip t external-95253A1D-default/web/tcp/http fib saddr type local goto service-95253A1D-default/web/tcp/http
            add rule ip t external-95253A1D-default/web/tcp/http drop
            add rule ip t service-95253A1D-default/web/tcp/http ip daddr 10.96.7.7 ip saddr != 10.0.0.0/24 jump mark-for-masquerade
            add rule ip t service-95253A1D-default/web/tcp/http numgen random mod 1 vmap { 0 : goto endpoint-95253A1D-default/web/tcp/http__10.1.0.1/8080 }
            add element ip t known-ips { 10.96.7.7 : goto reject-chain }
            add element ip t no-endpoint-ips { 10.96.7.7 . tcp . 80 : goto drop-chain }
            add element ip t node-ports { tcp . 30080 : goto external-95253A1D-default/web/tcp/http }
        "#]],
    );
}

#[test]
fn stale_conntrack_entries_are_udp_only() {
    let udp = |endpoints: &[&str]| {
        let mut ports = proxied_ports(&json!({}), endpoints);
        (ports[0].protocol, ports[0].node_port) = ("udp", Some(30_053));
        ports
    };
    let ip = |text: &str| text.parse().expect("an address");
    let check = |before: &[ServicePort], now: &[ServicePort], expected: &[StaleEntry]| {
        assert_eq!(stale_entries(before, now).into_iter().collect::<Vec<_>>(), expected);
    };
    let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|text| StaleEntry::Endpoint(ip(text)));
    check(&udp(&["10.0.0.1", "10.0.0.2"]), &udp(&["10.0.0.2", "10.0.0.3"]), &[first]);
    check(&udp(&["10.0.0.1", "10.0.0.2"]), &[], &[first, second]);
    let answers = [StaleEntry::DestinationIp(ip("10.96.7.7")), StaleEntry::NodePort(30_053)];
    check(&[], &udp(&["10.0.0.1"]), &answers);
    check(&udp(&[]), &udp(&["10.0.0.1"]), &answers);
    check(&udp(&["10.0.0.1"]), &udp(&["10.0.0.1"]), &[]);
    check(&proxied_ports(&json!({}), &["10.0.0.1"]), &[], &[]);
}
