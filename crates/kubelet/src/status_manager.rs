//! Status manager: the only writer of Pod status. Writes are retried until the API server accepts them.

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use lifecycle::{OWNED_CONDITIONS, RESIZE_CONDITIONS};
use serde_json::{Value, json};
use std::time::Duration;

/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_millis(500);

/// Writes a status, with retries until the API server accepts it. Returns whether the Pod still exists.
pub(crate) async fn write(shared: &Shared, pod: &Pod, status: &PodStatus) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let (name, uid) = (pod.metadata.name.as_deref().unwrap_or(""), pod.metadata.uid.as_deref().unwrap_or(""));
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
    // The UID is a precondition: a later Pod of the same name must not get this status.
    let patch = json!({"metadata": {"uid": uid}, "status": status_patch(pod.status.as_ref(), status)});
    loop {
        match within_deadline(api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))).await {
            Ok(_) => return true,
            Err(kube::Error::Api(e)) if e.code == 404 || (e.code == 409 && e.message.contains("UID")) => return false,
            Err(kube::Error::Api(e)) if e.code == 422 || e.code == 403 && is_bound_elsewhere(shared, pod) => {
                // A retry would be rejected forever and would delay later statuses.
                tracing::error!(error = %e.message, name, "the API server rejected a Pod's status");
                return true;
            }
            Err(error) => tracing::warn!(%error, name, "failed to update a Pod's status, retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether the Pod is bound to another node name: this node was renamed, and only terminates such Pods.
fn is_bound_elsewhere(shared: &Shared, pod: &Pod) -> bool {
    api::pod::node_name(pod).is_some_and(|node| node != shared.options.node_name)
}

/// Optional fields that only the kubelet writes.
const OWNED_FIELDS: [&str; 6] =
    ["containerStatuses", "ephemeralContainerStatuses", "initContainerStatuses", "message", "podIP", "reason"];

/// Returns the strategic merge patch that sets this status.
///
/// Conditions of other writers (readiness gates) are left out unless they changed: the API may have newer ones. Removed
/// addresses get a `$patch: delete` directive, because the lists are merged. Missing fields of the kubelet are set to
/// null
/// even if `old_status` lacks them, because the watch may not have delivered the last write yet.
fn status_patch(old_status: Option<&PodStatus>, status: &PodStatus) -> Value {
    let mut patch = json!(status);
    if let Some(fields) = patch.as_object_mut() {
        for name in OWNED_FIELDS {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    let old = json!(old_status);
    let list = |status: &Value, name: &str| status[name].as_array().cloned().unwrap_or_default();
    let known = list(&old, "conditions");
    if let Some(conditions) = patch.get_mut("conditions").and_then(Value::as_array_mut) {
        let is_owned = |c: &Value| OWNED_CONDITIONS.iter().any(|condition_type| c["type"] == **condition_type);
        conditions.retain(|c| is_owned(c) || !known.contains(c));
        // A reason or message that is not set to null would survive the merge.
        for condition in conditions.iter_mut().filter(|c| is_owned(c)).filter_map(Value::as_object_mut) {
            for name in ["reason", "message"] {
                condition.entry(name).or_insert(Value::Null);
            }
        }
        // Resize conditions are removed when the resize has ended, even if `old_status` lacks them.
        let deleted = RESIZE_CONDITIONS.into_iter().filter(|kind| !conditions.iter().any(|c| c["type"] == **kind));
        let directives: Vec<Value> = deleted.map(|kind| json!({"$patch": "delete", "type": kind})).collect();
        conditions.extend(directives);
    }
    for name in ["podIPs", "hostIPs"] {
        let new = list(&patch, name);
        let deleted = list(&old, name).into_iter().filter(|ip| !new.contains(ip));
        let directives: Vec<Value> = deleted.map(|ip| json!({"$patch": "delete", "ip": ip["ip"]})).collect();
        if !directives.is_empty() {
            patch[name] = new.into_iter().chain(directives).collect();
        }
    }
    patch
}

/// Deletes a terminated Pod from the API with grace period 0 and a UID precondition. Returns whether the Pod is
/// deleted.
pub(crate) async fn delete(shared: &Shared, pod: &lifecycle::Pod) -> bool {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), pod.namespace());
    let preconditions = Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None };
    let params =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(preconditions), ..DeleteParams::default() };
    match within_deadline(api.delete(pod.name(), &params)).await {
        Ok(_) => true,
        Err(kube::Error::Api(e)) if e.code == 404 || e.code == 409 => true,
        Err(error) => {
            tracing::warn!(%error, pod = pod.name(), "failed to delete a Pod from the API, retrying");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: Value, after: Value, expected: Value) {
        let parse = |v: Value| serde_json::from_value::<PodStatus>(v).unwrap();
        let got = status_patch(Some(&parse(before)), &parse(after));
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(got.get(field), Some(value), "{field}");
        }
    }

    #[test]
    fn status_patch_keeps_foreign_conditions_and_deletes_missing() {
        let (owned, foreign) =
            (json!({"type": "Ready", "status": "False"}), json!({"type": "example.com/x", "status": "True"}));
        let ready = json!({"type": "Ready", "status": "True"});
        let patched = json!({"type": "Ready", "status": "True", "reason": null, "message": null});
        let deleted = |kind: &str| json!({"$patch": "delete", "type": kind});
        check(
            json!({"conditions": [owned, foreign]}),
            json!({"conditions": [ready, foreign], "phase": "Running"}),
            json!({"conditions": [patched, deleted("PodResizePending"), deleted("PodResizeInProgress")], "phase": "Running"}),
        );
        let (old, new) = (json!({"ip": "10.0.0.1"}), json!({"ip": "10.0.0.2"}));
        check(
            json!({"podIPs": [old]}),
            json!({"podIPs": [new]}),
            json!({"podIPs": [new, {"$patch": "delete", "ip": "10.0.0.1"}]}),
        );
        check(json!({"podIPs": [old]}), json!({"podIPs": [old]}), json!({"podIPs": [old]}));
        check(
            json!({}),
            json!({"phase": "Failed", "reason": "NodeAffinity"}),
            json!({"phase": "Failed", "reason": "NodeAffinity", "message": null, "containerStatuses": null}),
        );
    }
}
