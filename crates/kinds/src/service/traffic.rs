//! Validation of a Service's session affinity, load balancer fields, traffic policies and IP addresses.

use super::{is_externally_accessible, needs_cluster_ip, needs_health_check};
use crate::{
    FieldErrors, FieldPath, enums,
    field_cursor::FieldCursor,
    field_validation::{is_ipv6, validate_cidr, validate_ip, validate_non_special_ip},
};
use serde_json::{Value, json};
use std::collections::HashSet;

const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
/// Maximum session affinity timeout in seconds: one day (`MaxClientIPServiceAffinitySeconds`).
const MAX_AFFINITY_SECONDS: i64 = 86_400;

/// Validates the session affinity (`validateClientIPAffinityConfig`).
pub(super) fn validate_session_affinity(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (affinity, config) = (spec.at("sessionAffinity").text(), spec.at("sessionAffinityConfig"));
    let detail = "when session affinity type is ClientIP";
    if affinity == "None" && config.is_set() {
        config.forbidden("must not be set when session affinity is None", errors);
    }
    if affinity != "ClientIP" {
        return;
    }
    let client = config.at("clientIP");
    let seconds = client.at("timeoutSeconds");
    match seconds.integer() {
        _ if config.is_null() => config.required(detail, errors),
        _ if client.is_null() => client.required(detail, errors),
        None => seconds.required(detail, errors),
        Some(1..=MAX_AFFINITY_SECONDS) => {}
        Some(_) => seconds.invalid(&format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"), errors),
    }
}

pub(super) fn validate_external_ips(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for address in spec.at("externalIPs").items() {
        validate_ip(&address, errors);
        validate_non_special_ip(&address, errors);
    }
}

/// Deprecated annotation for `loadBalancerSourceRanges`.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn validate_source_ranges_annotation(object: &Value, is_load_balancer: bool, errors: &mut FieldErrors) {
    let Some(ranges) = object["metadata"]["annotations"][SOURCE_RANGES].as_str() else { return };
    let at = FieldPath::new("metadata").child("annotations").key(SOURCE_RANGES);
    if !is_load_balancer {
        errors.forbidden(&at, LOAD_BALANCER_ONLY);
    }
    for range in ranges.split(',').map(str::trim).filter(|_| !ranges.trim().is_empty()) {
        validate_cidr(&FieldCursor::new(&json!(range), &at), errors);
    }
}

/// Validates the fields of Services with type `LoadBalancer`.
pub(super) fn validate_load_balancer_fields(object: &Value, spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let is_load_balancer = spec.at("type").text() == "LoadBalancer";
    let ranges = spec.at("loadBalancerSourceRanges");
    // Upstream's path starts with a capital letter.
    let ranges = ranges.shown_as("LoadBalancerSourceRanges");
    if !is_load_balancer && ranges.count() > 0 {
        ranges.forbidden(LOAD_BALANCER_ONLY, errors);
    }
    for range in ranges.items() {
        validate_cidr(&range.with_value(&json!(range.text().trim())), errors);
    }
    if ranges.count() == 0 {
        validate_source_ranges_annotation(object, is_load_balancer, errors);
    }
    let class = spec.at("loadBalancerClass");
    for field in [spec.at("allocateLoadBalancerNodePorts"), class] {
        if !is_load_balancer && field.is_set() {
            field.forbidden(LOAD_BALANCER_ONLY, errors);
        }
    }
    if is_load_balancer && class.is_set() {
        class.validate_text(api::names::qualified_name, errors);
    }
}

