//! Drops fields of disabled features, unless the old Pod uses them (`pkg/api/pod`, `dropDisabledFields`).

use super::validate::restart_policy::uses_restart_rules;
use api::feature_gates::{FeatureGates, Gate};
use serde_json::{Map, Value};

/// The container lists of a Pod.
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Drops fields of disabled features. `old` is `None` for a create.
pub(super) fn drop_fields(object: &mut Value, old: Option<&Value>, gates: &FeatureGates) {
    if !gates.enabled(Gate::ContainerStopSignals) && !old.is_some_and(uses_stop_signals) {
        for_each_container(object, drop_stop_signal);
    }
    if !gates.enabled(Gate::EnvFiles) && !old.is_some_and(uses_env_files) {
        for_each_container(object, drop_env_files);
    }
    if !gates.enabled(Gate::PodLevelResources) && old.is_none_or(|old| old["spec"]["resources"].is_null()) {
        object["spec"].as_object_mut().into_iter().for_each(|spec| drop(spec.remove("resources")));
    }
    if !gates.enabled(Gate::ImageVolume) && !old.is_some_and(uses_image_volumes) {
        let volumes = object.pointer_mut("/spec/volumes").and_then(Value::as_array_mut).into_iter().flatten();
        volumes.filter_map(Value::as_object_mut).for_each(|volume| drop(volume.remove("image")));
    }
    let used_host_users = old.is_some_and(|old| !old["spec"]["hostUsers"].is_null());
    if !gates.enabled(Gate::UserNamespacesSupport) && !used_host_users {
        object["spec"].as_object_mut().into_iter().for_each(|spec| drop(spec.remove("hostUsers")));
    }
    if !gates.enabled(Gate::ContainerRestartRules) && !old.is_some_and(uses_restart_rules) {
        for_each_container(object, |container| drop(container.remove("restartPolicyRules")));
        let containers = object.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten().filter_map(Value::as_object_mut);
        containers.for_each(|container| drop(container.remove("restartPolicy")));
    }
}

fn for_each_container(object: &mut Value, mut change: impl FnMut(&mut Map<String, Value>)) {
    for list in CONTAINER_LISTS {
        let containers = object.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        containers.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut change);
    }
}

fn uses_stop_signals(object: &Value) -> bool {
    let mut containers = CONTAINER_LISTS.iter().flat_map(|list| object["spec"][list].as_array().into_iter().flatten());
    containers.any(|c| !c["lifecycle"]["stopSignal"].is_null())
}

fn uses_image_volumes(object: &Value) -> bool {
    object["spec"]["volumes"].as_array().into_iter().flatten().any(|v| !v["image"].is_null())
}

fn uses_env_files(object: &Value) -> bool {
    let mut containers = CONTAINER_LISTS.iter().flat_map(|list| object["spec"][list].as_array().into_iter().flatten());
    containers.any(|c| c["env"].as_array().into_iter().flatten().any(|e| !e["valueFrom"]["fileKeyRef"].is_null()))
}

fn drop_env_files(container: &mut Map<String, Value>) {
    let variables = container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten();
    for source in variables.filter_map(|e| e.get_mut("valueFrom").and_then(Value::as_object_mut)) {
        source.remove("fileKeyRef");
    }
}

/// Drops the stop signal, and the lifecycle if it is empty then.
fn drop_stop_signal(container: &mut Map<String, Value>) {
    let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { return };
    if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
        container.remove("lifecycle");
    }
}
