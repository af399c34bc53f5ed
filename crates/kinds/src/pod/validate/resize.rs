//! Preparation and validation of the subresource `resize` (`ValidatePodResize`, KEP-1287): it may change CPU and memory of
//! app containers and sidecars.

use super::{items, text};
use crate::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value, json};

const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";

/// Restores everything except resources and resize policies from the old Pod (`dropNonResizeUpdates`).
pub(crate) fn prepare_resize(object: &mut Value, old: &Value) {
    let requested = object["spec"].take();
    object["spec"] = old["spec"].clone();
    if requested.get("resources").is_some() {
        object["spec"]["resources"] = requested["resources"].clone();
    }
    for list in ["containers", "initContainers"] {
        // Validation rejects added, removed and renamed containers.
        let names = |spec: &Value| items(spec, list).map(|c| c["name"].clone()).collect::<Vec<_>>();
        if names(&requested) != names(&old["spec"]) {
            match requested.get(list) {
                Some(containers) => object["spec"][list] = containers.clone(),
                None => drop(object["spec"].as_object_mut().map(|spec| spec.remove(list))),
            }
            continue;
        }
        let containers = object["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, new) in containers.zip(items(&requested, list)) {
            for field in ["resources", "resizePolicy"] {
                match new.get(field) {
                    Some(value) => container[field] = value.clone(),
                    None => drop(container.as_object_mut().map(|c| c.remove(field))),
                }
            }
        }
    }
    // A resize does not change metadata.
    let version = object["metadata"]["resourceVersion"].take();
    object["metadata"] = old["metadata"].clone();
    if !version.is_null() {
        object["metadata"]["resourceVersion"] = version;
    }
}

