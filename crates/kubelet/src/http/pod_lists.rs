//! `/pods`, `/runningpods/` and `/configz`: the kubelet's Pods, the runtime's Pods, and the effective configuration.

use super::HttpError;
use crate::Shared;
use axum::{Json, extract::State, http::StatusCode};
use runtime::ContainerState;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// `/pods`: all Pods of the node with their latest status, which the API may not have yet.
pub(super) async fn pods(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let mut items: Vec<Value> = Vec::new();
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        let mut object = k8s_openapi::api::core::v1::Pod::clone(pod.object());
        object.status = Some(lifecycle::status(&pod, &shared.options.policy, shared.now()));
        items.push(json!(object));
    }
    Json(list(items))
}

/// `/runningpods/`: the running Pods of the runtime, including those that the kubelet does not know.
pub(super) async fn running_pods(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, HttpError> {
    let failed = |e: runtime::RuntimeError| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string());
    let (sandboxes, containers) =
        tokio::try_join!(shared.runtime.sandboxes(), shared.runtime.containers()).map_err(failed)?;
    let mut found: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    for sandbox in sandboxes.into_iter().filter(|s| s.ready) {
        let metadata = json!({"name": sandbox.name, "namespace": sandbox.namespace, "uid": sandbox.uid});
        found.entry(sandbox.uid.clone()).or_insert((metadata, Vec::new()));
    }
    for container in containers.into_iter().filter(|c| c.state == ContainerState::Running) {
        if let Some((_, list)) = found.get_mut(&container.uid) {
            list.push(json!({"name": container.name, "image": container.image_ref}));
        }
    }
    let pod = |(metadata, containers): (Value, Vec<Value>)| json!({"metadata": metadata, "spec": {"containers": containers}, "status": {}});
    Ok(Json(list(found.into_values().map(pod).collect())))
}

fn list(items: Vec<Value>) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

/// `/configz`: the effective `KubeletConfiguration`, including defaults.
pub(super) async fn configz(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, HttpError> {
    let config = serde_json::to_value(&shared.options.config);
    let mut config = config.map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    config["evictionHard"] = json!(shared.options.config.eviction.hard());
    config["kind"] = json!("KubeletConfiguration");
    config["apiVersion"] = json!("kubelet.config.k8s.io/v1beta1");
    Ok(Json(json!({"kubeletconfig": config})))
}
