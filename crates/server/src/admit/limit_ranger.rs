//! The `LimitRanger` admission.

use crate::{kinds::KindInfo, service::ApiServer};
use admission::limit_range;
use k8s_openapi::api::core::v1::{LimitRange, Pod};
use serde_json::{Value, json};
use store::Scope;

fn ranges(server: &ApiServer, namespace: &str) -> Vec<LimitRange> {
    let all = server.store.list(&Scope::resource("limitranges").in_namespace(namespace), None, None).objects;
    all.iter().filter_map(|stored| serde_json::from_slice(&stored.data).ok()).collect()
}

/// Gives the containers of a new Pod what they do not ask for.
pub(super) fn give(server: &ApiServer, namespace: &str, object: &mut Value) {
    let ranges = ranges(server, namespace);
    if ranges.is_empty() {
        return;
    }
    // One that is no Pod is told so by its validation.
    let Ok(mut pod) = serde_json::from_value::<Pod>(object.clone()) else { return };
    let before = pod.clone();
    for range in &ranges {
        limit_range::give(range, &mut pod);
    }
    if pod == before {
        return;
    }
    // Only what may have changed is taken: nothing that a typed form does not know gets lost.
    object["metadata"]["annotations"] = json!(pod.metadata.annotations);
    let spec = pod.spec.unwrap_or_default();
    let lists = [("containers", spec.containers), ("initContainers", spec.init_containers.unwrap_or_default())];
    for (list, containers) in lists {
        let given = object["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (value, container) in given.zip(containers) {
            value["resources"] = json!(container.resources);
        }
    }
}

/// Holds an object to the ranges of its namespace. One that is not of its kind is told so by its validation.
pub(super) fn check(server: &ApiServer, info: &KindInfo, namespace: &str, object: &Value) -> Result<(), String> {
    let ranges = ranges(server, namespace);
    if ranges.is_empty() {
        return Ok(());
    }
    if info.kind == "Pod" {
        let pod = serde_json::from_value(object.clone());
        return pod
            .map_or(Ok(()), |pod| ranges.iter().try_for_each(|range| limit_range::check_pod(range, &pod)))
            .map_err(|error| error.to_string());
    }
    let claim = serde_json::from_value(object.clone());
    claim
        .map_or(Ok(()), |claim| ranges.iter().try_for_each(|range| limit_range::check_claim(range, &claim)))
        .map_err(|error| error.to_string())
}
