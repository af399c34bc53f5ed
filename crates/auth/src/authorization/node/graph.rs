//! Node authorizer graph: the objects that have a path to a node, because its Pods reference them
//! (`plugin/pkg/auth/authorizer/node/graph.go`).
//!
//! There is no stored graph: a request looks its edges up among the Pods of one namespace. Objects that do not contain
//! the name are not decoded.

use crate::stored_object;
use api::pod_references;
use kinds::pod::mirror_pod;
use serde_json::Value;
use store::{Scope, Store};

/// Whether there is a path from an object to the node (`hasPathFrom`).
pub(crate) fn has_path_from(store: &Store, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
    match resource {
        "pods" | "volumeattachments" | "resourceslices" => {
            let object = stored_object::get(store, plural(resource), namespace, name).unwrap_or_default();
            object["spec"]["nodeName"] == node
        }
        "persistentvolumes" => objects(store, "persistentvolumeclaims", None, [name, ""]).any(|claim| {
            let text = |field: &str| claim["metadata"][field].as_str().unwrap_or("");
            let bound = claim["spec"]["volumeName"] == name;
            bound && has_path_from(store, node, "persistentvolumeclaims", text("namespace"), text("name"))
        }),
        _ => {
            // A Pod does not contain the names of claims of its ephemeral volumes.
            let word = if resource == "persistentvolumeclaims" { "" } else { name };
            let pods = objects(store, "pods", Some(namespace), [node, word]);
            let mut pods_of_node =
                pods.filter(|pod| pod["spec"]["nodeName"] == node && !mirror_pod::is_mirror_pod(pod));
            pods_of_node.any(|pod| references(&pod, resource, name))
                || (resource == "secrets" && is_secret_of_volume(store, node, namespace, name))
        }
    }
}

/// Returns the static name of a resource.
fn plural(resource: &str) -> &'static str {
    ["pods", "volumeattachments", "resourceslices"].into_iter().find(|known| *known == resource).unwrap_or("pods")
}

/// Returns the objects whose JSON contains all these words. Other objects are not decoded.
fn objects<'a>(
    store: &Store,
    resource: &'static str,
    namespace: Option<&str>,
    words: [&'a str; 2],
) -> impl Iterator<Item = Value> + use<'a> {
    let scope = Scope::resource(resource);
    let scope = if let Some(namespace) = namespace { scope.in_namespace(namespace) } else { scope };
    let all = store.list(&scope, None, None).objects;
    let matching = all
        .into_iter()
        .filter(move |o| std::str::from_utf8(&o.data).is_ok_and(|text| words.iter().all(|word| text.contains(word))));
    matching.filter_map(|o| stored_object::parse(&o))
}

/// Whether a PersistentVolume of one of the node's Pods references a Secret.
fn is_secret_of_volume(store: &Store, node: &str, namespace: &str, name: &str) -> bool {
    objects(store, "persistentvolumes", None, [name, namespace]).any(|volume| {
        let volume_name = volume["metadata"]["name"].as_str().unwrap_or("");
        volume_references_secret(&volume["spec"], namespace, name)
            && has_path_from(store, node, "persistentvolumes", "", volume_name)
    })
}

/// Whether a PersistentVolume references a Secret for nodes (`VisitPVSecretNames`). Other Secrets are for controllers
/// only.
fn volume_references_secret(spec: &Value, namespace: &str, name: &str) -> bool {
    const NODE_SECRET_FIELDS: [&str; 4] =
        ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let is_same_namespace = |value: &Value| match value.as_str() {
        // Defaults to the namespace of the claim.
        None | Some("") => spec["claimRef"]["namespace"] == namespace,
        Some(value) => value == namespace,
    };
    let is_reference = |key: &str, value: &Value| {
        NODE_SECRET_FIELDS.contains(&key) && value["name"] == name && is_same_namespace(&value["namespace"])
    };
    let file = &spec["azureFile"];
    pod_references::any_field(spec, &is_reference)
        || (file["secretName"] == name && is_same_namespace(&file["secretNamespace"]))
}

