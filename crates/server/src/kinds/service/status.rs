//! What whoever makes load balancers says of them (`ValidateLoadBalancerStatus`).

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{ip, items, subdomain, text as text_of},
};
use serde_json::{Value, json};

/// An address is the balancer's own, unless it is said that it is a proxy's.
pub(super) fn default(object: &mut Value) {
    let ingress = object.pointer_mut("/status/loadBalancer/ingress").and_then(Value::as_array_mut);
    for one in ingress.into_iter().flatten().filter(|one| !text_of(one, "ip").is_empty()) {
        if one["ipMode"].is_null() {
            one["ipMode"] = json!("VIP");
        }
    }
}

pub(super) fn check(object: &Value, errors: &mut FieldErrors) {
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
            ip(&one["ip"], &path.child("ip"), errors);
        }
        let (at, known) = (path.child("ipMode"), ["Proxy", "VIP"]);
        match (one["ipMode"].as_str(), has_ip) {
            (None, true) => errors.required(&at, "must be specified when `ip` is set"),
            (Some(_), false) => errors.forbidden(&at, "may not be specified when `ip` is not set"),
            (Some(mode), true) if !known.contains(&mode) => errors.not_supported(&at, &one["ipMode"], &known),
            _ => {}
        }
        host_name(one, &path, errors);
    }
}

/// The name of a balancer, if it has one.
pub(in crate::kinds) fn host_name(balancer: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (host, at) = (text_of(balancer, "hostname"), path.child("hostname"));
    if !host.is_empty() {
        subdomain(&balancer["hostname"], &at, errors);
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(&at, &balancer["hostname"], "must be a DNS name, not an IP address");
    }
}
