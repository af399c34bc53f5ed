//! Tests of the rules, from API objects to nft tables.

use super::{
    gate::{IpOwner, IpOwners},
    pod_addresses::trim,
    rules::table,
};
use crate::{command::run, destroy::real_tests::in_own_namespaces, nft_table::Table};
use expect_test::{Expect, expect};
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    networking::v1::NetworkPolicy,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// `namespace/name address app=.. [words]`: the Pod has a port `http` of its own number; words are `host`, `ended`, `ending`.
fn pod(text: &str) -> Arc<Pod> {
    let words: Vec<&str> = text.split(' ').collect();
    let (namespace, name) = words[0].split_once('/').expect("a namespace");
    let (key, value) = words[2].split_once('=').expect("a label");
    let has = |word: &str| words.contains(&word);
    let http = if has("other") { 9090 } else { 8080 };
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": words[0], "labels": {key: value}, "annotations": {"a": "b"},
            "creationTimestamp": if has("old") { "2026-01-01T00:00:00Z" } else { "2026-01-02T00:00:00Z" },
            "deletionTimestamp": has("ending").then_some("2026-01-03T00:00:00Z")},
        "spec": {"hostNetwork": has("host"), "containers": [{"name": "c", "image": "i", "ports": [
            {"name": "http", "containerPort": http}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]}]},
        "status": {"podIP": words[1], "phase": if has("ended") { "Succeeded" } else { "Running" }}}))
    .expect("a Pod");
    Arc::new(trim(pod))
}

/// Namespaces are labelled with their names (`NamespaceDefaultLabelName`).
fn namespace(name: &str) -> Arc<Namespace> {
    let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}});
    Arc::new(serde_json::from_value(object).expect("a Namespace"))
}

/// Returns the policy `shop/policy-N`.
fn policy(n: usize, spec: &Value) -> Arc<NetworkPolicy> {
    let object = json!({"metadata": {"name": format!("policy-{n}"), "namespace": "shop"}, "spec": spec});
    Arc::new(serde_json::from_value(object).expect("a NetworkPolicy"))
}

fn made(specs: &[Value], pods: &[&str]) -> Table {
    made_of(specs, pods, &IpOwners::new())
}

fn made_of(specs: &[Value], pods: &[&str], owners: &IpOwners) -> Table {
    let policies: Vec<_> = specs.iter().enumerate().map(|(n, spec)| policy(n, spec)).collect();
    let pods: Vec<_> = pods.iter().map(|text| pod(text)).collect();
    table(&policies, &pods, owners, &["shop", "bank"].map(namespace), "10.0.0.0/24".parse().expect("a CIDR"))
}

/// Pods of a cluster with the namespaces `shop` and `bank`.
const PODS: &[&str] = &["shop/web 10.0.0.2 app=web", "shop/db 10.0.0.3 app=db other", "bank/db 10.0.0.4 app=db"];

/// Checks the map elements and chains of the isolated Pods of [`PODS`].
#[track_caller]
fn check(specs: &[Value], expected: &Expect) {
    let script = made(specs, PODS).script("t", Some(&Table::default()));
    let rules = script
        .lines()
        .filter_map(|line| line.strip_prefix("add rule ip t ").or(line.strip_prefix("add element ip t ")));
    let always = ["forward ", "itself ", "to-pods ", "from-pods "];
    let is_always = |line: &str| line.ends_with(": return }") || always.iter().any(|name| line.starts_with(name));
    let rules: String = rules.filter(|line| !is_always(line)).flat_map(|line| [line, "\n"]).collect();
    expected.assert_eq(&rules);
}

