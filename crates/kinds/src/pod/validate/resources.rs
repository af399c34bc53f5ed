//! Validation of resource requests and limits.

use super::{items, text};
use crate::{FieldErrors, FieldPath};
use api::{
    quantity::Amount,
    resources::{self, ResourceField, is_pod_level},
};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value};

const HUGE_PAGES: &str = "hugepages-";

/// Validates the `resources` of a container or Pod (`ValidateContainerResourceRequirements`). Quantities are already decoded.
pub(super) fn validate_requirements(r: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let empty = Map::new();
    let list = |side: &str| r[side].as_object().unwrap_or(&empty);
    let (limits, requests) = (list("limits"), list("requests"));
    let amount = |v: &Value| Amount::parse(v.as_str().unwrap_or("")).unwrap_or_default();
    for (side, list) in [("limits", limits), ("requests", requests)] {
        for (name, value) in list {
            let path = path.child(side).key(name);
            validate_resource_name(name, &path, errors);
            if amount(value).is_negative() {
                errors.invalid(&path, value, "must be greater than or equal to 0");
            }
            if let Some(page) = name.strip_prefix(HUGE_PAGES).and_then(|size| Amount::parse(size).ok())
                && (amount(value) <= Amount::ZERO || amount(value).value() % page.value().max(1) != 0)
            {
                let shown = value.as_str().unwrap_or("");
                errors.invalid(&path, value, &format!("{shown} is not positive integer multiple of {name}"));
            }
            if !is_native_resource(name) && amount(value).milli() % 1000 != 0 {
                errors.invalid(&path, value, "must be an integer");
            }
        }
    }
    let any = |is: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|name| is(name));
    if any(|name| name.starts_with(HUGE_PAGES)) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    // Like upstream, the path lacks the resource.
    let at = path.child("requests");
    for (name, value) in requests {
        let is_overcommittable = is_native_resource(name) && !name.starts_with(HUGE_PAGES);
        match limits.get(name) {
            None if !is_overcommittable => {
                errors.required(&path.child("limits"), "Limit must be set for non overcommitable resources");
            }
            Some(limit) if !is_overcommittable && amount(value) != amount(limit) => {
                let limit = limit.as_str().unwrap_or("");
                errors.invalid(&at, value, &format!("must be equal to {name} limit of {limit}"));
            }
            Some(limit) if amount(value) > amount(limit) => {
                let limit = limit.as_str().unwrap_or("");
                errors.invalid(&at, value, &format!("must be less than or equal to {name} limit of {limit}"));
            }
            _ => {}
        }
    }
}

/// Validates pod-level resources (`validatePodResources`, KEP-2837).
pub(super) fn validate_pod_resources(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let pod_resources = &spec["resources"];
    if pod_resources.is_null() {
        return;
    }
    if items(pod_resources, "claims").next().is_some() {
        errors.forbidden(&path.child("claims"), "claims cannot be set for Resources at pod-level");
    }
    for side in ["limits", "requests"] {
        for name in pod_resources[side].as_object().into_iter().flat_map(Map::keys).filter(|n| !is_pod_level(n)) {
            let at = path.child(side).key(name);
            errors.not_supported(&at, &Value::String(name.clone()), &["cpu", "hugepages-", "memory"]);
        }
    }
    validate_requirements(pod_resources, path, errors);
    let Ok(typed) = serde_json::from_value::<PodSpec>(spec.clone()) else { return };
    let amount = |v: &Value| Amount::parse(v.as_str().unwrap_or("0")).unwrap_or_default();
    for (name, sum) in resources::aggregate_container_resources(&typed, ResourceField::Requests)
        .into_iter()
        .filter(|(name, _)| is_pod_level(name))
    {
        let pod_request = amount(&pod_resources["requests"][&name]);
        let shown = |a| resources::format_amount(&name, a).0;
        if sum > pod_request {
            let text = format!("must be greater than or equal to aggregate container requests of {}", shown(sum));
            errors.invalid(&path.child("requests").key(&name), &Value::String(shown(pod_request)), &text);
        }
    }
    for (i, container) in items(spec, "containers").enumerate() {
        for (name, limit) in container["resources"]["limits"].as_object().into_iter().flatten() {
            let Some(pod_limit) =
                pod_resources["limits"].get(name).filter(|pod_limit| amount(limit) > amount(pod_limit))
            else {
                continue;
            };
            // Upstream's path, with the resource before `limits`.
            let at = path.child("containers").index(i).key(name).child("limits");
            let text = format!("must be less than or equal to pod limits of {}", pod_limit.as_str().unwrap_or(""));
            errors.invalid(&at, limit, &text);
        }
    }
}

/// Whether a resource is native to Kubernetes (`IsNativeResource`), and so can be overcommitted.
pub(crate) fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Validates the name of a container resource (`validateContainerResourceName`).
pub(crate) fn validate_resource_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let value = Value::String(name.to_owned());
    let wrong = api::names::qualified_name(name);
    if !wrong.is_empty() {
        return wrong.iter().for_each(|e| errors.invalid(path, &value, e));
    }
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES);
    if !name.contains('/') && !standard {
        errors.invalid(path, &value, "must be a standard resource for containers");
    }
    // A ResourceQuota uses `requests.NAME`, which must be a qualified name, too.
    let quota = format!("requests.{name}");
    if !is_native_resource(name) && (name.starts_with("requests.") || !api::names::qualified_name(&quota).is_empty()) {
        errors.invalid(path, &value, "doesn't follow extended resource name standard");
    }
}

pub(super) fn validate_resize_policy(c: &Value, path: &FieldPath, restart_policy: &str, errors: &mut FieldErrors) {
    let mut seen = std::collections::BTreeSet::new();
    for (i, policy) in items(c, "resizePolicy").enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&path.index(i), &policy["resourceName"]);
        }
        for (field, value, allowed) in [
            ("resourceName", resource, ["cpu", "memory"]),
            ("restartPolicy", restart, ["NotRequired", "RestartContainer"]),
        ] {
            if value.is_empty() {
                errors.required(path, "");
            } else if !allowed.contains(&value) {
                errors.not_supported(path, &policy[field], &allowed);
            }
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            let text = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.invalid(path, &policy["restartPolicy"], text);
        }
    }
}
