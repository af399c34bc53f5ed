//! Common checks of kinds: discovery, defaults, tables, status and validation.

mod api_machinery;
mod apps;
mod autoscaling;
mod batch;
mod core;
mod networking;
mod other_groups;
mod scale;
mod storage;
mod update_strategies;

use crate::common::*;
use serde_json::{Value, json};

/// A kind and its expected behaviour.
struct KindCase {
    /// Collection path, for example `/apis/apps/v1/namespaces/default/deployments`.
    path: &'static str,
    /// Part of the expected APIResource.
    discovery: Value,
    /// A minimal manifest.
    manifest: Value,
    /// Part of the expected stored object.
    made: Value,
    /// Merge patches that make the object invalid, with the expected messages.
    invalid: &'static [(&'static str, &'static str)],
    /// Names of the table columns, separated by `|`.
    columns: &'static str,
    /// Cells of the object; null for an age.
    cells: Value,
}

impl KindCase {
    async fn check(self) {
        let api = TestApi::new().await;
        self.check_discovery(&api).await;
        let (kind, name) = (&self.manifest["kind"], self.manifest["metadata"]["name"].as_str().unwrap());
        let group = self.manifest["apiVersion"].as_str().unwrap().split_once('/').map(|(group, _)| group);
        let qualified_kind =
            group.map_or_else(|| kind.as_str().unwrap().to_owned(), |g| format!("{}.{g}", kind.as_str().unwrap()));
        for (change, expected_error) in self.invalid {
            let mut object = self.manifest.clone();
            merge_into(&mut object, &serde_json::from_str(change).unwrap());
            let name = object["metadata"]["name"].as_str().unwrap();
            let message = format!("{qualified_kind} {name:?} is invalid: {expected_error}");
            let response = api.send(&post(self.path, &object)).await;
            assert_eq!((response.status, response.body["message"].as_str()), (422, Some(message.as_str())), "{change}");
        }
        let strict = format!("{}?fieldValidation=Strict", self.path);
        api.check(post(strict, &self.manifest), 201, self.made.clone()).await;
        self.check_table(&api).await;
        let one = format!("{}/{name}", self.path);
        let again = api.check(get(&one), 200, self.made.clone()).await.body;
        // An update with the object that was read changes nothing.
        let same = api.check(put(&one, &again), 200, json!({})).await.body;
        assert_eq!(resource_version(&same), resource_version(&again), "{again:#}\n{same:#}");
        if self.discovery["status"] == true {
            self.check_status_subresource(&api, &one).await;
        }
        api.check(get(format!("{}?fieldSelector=metadata.name={name}", self.path)), 200, json!({"items": [{}]})).await;
        api.check(delete(format!("{one}?propagationPolicy=Background")), 200, json!({})).await;
        if !again["metadata"]["finalizers"].is_null() {
            // Its controller's finalizer keeps it.
            let held = json!({"metadata": {"finalizers": again["metadata"]["finalizers"]}});
            api.check(get(&one), 200, held).await;
            api.check(merge_patch(&one, &json!({"metadata": {"finalizers": null}})), 200, json!({})).await;
        }
        api.check(get(&one), 404, json!({"reason": "NotFound"})).await;
    }

    async fn check_discovery(&self, api: &TestApi) {
        let root = self.path.split("/namespaces/").next().unwrap();
        let root = if root == self.path { root.rsplit_once('/').unwrap().0 } else { root };
        let list = api.check(get(root), 200, json!({"kind": "APIResourceList"})).await.body;
        let plural = self.path.rsplit('/').next().unwrap();
        let all = list["resources"].as_array().unwrap();
        let found = all.iter().find(|r| r["name"] == plural).unwrap_or_else(|| panic!("{plural} is not discovered"));
        let mut expected = self.discovery.clone();
        expected.as_object_mut().unwrap().remove("status");
        expected["kind"] = self.manifest["kind"].clone();
        expected["namespaced"] = json!(self.path.contains("/namespaces/"));
        let mut mismatches = Vec::new();
        compare(&expected, found, "", &mut mismatches);
        assert!(mismatches.is_empty(), "{plural}: {mismatches:?}");
        let status = all.iter().any(|r| r["name"] == format!("{plural}/status"));
        assert_eq!(status, self.discovery["status"] == true, "the status of {plural}");
    }

    async fn check_table(&self, api: &TestApi) {
        let shown = api.check(get_table(self.path), 200, json!({"kind": "Table", "rows": [{}]})).await.body;
        let columns: Vec<&str> =
            shown["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(columns.join("|"), self.columns);
        let cells = shown["rows"][0]["cells"].as_array().unwrap();
        let expected = self.cells.as_array().unwrap();
        assert_eq!(cells.len(), expected.len(), "{cells:?}");
        for (i, (cell, expected)) in cells.iter().zip(expected).enumerate().filter(|(_, (_, e))| !e.is_null()) {
            assert_eq!(cell, expected, "{}", columns[i]);
        }
    }

    /// Asserts that writes of the object ignore the status, and writes of the status ignore the rest.
    async fn check_status_subresource(&self, api: &TestApi, one: &str) {
        let before = api.check(get(one), 200, json!({})).await.body;
        let change = json!({"metadata": {"labels": {"by": "status"}}, "spec": {"odd": 1}});
        let ignoring = format!("{one}/status?fieldValidation=Ignore");
        // Some kinds let a status write change labels: `statuses.rs` tests those that do not.
        let after = api.check(merge_patch(ignoring, &change), 200, json!({})).await.body;
        assert_eq!(after["spec"], before["spec"]);
        assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
        let cleared = json!({"status": null});
        let kept = api.check(merge_patch(one, &cleared), 200, json!({})).await.body;
        assert_eq!(kept["status"], after["status"]);
    }
}

/// Applies a merge patch in place.
fn merge_into(object: &mut Value, patch: &Value) {
    let (Value::Object(map), Value::Object(changes)) = (&mut *object, patch) else {
        *object = patch.clone();
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            map.remove(key);
        } else {
            merge_into(map.entry(key).or_insert(Value::Null), change);
        }
    }
}

/// Returns a Pod template with these labels.
fn pod_template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})
}