#[test]
fn policy_table_accepts_established_connections_first() {
    let both = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress", "Egress"]});
    expect![[r#"
        add table ip t
        delete table ip t
        add table ip t
        add map ip t destinations { type ipv4_addr : verdict ; }
        add map ip t itself { type ipv4_addr . ipv4_addr : verdict ; }
        add map ip t sources { type ipv4_addr : verdict ; }
        add chain ip t egress-D90EE9CCF6BEA1D2-shop
        add chain ip t forward { type filter hook forward priority -100 ; }
        add chain ip t from-pods
        add chain ip t ingress-D90EE9CCF6BEA1D2-shop
        add chain ip t to-pods
        add rule ip t egress-D90EE9CCF6BEA1D2-shop drop
        add rule ip t forward ct state established,related accept
        add rule ip t forward ip saddr . ip daddr vmap @itself
        add rule ip t forward ip saddr 10.0.0.0/24 jump from-pods
        add rule ip t forward ip daddr 10.0.0.0/24 jump to-pods
        add rule ip t from-pods ip saddr vmap @sources
        add rule ip t from-pods drop
        add rule ip t ingress-D90EE9CCF6BEA1D2-shop drop
        add rule ip t to-pods ip daddr vmap @destinations
        add rule ip t to-pods drop
        add element ip t destinations { 10.0.0.2 : goto ingress-D90EE9CCF6BEA1D2-shop }
        add element ip t destinations { 10.0.0.3 : return }
        add element ip t destinations { 10.0.0.4 : return }
        add element ip t itself { 10.0.0.2 . 10.0.0.2 : accept }
        add element ip t sources { 10.0.0.2 : goto egress-D90EE9CCF6BEA1D2-shop }
        add element ip t sources { 10.0.0.3 : return }
        add element ip t sources { 10.0.0.4 : return }
    "#]]
    .assert_eq(&made(&[both], PODS).script("t", None));
}

#[test]
fn unknown_pod_passes_in_non_isolated_direction() {
    let script = made(&[json!({"podSelector": {}})], PODS).script("t", None);
    assert!(script.contains("to-pods drop") && !script.contains("from-pods"), "{script}");
}

#[test]
fn selected_pod_is_isolated_and_policies_are_additive() {
    check(
        &[json!({"podSelector": {}})],
        &expect![[r#"
            ingress-D90EE9CCF6BEA1D2-shop drop
            destinations { 10.0.0.2 : goto ingress-D90EE9CCF6BEA1D2-shop }
            destinations { 10.0.0.3 : goto ingress-D90EE9CCF6BEA1D2-shop }
        "#]],
    );
    check(&[json!({"podSelector": {"matchLabels": {"app": "nobody"}}})], &expect![""]);
    let web = json!({"matchLabels": {"app": "web"}});
    check(
        &[
            json!({"podSelector": web, "ingress": [{}]}),
            json!({"podSelector": web, "ingress": [{"ports": [{"port": 80}]}]}),
        ],
        &expect![[r#"
            ingress-4D590CEFA3EBC795-shop return
            ingress-4D590CEFA3EBC795-shop tcp dport { 80 } return
            ingress-4D590CEFA3EBC795-shop drop
            destinations { 10.0.0.2 : goto ingress-4D590CEFA3EBC795-shop }
        "#]],
    );
}

#[test]
fn policy_types_default_to_egress_with_egress_rules() {
    let web = json!({"matchLabels": {"app": "web"}});
    check(
        &[json!({"podSelector": web, "egress": [{}]})],
        &expect![[r#"
            egress-F0C2FA561FCFF3F3-shop return
            egress-F0C2FA561FCFF3F3-shop drop
            ingress-D90EE9CCF6BEA1D2-shop drop
            destinations { 10.0.0.2 : goto ingress-D90EE9CCF6BEA1D2-shop }
            sources { 10.0.0.2 : goto egress-F0C2FA561FCFF3F3-shop }
        "#]],
    );
    check(
        &[json!({"podSelector": web, "policyTypes": ["Egress"], "ingress": [{}]})],
        &expect![[r#"
            egress-D90EE9CCF6BEA1D2-shop drop
            sources { 10.0.0.2 : goto egress-D90EE9CCF6BEA1D2-shop }
        "#]],
    );
}

#[test]
fn policy_peers_are_selected_pods_or_ip_blocks() {
    let web = json!({"matchLabels": {"app": "web"}});
    let from = |peers: Value| json!({"podSelector": web, "ingress": [{"from": peers}]});
    let db = json!({"matchLabels": {"app": "db"}});
    let bank = json!({"matchLabels": {"kubernetes.io/metadata.name": "bank"}});
    check(
        &[from(json!([]))],
        &expect![[r#"
            ingress-F0C2FA561FCFF3F3-shop return
            ingress-F0C2FA561FCFF3F3-shop drop
            destinations { 10.0.0.2 : goto ingress-F0C2FA561FCFF3F3-shop }
        "#]],
    );
    check(
        &[from(json!([{"podSelector": db}]))],
        &expect![[r#"
            ingress-60B6699AB06811E4-shop ip saddr { 10.0.0.3 } return
            ingress-60B6699AB06811E4-shop drop
            destinations { 10.0.0.2 : goto ingress-60B6699AB06811E4-shop }
        "#]],
    );
    check(
        &[from(json!([{"namespaceSelector": bank}]))],
        &expect![[r#"
            ingress-F597D27651F41EB0-shop ip saddr { 10.0.0.4 } return
            ingress-F597D27651F41EB0-shop drop
            destinations { 10.0.0.2 : goto ingress-F597D27651F41EB0-shop }
        "#]],
    );
    check(
        &[from(json!([{"namespaceSelector": {}, "podSelector": db}]))],
        &expect![[r#"
            ingress-61B936BC9AAE2AEA-shop ip saddr { 10.0.0.3, 10.0.0.4 } return
            ingress-61B936BC9AAE2AEA-shop drop
            destinations { 10.0.0.2 : goto ingress-61B936BC9AAE2AEA-shop }
        "#]],
    );
    check(
        &[from(json!([{"namespaceSelector": bank}, {"podSelector": web}]))],
        &expect![[r#"
            ingress-814D4E3B81C34CAF-shop ip saddr { 10.0.0.2, 10.0.0.4 } return
            ingress-814D4E3B81C34CAF-shop drop
            destinations { 10.0.0.2 : goto ingress-814D4E3B81C34CAF-shop }
        "#]],
    );
    check(
        &[from(json!([{"podSelector": {"matchLabels": {"app": "nobody"}}}]))],
        &expect![[r#"
            ingress-D90EE9CCF6BEA1D2-shop drop
            destinations { 10.0.0.2 : goto ingress-D90EE9CCF6BEA1D2-shop }
        "#]],
    );
    let except = json!(["10.1.0.0/16", "10.1.2.0/24"]);
    let block = json!({"ipBlock": {"cidr": "10.0.0.7/8", "except": except}});
    check(
        &[from(json!([block, {"ipBlock": {"cidr": "fd00::/8"}}]))],
        &expect![[r#"
            ingress-2DA02C99CA82FB4E-shop ip saddr 10.0.0.0/8 ip saddr != 10.1.0.0/16 ip saddr != 10.1.2.0/24 return
            ingress-2DA02C99CA82FB4E-shop drop
            destinations { 10.0.0.2 : goto ingress-2DA02C99CA82FB4E-shop }
        "#]],
    );
    check(
        &[from(json!([{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]))],
        &expect![[r#"
            ingress-498F24D433E63852-shop ip saddr != 10.0.0.0/8 return
            ingress-498F24D433E63852-shop drop
            destinations { 10.0.0.2 : goto ingress-498F24D433E63852-shop }
        "#]],
    );
}

#[test]
fn policy_ports_are_numbers_ranges_and_names() {
    let ingress = |ports: Value| json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"ports": ports}]});
    check(
        &[ingress(json!([{"protocol": "UDP"}]))],
        &expect![[r#"
            ingress-C21E2077E400CC60-shop meta l4proto udp return
            ingress-C21E2077E400CC60-shop drop
            destinations { 10.0.0.3 : goto ingress-C21E2077E400CC60-shop }
        "#]],
    );
    let many = json!([{"port": 80}, {"port": 100, "endPort": 200}, {"port": 150, "endPort": 250}, {"port": 53, "protocol": "UDP"},
        {"port": 9, "protocol": "SCTP"}, {"port": 81}]);
    check(
        &[ingress(many)],
        &expect![[r#"
            ingress-A19EF8963436C171-shop sctp dport { 9 } return
            ingress-A19EF8963436C171-shop tcp dport { 80-81, 100-250 } return
            ingress-A19EF8963436C171-shop udp dport { 53 } return
            ingress-A19EF8963436C171-shop drop
            destinations { 10.0.0.3 : goto ingress-A19EF8963436C171-shop }
        "#]],
    );
    check(
        &[ingress(json!([{"port": "http"}, {"port": "dns", "protocol": "UDP"}]))],
        &expect![[r#"
            ingress-4E205CE6F6610204-shop tcp dport { 9090 } return
            ingress-4E205CE6F6610204-shop udp dport { 53 } return
            ingress-4E205CE6F6610204-shop drop
            destinations { 10.0.0.3 : goto ingress-4E205CE6F6610204-shop }
        "#]],
    );
    check(
        &[ingress(json!([{"port": "dns"}]))],
        &expect![[r#"
            ingress-D90EE9CCF6BEA1D2-shop drop
            destinations { 10.0.0.3 : goto ingress-D90EE9CCF6BEA1D2-shop }
        "#]],
    );
}

#[test]
fn named_egress_port_is_resolved_per_peer_pod() {
    let egress = |to: Value| {
        let ports = json!([{"port": "http"}, {"port": 443}]);
        json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": [{"to": to, "ports": ports}]})
    };
    check(
        &[egress(json!([]))],
        &expect![[r#"
            egress-03E1C2298F8CFABE-shop tcp dport { 443 } return
            egress-03E1C2298F8CFABE-shop ip daddr . meta l4proto . th dport { 10.0.0.2 . tcp . 8080, 10.0.0.3 . tcp . 9090, 10.0.0.4 . tcp . 8080 } return
            egress-03E1C2298F8CFABE-shop drop
            sources { 10.0.0.2 : goto egress-03E1C2298F8CFABE-shop }
        "#]],
    );
    check(
        &[egress(json!([{"podSelector": {"matchLabels": {"app": "db"}}}]))],
        &expect![[r#"
            egress-6006E926E429585F-shop ip daddr { 10.0.0.3 } tcp dport { 443 } return
            egress-6006E926E429585F-shop ip daddr . meta l4proto . th dport { 10.0.0.3 . tcp . 9090 } return
            egress-6006E926E429585F-shop drop
            sources { 10.0.0.2 : goto egress-6006E926E429585F-shop }
        "#]],
    );
    check(
        &[egress(json!([{"ipBlock": {"cidr": "10.0.0.4/31"}}]))],
        &expect![[r#"
            egress-7E50CC1F2EA80647-shop ip daddr 10.0.0.4/31 tcp dport { 443 } return
            egress-7E50CC1F2EA80647-shop ip daddr . meta l4proto . th dport { 10.0.0.4 . tcp . 8080 } return
            egress-7E50CC1F2EA80647-shop drop
            sources { 10.0.0.2 : goto egress-7E50CC1F2EA80647-shop }
        "#]],
    );
}

/// Checks the Pods in the map of destinations.
#[track_caller]
fn check_known(pods: &[&str], expected: &[&str]) {
    check_known_to(&[], pods, expected);
}

/// The same, with addresses that the kubelet has reported.
#[track_caller]
fn check_known_to(reported: &[&str], pods: &[&str], expected: &[&str]) {
    let web = json!({"podSelector": {"matchLabels": {"app": "web"}}});
    let owner = |text: &&str| {
        let pod = pod(text);
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).expect("an address");
        (ip.parse().expect("an address"), IpOwner::new(pod))
    };
    let table = made_of(&[web], pods, &reported.iter().map(owner).collect());
    let known = table.maps["destinations"].elements.iter();
    let isolated = |verdict: &str| if verdict == "return" { "" } else { " isolated" };
    let known: Vec<String> = known.map(|(ip, verdict)| format!("{ip}{}", isolated(verdict))).collect();
    assert_eq!(known, expected);
}

#[test]
fn only_running_pods_of_the_node_cidr_are_known() {
    check_known(&["shop/a 10.0.0.2 app=web", "bank/b 10.0.0.3 app=web"], &["10.0.0.2 isolated", "10.0.0.3"]);
    check_known(&["shop/a 10.0.0.2 app=web ended", "shop/b 10.0.0.3 app=web host", "shop/c 10.9.0.2 app=web"], &[]);
    // The address of a terminating Pod is already reused.
    check_known(&["shop/b 10.0.0.2 app=db", "shop/a 10.0.0.2 app=web ending"], &["10.0.0.2"]);
    check_known(&["shop/a 10.0.0.2 app=web", "shop/b 10.0.0.2 app=db old"], &["10.0.0.2 isolated"]);
}

#[test]
fn reported_address_precedes_pod_status() {
    // The API does not show the address yet, or still shows its previous Pod.
    check_known_to(&["shop/new 10.0.0.2 app=web"], &[], &["10.0.0.2 isolated"]);
    let old = "shop/old 10.0.0.2 app=db";
    check_known_to(&["shop/new 10.0.0.2 app=web"], &[old], &["10.0.0.2 isolated"]);
    check_known_to(&["shop/new 10.0.0.2 app=web"], &[old, "shop/new 10.0.0.9 app=web"], &["10.0.0.2 isolated"]);
    // Labels come from the API.
    check_known_to(&["shop/new 10.0.0.2 app=db"], &["shop/new 10.0.0.2 app=web"], &["10.0.0.2 isolated"]);
    check_known_to(&["shop/new 10.0.0.2 app=web"], &["shop/new 10.0.0.2 app=web ended", old], &[]);
}

#[test]
fn kernel_accepts_policy_tables_and_transactions() {
    in_own_namespaces(async || {
        if crate::command::find("nft").is_none() {
            println!("skipped: nft is not installed");
            return;
        }
        let web = json!({"matchLabels": {"app": "web"}});
        let blocks =
            json!([{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.1.0.0/16", "10.1.2.0/24"]}}, {"podSelector": {}}]);
        let ports = json!([{"port": 80}, {"port": 100, "endPort": 200}, {"protocol": "UDP"}, {"port": "http"},
            {"port": 9, "protocol": "SCTP"}]);
        let all = json!({"podSelector": web, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": blocks, "ports": ports}, {}], "egress": [{"to": blocks, "ports": ports}, {"ports": ports}]});
        let states = [
            made(&[json!({"podSelector": {}})], PODS),
            made(&[json!({"podSelector": {}}), all.clone()], PODS),
            made(&[all], PODS),
            made(
                &[json!({"podSelector": web, "policyTypes": ["Egress"]})],
                &[PODS, &["shop/x 10.0.0.9 app=web"]].concat(),
            ),
            made(&[json!({"podSelector": {}})], &[]),
        ];
        let mut is: Option<&Table> = None;
        for shall in &states {
            let script = shall.script("t-policies", is);
            run("nft", &["-f", "-"], &script).await.unwrap_or_else(|e| panic!("{e}\n{script}"));
            is = Some(shall);
        }
    });
}
