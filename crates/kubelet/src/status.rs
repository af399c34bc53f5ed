//! The only writer of Pod status: the newest status of each Pod, until the API server has taken it.

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(500);

/// Writes a status until the API server takes it. Gives whether the Pod is still there.
pub(crate) async fn write(shared: &Shared, pod: &Pod, status: &PodStatus) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let (name, uid) = (pod.metadata.name.as_deref().unwrap_or(""), pod.metadata.uid.as_deref().unwrap_or(""));
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
    // The UID makes sure that a later Pod of the same name never gets this one's status.
    let patch = json!({"metadata": {"uid": uid}, "status": status});
    loop {
        match within_deadline(api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Ok(_) => return true,
            Err(kube::Error::Api(e)) if e.code == 404 || (e.code == 409 && e.message.contains("UID")) => return false,
            Err(error) => tracing::warn!(%error, name, "a Pod's status was not taken; trying again"),
        }
        tokio::time::sleep(RETRY).await;
    }
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
