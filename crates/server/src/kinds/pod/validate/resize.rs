//! What the subresource `resize` may change (`ValidatePodResize`, KEP-1287): CPU and memory of app containers and
//! sidecars.

use super::{items, text};
use crate::kinds::{FieldErrors, FieldPath};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value, json};

const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";

/// Takes from the Pod that is there what a resize is not about: the resources of its containers are.
pub(crate) fn prepare(object: &mut Value, old: &Value) {
    let asked = object["spec"].take();
    object["spec"] = old["spec"].clone();
    if asked.get("resources").is_some() {
        object["spec"]["resources"] = asked["resources"].clone();
    }
    for list in ["containers", "initContainers"] {
        // Other containers than those that are there are for the validation to refuse.
        let names = |spec: &Value| items(spec, list).map(|c| c["name"].clone()).collect::<Vec<_>>();
        if names(&asked) != names(&old["spec"]) {
            match asked.get(list) {
                Some(containers) => object["spec"][list] = containers.clone(),
                None => drop(object["spec"].as_object_mut().map(|spec| spec.remove(list))),
            }
            continue;
        }
        let kept = object["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, new) in kept.zip(items(&asked, list)) {
            for field in ["resources", "resizePolicy"] {
                match new.get(field) {
                    Some(value) => container[field] = value.clone(),
                    None => drop(container.as_object_mut().map(|c| c.remove(field))),
                }
            }
        }
    }
    // Labels, annotations and the like are for an update of the Pod.
    let version = object["metadata"]["resourceVersion"].take();
    object["metadata"] = old["metadata"].clone();
    if !version.is_null() {
        object["metadata"]["resourceVersion"] = version;
    }
}

/// Whether these resources may take the place of those that the Pod has.
pub(crate) fn resize(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    if let Some(why) = never(old, spec) {
        *errors = FieldErrors::default();
        return errors.forbidden(&FieldPath::new("[]"), why);
    }
    let path = FieldPath::new("spec");
    let class = serde_json::from_value::<PodSpec>(spec.clone()).map(|s| api::resources::qos_class(&s).as_str());
    if class.is_ok_and(|class| old["status"]["qosClass"].as_str().is_some_and(|known| known != class)) {
        let text = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, &old["status"]["qosClass"], text);
    }
    if !same_containers(spec, before, &path, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (i, (new, old)) in items(spec, list).zip(items(before, list)).enumerate() {
            let path = path.child(list).index(i).child("resources");
            if list == "containers" || text(old, "restartPolicy") == "Always" {
                not_removed(&new["resources"], &old["resources"], &path, errors);
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for (new, old) in items(spec, list).zip(items(before, list)) {
            let why = match (list, text(old, "restartPolicy")) {
                ("containers", _) => ONLY_CPU_AND_MEMORY,
                (_, "Always") => "only cpu and memory resources for sidecar containers are mutable",
                _ if new == old => continue,
                _ => {
                    errors.forbidden(&path, "resources for non-sidecar init containers are immutable");
                    continue;
                }
            };
            if without_cpu_and_memory(new, old) != *old {
                errors.forbidden(&path, why);
            }
        }
    }
}

/// Whether the containers are those that were there, in their order (`validatePodResizeContainerOrdering`).
fn same_containers(spec: &Value, before: &Value, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let known = errors.0.len();
    for list in ["containers", "initContainers"] {
        let path = path.child(list);
        if items(spec, list).count() != items(before, list).count() {
            errors.forbidden(&path, &format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (i, (new, old)) in items(spec, list).zip(items(before, list)).enumerate() {
            if new["name"] != old["name"] {
                let why = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(&path.index(i).child("name"), &why);
            }
        }
    }
    errors.0.len() == known
}

/// Why Pods of this sort cannot be resized.
fn never(old: &Value, spec: &Value) -> Option<&'static str> {
    let whole = |spec: &Value| {
        let filled = |side: &str| spec["resources"][side].as_object().is_some_and(|list| !list.is_empty());
        filled("requests") || filled("limits")
    };
    if whole(&old["spec"]) || whole(spec) {
        return Some("pods with pod-level resources cannot be resized");
    }
    if old["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return Some("static pods cannot be resized");
    }
    (old["spec"]["os"]["name"] == "windows").then_some("windows pods cannot be resized")
}

fn not_removed(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for side in ["requests", "limits"] {
        let removed = |name: &String| new[side].get(name).is_none();
        if old[side].as_object().is_some_and(|list| list.keys().any(removed)) {
            errors.forbidden(&path.child(side), &format!("resource {side} cannot be removed"));
        }
    }
}

/// The container with the CPU and memory that it had, so that every other change shows.
fn without_cpu_and_memory(new: &Value, old: &Value) -> Value {
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
    // What was not there before may be added, as far as it is CPU and memory.
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

    /// What is said of a resize that makes these of the resources of the containers `c` and `s`.
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
        prepare(&mut new, &old);
        let mut errors = FieldErrors::default();
        resize(&new, &old, &mut errors);
        let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(got.join("; "), expected);
    }

    #[test]
    fn cpu_and_memory_of_containers_and_sidecars_may_change() {
        check(|_| {}, "");
        check(|p| p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("150m"), "");
        check(|p| p["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("15Mi"), "");
        check(|p| p["spec"]["initContainers"][0]["resources"]["limits"]["cpu"] = json!("1"), "");
        // What is no resource is not what a resize is about.
        check(|p| p["spec"]["containers"][0]["image"] = json!("other"), "");
        check(|p| p["metadata"]["labels"] = json!({"a": "b"}), "");
    }

    #[test]
    fn nothing_else_may() {
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
    fn no_container_comes_goes_or_gets_another_name() {
        let more = json!({"name": "d", "image": "i"});
        check(
            |p| p["spec"]["containers"].as_array_mut().unwrap().push(more.clone()),
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
    fn the_quality_of_service_stays() {
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