/// Validates a resize (`ValidatePodResize`).
pub(crate) fn validate_resize(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    if let Some(detail) = unresizable_reason(old, spec) {
        *errors = FieldErrors::default();
        return errors.forbidden(&FieldPath::new("[]"), detail);
    }
    let path = FieldPath::new("spec");
    let class = decode::from_value::<PodSpec>(spec).map(|s| api::resources::qos_class(&s).as_str());
    if class.is_ok_and(|class| old["status"]["qosClass"].as_str().is_some_and(|known| known != class)) {
        let text = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, &old["status"]["qosClass"], text);
    }
    if !validate_container_order(spec, before, &path, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (i, (new, old)) in items(spec, list).zip(items(before, list)).enumerate() {
            let path = path.child(list).index(i).child("resources");
            if list == "containers" || text(old, "restartPolicy") == "Always" {
                validate_resources_not_removed(&new["resources"], &old["resources"], &path, errors);
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for (new, old) in items(spec, list).zip(items(before, list)) {
            let detail = match (list, text(old, "restartPolicy")) {
                ("containers", _) => ONLY_CPU_AND_MEMORY,
                (_, "Always") => "only cpu and memory resources for sidecar containers are mutable",
                _ if new == old => continue,
                _ => {
                    errors.forbidden(&path, "resources for non-sidecar init containers are immutable");
                    continue;
                }
            };
            if restore_cpu_and_memory(new, old) != *old {
                errors.forbidden(&path, detail);
            }
        }
    }
}

/// Validates that the containers and their order do not change (`validatePodResizeContainerOrdering`). Returns whether they
/// are valid.
fn validate_container_order(spec: &Value, old_spec: &Value, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let known = errors.0.len();
    for list in ["containers", "initContainers"] {
        let path = path.child(list);
        if items(spec, list).count() != items(old_spec, list).count() {
            errors.forbidden(&path, &format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (i, (new, old)) in items(spec, list).zip(items(old_spec, list)).enumerate() {
            if new["name"] != old["name"] {
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(&path.index(i).child("name"), &detail);
            }
        }
    }
    errors.0.len() == known
}

/// Returns why a Pod of this type cannot be resized.
fn unresizable_reason(old: &Value, spec: &Value) -> Option<&'static str> {
    let has_pod_resources = |spec: &Value| {
        let is_set = |side: &str| spec["resources"][side].as_object().is_some_and(|list| !list.is_empty());
        is_set("requests") || is_set("limits")
    };
    if has_pod_resources(&old["spec"]) || has_pod_resources(spec) {
        return Some("pods with pod-level resources cannot be resized");
    }
    if old["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return Some("static pods cannot be resized");
    }
    (old["spec"]["os"]["name"] == "windows").then_some("windows pods cannot be resized")
}

fn validate_resources_not_removed(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for side in ["requests", "limits"] {
        let removed = |name: &String| new[side].get(name).is_none();
        if old[side].as_object().is_some_and(|list| list.keys().any(removed)) {
            errors.forbidden(&path.child(side), &format!("resource {side} cannot be removed"));
        }
    }
}

/// Returns the new container with the old CPU and memory, so that it differs from the old one if anything else changed.
fn restore_cpu_and_memory(new: &Value, old: &Value) -> Value {
    let mut container = new.clone();
    let mut resources = Map::new();
    for (field, value) in old["resources"].as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "requests" | "limits") {
            resources.insert(field.clone(), value.clone());
        }
    }
    for side in ["requests", "limits"] {
        let Some(had) = old["resources"][side].as_object() else { continue };
        let mut list = new["resources"][side].as_object().cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            list.remove(name);
            if let Some(amount) = had.get(name) {
                list.insert(name.to_owned(), amount.clone());
            }
        }
        resources.insert(side.to_owned(), Value::Object(list));
    }
    // Missing requests or limits may be added for CPU and memory only.
    for side in ["requests", "limits"] {
        let foreign = |name: &&String| !matches!(name.as_str(), "cpu" | "memory");
        let added = new["resources"][side].as_object().into_iter().flat_map(Map::keys).any(|n| foreign(&n));
        if added && !resources.contains_key(side) {
            resources.insert(side.to_owned(), new["resources"][side].clone());
        }
    }
    container["resources"] = json!(resources);
    container
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the errors of a change of a Pod with a container `c`, a sidecar `s` and an init container `i`.
    #[track_caller]
    fn check(change: impl Fn(&mut Value), expected: &str) {
        let amounts = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
        let resources = json!({"requests": amounts("100m", "10Mi"), "limits": amounts("200m", "20Mi")});
        let container = |name: &str| json!({"name": name, "image": "i", "resources": resources});
        let mut sidecar = container("s");
        sidecar["restartPolicy"] = json!("Always");
        let old = json!({"metadata": {}, "status": {"qosClass": "Burstable"},
            "spec": {"containers": [container("c")], "initContainers": [sidecar, container("i")]}});
        let mut new = old.clone();
        change(&mut new);
        prepare_resize(&mut new, &old);
        let mut errors = FieldErrors::default();
        validate_resize(&new, &old, &mut errors);
        let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(got.join("; "), expected);
    }

    #[test]
    fn resize_of_containers_and_sidecars_is_allowed() {
        check(|_| {}, "");
        check(|p| p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("150m"), "");
        check(|p| p["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("15Mi"), "");
        check(|p| p["spec"]["initContainers"][0]["resources"]["limits"]["cpu"] = json!("1"), "");
        // Other fields are restored, not rejected.
        check(|p| p["spec"]["containers"][0]["image"] = json!("other"), "");
        check(|p| p["metadata"]["labels"] = json!({"a": "b"}), "");
    }

    #[test]
    fn resize_of_other_resources_is_forbidden() {
        check(
            |p| p["spec"]["initContainers"][1]["resources"]["limits"]["cpu"] = json!("1"),
            "spec: Forbidden: resources for non-sidecar init containers are immutable",
        );
        check(
            |p| p["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] = json!("1Gi"),
            "spec: Forbidden: only cpu and memory resources are mutable",
        );
        check(
            |p| p["spec"]["initContainers"][0]["resources"]["limits"]["x.io/y"] = json!("1"),
            "spec: Forbidden: only cpu and memory resources for sidecar containers are mutable",
        );
        check(
            |p| {
                p["spec"]["containers"][0]["resizePolicy"] =
                    json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
            },
            "spec: Forbidden: only cpu and memory resources are mutable",
        );
        check(
            |p| p["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "200m"}),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        );
        check(
            |p| p["spec"]["containers"][0]["resources"]["requests"] = json!({}),
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        );
        check(
            |p| p["spec"]["resources"] = json!({"limits": {"cpu": "1"}}),
            "[]: Forbidden: pods with pod-level resources cannot be resized",
        );
    }

    #[test]
    fn resize_may_not_add_remove_or_rename_containers() {
        let container = json!({"name": "d", "image": "i"});
        check(
            |p| p["spec"]["containers"].as_array_mut().unwrap().push(container.clone()),
            "spec.containers: Forbidden: containers may not be added or removed on resize",
        );
        check(
            |p| drop(p["spec"]["initContainers"].as_array_mut().unwrap().pop()),
            "spec.initContainers: Forbidden: initContainers may not be added or removed on resize",
        );
        check(
            |p| p["spec"]["containers"][0]["name"] = json!("other"),
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
        );
        let renamed = |i| {
            format!(
                "spec.initContainers[{i}].name: Forbidden: initContainers may not be renamed or reordered on resize"
            )
        };
        check(
            |p| p["spec"]["initContainers"].as_array_mut().unwrap().reverse(),
            &format!("{}; {}", renamed(0), renamed(1)),
        );
    }

    #[test]
    fn resize_may_not_change_qos_class() {
        let changed = "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing";
        check(
            |p| {
                for (list, i) in [("containers", 0), ("initContainers", 0), ("initContainers", 1)] {
                    let limits = p["spec"][list][i]["resources"]["limits"].clone();
                    p["spec"][list][i]["resources"]["requests"] = limits;
                }
            },
            &format!("{changed}; spec: Forbidden: resources for non-sidecar init containers are immutable"),
        );
    }
}
