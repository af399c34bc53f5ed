//! What a Service may say, in upstream's words (`ValidateService`).

use crate::{
    kinds::{FieldErrors, FieldPath},
    metadata,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn spec(spec: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec");
    let kind = spec["type"].as_str().unwrap_or("");
    if !TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), &spec["type"], &TYPES);
    }
    let headless = spec["clusterIP"] == "None";
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let why = format!("may not be set to 'None' for {kind} services");
        errors.invalid(&path.child("clusterIPs").index(0), &json!(["None"]), &why);
    }
    if kind == "ExternalName" {
        external_name(spec, &path, errors);
    }
    self::ports(ports, &path.child("ports"), errors);
    metadata::labels(&spec["selector"], &path.child("selector"), errors);
    if !matches!(spec["sessionAffinity"].as_str(), Some("ClientIP" | "None")) {
        errors.not_supported(&path.child("sessionAffinity"), &spec["sessionAffinity"], &["ClientIP", "None"]);
    }
}

fn external_name(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if spec["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty()) {
        errors.forbidden(&path.child("clusterIPs").index(0), "may not be set for ExternalName services");
    }
    // A dot at the end is that of the root.
    let name = spec["externalName"].as_str().unwrap_or("");
    let name = name.strip_suffix('.').unwrap_or(name);
    let path = path.child("externalName");
    if name.is_empty() {
        return errors.required(&path, "");
    }
    api::names::dns1123_subdomain(name).iter().for_each(|e| errors.invalid(&path, &json!(name), e));
}

fn ports(ports: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
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
        number(&p["port"], &path.child("port"), errors);
        if !matches!(p["protocol"].as_str(), Some("SCTP" | "TCP" | "UDP")) {
            errors.not_supported(&path.child("protocol"), &p["protocol"], &["SCTP", "TCP", "UDP"]);
        }
        match &p["targetPort"] {
            Value::String(name) => {
                let path = path.child("targetPort");
                api::names::port_name(name).iter().for_each(|e| errors.invalid(&path, &p["targetPort"], e));
            }
            target => number(target, &path.child("targetPort"), errors),
        }
        if !numbers.insert((p["protocol"].as_str().unwrap_or(""), p["port"].as_i64())) {
            errors.duplicate(&path, &json!({"port": p["port"], "protocol": p["protocol"]}));
        }
    }
}

fn number(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !v.as_i64().is_some_and(|n| (1..=65_535).contains(&n)) {
        errors.invalid(path, v, "must be between 1 and 65535, inclusive");
    }
}

/// An address that was given stays, unless the Service becomes a mere name.
pub(super) fn update(spec: &Value, old: &Value, errors: &mut FieldErrors) {
    let set = old["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty());
    if set && old["type"] != "ExternalName" && spec["type"] != "ExternalName" && spec["clusterIP"] != old["clusterIP"] {
        let path = FieldPath::new("spec").child("clusterIPs").index(0);
        errors.invalid(&path, &json!([spec["clusterIP"]]), "may not change once set");
    }
}
