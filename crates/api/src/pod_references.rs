//! References from the spec of a Pod to other objects.

use serde_json::Value;

/// Returns whether a Pod's spec refers to a Secret of its namespace (`VisitPodSecretNames`): by a volume, an environment
/// variable, an image pull secret or a volume driver.
#[must_use]
pub fn references_secret(spec: &Value, name: &str) -> bool {
    let keys = ["secretKeyRef", "secretRef", "nodePublishSecretRef", "secret"];
    any_field(spec, &|key, value| keys.contains(&key) && value["name"] == name)
        || any_field(spec, &|key, value| ["secret", "azureFile"].contains(&key) && value["secretName"] == name)
        || spec["imagePullSecrets"].as_array().is_some_and(|all| all.iter().any(|s| s["name"] == name))
}

/// Returns whether any field, at any depth, satisfies the predicate. The depth is limited by that of stored objects.
pub fn any_field(value: &Value, predicate: &dyn Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| predicate(key, value) || any_field(value, predicate)),
        Value::Array(items) => items.iter().any(|value| any_field(value, predicate)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::references_secret;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, expected: bool) {
        assert_eq!(references_secret(&spec, "s"), expected, "{spec}");
    }

    #[test]
    fn secret_references_are_found_in_all_fields() {
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
