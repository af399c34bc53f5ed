//! Manifests of Pods.

use serde_json::{Value, json};
use std::fmt;
use test_images::BUSYBOX;

/// Builder of a Pod with one container, `c`, of the busybox image.
///
/// Methods apply in the order of their calls: a field that is set twice has the last value. The manifest has no fields
/// except those that were set, so that the API server sets its defaults.
#[derive(Debug, Clone)]
#[must_use = "a builder only makes the manifest"]
pub struct PodBuilder(Value);

impl PodBuilder {
    /// Creates a builder of a Pod with this name.
    pub fn new(name: &str) -> Self {
        Self(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": BUSYBOX}]}}))
    }

    /// Sets the image.
    pub fn image(self, image: &str) -> Self {
        self.container(&json!({"image": image}))
    }

    /// Sets the command to `sh -c SCRIPT`.
    pub fn script(self, script: &str) -> Self {
        self.command(&["sh", "-c", script])
    }

    /// Sets the command.
    pub fn command(self, command: &[&str]) -> Self {
        self.container(&json!({"command": command}))
    }

    /// Sets the container's requests and limits.
    pub fn resources(self, resources: &Value) -> Self {
        self.container(&json!({"resources": resources}))
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        push(&mut self.0["spec"]["containers"][0]["env"], json!({"name": name, "value": value}));
        self
    }

    /// Adds a volume mount.
    pub fn mount(mut self, volume: &str, path: &str) -> Self {
        push(&mut self.0["spec"]["containers"][0]["volumeMounts"], json!({"name": volume, "mountPath": path}));
        self
    }

    /// Sets fields of the container.
    ///
    /// # Panics
    /// When the fields are not an object.
    pub fn container(mut self, fields: &Value) -> Self {
        merge(&mut self.0["spec"]["containers"][0], fields);
        self
    }

    /// Adds another container.
    pub fn add_container(mut self, container: Value) -> Self {
        push(&mut self.0["spec"]["containers"], container);
        self
    }

    /// Adds an init container.
    pub fn init_container(mut self, container: Value) -> Self {
        push(&mut self.0["spec"]["initContainers"], container);
        self
    }

    /// Adds a volume, for example `volume("v", &json!({"emptyDir": {}}))`.
    ///
    /// # Panics
    /// When the source is not an object.
    pub fn volume(mut self, name: &str, source: &Value) -> Self {
        let mut volume = json!({"name": name});
        merge(&mut volume, source);
        push(&mut self.0["spec"]["volumes"], volume);
        self
    }

    /// Sets the `restartPolicy`.
    pub fn restart_policy(self, policy: &str) -> Self {
        self.spec(&json!({"restartPolicy": policy}))
    }

    /// Sets the `terminationGracePeriodSeconds`.
    pub fn grace_period(self, seconds: u64) -> Self {
        self.spec(&json!({"terminationGracePeriodSeconds": seconds}))
    }

    /// Sets fields of the spec.
    ///
    /// # Panics
    /// When the fields are not an object.
    pub fn spec(mut self, fields: &Value) -> Self {
        merge(&mut self.0["spec"], fields);
        self
    }

    /// Adds a label.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][name] = json!(value);
        self
    }

    /// Sets fields of the metadata.
    ///
    /// # Panics
    /// When the fields are not an object.
    pub fn metadata(mut self, fields: &Value) -> Self {
        merge(&mut self.0["metadata"], fields);
        self
    }

    /// Sets what most tests of a container's process need: its security context, no restart, and a short grace period.
    pub fn runs_once(self, security_context: &Value) -> Self {
        self.restart_policy("Never").grace_period(1).container(&json!({"securityContext": security_context}))
    }

    pub(crate) fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Returns the manifest.
    #[must_use]
    pub fn build(self) -> Value {
        self.0
    }
}

/// The manifest as JSON.
impl fmt::Display for PodBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns a container of the busybox image that runs a script, for [`PodBuilder::add_container`] and
/// [`PodBuilder::init_container`].
#[must_use]
pub fn container(name: &str, script: &str) -> Value {
    json!({"name": name, "image": BUSYBOX, "command": ["sh", "-c", script]})
}

/// Sets fields of an object.
fn merge(object: &mut Value, fields: &Value) {
    for (field, value) in fields.as_object().expect("fields are an object") {
        object[field] = value.clone();
    }
}

/// Adds an item to a list, which may not exist yet.
fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        list => *list = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::{BUSYBOX, PodBuilder, container};
    use serde_json::json;

    #[test]
    fn new_pod_has_only_name_and_image() {
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": BUSYBOX}]}});
        assert_eq!(PodBuilder::new("p").build(), expected);
        assert_eq!(PodBuilder::new("p").to_string(), expected.to_string());
    }

    #[test]
    fn every_method_sets_its_field() {
        let pod = PodBuilder::new("p")
            .label("app", "web")
            .label("tier", "front")
            .metadata(&json!({"finalizers": ["example.com/look"]}))
            .image("x:1")
            .script("exit 0")
            .resources(&json!({"limits": {"cpu": "1"}}))
            .env("A", "1")
            .env("B", "2")
            .mount("v", "/v")
            .container(&json!({"stdin": true}))
            .volume("v", &json!({"emptyDir": {}}))
            .restart_policy("Never")
            .grace_period(1)
            .spec(&json!({"nodeName": "n"}))
            .add_container(container("d", "true"))
            .init_container(container("i", "false"));
        let expected = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"app": "web", "tier": "front"}, "finalizers": ["example.com/look"]},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "nodeName": "n",
                "volumes": [{"name": "v", "emptyDir": {}}],
                "initContainers": [{"name": "i", "image": BUSYBOX, "command": ["sh", "-c", "false"]}],
                "containers": [
                    {"name": "c", "image": "x:1", "command": ["sh", "-c", "exit 0"], "stdin": true,
                        "resources": {"limits": {"cpu": "1"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                    {"name": "d", "image": BUSYBOX, "command": ["sh", "-c", "true"]}]}});
        assert_eq!(pod.build(), expected);
    }

    #[test]
    fn last_call_decides() {
        let pod = PodBuilder::new("p").grace_period(5).script("a").command(&["b"]);
        let pod = pod.spec(&json!({"terminationGracePeriodSeconds": 9})).build();
        assert_eq!(pod.pointer("/spec/terminationGracePeriodSeconds"), Some(&json!(9)));
        assert_eq!(pod.pointer("/spec/containers/0/command"), Some(&json!(["b"])));
    }
}
