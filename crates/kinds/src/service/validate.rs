//! Validation of Services (`ValidateService`).

use super::traffic;
use crate::{
    FieldErrors, FieldPath,
    field_validation::{validate_port, validate_qualified_name},
    object_meta,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn validate_service(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let kind = spec["type"].as_str().unwrap_or("");
    let headless = spec["clusterIP"] == "None";
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.invalid(&path.child("clusterIPs").index(0), &json!("None"), &detail);
    }
    if kind == "ExternalName" {
        validate_external_name(spec, &path, errors);
    }
    self::validate_ports(ports, &path.child("ports"), errors);
    if kind == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, p)| p["nodePort"].as_i64().is_some_and(|n| n != 0)) {
            let at = path.child("ports").index(i).child("nodePort");
            errors.forbidden(&at, "may not be used when `type` is 'ClusterIP'");
        }
    }
    object_meta::labels(&spec["selector"], &path.child("selector"), errors);
    if !matches!(spec["sessionAffinity"].as_str(), Some("ClientIP" | "None")) {
        errors.not_supported(&path.child("sessionAffinity"), &spec["sessionAffinity"], &["ClientIP", "None"]);
    }
    traffic::validate_session_affinity(spec, &path, errors);
    if kind != "ExternalName" {
        traffic::validate_cluster_ips(spec, &path, errors);
    }
    traffic::validate_external_ips(spec, &path, errors);
    if !TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), &spec["type"], &TYPES);
    }
    traffic::validate_load_balancer_fields(object, &path, errors);
    traffic::validate_traffic_policies(spec, &path, errors);
}

fn validate_external_name(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec[field].is_null() && spec[field] != json!([]) {
            errors.forbidden(&path.child(field), "may not be set for ExternalName services");
        }
    }
    // A trailing dot is allowed.
    let name = spec["externalName"].as_str().unwrap_or("");
    let name = name.strip_suffix('.').unwrap_or(name);
    let path = path.child("externalName");
    if name.is_empty() {
        return errors.required(&path, "");
    }
    api::names::dns1123_subdomain(name).iter().for_each(|e| errors.invalid(&path, &json!(name), e));
}

fn validate_ports(ports: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (i, p) in ports.iter().enumerate() {
        let path = path.index(i);
        match p["name"].as_str().unwrap_or("") {
            "" if ports.len() > 1 => errors.required(&path.child("name"), ""),
            "" => {}
            name => {
                api::names::dns1123_label(name).iter().for_each(|e| errors.invalid(&path.child("name"), &p["name"], e));
                if !names.insert(name) {
                    errors.duplicate(&path.child("name"), &p["name"]);
                }
            }
        }
        validate_port(&p["port"], &path.child("port"), errors);
        if !matches!(p["protocol"].as_str(), Some("SCTP" | "TCP" | "UDP")) {
            errors.not_supported(&path.child("protocol"), &p["protocol"], &["SCTP", "TCP", "UDP"]);
        }
        match &p["targetPort"] {
            Value::String(name) => {
                let path = path.child("targetPort");
                api::names::port_name(name).iter().for_each(|e| errors.invalid(&path, &p["targetPort"], e));
            }
            target => validate_port(target, &path.child("targetPort"), errors),
        }
        if !p["appProtocol"].is_null() {
            validate_qualified_name(&p["appProtocol"], &path.child("appProtocol"), errors);
        }
        let node_port = p["nodePort"].as_i64().filter(|n| *n != 0);
        if node_port.is_some() && !node_ports.insert((p["protocol"].as_str().unwrap_or(""), node_port)) {
            errors.duplicate(&path.child("nodePort"), &p["nodePort"]);
        }
        if !numbers.insert((p["protocol"].as_str().unwrap_or(""), p["port"].as_i64())) {
            errors.duplicate(&path, &json!({"port": p["port"], "protocol": p["protocol"]}));
        }
    }
}
