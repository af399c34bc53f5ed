//! Validation of EndpointSlices (`ValidateEndpointSlice`).

use crate::{
    FieldErrors, FieldPath, enums,
    field_cursor::FieldCursor,
    field_validation::{validate_dns_label, validate_dns_subdomain, validate_non_special_ip, validate_qualified_name},
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
    let slice = FieldCursor::object(object);
    let (kind, endpoints, ports) = (slice.at("addressType"), slice.at("endpoints"), slice.at("ports"));
    kind.one_of(enums::ADDRESS_TYPES, errors);
    if endpoints.count() > MAX_ENDPOINTS {
        endpoints.too_many(MAX_ENDPOINTS, errors);
    } else {
        endpoints.items().for_each(|endpoint| validate_endpoint(&endpoint, kind.text(), errors));
    }
    if ports.count() > MAX_PORTS {
        return ports.too_many(MAX_PORTS, errors);
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        validate_port(&port, &mut names, errors);
    }
}

fn validate_endpoint(endpoint: &FieldCursor<'_, '_>, kind: &str, errors: &mut FieldErrors) {
    let (addresses, node, hostname) = (endpoint.at("addresses"), endpoint.at("nodeName"), endpoint.at("hostname"));
    match addresses.count() {
        0 => addresses.required("must contain at least 1 address", errors),
        count if count > MAX_ADDRESSES => addresses.too_many(MAX_ADDRESSES, errors),
        _ => {}
    }
    for address in addresses.items() {
        validate_address(address.value(), kind, &address.path(), errors);
    }
    if node.is_set() {
        node.validate(validate_dns_subdomain, errors);
    }
    if hostname.is_set() {
        hostname.validate(validate_dns_label, errors);
    }
    let hints = endpoint.at("hints");
    validate_hints(&hints.at("forZones"), names::label_value, errors);
    validate_hints(&hints.at("forNodes"), names::dns1123_subdomain, errors);
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
fn validate_hints(hints: &FieldCursor<'_, '_>, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
    if hints.count() > MAX_HINTS {
        return hints.too_many(MAX_HINTS, errors);
    }
    let mut seen = BTreeSet::new();
    for hint in hints.items() {
        let field = hint.at("name");
        let (name, at) = (field.text(), field.path());
        if !seen.insert(name) {
            errors.duplicate(&at, &json!(name));
        }
        rule(name).iter().for_each(|e| errors.invalid(&at, &json!(name), e));
    }
}

fn validate_port<'v>(port: &FieldCursor<'v, '_>, names: &mut BTreeSet<&'v str>, errors: &mut FieldErrors) {
    let (name, application_protocol) = (port.at("name"), port.at("appProtocol"));
    if !name.text().is_empty() {
        name.validate(validate_dns_label, errors);
    }
    if !names.insert(name.text()) {
        name.duplicate(errors);
    }
    port.at("protocol").supported(enums::PROTOCOLS, errors);
    if application_protocol.is_set() {
        application_protocol.validate(validate_qualified_name, errors);
    }
}
