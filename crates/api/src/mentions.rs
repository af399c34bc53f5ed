//! What the spec of a Pod names, wherever it stands there.

use serde_json::Value;

/// Whether a Pod's spec names this Secret of its namespace (`VisitPodSecretNames`): as a volume, for the environment, for
/// pulling images, or by what mounts a volume.
#[must_use]
pub fn secret(spec: &Value, name: &str) -> bool {
    let keys = ["secretKeyRef", "secretRef", "nodePublishSecretRef", "secret"];
    has(spec, &|key, value| keys.contains(&key) && value["name"] == name)
        || has(spec, &|key, value| ["secret", "azureFile"].contains(&key) && value["secretName"] == name)
        || spec["imagePullSecrets"].as_array().is_some_and(|all| all.iter().any(|s| s["name"] == name))
}

/// Whether this holds for a field somewhere; the depth is that of what was stored.
pub fn has(value: &Value, is_it: &dyn Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| is_it(key, value) || has(value, is_it)),
        Value::Array(items) => items.iter().any(|value| has(value, is_it)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::secret;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, expected: bool) {
        assert_eq!(secret(&spec, "s"), expected, "{spec}");
    }

    #[test]
    fn a_secret_is_named_in_many_places() {
        let volume = |volume: Value| json!({"volumes": [{"name": "s"}, volume]});
        let container = |container: Value| json!({"initContainers": [{"name": "s"}, container]});
        check(json!({}), false);
        check(json!({"serviceAccountName": "s", "nodeName": "s"}), false);
        check(volume(json!({"name": "s", "configMap": {"name": "s"}})), false);
        check(volume(json!({"name": "v", "secret": {"secretName": "s"}})), true);
        check(volume(json!({"name": "v", "secret": {"secretName": "t"}})), false);
        check(volume(json!({"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}})), true);
        check(volume(json!({"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}})), true);
        check(volume(json!({"name": "v", "iscsi": {"secretRef": {"name": "s"}}})), true);
        check(
            container(json!({"env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]})),
            true,
        );
        check(container(json!({"envFrom": [{"secretRef": {"name": "s"}}]})), true);
        check(json!({"imagePullSecrets": [{"name": "s"}]}), true);
    }
}