/// Validates the traffic policies and the health check node port, which is allocated later if it is unset
/// (`validateServiceExternalTrafficPolicy`).
pub(super) fn validate_traffic_policies(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (external, internal) = (spec.at("externalTrafficPolicy"), spec.at("internalTrafficPolicy"));
    if is_externally_accessible(spec.value()) {
        external.one_of(enums::TRAFFIC_POLICIES, errors);
    } else if external.is_set() {
        external.invalid("may only be set for externally-accessible services", errors);
    }
    let port = spec.at("healthCheckNodePort");
    if port.integer().is_some_and(|n| n != 0) {
        if needs_health_check(spec.value()) {
            port.validate_port(errors);
        } else {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            port.invalid(detail, errors);
        }
    }
    if needs_cluster_ip(spec.value()) || internal.is_set() {
        internal.one_of(enums::TRAFFIC_POLICIES, errors);
    }
    let distribution = spec.at("trafficDistribution");
    if distribution.is_set() {
        distribution.supported(&["PreferClose", "PreferSameZone", "PreferSameNode"], errors);
    }
}

/// Validates the cluster IPs and IP families for a single-stack cluster (`ValidateServiceClusterIPsRelatedFields`).
pub(super) fn validate_cluster_ips(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (ips, first) = (spec.at("clusterIPs"), spec.at("clusterIP").text());
    match (first, ips.items().next().map(|ip| ip.text())) {
        ("", None) => {}
        ("", Some(_)) => ips.invalid("must be empty when `clusterIP` is not specified", errors),
        (_, None) => ips.required("", errors),
        (first, Some(ip)) if ip != first => ips.invalid("first value must match `clusterIP`", errors),
        _ => {}
    }
    validate_ip_families(spec, errors);
    let before = errors.0.len();
    for (i, address) in ips.items().enumerate() {
        if i > 0 || address.text() != "None" {
            validate_ip(&address, errors);
        } else if ips.count() > 1 {
            ips.invalid("'None' must be the first and only value", errors);
        }
    }
    if ips.count() > 2 {
        ips.invalid("may only hold up to 2 values", errors);
    }
    let ipv6_count = ips.items().filter(|ip| is_ipv6(ip.value())).count();
    if errors.0.len() == before && ips.count() > 1 && (ipv6_count == 0 || ipv6_count == ips.count()) {
        ips.invalid("may specify no more than one IP for each IP family", errors);
    }
}

/// Whether a Service is headless without a selector. Its endpoints are managed externally, so it may use IP families that the
/// cluster does not have.
pub fn is_headless_without_selector(spec: &Value) -> bool {
    let selects = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    spec["clusterIP"] == "None" && !selects
}

fn validate_ip_families(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let is_selectorless = is_headless_without_selector(spec.value());
    let known = enums::IP_FAMILIES;
    let mut seen = HashSet::new();
    for family in spec.at("ipFamilies").items() {
        if !known.contains(&family.text()) {
            family.not_supported(known, errors);
        } else if !seen.insert(family.text()) {
            family.duplicate(errors);
        } else if family.text() == "IPv6" && !is_selectorless {
            family.invalid("not configured on this cluster", errors);
        }
    }
    let policy = spec.at("ipFamilyPolicy");
    if policy.text() == "RequireDualStack" && !is_selectorless {
        policy.invalid("this cluster is not configured for dual-stack services", errors);
    } else if policy.is_set() {
        policy.supported(enums::IP_FAMILY_POLICIES, errors);
    }
}

/// Validates that an update does not change allocated values (`ValidateServiceUpdate`).
pub(super) fn validate_service_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
    let (spec, old) = (object.at("spec"), old.at("spec"));
    let both = |is: fn(&Value) -> bool| is(spec.value()) && is(old.value());
    if both(needs_cluster_ip) {
        let (ips, old_ips) = (spec.at("clusterIPs"), old.at("clusterIPs"));
        for (ip, _) in ips.items().zip(old_ips.items()).filter(|(new, old)| new.value() != old.value()) {
            // Upstream shows the whole list.
            ip.with_value(ips.value()).invalid("may not change once set", errors);
        }
    }
    let (class, port) = (spec.at("loadBalancerClass"), spec.at("healthCheckNodePort"));
    if both(|spec| spec["type"] == "LoadBalancer") && class.value() != old.at("loadBalancerClass").value() {
        class.invalid("may not change once set", errors);
    }
    if both(needs_health_check) && port.value() != old.at("healthCheckNodePort").value() {
        port.forbidden("field is immutable", errors);
    }
}
