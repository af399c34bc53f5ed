//! What upstream's `ServiceAccount` admission does to a new Pod: the account is there, lends its pull secrets, and its
//! token is mounted into every container that does not say otherwise.

use crate::{create, service::ApiServer};
use serde_json::{Value, json};
use store::Key;

/// Where clients look for their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const PREFIX: &str = "kube-api-access-";
/// An hour, and the mark of a token that nobody asked for.
const SECONDS: i64 = 3607;
/// Asks that Pods of an account have no Secrets but those that it names.
pub(crate) const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
/// Marks the Pod that stands for one from a node's own files.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Admits a new Pod. `default` may come later than the first Pod of a namespace: its controller makes it.
pub(crate) fn admit(server: &ApiServer, namespace: &str, pod: &mut Value) -> Result<(), String> {
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or("").to_owned();
    let account = match server.store.get(&Key::new("serviceaccounts", namespace, name.as_str())) {
        Some(stored) => serde_json::from_slice(&stored.data).unwrap_or_default(),
        None if name == "default" => Value::Null,
        None => {
            return Err(format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
            ));
        }
    };
    if account["imagePullSecrets"].is_array() && pod["spec"]["imagePullSecrets"].is_null() {
        pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    let mirror = !pod["metadata"]["annotations"][MIRROR].is_null();
    let field = "automountServiceAccountToken";
    let wanted = pod["spec"][field].as_bool().or(account[field].as_bool()).unwrap_or(true);
    // A server that issues no tokens promises none.
    if wanted && !mirror && server.signing_key.is_some() {
        mount(&mut pod["spec"]);
    }
    Ok(())
}

/// Refuses a Pod Secrets that its account does not name, where that asks for it (`limitSecretReferences`).
pub(crate) fn check(server: &ApiServer, namespace: &str, pod: &Value) -> Result<(), String> {
    let spec = &pod["spec"];
    let name = spec["serviceAccountName"].as_str().unwrap_or("");
    let stored = server.store.get(&Key::new("serviceaccounts", namespace, name));
    let account: Value = stored.and_then(|stored| serde_json::from_slice(&stored.data).ok()).unwrap_or_default();
    let limits = account["metadata"]["annotations"][MOUNTABLE].as_str().unwrap_or("");
    // Mirrors show what runs without asking.
    if !matches!(limits, "1" | "t" | "T" | "true" | "TRUE" | "True")
        || !pod["metadata"]["annotations"][MIRROR].is_null()
    {
        return Ok(());
    }
    let refused = |what: &str, kind: &str| {
        Err(format!("{what} is not allowed because service account {name} does not reference that {kind}"))
    };
    let names = |list: &str, secret: &Value| items(&account, list).any(|s| s["name"] == *secret);
    let text = |of: &Value| of.as_str().unwrap_or("").to_owned();
    for secret in items(spec, "volumes").map(|v| &v["secret"]["secretName"]).filter(|name| !name.is_null()) {
        if !names("secrets", secret) {
            return refused(&format!("volume with secret.secretName={:?}", text(secret)), "secret");
        }
    }
    for (list, kind) in [
        ("initContainers", "init container"),
        ("containers", "container"),
        ("ephemeralContainers", "ephemeral container"),
    ] {
        for container in items(spec, list) {
            let own = text(&container["name"]);
            for variable in items(container, "env") {
                let secret = &variable["valueFrom"]["secretKeyRef"]["name"];
                if !secret.is_null() && !names("secrets", secret) {
                    let (variable, secret) = (text(&variable["name"]), text(secret));
                    let what = format!("{kind} {own} with envVar {variable} referencing secret.secretName={secret:?}");
                    return refused(&what, "secret");
                }
            }
            for secret in items(container, "envFrom").map(|from| &from["secretRef"]["name"]).filter(|n| !n.is_null()) {
                if !names("secrets", secret) {
                    let secret = text(secret);
                    return refused(
                        &format!("{kind} {own} with envFrom referencing secret.secretName={secret:?}"),
                        "secret",
                    );
                }
            }
        }
    }
    for (i, secret) in items(spec, "imagePullSecrets").map(|s| &s["name"]).enumerate() {
        if !names("imagePullSecrets", secret) {
            return refused(&format!("imagePullSecrets[{i}].name={:?}", text(secret)), "imagePullSecret");
        }
    }
    Ok(())
}

fn items<'a>(of: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    of[list].as_array().into_iter().flatten()
}

fn mount(spec: &mut Value) {
    let names = spec["volumes"].as_array().into_iter().flatten().filter_map(|v| v["name"].as_str());
    let known = names.into_iter().find(|name| name.starts_with(PREFIX)).map(str::to_owned);
    let name = known.clone().unwrap_or_else(|| create::generate(PREFIX));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array();
            if mounts.is_some_and(|all| all.iter().any(|m| m["mountPath"] == MOUNT_PATH)) {
                continue;
            }
            needed = true;
            push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
        }
    }
    if needed && known.is_none() {
        let namespace =
            json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
        let authority = json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": SECONDS, "path": "token"}},
            {"configMap": authority}, {"downwardAPI": {"items": [namespace]}},
        ]);
        push(spec, "volumes", json!({"name": name, "projected": {"defaultMode": 420, "sources": sources}}));
    }
}

fn push(object: &mut Value, list: &str, item: Value) {
    if !object[list].is_array() {
        object[list] = json!([]);
    }
    if let Some(items) = object[list].as_array_mut() {
        items.push(item);
    }
}
