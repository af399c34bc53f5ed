//! The `RuntimeClass` admission plugin.

use super::plugin::{AdmittedWrite, Plugin};
use api::quantity::Amount;
use auth::stored_object;
use errors::ApiError;
use kinds::RUNTIME_CLASSES;
use serde_json::{Value, json};
use store::Store;

/// Applies the RuntimeClass of a new Pod.
pub(super) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if !write.creates("", "Pod") {
            return Ok(());
        }
        admit(&write.control.store, object).map_err(|error| write.forbidden(object, &error))
    }
}

/// Denial of a Pod.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RuntimeClassError {
    #[error("pod rejected: RuntimeClass {0:?} not found")]
    NotFound(String),
    #[error("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")]
    OverheadUndefined,
    #[error("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")]
    OverheadMismatch,
    #[error("conflict: runtimeClass.scheduling.nodeSelector[{key}] = {class}; pod.spec.nodeSelector[{key}] = {pod}")]
    NodeSelectorConflict { key: String, class: String, pod: String },
}

/// Applies the RuntimeClass of a new Pod.
pub(super) fn admit(store: &Store, pod: &mut Value) -> Result<(), RuntimeClassError> {
    let name = pod["spec"]["runtimeClassName"].as_str().unwrap_or("");
    apply(pod, stored_object::get(store, RUNTIME_CLASSES, "", name).as_ref())
}

/// Sets the overhead of a Pod, and merges node selector and tolerations of its class. `class` is that of its
/// `runtimeClassName`, if it exists.
///
/// # Errors
/// If the class does not exist or conflicts with the Pod.
fn apply(pod: &mut Value, class: Option<&Value>) -> Result<(), RuntimeClassError> {
    let spec = &mut pod["spec"];
    let class = match (spec["runtimeClassName"].as_str(), class) {
        (Some(name), None) => return Err(RuntimeClassError::NotFound(name.to_owned())),
        (_, class) => class.unwrap_or(&Value::Null),
    };
    set_overhead(spec, &class["overhead"])?;
    let scheduling = &class["scheduling"];
    merge_node_selector(spec, &scheduling["nodeSelector"])?;
    if scheduling.is_object() {
        let list = |v: &Value| v["tolerations"].as_array().cloned().unwrap_or_default();
        spec["tolerations"] = json!(merge_tolerations([list(spec), list(scheduling)].concat()));
    }
    Ok(())
}

fn set_overhead(spec: &mut Value, overhead: &Value) -> Result<(), RuntimeClassError> {
    let given = spec["overhead"].as_object().is_some_and(|o| !o.is_empty());
    if overhead.is_null() {
        return if given { Err(RuntimeClassError::OverheadUndefined) } else { Ok(()) };
    }
    let fixed = &overhead["podFixed"];
    if given && !resource_lists_equal(&spec["overhead"], fixed) {
        return Err(RuntimeClassError::OverheadMismatch);
    }
    if fixed.is_object() {
        spec["overhead"] = fixed.clone();
    }
    Ok(())
}

/// Whether resource lists have equal quantities, in any format.
fn resource_lists_equal(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let amount = |quantity: &Value| Amount::parse(quantity.as_str().unwrap_or("")).ok();
    one.len() == other.len()
        && one.iter().all(|(name, quantity)| other.get(name).is_some_and(|o| amount(o) == amount(quantity)))
}

/// Merges node selectors; a conflict is an error.
fn merge_node_selector(spec: &mut Value, selector: &Value) -> Result<(), RuntimeClassError> {
    for (key, value) in selector.as_object().into_iter().flatten() {
        let pod_value = &spec["nodeSelector"][key];
        if !pod_value.is_null() && pod_value != value {
            let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
            return Err(RuntimeClassError::NodeSelectorConflict {
                key: key.clone(),
                class: text(value),
                pod: text(pod_value),
            });
        }
        spec["nodeSelector"][key] = value.clone();
    }
    Ok(())
}

/// Maximum number of tolerations that are compared pairwise.
const MAX_MERGED: usize = 1_000;

