//! Reinvocation and generated names.

use super::{create_mutating_webhook, patch_response, review_response, rule_for};
use crate::{common::*, webhook_server::WebhookServer};
use serde_json::{Value, json};

#[tokio::test]
async fn reinvoked_webhook_may_change_the_object_again() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|path, review| {
        let wins = json!([{"op": "replace", "path": "/data/fight", "value": path}]);
        let is_so = review["request"]["object"]["data"]["fight"] == path;
        if is_so { review_response(review, json!({})) } else { patch_response(review, wins) }
    })
    .await;
    let again = json!({"rules": rule_for("configmaps"), "reinvocationPolicy": "IfNeeded"});
    create_mutating_webhook(&api, "a", hook.client_config("/a"), again.clone()).await;
    create_mutating_webhook(&api, "b", hook.client_config("/b"), again).await;
    let map = json!({"metadata": {"name": "a"}, "data": {"fight": "none"}});
    api.check(post(CONFIG_MAPS, &map), 201, json!({"data": {"fight": "/b"}})).await;
    let requests: Vec<String> = hook.take_requests().into_iter().map(|(path, _)| path).collect();
    assert_eq!(requests, ["/a", "/b", "/a", "/b"]);
}

#[tokio::test]
async fn generate_name_applies_after_mutating_webhooks() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|_, review| {
        let data = &review["request"]["object"]["data"];
        let set: Vec<Value> = ["name", "generateName"]
            .iter()
            .filter(|field| data[**field].is_string())
            .map(|field| json!({"op": "add", "path": format!("/metadata/{field}"), "value": data[*field]}))
            .collect();
        patch_response(review, json!(set))
    })
    .await;
    create_mutating_webhook(&api, "m", hook.client_config("/"), json!({"rules": rule_for("configmaps")})).await;
    let named = json!({"metadata": {"generateName": "a-"}, "data": {"name": "fixed"}});
    api.check(post(CONFIG_MAPS, &named), 201, json!({"metadata": {"name": "fixed"}})).await;
    let begun = json!({"metadata": {}, "data": {"generateName": "b-"}});
    let created = api.check(post(CONFIG_MAPS, &begun), 201, json!({"metadata": {"generateName": "b-"}})).await.body;
    assert!(created["metadata"]["name"].as_str().unwrap().starts_with("b-"));
}
