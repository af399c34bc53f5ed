//! Defaults and validation of the load balancer status (`ValidateLoadBalancerStatus`).

use crate::{
    FieldErrors,
    field_cursor::FieldCursor,
    field_validation::{text as text_of, validate_ip},
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
    let object = FieldCursor::object(object);
    let (spec, status) = (object.at("spec"), object.at("status"));
    let balancer = status.at("loadBalancer");
    let ingress = balancer.at("ingress");
    if spec.at("type").text() != "LoadBalancer" {
        if ingress.count() > 0 {
            ingress.forbidden("may only be used when `spec.type` is \"LoadBalancer\"", errors);
        }
        return;
    }
    for point in ingress.items() {
        let (ip, mode) = (point.at("ip"), point.at("ipMode"));
        let has_ip = !ip.text().is_empty();
        if has_ip {
            validate_ip(&ip, errors);
        }
        match (mode.is_set(), has_ip) {
            (false, true) => mode.required("must be specified when `ip` is set", errors),
            (true, false) => mode.forbidden("may not be specified when `ip` is not set", errors),
            (true, true) => mode.supported(&["Proxy", "VIP"], errors),
            (false, false) => {}
        }
        validate_hostname(&point.at("hostname"), errors);
    }
}

/// Validates the optional hostname of a load balancer ingress.
pub(crate) fn validate_hostname(hostname: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if !hostname.text().is_empty() {
        hostname.validate_text(api::names::dns1123_subdomain, errors);
    }
    if hostname.text().parse::<std::net::IpAddr>().is_ok() {
        hostname.invalid("must be a DNS name, not an IP address", errors);
    }
}
