//! Validation of resource requests and limits.

use crate::{FieldErrors, field_cursor::FieldCursor};
use api::{
    quantity::Amount,
    resources::{self, ResourceField, is_pod_level},
};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use std::collections::BTreeSet;

const HUGE_PAGES: &str = "hugepages-";

/// Validates the `resources` of a container or Pod (`ValidateContainerResourceRequirements`). Quantities are already decoded.
pub(super) fn validate_requirements(resources: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    limits.entries().chain(requests.entries()).for_each(|(name, amount)| validate_amount(name, &amount, errors));
    let any = |is: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| is(name));
    if any(|name| name.starts_with(HUGE_PAGES)) && !any(|name| matches!(name, "cpu" | "memory")) {
        resources.forbidden("HugePages require cpu or memory", errors);
    }
    for (name, request) in requests.entries() {
        let is_overcommittable = is_native_resource(name) && !name.starts_with(HUGE_PAGES);
        let limit = limits.key(name);
        // Like upstream, the paths lack the resource.
        if limit.is_null() {
            if !is_overcommittable {
                limits.required("Limit must be set for non overcommitable resources", errors);
            }
        } else if !is_overcommittable && amount(&request) != amount(&limit) {
            let detail = format!("must be equal to {name} limit of {}", limit.text());
            requests.with_value(request.value()).invalid(&detail, errors);
        } else if amount(&request) > amount(&limit) {
            let detail = format!("must be less than or equal to {name} limit of {}", limit.text());
            requests.with_value(request.value()).invalid(&detail, errors);
        }
    }
}

fn amount(quantity: &FieldCursor<'_, '_>) -> Amount {
    Amount::parse(quantity.text()).unwrap_or_default()
}

/// Validates a request or limit of a resource.
fn validate_amount(name: &str, quantity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_resource_name(name, quantity, errors);
    let amount = amount(quantity);
    if amount.is_negative() {
        quantity.invalid("must be greater than or equal to 0", errors);
    }
    if let Some(page) = name.strip_prefix(HUGE_PAGES).and_then(|size| Amount::parse(size).ok())
        && (amount <= Amount::ZERO || amount.value() % page.value().max(1) != 0)
    {
        quantity.invalid(&format!("{} is not positive integer multiple of {name}", quantity.text()), errors);
    }
    if !is_native_resource(name) && amount.milli() % 1000 != 0 {
        quantity.invalid("must be an integer", errors);
    }
}

/// Validates pod-level resources (`validatePodResources`, KEP-2837).
pub(super) fn validate_pod_resources(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let pod_resources = spec.at("resources");
    if pod_resources.is_null() {
        return;
    }
    let (claims, limits, requests) =
        (pod_resources.at("claims"), pod_resources.at("limits"), pod_resources.at("requests"));
    if claims.count() > 0 {
        claims.forbidden("claims cannot be set for Resources at pod-level", errors);
    }
    for (name, quantity) in limits.entries().chain(requests.entries()).filter(|(name, _)| !is_pod_level(name)) {
        errors.not_supported(&quantity.path(), &Value::from(name), &["cpu", "hugepages-", "memory"]);
    }
    validate_requirements(&pod_resources, errors);
    let Ok(typed) = decode::from_value::<PodSpec>(spec.value()) else { return };
    for (name, sum) in resources::aggregate_container_resources(&typed, ResourceField::Requests)
        .into_iter()
        .filter(|(name, _)| is_pod_level(name))
    {
        let request = requests.key(&name);
        let shown = |a| resources::format_amount(&name, a).0;
        if sum > amount(&request) {
            let text = format!("must be greater than or equal to aggregate container requests of {}", shown(sum));
            errors.invalid(&request.path(), &Value::String(shown(amount(&request))), &text);
        }
    }
    for (i, container) in spec.at("containers").items().enumerate() {
        for (name, limit) in container.at("resources").at("limits").entries() {
            let pod_limit = limits.key(name);
            if pod_limit.is_set() && amount(&limit) > amount(&pod_limit) {
                let text = format!("must be less than or equal to pod limits of {}", pod_limit.text());
                // Upstream's path, with `resources` in front and the resource before `limits`.
                let path = pod_resources.path().child("containers").index(i).key(name).child("limits");
                errors.invalid(&path, limit.value(), &text);
            }
        }
    }
}

/// Whether a resource is native to Kubernetes (`IsNativeResource`), and so can be overcommitted.
pub(crate) fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Validates the name of a container resource, which is the key of an entry (`validateContainerResourceName`).
pub(crate) fn validate_resource_name(name: &str, entry: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut invalid = |detail: &str| errors.invalid(&entry.path(), &Value::from(name), detail);
    let wrong = api::names::qualified_name(name);
    if !wrong.is_empty() {
        return wrong.iter().for_each(|detail| invalid(detail));
    }
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES);
    if !name.contains('/') && !standard {
        invalid("must be a standard resource for containers");
    }
    // A ResourceQuota uses `requests.NAME`, which must be a qualified name, too.
    let is_quota_name = || api::names::qualified_name(&format!("requests.{name}")).is_empty();
    if !is_native_resource(name) && (name.starts_with("requests.") || !is_quota_name()) {
        invalid("doesn't follow extended resource name standard");
    }
}

pub(super) fn validate_resize_policy(
    resize_policy: &FieldCursor<'_, '_>,
    restart_policy: &str,
    errors: &mut FieldErrors,
) {
    let mut seen = BTreeSet::new();
    for policy in resize_policy.items() {
        let resource = policy.at("resourceName");
        if !seen.insert(resource.text()) {
            policy.with_value(resource.value()).duplicate(errors);
        }
        // Upstream's paths lack the rest.
        let resource = resize_policy.with_value(resource.value());
        let restart = resize_policy.with_value(policy.at("restartPolicy").value());
        resource.one_of(&["cpu", "memory"], errors);
        restart.one_of(&["NotRequired", "RestartContainer"], errors);
        if restart_policy == "Never" && restart.text() != "NotRequired" {
            restart.invalid("must be 'NotRequired' when `restartPolicy` is 'Never'", errors);
        }
    }
}