/// Merges tolerations and drops redundant ones; the first of equal ones stays (`MergeTolerations`). A longer list than
/// [`MAX_MERGED`] stays unchanged, which is equivalent.
fn merge_tolerations(all: Vec<Value>) -> Vec<Value> {
    if all.len() > MAX_MERGED {
        return all;
    }
    let mut merged: Vec<Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        let later = || all[i + 1..].iter().any(|other| other != toleration && is_superset(other, toleration));
        if !merged.iter().any(|kept| is_superset(kept, toleration)) && !later() {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Whether `wide` tolerates everything that `narrow` does (`isSuperset`).
fn is_superset(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |t: &Value, field: &str| t[field].as_str().unwrap_or("").to_owned();
    let any_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(wide, "key") != text(narrow, "key") && !any_key {
        return false;
    }
    let effect = text(wide, "effect");
    if !effect.is_empty() && effect != text(narrow, "effect") {
        return false;
    }
    let shorter = |limit: i64| narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > limit);
    if effect == "NoExecute" && wide["tolerationSeconds"].as_i64().is_some_and(shorter) {
        return false;
    }
    match text(wide, "operator").as_str() {
        "" | "Equal" => {
            text(wide, "operator") == text(narrow, "operator") && text(wide, "value") == text(narrow, "value")
        }
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the admitted spec or the error.
    #[track_caller]
    fn check(mut spec: Value, class: &Value, expected: &Result<Value, &str>) {
        spec["runtimeClassName"] = json!("fast");
        let mut pod = json!({"spec": spec});
        let got = apply(&mut pod, Some(class)).map(|()| {
            pod["spec"].as_object_mut().unwrap().remove("runtimeClassName");
            pod["spec"].clone()
        });
        assert_eq!(got.map_err(|error| error.to_string()), expected.clone().map_err(str::to_owned));
    }

    #[test]
    fn overhead_is_set_from_runtime_class() {
        let class = json!({"overhead": {"podFixed": {"cpu": "100m"}}});
        check(json!({}), &class, &Ok(json!({"overhead": {"cpu": "100m"}})));
        check(json!({"overhead": {"cpu": "100m"}}), &class, &Ok(json!({"overhead": {"cpu": "100m"}})));
        let same = json!({"overhead": {"cpu": "+100m"}});
        check(same, &class, &Ok(json!({"overhead": {"cpu": "100m"}})));
        let other = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        check(json!({"overhead": {"cpu": "200m"}}), &class, &Err(other));
        let none = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        check(json!({"overhead": {"cpu": "200m"}}), &json!({}), &Err(none));
        check(json!({}), &json!({}), &Ok(json!({})));
    }

    #[test]
    fn node_selectors_are_merged_or_conflict() {
        let class = json!({"scheduling": {"nodeSelector": {"a": "1"}}});
        let both = |tolerations| json!({"nodeSelector": {"a": "1", "b": "2"}, "tolerations": tolerations});
        check(json!({"nodeSelector": {"b": "2"}}), &class, &Ok(both(json!([]))));
        let conflict = "conflict: runtimeClass.scheduling.nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2";
        check(json!({"nodeSelector": {"a": "2"}}), &class, &Err(conflict));
    }

    #[test]
    fn tolerations_are_merged_without_redundant_ones() {
        let t = |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
        for (pod_tolerations, added, expected) in [
            (json!([t("a", "NoSchedule")]), json!([t("b", "")]), json!([t("a", "NoSchedule"), t("b", "")])),
            (json!([t("a", "NoSchedule")]), json!([t("a", "")]), json!([t("a", "")])),
            (json!([t("a", "")]), json!([t("a", "NoSchedule")]), json!([t("a", "")])),
            (json!([t("a", "")]), json!([t("a", "")]), json!([t("a", "")])),
            (json!([t("a", "x")]), json!([{"operator": "Exists"}]), json!([{"operator": "Exists"}])),
            (
                json!([{"key": "a", "value": "1"}]),
                json!([{"key": "a", "value": "2"}]),
                json!([{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]),
            ),
        ] {
            let class = json!({"scheduling": {"tolerations": added}});
            check(json!({"tolerations": pod_tolerations}), &class, &Ok(json!({"tolerations": expected})));
        }
    }

    #[test]
    fn shorter_toleration_is_no_superset_of_longer() {
        let t = |seconds: Option<i64>| {
            let mut t = json!({"key": "a", "operator": "Exists", "effect": "NoExecute"});
            if let Some(seconds) = seconds {
                t["tolerationSeconds"] = json!(seconds);
            }
            t
        };
        assert!(is_superset(&t(None), &t(Some(5))) && is_superset(&t(Some(5)), &t(Some(4))));
        assert!(!is_superset(&t(Some(5)), &t(None)) && !is_superset(&t(Some(5)), &t(Some(6))));
    }

    #[test]
    fn missing_runtime_class_rejects_pod() {
        let mut pod = json!({"spec": {"runtimeClassName": "x"}});
        assert_eq!(apply(&mut pod, None), Err(RuntimeClassError::NotFound("x".to_owned())));
        assert_eq!(apply(&mut json!({"spec": {}}), None), Ok(()));
    }
}
