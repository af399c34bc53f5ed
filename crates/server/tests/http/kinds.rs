//! Kinds that are data: what discovery says of each, that a manifest is taken and shown, and how a wrong one is refused.

mod apps;
mod autoscaling;
mod batch;
mod core;
mod extending;
mod networking;
mod others;
mod scaling;
mod storage;
mod versions;

use crate::common::*;
use serde_json::{Value, json};

/// A kind, and what must hold for it.
struct Of {
    /// Where its objects are, for example `/apis/apps/v1/namespaces/default/deployments`.
    path: &'static str,
    /// What discovery says of it, at least.
    discovery: Value,
    /// An object, as short as it may be.
    manifest: Value,
    /// What the server makes of it, at least.
    made: Value,
    /// Changes that make the object wrong, and upstream's words for what is wrong.
    wrong: &'static [(&'static str, &'static str)],
    /// The columns, with `|` between them.
    columns: &'static str,
    /// The cells of the object; null for an age.
    cells: Value,
}

impl Of {
    async fn check(self) {
        let api = Api::new().await;
        self.is_discovered(&api).await;
        let (kind, name) = (&self.manifest["kind"], self.manifest["metadata"]["name"].as_str().unwrap());
        let group = self.manifest["apiVersion"].as_str().unwrap().split_once('/').map(|(group, _)| group);
        let called =
            group.map_or_else(|| kind.as_str().unwrap().to_owned(), |g| format!("{}.{g}", kind.as_str().unwrap()));
        for (change, words) in self.wrong {
            let mut object = self.manifest.clone();
            merge_into(&mut object, &serde_json::from_str(change).unwrap());
            let name = object["metadata"]["name"].as_str().unwrap();
            let message = format!("{called} {name:?} is invalid: {words}");
            let answer = api.ask(&post(self.path, &object)).await;
            assert_eq!((answer.status, answer.body["message"].as_str()), (422, Some(message.as_str())), "{change}");
        }
        let strict = format!("{}?fieldValidation=Strict", self.path);
        api.check(post(strict, &self.manifest), 201, self.made.clone()).await;
        self.is_shown(&api).await;
        let one = format!("{}/{name}", self.path);
        let again = api.check(get(&one), 200, self.made.clone()).await.body;
        // What was read can be written back, and nothing is new then.
        let same = api.check(put(&one, &again), 200, json!({})).await.body;
        assert_eq!(version(&same), version(&again), "{again:#}\n{same:#}");
        if self.discovery["status"] == true {
            self.keeps_its_status_apart(&api, &one).await;
        }
        api.check(get(format!("{}?fieldSelector=metadata.name={name}", self.path)), 200, json!({"items": [{}]})).await;
        api.check(delete(format!("{one}?propagationPolicy=Background")), 200, json!({})).await;
        if !again["metadata"]["finalizers"].is_null() {
            // It is held until its controller lets go of it.
            let held = json!({"metadata": {"finalizers": again["metadata"]["finalizers"]}});
            api.check(get(&one), 200, held).await;
            api.check(merge(&one, &json!({"metadata": {"finalizers": null}})), 200, json!({})).await;
        }
        api.check(get(&one), 404, json!({"reason": "NotFound"})).await;
    }

    async fn is_discovered(&self, api: &Api) {
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
        let mut wrong = Vec::new();
        compare(&expected, found, "", &mut wrong);
        assert!(wrong.is_empty(), "{plural}: {wrong:?}");
        let status = all.iter().any(|r| r["name"] == format!("{plural}/status"));
        assert_eq!(status, self.discovery["status"] == true, "the status of {plural}");
    }

    async fn is_shown(&self, api: &Api) {
        let shown = api.check(table(self.path), 200, json!({"kind": "Table", "rows": [{}]})).await.body;
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

    /// A request for the object changes no status, and one for the status changes nothing else.
    async fn keeps_its_status_apart(&self, api: &Api, one: &str) {
        let before = api.check(get(one), 200, json!({})).await.body;
        let change = json!({"metadata": {"labels": {"by": "status"}}, "spec": {"odd": 1}});
        let ignoring = format!("{one}/status?fieldValidation=Ignore");
        // Some let a status change its labels: `statuses.rs` knows which do not.
        let after = api.check(merge(ignoring, &change), 200, json!({})).await.body;
        assert_eq!(after["spec"], before["spec"]);
        assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
        let cleared = json!({"status": null});
        let kept = api.check(merge(one, &cleared), 200, json!({})).await.body;
        assert_eq!(kept["status"], after["status"]);
    }
}

/// A merge patch, on the spot.
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

/// A template of Pods with these labels.
fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})
}
