//! Validation of a Service's session affinity, load balancer fields, traffic policies and IP addresses.

use super::{is_externally_accessible, needs_cluster_ip, needs_health_check};
use crate::{
    FieldErrors, FieldPath, enums,
    field_cursor::FieldCursor,
    field_validation::{
        is_ipv6, items, validate_cidr, validate_ip, validate_non_special_ip, validate_port, validate_qualified_name,
    },
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
        address.validate(validate_ip, errors);
        address.validate(validate_non_special_ip, errors);
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
        validate_cidr(&json!(range), &at, errors);
    }
}

/// Validates the fields of Services with type `LoadBalancer`.
pub(super) fn validate_load_balancer_fields(object: &Value, spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let is_load_balancer = spec.at("type").text() == "LoadBalancer";
    let ranges = spec.at("loadBalancerSourceRanges");
    // Upstream's path starts with a capital letter.
    let at = spec.path().child("LoadBalancerSourceRanges");
    if !is_load_balancer && ranges.count() > 0 {
        errors.forbidden(&at, LOAD_BALANCER_ONLY);
    }
    for (i, range) in ranges.items().enumerate() {
        validate_cidr(&json!(range.text().trim()), &at.index(i), errors);
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
        class.validate(validate_qualified_name, errors);
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
            port.validate(validate_port, errors);
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
pub(super) fn validate_cluster_ips(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, ips) = (path.child("clusterIPs"), || items(spec, "clusterIPs"));
    let (all, first) = (&spec["clusterIPs"], spec["clusterIP"].as_str().filter(|ip| !ip.is_empty()));
    match (first, ips().next()) {
        (Some(_), None) => errors.required(&at, ""),
        (Some(first), Some(ip)) if ip != first => errors.invalid(&at, all, "first value must match `clusterIP`"),
        (None, Some(_)) => errors.invalid(&at, all, "must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    validate_ip_families(spec, path, errors);
    let before = errors.0.len();
    for (i, address) in ips().enumerate() {
        if i == 0 && address == "None" {
            if ips().count() > 1 {
                errors.invalid(&at, all, "'None' must be the first and only value");
            }
        } else {
            validate_ip(address, &at.index(i), errors);
        }
    }
    if ips().count() > 2 {
        errors.invalid(&at, all, "may only hold up to 2 values");
    }
    let ipv6_count = ips().filter(|ip| is_ipv6(ip)).count();
    if errors.0.len() == before && ips().count() > 1 && (ipv6_count == 0 || ipv6_count == ips().count()) {
        errors.invalid(&at, all, "may specify no more than one IP for each IP family");
    }
}

/// Whether a Service is headless without a selector. Its endpoints are managed externally, so it may use IP families that the
/// cluster does not have.
pub fn is_headless_without_selector(spec: &Value) -> bool {
    let selects = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    spec["clusterIP"] == "None" && !selects
}

fn validate_ip_families(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let is_selectorless = is_headless_without_selector(spec);
    let (at, known) = (path.child("ipFamilies"), enums::IP_FAMILIES);
    let mut seen = HashSet::new();
    for (i, family) in items(spec, "ipFamilies").enumerate() {
        if !known.iter().any(|k| family == k) {
            errors.not_supported(&at.index(i), family, known);
        } else if !seen.insert(family) {
            errors.duplicate(&at.index(i), family);
        } else if family == "IPv6" && !is_selectorless {
            errors.invalid(&at.index(i), family, "not configured on this cluster");
        }
    }
    let (at, policy) = (path.child("ipFamilyPolicy"), &spec["ipFamilyPolicy"]);
    let known = enums::IP_FAMILY_POLICIES;
    if policy == "RequireDualStack" && !is_selectorless {
        errors.invalid(&at, policy, "this cluster is not configured for dual-stack services");
    } else if !policy.is_null() && !known.iter().any(|k| policy == k) {
        errors.not_supported(&at, policy, known);
    }
}

/// Validates that an update does not change allocated values (`ValidateServiceUpdate`).
pub(super) fn validate_service_update(spec: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec");
    if needs_cluster_ip(spec) && needs_cluster_ip(old) {
        let (new, before) = (items(spec, "clusterIPs"), items(old, "clusterIPs"));
        for (i, _) in new.zip(before).enumerate().filter(|(_, (new, old))| new != old) {
            errors.invalid(&path.child("clusterIPs").index(i), &spec["clusterIPs"], "may not change once set");
        }
    }
    let both = |needs: fn(&Value) -> bool| needs(spec) && needs(old);
    let field = "loadBalancerClass";
    if both(|spec| spec["type"] == "LoadBalancer") && spec[field] != old[field] {
        errors.invalid(&path.child(field), &spec[field], "may not change once set");
    }
    let field = "healthCheckNodePort";
    if both(needs_health_check) && spec[field] != old[field] {
        errors.forbidden(&path.child(field), "field is immutable");
    }
}
