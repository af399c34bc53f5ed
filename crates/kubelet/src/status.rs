//! The only writer of Pod status: the newest status of each Pod, until the API server has taken it.

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use lifecycle::{OWNED_CONDITIONS, RESIZE_CONDITIONS};
use serde_json::{Value, json};
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(500);

/// Writes a status until the API server takes it. Gives whether the Pod is still there.
pub(crate) async fn write(shared: &Shared, pod: &Pod, status: &PodStatus) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let (name, uid) = (pod.metadata.name.as_deref().unwrap_or(""), pod.metadata.uid.as_deref().unwrap_or(""));
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
    // The UID makes sure that a later Pod of the same name never gets this one's status.
    let patch = json!({"metadata": {"uid": uid}, "status": difference(pod.status.as_ref(), status)});
    loop {
        match within_deadline(api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))).await {
            Ok(_) => return true,
            Err(kube::Error::Api(e)) if e.code == 404 || (e.code == 409 && e.message.contains("UID")) => return false,
            Err(kube::Error::Api(e)) if e.code == 422 || e.code == 403 && is_elsewhere(shared, pod) => {
                // It would be refused for ever, and hold back what comes after it.
                tracing::error!(error = %e.message, name, "the API server refuses a Pod's status");
                return true;
            }
            Err(error) => tracing::warn!(%error, name, "a Pod's status was not taken; trying again"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether the Pod is another node's: this one was called so before, and only ends what it had started.
fn is_elsewhere(shared: &Shared, pod: &Pod) -> bool {
    api::pod::node_name(pod).is_some_and(|node| node != shared.options.node_name)
}

/// Fields that only the kubelet writes, and that may go.
const OWN: [&str; 6] =
    ["containerStatuses", "ephemeralContainerStatuses", "initContainerStatuses", "message", "podIP", "reason"];

/// A strategic merge patch to this status. Conditions of others are left out as long as they are as
/// they were seen: there may be newer ones (readiness gates). Addresses that are gone are named, for those lists are merged;
/// so are the kubelet's fields that are not there, whatever was seen of them: what was written last may not have come back.
fn difference(before: Option<&PodStatus>, status: &PodStatus) -> Value {
    let mut patch = json!(status);
    if let Some(fields) = patch.as_object_mut() {
        for name in OWN {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    let old = json!(before);
    let list = |status: &Value, name: &str| status[name].as_array().cloned().unwrap_or_default();
    let known = list(&old, "conditions");
    if let Some(conditions) = patch.get_mut("conditions").and_then(Value::as_array_mut) {
        let own = |c: &Value| OWNED_CONDITIONS.iter().any(|own| c["type"] == **own);
        conditions.retain(|c| own(c) || !known.contains(c));
        // What a condition no longer says would stand beside what it says now.
        for condition in conditions.iter_mut().filter(|c| own(c)).filter_map(Value::as_object_mut) {
            for name in ["reason", "message"] {
                condition.entry(name).or_insert(Value::Null);
            }
        }
        // Those of a resize go with it, whatever was seen of them.
        let gone = RESIZE_CONDITIONS.into_iter().filter(|kind| !conditions.iter().any(|c| c["type"] == **kind));
        let directives: Vec<Value> = gone.map(|kind| json!({"$patch": "delete", "type": kind})).collect();
        conditions.extend(directives);
    }
    for name in ["podIPs", "hostIPs"] {
        let new = list(&patch, name);
        let gone = list(&old, name).into_iter().filter(|ip| !new.contains(ip));
        let directives: Vec<Value> = gone.map(|ip| json!({"$patch": "delete", "ip": ip["ip"]})).collect();
        if !directives.is_empty() {
            patch[name] = new.into_iter().chain(directives).collect();
        }
    }
    patch
}

/// Removes the object of a Pod that has ended: grace 0, this UID only. Gives whether the request was taken.
pub(crate) async fn delete(shared: &Shared, pod: &lifecycle::Pod) -> bool {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), pod.namespace());
    let preconditions = Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None };
    let params =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(preconditions), ..DeleteParams::default() };
    match within_deadline(api.delete(pod.name(), &params)).await {
        Ok(_) => true,
        Err(kube::Error::Api(e)) if e.code == 404 || e.code == 409 => true,
        Err(error) => {
            tracing::warn!(%error, pod = pod.name(), "a Pod could not be removed from the API; trying again");
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
        let got = difference(Some(&parse(before)), &parse(after));
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(got.get(field), Some(value), "{field}");
        }
    }

    #[test]
    fn a_patch_leaves_conditions_of_others_alone_and_names_what_is_gone() {
        let (own, foreign) =
            (json!({"type": "Ready", "status": "False"}), json!({"type": "example.com/x", "status": "True"}));
        let ready = json!({"type": "Ready", "status": "True"});
        let told = json!({"type": "Ready", "status": "True", "reason": null, "message": null});
        let gone = |kind: &str| json!({"$patch": "delete", "type": kind});
        check(
            json!({"conditions": [own, foreign]}),
            json!({"conditions": [ready, foreign], "phase": "Running"}),
            json!({"conditions": [told, gone("PodResizePending"), gone("PodResizeInProgress")], "phase": "Running"}),
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
