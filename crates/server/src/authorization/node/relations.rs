//! What a node has to do with: what its Pods name (`plugin/pkg/auth/authorizer/node/graph.go`).
//!
//! Looked up when a node asks, among the Pods of one namespace: what does not name the object is not read.

use crate::{ApiServer, kinds::pod::mirror_pod};
use api::pod_references;
use serde_json::Value;
use store::{Key, Scope};

/// Whether an object of one of the resources that nodes may read has to do with the node.
pub(crate) fn is_related(server: &ApiServer, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
    match resource {
        "pods" | "volumeattachments" | "resourceslices" => {
            let stored = server.store.get(&Key::new(plural(resource), namespace, name));
            let object = stored.and_then(|o| serde_json::from_slice::<Value>(&o.data).ok()).unwrap_or_default();
            object["spec"]["nodeName"] == node
        }
        "persistentvolumes" => objects(server, "persistentvolumeclaims", None, [name, ""]).any(|claim| {
            let text = |field: &str| claim["metadata"][field].as_str().unwrap_or("");
            let bound = claim["spec"]["volumeName"] == name;
            bound && is_related(server, node, "persistentvolumeclaims", text("namespace"), text("name"))
        }),
        _ => {
            // Of a claim that a Pod makes, it names the volume only.
            let word = if resource == "persistentvolumeclaims" { "" } else { name };
            let pods = objects(server, "pods", Some(namespace), [node, word]);
            let mut own = pods.filter(|pod| pod["spec"]["nodeName"] == node && !mirror_pod::is_mirror_pod(pod));
            own.any(|pod| names(&pod, resource, name))
                || (resource == "secrets" && of_volume(server, node, namespace, name))
        }
    }
}

/// The resource's name as it is kept.
fn plural(resource: &str) -> &'static str {
    ["pods", "volumeattachments", "resourceslices"].into_iter().find(|known| *known == resource).unwrap_or("pods")
}

/// The objects that hold these words somewhere, one after the other; of those that do not, none is read.
fn objects<'a>(
    server: &ApiServer,
    resource: &'static str,
    namespace: Option<&str>,
    words: [&'a str; 2],
) -> impl Iterator<Item = Value> + use<'a> {
    let scope = Scope::resource(resource);
    let scope = if let Some(namespace) = namespace { scope.in_namespace(namespace) } else { scope };
    let all = server.store.list(&scope, None, None).objects;
    let with_it = all
        .into_iter()
        .filter(move |o| std::str::from_utf8(&o.data).is_ok_and(|text| words.iter().all(|word| text.contains(word))));
    with_it.filter_map(|o| serde_json::from_slice(&o.data).ok())
}

/// A secret by which a volume is mounted that the node's Pods have.
fn of_volume(server: &ApiServer, node: &str, namespace: &str, name: &str) -> bool {
    objects(server, "persistentvolumes", None, [name, namespace]).any(|volume| {
        let own = volume["metadata"]["name"].as_str().unwrap_or("");
        has_secret(&volume["spec"], namespace, name) && is_related(server, node, "persistentvolumes", "", own)
    })
}

/// Whether a PersistentVolume names this secret for nodes (`VisitPVSecretNames`): others are for controllers alone.
fn has_secret(spec: &Value, namespace: &str, name: &str) -> bool {
    const FOR_NODES: [&str; 4] = ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let is_here = |said: &Value| match said.as_str() {
        // Where nothing is said, the claim's is meant.
        None | Some("") => spec["claimRef"]["namespace"] == namespace,
        Some(said) => said == namespace,
    };
    let referred =
        |key: &str, value: &Value| FOR_NODES.contains(&key) && value["name"] == name && is_here(&value["namespace"]);
    let file = &spec["azureFile"];
    pod_references::any_field(spec, &referred) || (file["secretName"] == name && is_here(&file["secretNamespace"]))
}

/// Whether a Pod names this object of its namespace.
fn names(pod: &Value, resource: &str, name: &str) -> bool {
    let spec = &pod["spec"];
    let by = |keys: &[&str], field: &str| {
        pod_references::any_field(spec, &|key, value| keys.contains(&key) && value[field] == name)
    };
    match resource {
        "secrets" => pod_references::references_secret(spec, name),
        "configmaps" => by(&["configMapKeyRef", "configMapRef", "configMap"], "name"),
        "serviceaccounts" => spec["serviceAccountName"] == name,
        "persistentvolumeclaims" => by(&["persistentVolumeClaim"], "claimName") || makes_claim(pod, name),
        "resourceclaims" => {
            let of = |list: &Value| {
                list.as_array().is_some_and(|all| all.iter().any(|claim| claim["resourceClaimName"] == name))
            };
            of(&spec["resourceClaims"]) || of(&pod["status"]["resourceClaimStatuses"])
        }
        _ => false,
    }
}

/// Claims of ephemeral volumes are called after Pod and volume.
fn makes_claim(pod: &Value, name: &str) -> bool {
    let own = pod["metadata"]["name"].as_str().unwrap_or("");
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut made = volumes.filter(|v| !v["ephemeral"].is_null()).filter_map(|v| v["name"].as_str());
    made.any(|volume| name == format!("{own}-{volume}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_names_the_secrets_by_which_it_is_mounted() {
        let check = |spec: Value, expected: bool| assert_eq!(has_secret(&spec, "x", "s"), expected, "{spec}");
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
    fn a_pod_names_what_it_needs() {
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
            assert!(all.iter().all(|name| names(&pod, resource, name)), "{resource}");
            for other in ["other", "map-x", "p-v", "x", "no"] {
                assert!(!names(&pod, resource, other), "{resource} {other}");
            }
        }
    }
}
