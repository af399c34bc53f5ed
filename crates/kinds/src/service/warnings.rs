//! Warnings for Services (`pkg/api/service/warnings.go`).

use crate::{
    FieldPath,
    field_validation::{items, text},
};
use api::address;
use serde_json::Value;

/// Deprecated annotation.
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

pub(super) fn service_warnings(object: &Value) -> Vec<String> {
    let (mut warnings, spec, path) = (Vec::new(), &object["spec"], FieldPath::new("spec"));
    if !object["metadata"]["annotations"][TOPOLOGY_HINTS].is_null() {
        warnings.push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    let ips = |field: &'static str| {
        let at = path.child(field);
        let each = items(spec, field).filter_map(Value::as_str).enumerate();
        each.filter_map(move |(i, ip)| address::ip_warning(ip, &at.index(i)))
    };
    warnings.extend(ips("clusterIPs"));
    warnings.extend(headless_warnings(spec));
    warnings.extend(ips("externalIPs"));
    warnings.extend(address::ip_warning(text(spec, "loadBalancerIP"), &path.child("loadBalancerIP")));
    for (i, range) in items(spec, "loadBalancerSourceRanges").filter_map(Value::as_str).enumerate() {
        warnings.extend(address::cidr_warnings(range, &path.child("loadBalancerSourceRanges").index(i)));
    }
    let is_external_name = spec["type"] == "ExternalName";
    if is_external_name && items(spec, "externalIPs").next().is_some() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external_name && !text(spec, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        let detail = "\"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(format!("spec.trafficDistribution: {detail}"));
    }
    warnings
}

/// Returns warnings for fields that headless Services ignore.
fn headless_warnings(spec: &Value) -> impl Iterator<Item = String> {
    let is_headless = spec["type"] == "ClusterIP" && spec["clusterIP"] == "None";
    let fields = [
        ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
        ("externalIPs", items(spec, "externalIPs").next().is_some()),
        // Upstream's name starts with a capital letter.
        ("SessionAffinity", spec["sessionAffinity"] != "None"),
    ];
    let ignored = fields.into_iter().filter(move |(_, is_set)| is_headless && *is_set);
    ignored.map(|(field, _)| format!("spec.{field} is ignored for headless services"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        assert_eq!(service_warnings(&json!({"metadata": {}, "spec": spec})), expected);
    }

    #[test]
    fn ignored_and_deprecated_service_fields_are_warned_of() {
        check(json!({"type": "ClusterIP", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}), &[]);
        check(
            json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "sessionAffinity": "ClientIP",
                "externalIPs": ["010.0.0.1"], "trafficDistribution": "PreferClose", "externalName": "a"}),
            &[
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
                "spec.externalIPs[0]: non-standard IP address \"010.0.0.1\" will be considered invalid in a future Kubernetes release: use \"10.0.0.1\"",
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ],
        );
        check(
            json!({"type": "ExternalName", "externalName": "a", "externalIPs": ["10.0.0.1"], "loadBalancerSourceRanges": ["10.0.0.1/8"]}),
            &[
                "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
                "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
            ],
        );
        let object = json!({"metadata": {"annotations": {TOPOLOGY_HINTS: "auto"}}, "spec": {}});
        let detail = "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead";
        assert_eq!(service_warnings(&object), [detail]);
    }
}
