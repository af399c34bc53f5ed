//! What webhooks change that others, or the server, go by.

use super::{mutating, only, patches, says};
use crate::{common::*, hook::Hook};
use serde_json::{Value, json};

#[tokio::test]
async fn one_that_is_asked_again_may_change_what_those_after_it_saw() {
    let api = Api::new().await;
    let hook = Hook::new(|path, review| {
        let wins = json!([{"op": "replace", "path": "/data/fight", "value": path}]);
        let is_so = review["request"]["object"]["data"]["fight"] == path;
        if is_so { says(review, json!({})) } else { patches(review, wins) }
    })
    .await;
    let again = json!({"rules": only("configmaps"), "reinvocationPolicy": "IfNeeded"});
    mutating(&api, "a", hook.config("/a"), again.clone()).await;
    mutating(&api, "b", hook.config("/b"), again).await;
    let map = json!({"metadata": {"name": "a"}, "data": {"fight": "none"}});
    api.check(post(CONFIG_MAPS, &map), 201, json!({"data": {"fight": "/b"}})).await;
    let asked: Vec<String> = hook.asked().into_iter().map(|(path, _)| path).collect();
    assert_eq!(asked, ["/a", "/b", "/a", "/b"]);
}

#[tokio::test]
async fn a_name_is_generated_of_what_webhooks_have_not_named() {
    let api = Api::new().await;
    let hook = Hook::new(|_, review| {
        let data = &review["request"]["object"]["data"];
        let set: Vec<Value> = ["name", "generateName"]
            .iter()
            .filter(|field| data[**field].is_string())
            .map(|field| json!({"op": "add", "path": format!("/metadata/{field}"), "value": data[*field]}))
            .collect();
        patches(review, json!(set))
    })
    .await;
    mutating(&api, "m", hook.config("/"), json!({"rules": only("configmaps")})).await;
    let named = json!({"metadata": {"generateName": "a-"}, "data": {"name": "fixed"}});
    api.check(post(CONFIG_MAPS, &named), 201, json!({"metadata": {"name": "fixed"}})).await;
    let begun = json!({"metadata": {}, "data": {"generateName": "b-"}});
    let made = api.check(post(CONFIG_MAPS, &begun), 201, json!({"metadata": {"generateName": "b-"}})).await.body;
    assert!(made["metadata"]["name"].as_str().unwrap().starts_with("b-"));
}
