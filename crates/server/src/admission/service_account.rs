//! The `ServiceAccount` admission plugin: sets the image pull secrets of the account, and mounts its token in the containers
//! of a new Pod.

use super::plugin::{AdmittedWrite, Plugin};
use crate::{admission::admission_control::AdmissionControl, objects::generated_name};
use api::static_pod;
use auth::stored_object;
use errors::ApiError;
use k8s_openapi::api::core::v1::PodSpec;
use kinds::{ENFORCE_MOUNTABLE_SECRETS, pod::mirror_pod};
use serde_json::{Value, json};

/// Path at which clients look for their token (`DefaultAPITokenMountPath`).
const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Prefix of the name of the token's volume (`ServiceAccountVolumeName`).
const VOLUME_NAME_PREFIX: &str = "kube-api-access-";
/// Lifetime of the token in seconds (`WarnOnlyBoundTokenExpirationSeconds`): an hour, and 7 seconds that mark the token as
/// mounted by admission.
const TOKEN_EXPIRATION_SECONDS: i64 = 3607;

/// Sets the service account of a new Pod, and what it mounts and references.
pub(super) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        // A mirror Pod has no service account.
        if !write.creates("", "Pod") || mirror_pod::is_mirror_pod(object) {
            return Ok(());
        }
        let admitted = admit(write.control, &write.resource.namespace, object);
        admitted.map_err(|error| write.forbidden(object, &error))
    }

    fn validate(&self, write: &AdmittedWrite<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        let is_ephemeral = write.resource.subresource.as_deref() == Some("ephemeralcontainers");
        if write.creates("", "Pod") || (write.is_of("", "Pod") && is_ephemeral) {
            let validated = validate(write.control, &write.resource.namespace, object);
            validated.map_err(|error| write.forbidden(object, &error))?;
        }
        Ok(Vec::new())
    }
}

/// Denial of a Pod.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceAccountError {
    #[error("error looking up service account {namespace}/{name}: {source}")]
    Lookup { namespace: String, name: String, source: LookupError },
    #[error("failed to read the spec of a mirror pod: {0}")]
    MirrorPodSpec(serde_json::Error),
    #[error("a mirror pod may not reference service accounts")]
    MirrorPodServiceAccount,
    #[error("a mirror pod may not reference secrets")]
    MirrorPodSecret,
    #[error("a mirror pod may not use ServiceAccountToken volume projections")]
    MirrorPodToken,
    #[error("no service account specified for pod {0}")]
    Unspecified(String),
    #[error("{reference} is not allowed because service account {account} does not reference that {kind}")]
    UnreferencedSecret { reference: String, account: String, kind: &'static str },
}

/// Cause of a failed lookup of a service account.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookupError {
    #[error("serviceaccount {0:?} not found")]
    NotFound(String),
    #[error(transparent)]
    Decode(serde_json::Error),
}

