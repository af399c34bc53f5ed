//! Validation of EndpointSlices (`ValidateEndpointSlice`).

use crate::{
    FieldErrors, FieldPath,
    field_validation::{
        items, text as text_of, validate_dns_label, validate_dns_subdomain, validate_non_special_ip,
        validate_qualified_name,
    },
};
use api::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
/// Maximum number of zone hints, and of node hints.
const MAX_HINTS: usize = 8;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let kind = text_of(object, "addressType");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    match kind {
        "" => errors.required(&FieldPath::new("addressType"), ""),
        _ if kinds.contains(&kind) => {}
        _ => errors.not_supported(&FieldPath::new("addressType"), &object["addressType"], &kinds),
    }
    let (path, count) = (FieldPath::new("endpoints"), items(object, "endpoints").count());
    if count > MAX_ENDPOINTS {
        errors.too_many(&path, count, MAX_ENDPOINTS);
    } else {
        for (i, endpoint) in items(object, "endpoints").enumerate() {
            self::validate_endpoint(endpoint, kind, &path.index(i), errors);
        }
    }
    let (path, count) = (FieldPath::new("ports"), items(object, "ports").count());
    if count > MAX_PORTS {
        return errors.too_many(&path, count, MAX_PORTS);
    }
    let mut names = BTreeSet::new();
    for (i, port) in items(object, "ports").enumerate() {
        self::validate_port(port, &mut names, &path.index(i), errors);
    }
}

fn validate_endpoint(endpoint: &Value, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("addresses");
    match items(endpoint, "addresses").count() {
        0 => errors.required(&at, "must contain at least 1 address"),
        count if count > MAX_ADDRESSES => errors.too_many(&at, count, MAX_ADDRESSES),
        _ => {}
    }
    for (i, value) in items(endpoint, "addresses").enumerate() {
        validate_address(value, kind, &at.index(i), errors);
    }
    if !endpoint["nodeName"].is_null() {
        validate_dns_subdomain(&endpoint["nodeName"], &path.child("nodeName"), errors);
    }
    if !endpoint["hostname"].is_null() {
        validate_dns_label(&endpoint["hostname"], &path.child("hostname"), errors);
    }
    let path = path.child("hints");
    validate_hints(&endpoint["hints"], "forZones", names::label_value, &path, errors);
    validate_hints(&endpoint["hints"], "forNodes", names::dns1123_subdomain, &path, errors);
}

fn validate_address(address: &Value, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let ip = address.as_str().and_then(api::address::ip);
    match kind {
        "IPv4" if !ip.is_some_and(|ip| ip.is_ipv4()) => errors.invalid(path, address, "must be a valid IPv4 address"),
        "IPv6" if !ip.is_some_and(|ip| ip.is_ipv6()) => errors.invalid(path, address, "must be a valid IPv6 address"),
        "IPv4" | "IPv6" => validate_non_special_ip(address, path, errors),
        "FQDN" => validate_fully_qualified_domain_name(address.as_str().unwrap_or(""), path, errors),
        _ => {}
    }
}

/// Validates a domain name, optionally with a trailing dot, and reports the first error (`IsFullyQualifiedDomainName`).
fn validate_fully_qualified_domain_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::dns1123_subdomain(name);
    if !wrong.is_empty() {
        return errors.invalid(path, &json!(name), &wrong.join(","));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return errors.invalid(path, &json!(name), detail);
    }
    let part = name.split('.').map(|part| (part, names::dns1123_label(part))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((part, wrong)) = part {
        errors.invalid(path, &json!(part), &wrong.join(","));
    }
}

/// Validates zone or node hints, which must be unique.
fn validate_hints(
    hints: &Value,
    list: &str,
    rule: fn(&str) -> Vec<String>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let (path, count) = (path.child(list), items(hints, list).count());
    if count > MAX_HINTS {
        return errors.too_many(&path, count, MAX_HINTS);
    }
    let mut seen = BTreeSet::new();
    for (i, one) in items(hints, list).enumerate() {
        let (name, at) = (text_of(one, "name"), path.index(i).child("name"));
        if !seen.insert(name) {
            errors.duplicate(&at, &json!(name));
        }
        rule(name).iter().for_each(|e| errors.invalid(&at, &json!(name), e));
    }
}

fn validate_port<'a>(port: &'a Value, names: &mut BTreeSet<&'a str>, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, at) = (text_of(port, "name"), path.child("name"));
    if !name.is_empty() {
        validate_dns_label(&port["name"], &at, errors);
    }
    if !names.insert(name) {
        errors.duplicate(&at, &port["name"]);
    }
    let protocols = ["SCTP", "TCP", "UDP"];
    if !protocols.contains(&text_of(port, "protocol")) {
        errors.not_supported(&path.child("protocol"), &port["protocol"], &protocols);
    }
    if !port["appProtocol"].is_null() {
        validate_qualified_name(&port["appProtocol"], &path.child("appProtocol"), errors);
    }
}
