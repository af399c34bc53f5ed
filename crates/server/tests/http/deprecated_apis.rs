//! Deprecated APIs: watch paths, ComponentStatus and Binding.

use crate::common::*;
use serde_json::{Value, json};

#[tokio::test]
async fn legacy_watch_paths_are_served() {
    let api = TestApi::new().await;
    api.create_config_map("a", json!({})).await;
    for path in ["/api/v1/watch/configmaps", "/api/v1/watch/namespaces/default/configmaps/a"] {
        let mut events = api.watch(path).await;
        let event = events.next().await;
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")), "{path}");
    }
    // The authorizer checks the verb `watch`.
    let ann = |path: &str| get(path).with_user("ann", &[]);
    let message = r#"configmaps is forbidden: User "ann" cannot watch resource "configmaps" in API group "" at the cluster scope"#;
    api.check(ann("/api/v1/watch/configmaps"), 403, json!({"message": message})).await;
    api.check(get("/api/v1/watch/nothing"), 404, json!({})).await;
    let message = r#"configmaps "a" is forbidden: User "ann" cannot watch resource "configmaps" in API group "" in the namespace "default""#;
    api.check(ann("/api/v1/watch/namespaces/default/configmaps/a"), 403, json!({"message": message})).await;
}

#[tokio::test]
async fn component_statuses_report_health() {
    let api = TestApi::new().await;
    api.server.register_component("scheduler", || Ok(()));
    api.server.register_component("controller-manager", || Err("it has ended".into()));
    let statuses = "/api/v1/componentstatuses";
    let list = api.check(get(statuses), 200, json!({"kind": "ComponentStatusList"})).await;
    assert_eq!(list.warnings(), ["299 - \"v1 ComponentStatus is deprecated in v1.19+\""]);
    let named = |name: &str, condition: Value| json!({"metadata": {"name": name}, "conditions": [condition]});
    let healthy = json!({"type": "Healthy", "status": "True", "message": "ok", "error": null});
    api.check(get(format!("{statuses}/scheduler")), 200, named("scheduler", healthy)).await;
    let rows = json!({"rows": [
        {"cells": ["controller-manager", "Unhealthy", "it has ended", "it has ended"]},
        {"cells": ["scheduler", "Healthy", "ok", null]},
    ]});
    api.check(get_table(statuses), 200, rows).await;
    api.check(get(format!("{statuses}/none")), 404, json!({"reason": "NotFound"})).await;
    api.check(delete(format!("{statuses}/scheduler")), 405, json!({})).await;
    let all = api.check(get("/api/v1"), 200, json!({})).await.body;
    let verbs = |name: &str| {
        let found = all["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap();
        found["verbs"].clone()
    };
    assert_eq!((verbs("componentstatuses"), verbs("bindings")), (json!(["get", "list"]), json!(["create"])));
}

#[tokio::test]
async fn pod_can_be_bound_by_posting_a_binding() {
    let api = TestApi::new().await;
    api.check(post(PODS, &pod("p")), 201, json!({})).await;
    let bindings = "/api/v1/namespaces/default/bindings";
    let binding = |pod: &str| json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": "n"}});
    api.check(post(bindings, &binding("none")), 404, json!({"details": {"kind": "pods", "name": "none"}})).await;
    api.check(post(bindings, &binding("p")), 201, json!({"kind": "Status", "status": "Success"})).await;
    api.check(get(format!("{PODS}/p")), 200, json!({"spec": {"nodeName": "n"}})).await;
    api.check(post(bindings, &binding("p")), 409, json!({})).await;
    api.check(get(bindings), 405, json!({})).await;
    api.check(post(bindings, &binding("q")).with_user("ann", &[]), 403, json!({})).await;
}

#[tokio::test]
async fn new_node_gets_the_not_ready_taint() {
    let api = TestApi::new().await;
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let node = |name: &str, taints: Value| json!({"metadata": {"name": name}, "spec": {"taints": taints}});
    let own = json!({"key": "own", "effect": "NoExecute"});
    for (name, given, expected) in [
        ("a", Value::Null, json!([not_ready])),
        ("b", json!([own]), json!([own, not_ready])),
        ("c", json!([not_ready]), json!([not_ready])),
    ] {
        api.check(post("/api/v1/nodes", &node(name, given)), 201, json!({})).await;
        let taints =
            api.check(get(format!("/api/v1/nodes/{name}")), 200, json!({})).await.body["spec"]["taints"].clone();
        let named: Vec<(&Value, &Value)> =
            taints.as_array().unwrap().iter().map(|t| (&t["key"], &t["effect"])).collect();
        let expected: Vec<(&Value, &Value)> =
            expected.as_array().unwrap().iter().map(|t| (&t["key"], &t["effect"])).collect();
        assert_eq!(named, expected, "{name}");
    }
    // The node lifecycle controller removes the taint, and it is not added again.
    api.check(
        merge_patch("/api/v1/nodes/a", &json!({"spec": {"taints": null}})),
        200,
        json!({"spec": {"taints": null}}),
    )
    .await;
}