/// Sets the pull secrets and the token of a new Pod. The account `default` may not exist yet: its controller creates it.
pub(super) fn admit(control: &AdmissionControl, namespace: &str, pod: &mut Value) -> Result<(), ServiceAccountError> {
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or("").to_owned();
    let account = service_account(control, namespace, &name)?;
    if account["imagePullSecrets"].is_array() && pod["spec"]["imagePullSecrets"].is_null() {
        pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    let field = "automountServiceAccountToken";
    let automount = pod["spec"][field].as_bool().or(account[field].as_bool()).unwrap_or(true);
    // Without a signing key, the server issues no tokens.
    if automount && control.issues_tokens {
        mount_token(&mut pod["spec"]);
    }
    Ok(())
}

/// Returns an account; null for a `default` that does not exist yet.
fn service_account(control: &AdmissionControl, namespace: &str, name: &str) -> Result<Value, ServiceAccountError> {
    let failed =
        |source| ServiceAccountError::Lookup { namespace: namespace.to_owned(), name: name.to_owned(), source };
    match stored_object::try_get(&control.store, "serviceaccounts", namespace, name) {
        Ok(Some(account)) => Ok(account),
        Err(error) => Err(failed(LookupError::Decode(error))),
        Ok(None) if name == "default" => Ok(Value::Null),
        Ok(None) => Err(failed(LookupError::NotFound(name.to_owned()))),
    }
}

/// Denies references of a mirror Pod to an account or to Secrets: it runs without them, and the node could read the Secrets
/// that it references.
fn validate_mirror_pod(pod: &Value) -> Result<(), ServiceAccountError> {
    let spec: PodSpec = decode::from_value(&pod["spec"]).map_err(ServiceAccountError::MirrorPodSpec)?;
    if static_pod::has_service_account(&spec) {
        return Err(ServiceAccountError::MirrorPodServiceAccount);
    }
    if static_pod::references_secrets(&spec) {
        return Err(ServiceAccountError::MirrorPodSecret);
    }
    if static_pod::projects_service_account_token(&spec) {
        return Err(ServiceAccountError::MirrorPodToken);
    }
    Ok(())
}

/// Denies Secrets that the account of a Pod does not name, if the account restricts them (`limitSecretReferences`), and all
/// Secrets of a mirror Pod.
pub(super) fn validate(control: &AdmissionControl, namespace: &str, pod: &Value) -> Result<(), ServiceAccountError> {
    if mirror_pod::is_mirror_pod(pod) {
        return validate_mirror_pod(pod);
    }
    let spec = &pod["spec"];
    let name = spec["serviceAccountName"].as_str().unwrap_or("");
    if name.is_empty() {
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or("");
        return Err(ServiceAccountError::Unspecified(format!("{namespace}/{pod_name}")));
    }
    let account = service_account(control, namespace, name)?;
    let enforced = account["metadata"]["annotations"][ENFORCE_MOUNTABLE_SECRETS].as_str().unwrap_or("");
    if !matches!(enforced, "1" | "t" | "T" | "true" | "TRUE" | "True") {
        return Ok(());
    }
    let denied = |reference: String, kind: &'static str| {
        Err(ServiceAccountError::UnreferencedSecret { reference, account: name.to_owned(), kind })
    };
    let references = |list: &str, secret: &Value| items(&account, list).any(|s| s["name"] == *secret);
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    for secret in items(spec, "volumes").map(|v| &v["secret"]["secretName"]).filter(|name| !name.is_null()) {
        if !references("secrets", secret) {
            return denied(format!("volume with secret.secretName={:?}", text(secret)), "secret");
        }
    }
    for (list, kind) in [
        ("initContainers", "init container"),
        ("containers", "container"),
        ("ephemeralContainers", "ephemeral container"),
    ] {
        for container in items(spec, list) {
            let container_name = text(&container["name"]);
            for variable in items(container, "env") {
                let secret = &variable["valueFrom"]["secretKeyRef"]["name"];
                if !secret.is_null() && !references("secrets", secret) {
                    let (variable, secret) = (text(&variable["name"]), text(secret));
                    let reference = format!(
                        "{kind} {container_name} with envVar {variable} referencing secret.secretName={secret:?}"
                    );
                    return denied(reference, "secret");
                }
            }
            for secret in items(container, "envFrom").map(|from| &from["secretRef"]["name"]).filter(|n| !n.is_null()) {
                if !references("secrets", secret) {
                    let secret = text(secret);
                    return denied(
                        format!("{kind} {container_name} with envFrom referencing secret.secretName={secret:?}"),
                        "secret",
                    );
                }
            }
        }
    }
    for (i, secret) in items(spec, "imagePullSecrets").map(|s| &s["name"]).enumerate() {
        if !references("imagePullSecrets", secret) {
            return denied(format!("imagePullSecrets[{i}].name={:?}", text(secret)), "imagePullSecret");
        }
    }
    Ok(())
}

fn items<'a>(object: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object[list].as_array().into_iter().flatten()
}

/// Mounts the token in containers without a mount at its path, and adds its volume.
fn mount_token(spec: &mut Value) {
    let names = spec["volumes"].as_array().into_iter().flatten().filter_map(|v| v["name"].as_str());
    let existing = names.into_iter().find(|name| name.starts_with(VOLUME_NAME_PREFIX)).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| generated_name::generate_name(VOLUME_NAME_PREFIX));
    let mut is_mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array();
            if mounts.is_some_and(|all| all.iter().any(|m| m["mountPath"] == TOKEN_MOUNT_PATH)) {
                continue;
            }
            is_mounted = true;
            push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH}));
        }
    }
    if is_mounted && existing.is_none() {
        let namespace =
            json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
        let root_ca = json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_SECONDS, "path": "token"}},
            {"configMap": root_ca}, {"downwardAPI": {"items": [namespace]}},
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
