//! Defaults and validation of the load balancer status (`ValidateLoadBalancerStatus`).

use crate::{
    FieldErrors, FieldPath,
    field_validation::{items, text as text_of, validate_dns_subdomain, validate_ip},
};
use serde_json::{Value, json};

/// Sets the default IP mode `VIP`.
pub(super) fn set_load_balancer_status_defaults(object: &mut Value) {
    let ingress = object.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
    for one in ingress.into_iter().flatten().filter(|one| !text_of(one, "ip").is_empty()) {
        if one["ipMode"].is_null() {
            one["ipMode"] = json!("VIP");
        }
    }
}

pub(super) fn validate_load_balancer_status(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child("loadBalancer").child("ingress");
    let status = &object["status"]["loadBalancer"];
    if object["spec"]["type"] != "LoadBalancer" {
        if items(status, "ingress").next().is_some() {
            errors.forbidden(&path, "may only be used when `spec.type` is \"LoadBalancer\"");
        }
        return;
    }
    for (i, one) in items(status, "ingress").enumerate() {
        let (path, has_ip) = (path.index(i), !text_of(one, "ip").is_empty());
        if has_ip {
            validate_ip(&one["ip"], &path.child("ip"), errors);
        }
        let (at, known) = (path.child("ipMode"), ["Proxy", "VIP"]);
        match (one["ipMode"].as_str(), has_ip) {
            (None, true) => errors.required(&at, "must be specified when `ip` is set"),
            (Some(_), false) => errors.forbidden(&at, "may not be specified when `ip` is not set"),
            (Some(mode), true) if !known.contains(&mode) => errors.not_supported(&at, &one["ipMode"], &known),
            _ => {}
        }
        validate_hostname(one, &path, errors);
    }
}

/// Validates the optional hostname of a load balancer ingress.
pub(crate) fn validate_hostname(ingress: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (host, at) = (text_of(ingress, "hostname"), path.child("hostname"));
    if !host.is_empty() {
        validate_dns_subdomain(&ingress["hostname"], &at, errors);
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(&at, &ingress["hostname"], "must be a DNS name, not an IP address");
    }
}
