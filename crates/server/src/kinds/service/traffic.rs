//! What a Service may say of how it is reached: affinity, load balancers, traffic policies, addresses of others.

use super::{can_be_reached_from_outside, needs_cluster_ip, needs_health_check};
use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{ip, is_ipv6, items, must_be_cidr, one_of, port, qualified, special_ip},
};
use serde_json::{Value, json};
use std::collections::HashSet;

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
/// How long a client may be led to the same Pod, in seconds: a day.
const LONGEST_AFFINITY: i64 = 86_400;

/// `validateClientIPAffinityConfig`.
pub(super) fn affinity(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, config, why) =
        (path.child("sessionAffinityConfig"), &spec["sessionAffinityConfig"], "when session affinity type is ClientIP");
    if spec["sessionAffinity"] == "None" && !config.is_null() {
        errors.forbidden(&at, "must not be set when session affinity is None");
    }
    if spec["sessionAffinity"] != "ClientIP" {
        return;
    }
    let (client, seconds) = (at.child("clientIP"), &config["clientIP"]["timeoutSeconds"]);
    match seconds.as_i64() {
        _ if config.is_null() => errors.required(&at, why),
        _ if config["clientIP"].is_null() => errors.required(&client, why),
        None => errors.required(&client.child("timeoutSeconds"), why),
        Some(1..=LONGEST_AFFINITY) => {}
        Some(_) => {
            let why = format!("must be greater than 0 and less than {LONGEST_AFFINITY}");
            errors.invalid(&client.child("timeoutSeconds"), seconds, &why);
        }
    }
}

pub(super) fn external_ips(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, address) in items(spec, "externalIPs").enumerate() {
        let at = path.child("externalIPs").index(i);
        ip(address, &at, errors);
        special_ip(address, &at, errors);
    }
}

/// The annotation that said who may use a balancer before there was a field.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn ranges_of_annotation(object: &Value, balanced: bool, errors: &mut FieldErrors) {
    let Some(ranges) = object["metadata"]["annotations"][SOURCE_RANGES].as_str() else { return };
    let at = FieldPath::new("metadata").child("annotations").key(SOURCE_RANGES);
    if !balanced {
        errors.forbidden(&at, ONLY_BALANCED);
    }
    for range in ranges.split(',').map(str::trim).filter(|_| !ranges.trim().is_empty()) {
        must_be_cidr(&json!(range), &at, errors);
    }
}

/// What only a load balancer has.
pub(super) fn load_balancer(object: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let spec = &object["spec"];
    let balanced = spec["type"] == "LoadBalancer";
    // Upstream writes this field with a capital.
    let at = path.child("LoadBalancerSourceRanges");
    if !balanced && items(spec, "loadBalancerSourceRanges").next().is_some() {
        errors.forbidden(&at, ONLY_BALANCED);
    }
    for (i, range) in items(spec, "loadBalancerSourceRanges").enumerate() {
        must_be_cidr(&json!(range.as_str().unwrap_or("").trim()), &at.index(i), errors);
    }
    if items(spec, "loadBalancerSourceRanges").next().is_none() {
        ranges_of_annotation(object, balanced, errors);
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if !balanced && !spec[field].is_null() {
            errors.forbidden(&path.child(field), ONLY_BALANCED);
        }
    }
    if balanced && !spec["loadBalancerClass"].is_null() {
        qualified(&spec["loadBalancerClass"], &path.child("loadBalancerClass"), errors);
    }
}

/// `validateServiceExternalTrafficPolicy` and its neighbours. A port for health checks that is missing is allocated later.
pub(super) fn policies(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (external, policies) = ("externalTrafficPolicy", ["Cluster", "Local"]);
    if can_be_reached_from_outside(spec) {
        one_of(spec, external, &policies, path, errors);
    } else if !spec[external].is_null() {
        let why = "may only be set for externally-accessible services";
        errors.invalid(&path.child(external), &spec[external], why);
    }
    let (at, number) = (path.child("healthCheckNodePort"), &spec["healthCheckNodePort"]);
    if number.as_i64().is_some_and(|n| n != 0) {
        if needs_health_check(spec) {
            port(number, &at, errors);
        } else {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&at, number, why);
        }
    }
    let internal = "internalTrafficPolicy";
    if needs_cluster_ip(spec) || !spec[internal].is_null() {
        one_of(spec, internal, &policies, path, errors);
    }
    let (field, known) = ("trafficDistribution", ["PreferClose", "PreferSameZone", "PreferSameNode"]);
    if !spec[field].is_null() && !known.iter().any(|k| &spec[field] == k) {
        errors.not_supported(&path.child(field), &spec[field], &known);
    }
}

/// `ValidateServiceClusterIPsRelatedFields`, and what a cluster with addresses of one family has to say.
pub(super) fn addresses(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, ips) = (path.child("clusterIPs"), || items(spec, "clusterIPs"));
    let (all, first) = (&spec["clusterIPs"], spec["clusterIP"].as_str().filter(|ip| !ip.is_empty()));
    match (first, ips().next()) {
        (Some(_), None) => errors.required(&at, ""),
        (Some(first), Some(ip)) if ip != first => errors.invalid(&at, all, "first value must match `clusterIP`"),
        (None, Some(_)) => errors.invalid(&at, all, "must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    families(spec, path, errors);
    let before = errors.0.len();
    for (i, address) in ips().enumerate() {
        if i == 0 && address == "None" {
            if ips().count() > 1 {
                errors.invalid(&at, all, "'None' must be the first and only value");
            }
        } else {
            ip(address, &at.index(i), errors);
        }
    }
    if ips().count() > 2 {
        errors.invalid(&at, all, "may only hold up to 2 values");
    }
    let sixes = ips().filter(|ip| is_ipv6(ip)).count();
    if errors.0.len() == before && ips().count() > 1 && (sixes == 0 || sixes == ips().count()) {
        errors.invalid(&at, all, "may specify no more than one IP for each IP family");
    }
}

/// Whether somebody else says where a Service leads: then it may be of families that the cluster has not.
pub(crate) fn is_told_by_others(spec: &Value) -> bool {
    let selects = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    spec["clusterIP"] == "None" && !selects
}

fn families(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let is_free = is_told_by_others(spec);
    let (at, known) = (path.child("ipFamilies"), ["IPv4", "IPv6"]);
    let mut seen = HashSet::new();
    for (i, family) in items(spec, "ipFamilies").enumerate() {
        if !known.iter().any(|k| family == k) {
            errors.not_supported(&at.index(i), family, &known);
        } else if !seen.insert(family) {
            errors.duplicate(&at.index(i), family);
        } else if family == "IPv6" && !is_free {
            errors.invalid(&at.index(i), family, "not configured on this cluster");
        }
    }
    let (at, policy) = (path.child("ipFamilyPolicy"), &spec["ipFamilyPolicy"]);
    let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if policy == "RequireDualStack" && !is_free {
        errors.invalid(&at, policy, "this cluster is not configured for dual-stack services");
    } else if !policy.is_null() && !known.iter().any(|k| policy == k) {
        errors.not_supported(&at, policy, &known);
    }
}

/// What a change may not touch.
pub(super) fn update(spec: &Value, old: &Value, errors: &mut FieldErrors) {
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
