//! Tests of the gate, against a fake API server and, if possible, the kernel.

use super::*;
use crate::{
    destroy::real_tests::in_own_namespaces,
    policies::{PolicyConfig, sync_policies, table_name},
};
use fake_api::FakeApi;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn pod(name: &str, app: &str, ip: Option<Ipv4Addr>) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"podIP": ip, "phase": "Running"}})
}

fn config(sees_bridge: bool) -> PolicyConfig {
    let pods = "10.0.0.0/24".parse().expect("a CIDR");
    PolicyConfig { node: "n".into(), bridge: "pd-t".into(), pods, sees_bridge }
}

/// Returns a Pod that the kubelet is about to start.
fn new(name: &str, app: &str) -> Arc<Pod> {
    Arc::new(serde_json::from_value(pod(name, app, None)).expect("a Pod"))
}

fn deny(api: &FakeApi) {
    let web = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"podSelector": web, "policyTypes": ["Ingress", "Egress"]});
    let object = json!({"metadata": {"name": "deny", "namespace": "shop", "uid": "deny"}, "spec": spec});
    api.put("apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/deny", object);
}

#[tokio::test(start_paused = true)]
async fn pod_without_policies_does_not_wait() {
    let (gate, api) = (PolicyGate::default(), FakeApi::new());
    gate.wait(&api.client(), new("a", "web"), ADDRESS).await.expect("open");
}

#[tokio::test(start_paused = true)]
async fn pod_waits_until_its_policy_is_synced() {
    let (gate, api) = (PolicyGate::default(), FakeApi::new());
    deny(&api);
    let held = gate.wait(&api.client(), new("a", "web"), ADDRESS).await.expect_err("held");
    assert_eq!(held.to_string(), "timed out waiting for the rules of NetworkPolicies");
    // An older sync does not open the gate, even with this policy.
    let policy = api.get("apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/deny").expect("a policy");
    let policy: Arc<NetworkPolicy> = Arc::new(serde_json::from_value(policy).expect("a policy"));
    gate.publish(1, &[Arc::clone(&policy)]);
    assert!(gate.wait(&api.client(), new("a", "web"), ADDRESS).await.is_err());
    let (_, number, _) = gate.reports().take();
    gate.publish(number, &[]);
    assert!(gate.wait(&api.client(), new("a", "web"), ADDRESS).await.is_err(), "the policy is not in it");
    let (_, number, _) = gate.reports().take();
    gate.publish(number + 1, &[policy]);
    gate.wait(&api.client(), new("a", "web"), ADDRESS).await.expect("open");
    deny(&api);
    gate.wait(&api.client(), new("a", "web"), ADDRESS).await.expect("it has begun before");
}

#[test]
fn new_pod_takes_over_reused_address() {
    let gate = PolicyGate::default();
    assert_eq!(gate.report(new("a", "web"), ADDRESS), Some(1));
    gate.confirm(&new("a", "web"), ADDRESS);
    assert_eq!(gate.report(new("a", "web"), ADDRESS), None);
    assert_eq!(gate.report(new("b", "db"), ADDRESS), Some(2));
    gate.confirm(&new("a", "web"), ADDRESS);
    assert_eq!(gate.report(new("b", "db"), ADDRESS), Some(3), "the confirmation was not its own");
    let other = Ipv4Addr::new(10, 0, 0, 3);
    assert_eq!(gate.report(new("b", "db"), other), Some(4), "a new sandbox");
    let (owners, ..) = gate.reports().take();
    assert_eq!(
        owners.into_iter().map(|(ip, owner)| (ip, owner.uid().to_owned())).collect::<Vec<_>>(),
        [(other, "b".to_owned())]
    );
    gate.prune(&[]);
    assert_eq!(gate.reports().take().0.len(), 1, "the API does not have it yet");
    gate.prune(&[new("b", "db")]);
    gate.prune(&[]);
    assert_eq!(gate.reports().take().0.len(), 0);
}

#[test]
fn rules_are_installed_before_pod_starts() {
    in_own_namespaces(async || {
        if find("nft").is_none() {
            println!("skipped: nft is not installed");
            return;
        }
        let (gate, api, stop) = (PolicyGate::default(), FakeApi::new(), CancellationToken::new());
        // Its status outlives its sandbox; nothing selects it.
        api.put("api/v1/namespaces/shop/pods/old", pod("old", "db", Some(ADDRESS)));
        let (client, synced_gate, stopped) = (api.client(), gate.clone(), stop.clone());
        let config = config(true);
        let controller = tokio::spawn(async move { sync_policies(&client, config, &synced_gate, &stopped).await });
        deny(&api);
        gate.wait(&api.client(), new("a", "web"), ADDRESS).await.expect("in time");
        let isolated = async |ip: &str| {
            let table = run("nft", &["list", "table", "ip", &table_name("pd-t")], "").await.expect("a table");
            let isolated = |direction| table.contains(&format!("{ip} : goto {direction}"));
            assert!(isolated("ingress") && isolated("egress"), "{table}");
        };
        isolated("10.0.0.2").await;
        // The rules are gone, as after a reboot.
        run("nft", &["flush", "ruleset"], "").await.expect("nothing is left");
        let third = Ipv4Addr::new(10, 0, 0, 3);
        gate.wait(&api.client(), new("b", "web"), third).await.expect("in time");
        isolated("10.0.0.2").await;
        isolated("10.0.0.3").await;
        controller.abort();
    });
}

#[test]
fn node_without_br_netfilter_gets_an_event() {
    in_own_namespaces(async || {
        let (gate, api, stop) = (PolicyGate::default(), FakeApi::new(), CancellationToken::new());
        let (client, synced_gate, stopped) = (api.client(), gate.clone(), stop.clone());
        let controller =
            tokio::spawn(async move { sync_policies(&client, config(false), &synced_gate, &stopped).await });
        assert_eq!(
            api.list("api/v1/namespaces/default/events").len(),
            0,
            "without policies there is nothing to report"
        );
        deny(&api);
        api.wait_until("an Event", |api| !api.list("api/v1/namespaces/default/events").is_empty()).await;
        let event = api.list("api/v1/namespaces/default/events").pop().expect("an Event");
        assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("NetworkPolicyNotEnforced")));
        assert_eq!(event["involvedObject"], json!({"kind": "Node", "name": "n", "uid": "n"}));
        assert!(event["message"].as_str().is_some_and(|text| text.contains("br_netfilter")), "{event}");
        controller.abort();
    });
}
