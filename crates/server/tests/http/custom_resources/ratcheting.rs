//! Ratcheting validation: a stricter schema still allows updates of other fields.

use super::*;

const PROPERTIES: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";

/// Adds a schema to the properties of `spec`.
async fn add_schema(api: &TestApi, location: &str, value: Value) {
    let change = json!([{"op": "add", "path": format!("{PROPERTIES}/{location}"), "value": value}]);
    api.check(patch("json-patch", format!("{DEFINITIONS}/crontabs.stable.example.com"), &change), 200, json!({})).await;
}

/// Returns a `map` list schema with the key `k`.
fn map_list() -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}})
}

fn item(k: &str, v: u8) -> Value {
    json!({"k": k, "v": v})
}

async fn patch_spec(api: &TestApi, spec: Value) -> (u16, String) {
    let response = api.send(&merge_patch(format!("{CRONTABS}/a"), &json!({"spec": spec}))).await;
    let text = response.body["message"].as_str().unwrap_or("").to_owned();
    (
        response.status,
        text.strip_prefix("CronTab.stable.example.com \"a\" is invalid: ").map_or(text.clone(), str::to_owned),
    )
}

fn rejected(message: &str) -> (u16, String) {
    (422, message.to_owned())
}

fn accepted() -> (u16, String) {
    (200, String::new())
}

#[tokio::test]
async fn stricter_schema_allows_updates_of_other_fields() {
    let api = api_with_crontabs(&json!({"replicas": {"type": "integer"}, "image": {"type": "string"}})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 50}))), 201, json!({})).await;
    let path = format!("{DEFINITIONS}/crontabs.stable.example.com");
    let change = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/maximum", "value": 10}]);
    api.check(patch("json-patch", &path, &change), 200, json!({})).await;
    let path = format!("{CRONTABS}/a");
    api.check(merge_patch(&path, &json!({"spec": {"image": "x"}})), 200, json!({"spec": {"replicas": 50}})).await;
    api.check(merge_patch(&path, &json!({"spec": {"replicas": 51}})), 422, json!({})).await;
}

#[tokio::test]
async fn map_list_over_max_items_may_be_reordered() {
    let api = api_with_crontabs(&json!({"l": map_list()})).await;
    let [a, b, c] = [item("a", 1), item("b", 2), item("c", 3)];
    api.check(post(CRONTABS, &crontab("a", &json!({"l": [a, b, c]}))), 201, json!({})).await;
    add_schema(&api, "l/maxItems", json!(2)).await;
    assert_eq!(patch_spec(&api, json!({"l": [c, a, b]})).await, accepted());
    let message = rejected("spec.l: Too many: 3: must have at most 2 items");
    assert_eq!(patch_spec(&api, json!({"l": [c, a, item("b", 9)]})).await, message);
    assert_eq!(patch_spec(&api, json!({"l": [c, a, item("d", 2)]})).await, message);
}

#[tokio::test]
async fn set_list_over_max_items_may_not_be_reordered() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let api = api_with_crontabs(&json!({"l": set, "x": {"type": "string"}})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"l": ["a", "b", "c"]}))), 201, json!({})).await;
    add_schema(&api, "l/maxItems", json!(2)).await;
    assert_eq!(patch_spec(&api, json!({"x": "y"})).await, accepted());
    assert_eq!(
        patch_spec(&api, json!({"l": ["c", "a", "b"]})).await,
        rejected("spec.l: Too many: 3: must have at most 2 items")
    );
}

#[tokio::test]
async fn list_rule_is_skipped_when_map_items_are_reordered() {
    let api = api_with_crontabs(&json!({"l": map_list()})).await;
    let [a, b, c] = [item("a", 1), item("b", 2), item("c", 3)];
    api.check(post(CRONTABS, &crontab("a", &json!({"l": [a, b, c]}))), 201, json!({})).await;
    add_schema(&api, "l/x-kubernetes-validations", json!([{"rule": "self.size() < 3", "message": "few"}])).await;
    assert_eq!(patch_spec(&api, json!({"l": [c, b, a]})).await, accepted());
    assert_eq!(patch_spec(&api, json!({"l": [c, b, item("a", 9)]})).await, rejected("spec.l: Invalid value: few"));
}

#[tokio::test]
async fn item_rule_is_skipped_for_an_unchanged_list() {
    let list = json!({"type": "array", "maxItems": 9, "items": {"type": "integer"}});
    let api = api_with_crontabs(&json!({"l": list, "x": {"type": "string"}})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"l": [1, 9]}))), 201, json!({})).await;
    add_schema(&api, "l/items/x-kubernetes-validations", json!([{"rule": "self < 5", "message": "small"}])).await;
    assert_eq!(patch_spec(&api, json!({"x": "y"})).await, accepted());
    // Items of a list without keys are not correlated with old items.
    assert_eq!(patch_spec(&api, json!({"l": [9, 1]})).await, rejected("spec.l[0]: Invalid value: 9: small"));
}

#[tokio::test]
async fn existing_duplicates_allow_new_duplicates() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let api = api_with_crontabs(
        &json!({"l": list, "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}),
    )
    .await;
    api.check(post(CRONTABS, &crontab("a", &json!({"l": ["a", "a"]}))), 201, json!({})).await;
    add_schema(&api, "l/x-kubernetes-list-type", json!("set")).await;
    assert_eq!(patch_spec(&api, json!({"s": ["b", "b"]})).await, accepted());
    assert_eq!(patch_spec(&api, json!({"l": ["c", "c", "d"]})).await, accepted());
    assert_eq!(patch_spec(&api, json!({"l": ["c"], "s": ["b"]})).await, accepted());
    assert_eq!(patch_spec(&api, json!({"s": ["b", "b"]})).await, rejected("spec.s[1]: Duplicate value: \"b\""));
}

#[tokio::test]
async fn duplicates_in_spec_allow_duplicates_in_status() {
    let mut definition = crontab_definition(&json!({"l": {"type": "array", "items": {"type": "string"}}}));
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["s"] = set;
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"l": ["a", "a"]}))), 201, json!({})).await;
    let (path, twice) = (format!("{CRONTABS}/a/status"), json!({"status": {"s": ["b", "b"]}}));
    api.check(merge_patch(&path, &twice), 422, json!({})).await;
    add_schema(&api, "l/x-kubernetes-list-type", json!("set")).await;
    api.check(merge_patch(&path, &twice), 200, json!({})).await;
}