/// Whether a Pod references an object of its namespace.
fn references(pod: &Value, resource: &str, name: &str) -> bool {
    let spec = &pod["spec"];
    let any_field = |keys: &[&str], field: &str| {
        pod_references::any_field(spec, &|key, value| keys.contains(&key) && value[field] == name)
    };
    match resource {
        "secrets" => pod_references::references_secret(spec, name),
        "configmaps" => any_field(&["configMapKeyRef", "configMapRef", "configMap"], "name"),
        "serviceaccounts" => spec["serviceAccountName"] == name,
        "persistentvolumeclaims" => {
            any_field(&["persistentVolumeClaim"], "claimName") || has_ephemeral_claim(pod, name)
        }
        "resourceclaims" => {
            let is_listed = |list: &Value| {
                list.as_array().is_some_and(|all| all.iter().any(|claim| claim["resourceClaimName"] == name))
            };
            is_listed(&spec["resourceClaims"]) || is_listed(&pod["status"]["resourceClaimStatuses"])
        }
        _ => false,
    }
}

/// Whether a claim belongs to an ephemeral volume of the Pod, by its name `POD-VOLUME`.
fn has_ephemeral_claim(pod: &Value, name: &str) -> bool {
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or("");
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut ephemeral = volumes.filter(|v| !v["ephemeral"].is_null()).filter_map(|v| v["name"].as_str());
    ephemeral.any(|volume| name == format!("{pod_name}-{volume}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volume_references_only_secrets_for_nodes() {
        let check =
            |spec: Value, expected: bool| assert_eq!(volume_references_secret(&spec, "x", "s"), expected, "{spec}");
        let named = |namespace: &str| json!({"name": "s", "namespace": namespace});
        check(json!({"csi": {"nodeStageSecretRef": named("x")}}), true);
        check(json!({"csi": {"nodePublishSecretRef": named("x")}}), true);
        check(json!({"csi": {"controllerPublishSecretRef": named("x")}}), false);
        check(json!({"csi": {"controllerExpandSecretRef": named("x")}}), false);
        check(json!({"iscsi": {"secretRef": named("y")}, "claimRef": {"namespace": "x"}}), false);
        check(json!({"iscsi": {"secretRef": {"name": "s"}}, "claimRef": {"namespace": "x"}}), true);
        check(json!({"azureFile": {"secretName": "s"}, "claimRef": {"namespace": "x"}}), true);
        check(json!({"azureFile": {"secretName": "s"}, "claimRef": {"namespace": "y"}}), false);
        check(json!({"azureFile": {"secretName": "s", "secretNamespace": "x"}, "claimRef": {"namespace": "y"}}), true);
        check(json!({"azureFile": {"secretName": "s", "secretNamespace": ""}, "claimRef": {"namespace": "x"}}), true);
        check(json!({"claimRef": {"namespace": "x"}}), false);
    }

    #[test]
    fn pod_references_objects_of_all_fields() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "account", "imagePullSecrets": [{"name": "pull"}], "nodeSelector": {"secretRef": "no"},
            "initContainers": [{"envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "map-from"}}]}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
                {"valueFrom": {"configMapKeyRef": {"name": "map-key"}}}]}],
            "volumes": [{"name": "v", "secret": {"secretName": "volume"}}, {"name": "e", "ephemeral": {}},
                {"projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "map-part"}}]}},
                {"configMap": {"name": "map"}}, {"persistentVolumeClaim": {"claimName": "claim"}}],
            "resourceClaims": [{"name": "x", "resourceClaimName": "device"}]},
            "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}]}});
        let named = [
            ("secrets", &["pull", "from", "key", "volume", "part"][..]),
            ("configmaps", &["map-from", "map-key", "map-part", "map"]),
            ("persistentvolumeclaims", &["claim", "p-e"]),
            ("serviceaccounts", &["account"]),
            ("resourceclaims", &["device", "made"]),
        ];
        for (resource, all) in named {
            assert!(all.iter().all(|name| references(&pod, resource, name)), "{resource}");
            for other in ["other", "map-x", "p-v", "x", "no"] {
                assert!(!references(&pod, resource, other), "{resource} {other}");
            }
        }
    }
}
