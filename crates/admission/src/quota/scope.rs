//! Quota scopes of Pods and PersistentVolumeClaims (`podMatchesScopeFunc`, `pvcMatchesScopeFunc`).

use super::{Object, usage::TypedObject};
use api::resources;
use k8s_openapi::api::core::v1::{
    Affinity, PersistentVolumeClaim, Pod, PodAffinityTerm, ResourceQuota, ScopedResourceSelectorRequirement,
};

/// Whether an object matches all scopes of a quota. Only Pods and claims match scopes.
pub(super) fn matches_scopes(quota: &ResourceQuota, object: &Object) -> bool {
    let Some(spec) = &quota.spec else { return true };
    let plain = spec.scopes.iter().flatten().map(|scope| (scope.as_str(), None));
    let selected = spec.scope_selector.iter().flat_map(|s| s.match_expressions.iter().flatten());
    let mut all = plain.chain(selected.map(|s| (s.scope_name.as_str(), Some(s)))).peekable();
    if all.peek().is_none() {
        return true;
    }
    match object.typed() {
        TypedObject::Pod(pod) => all.all(|(scope, selector)| pod_matches_scope(pod, scope, selector)),
        TypedObject::Claim(claim) => all.all(|(scope, selector)| {
            scope == "VolumeAttributesClass" && matches_volume_attributes_class(claim, selector)
        }),
        _ => false,
    }
}

/// Whether the current or the desired VolumeAttributesClass of a claim matches.
fn matches_volume_attributes_class(
    claim: &PersistentVolumeClaim,
    selector: Option<&ScopedResourceSelectorRequirement>,
) -> bool {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let changing = status.and_then(|s| s.modify_volume_status.as_ref());
    let classes = [
        spec.and_then(|s| s.volume_attributes_class_name.as_deref()),
        changing.and_then(|c| c.target_volume_attributes_class_name.as_deref()),
        status.and_then(|s| s.current_volume_attributes_class_name.as_deref()),
    ];
    let mut classes = classes.into_iter().flatten().filter(|class| !class.is_empty()).peekable();
    if classes.peek().is_none() {
        return matches_class("", selector);
    }
    classes.any(|class| matches_class(class, selector))
}

fn pod_matches_scope(pod: &Pod, scope: &str, selector: Option<&ScopedResourceSelectorRequirement>) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is_best_effort = || resources::qos_class(spec).as_str() == "BestEffort";
    let has_deadline = spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => is_best_effort(),
        "NotBestEffort" => !is_best_effort(),
        "PriorityClass" => matches_class(spec.priority_class_name.as_deref().unwrap_or(""), selector),
        "CrossNamespacePodAffinity" => spec.affinity.as_ref().is_some_and(uses_cross_namespace_affinity),
        _ => false,
    }
}

fn matches_class(class: &str, selector: Option<&ScopedResourceSelectorRequirement>) -> bool {
    let Some(selector) = selector else { return !class.is_empty() };
    let listed = selector.values.iter().flatten().any(|value| value == class);
    match selector.operator.as_str() {
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        "In" => !class.is_empty() && listed,
        // As with label selectors, `NotIn` matches an object without a value.
        "NotIn" => class.is_empty() || !listed,
        _ => false,
    }
}

/// Whether an affinity selects Pods of other namespaces.
fn uses_cross_namespace_affinity(affinity: &Affinity) -> bool {
    let term =
        |t: &PodAffinityTerm| t.namespaces.as_ref().is_some_and(|n| !n.is_empty()) || t.namespace_selector.is_some();
    let near = affinity.pod_affinity.as_ref();
    let far = affinity.pod_anti_affinity.as_ref();
    let required = near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let required =
        required.into_iter().chain(far.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()));
    let preferred = near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
    let preferred =
        preferred.into_iter().chain(far.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()));
    required.flatten().any(term) || preferred.flatten().any(|weighted| term(&weighted.pod_affinity_term))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Kind;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(scopes: &Value, pod: &Value, expected: bool) {
        let mut quota = json!({"metadata": {}, "spec": {"hard": {"pods": "1"}}});
        quota["spec"].as_object_mut().unwrap().extend(scopes.as_object().unwrap().clone());
        let quota = serde_json::from_value(quota).unwrap();
        let mut spec = pod.clone();
        spec["containers"] = json!([{"name": "c", "resources": spec["resources"].take()}]);
        spec.as_object_mut().unwrap().remove("resources");
        let pods = Kind { group: "", resource: "pods" };
        let object = Object::new(pods, &json!({"metadata": {}, "spec": spec}), Timestamp::UNIX_EPOCH);
        assert_eq!(matches_scopes(&quota, &object), expected, "{scopes} {pod}");
    }

    #[test]
    fn scopes_select_pods() {
        let scopes = |names: &[&str]| json!({"scopes": names});
        check(&json!({}), &json!({}), true);
        check(&scopes(&["Terminating"]), &json!({"activeDeadlineSeconds": 5}), true);
        check(&scopes(&["Terminating"]), &json!({}), false);
        check(&scopes(&["NotTerminating", "BestEffort"]), &json!({}), true);
        check(&scopes(&["NotTerminating", "NotBestEffort"]), &json!({}), false);
        check(&scopes(&["NotBestEffort"]), &json!({"resources": {"requests": {"cpu": "1"}}}), true);
        check(&scopes(&["PriorityClass"]), &json!({"priorityClassName": "high"}), true);
        let term = json!([{"topologyKey": "k", "namespaces": ["other"]}]);
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
        check(&scopes(&["CrossNamespacePodAffinity"]), &json!({"affinity": affinity}), true);
        check(&scopes(&["CrossNamespacePodAffinity"]), &json!({}), false);
    }

    #[test]
    fn scope_selectors_select_by_class() {
        let selector = |operator: &str, values: &[&str]| {
            let one = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
            json!({"scopeSelector": {"matchExpressions": [one]}})
        };
        let (high, none) = (json!({"priorityClassName": "high"}), json!({}));
        check(&selector("In", &["high", "low"]), &high, true);
        check(&selector("In", &["low"]), &high, false);
        check(&selector("NotIn", &["high"]), &high, false);
        check(&selector("NotIn", &["high"]), &none, true);
        check(&selector("Exists", &[]), &none, false);
        check(&selector("DoesNotExist", &[]), &none, true);
    }

    #[test]
    fn scopes_select_claims_by_volume_attributes_class() {
        let kind = Kind { group: "", resource: "persistentvolumeclaims" };
        let check = |operator: &str, values: &[&str], claim: Value, expected: bool| {
            let one = json!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": values});
            let spec = json!({"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": {"matchExpressions": [one]}});
            let quota = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            let object = Object::new(kind, &claim, Timestamp::UNIX_EPOCH);
            assert_eq!(matches_scopes(&quota, &object), expected, "{operator} {values:?} {claim}");
        };
        let gold = || json!({"metadata": {}, "spec": {"volumeAttributesClassName": "gold"}});
        let changing = || json!({"metadata": {}, "spec": {}, "status": {"modifyVolumeStatus": {"status": "InProgress", "targetVolumeAttributesClassName": "gold"}}});
        let none = || json!({"metadata": {}, "spec": {}});
        check("In", &["gold"], gold(), true);
        check("In", &["gold"], changing(), true);
        check("In", &["silver"], gold(), false);
        check("Exists", &[], gold(), true);
        check("Exists", &[], none(), false);
        check("DoesNotExist", &[], none(), true);
        check("NotIn", &["gold"], none(), true);
    }
}
