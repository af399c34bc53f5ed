//! What upstream's `ServiceAccount` admission does to a new Pod: the account is there, lends its pull secrets, and its
//! token is mounted into every container that does not say otherwise.

use crate::{create, kinds::pod::mirror_pod, service::ApiServer};
use api::static_pod;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};
use store::Key;

/// Where clients look for their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const PREFIX: &str = "kube-api-access-";
/// An hour, and the mark of a token that nobody asked for.
const SECONDS: i64 = 3607;
/// Asks that Pods of an account have no Secrets but those that it names.
pub(crate) const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Admits a new Pod. `default` may come later than the first Pod of a namespace: its controller makes it.
pub(crate) fn admit(server: &ApiServer, namespace: &str, pod: &mut Value) -> Result<(), String> {
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or("").to_owned();
    let account = account(server, namespace, &name)?;
    if account["imagePullSecrets"].is_array() && pod["spec"]["imagePullSecrets"].is_null() {
        pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    let field = "automountServiceAccountToken";
    let wanted = pod["spec"][field].as_bool().or(account[field].as_bool()).unwrap_or(true);
    // A server that issues no tokens promises none.
    if wanted && server.signing_key.is_some() {
        mount(&mut pod["spec"]);
    }
    Ok(())
}

/// The account of this name; null for a `default` that is not there yet.
fn account(server: &ApiServer, namespace: &str, name: &str) -> Result<Value, String> {
    let failed = |why: &str| format!("error looking up service account {namespace}/{name}: {why}");
    match server.store.get(&Key::new("serviceaccounts", namespace, name)) {
        Some(stored) => serde_json::from_slice(&stored.data).map_err(|e| failed(&e.to_string())),
        None if name == "default" => Ok(Value::Null),
        None => Err(failed(&format!("serviceaccount {name:?} not found"))),
    }
}

/// Refuses a mirror Pod that refers to an account or to Secrets: it shows what runs without them, and whoever made it would
/// have a claim to read them.
fn check_mirror(pod: &Value) -> Result<(), String> {
    let spec: PodSpec = serde_json::from_value(pod["spec"].clone())
        .map_err(|e| format!("failed to read the spec of a mirror pod: {e}"))?;
    if static_pod::has_service_account(&spec) {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    if static_pod::references_secrets(&spec) {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    if static_pod::projects_service_account_token(&spec) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    Ok(())
}

/// Refuses a Pod Secrets that its account does not name, where that asks for it (`limitSecretReferences`), and a mirror Pod
/// all of them.
pub(crate) fn check(server: &ApiServer, namespace: &str, pod: &Value) -> Result<(), String> {
    if mirror_pod::is_mirror_pod(pod) {
        return check_mirror(pod);
    }
    let spec = &pod["spec"];
    let name = spec["serviceAccountName"].as_str().unwrap_or("");
    if name.is_empty() {
        let own = pod["metadata"]["name"].as_str().unwrap_or("");
        return Err(format!("no service account specified for pod {namespace}/{own}"));
    }
    let account = account(server, namespace, name)?;
    let limits = account["metadata"]["annotations"][MOUNTABLE].as_str().unwrap_or("");
    if !matches!(limits, "1" | "t" | "T" | "true" | "TRUE" | "True") {
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
    let name = known.clone().unwrap_or_else(|| create::generate_name(PREFIX));
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
