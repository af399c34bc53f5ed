//! Validation of EndpointSlices (`ValidateEndpointSlice`).

use crate::{FieldErrors, enums, field_cursor::FieldCursor, field_validation::validate_non_special_ip};
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
        validate_address(&address, kind, errors);
    }
    if node.is_set() {
        node.validate_text(api::names::dns1123_subdomain, errors);
    }
    if hostname.is_set() {
        hostname.validate_text(api::names::dns1123_label, errors);
    }
    let hints = endpoint.at("hints");
    validate_hints(&hints.at("forZones"), names::label_value, errors);
    validate_hints(&hints.at("forNodes"), names::dns1123_subdomain, errors);
}

fn validate_address(address: &FieldCursor<'_, '_>, kind: &str, errors: &mut FieldErrors) {
    let ip = api::address::ip(address.text());
    match kind {
        "IPv4" if !ip.is_some_and(|ip| ip.is_ipv4()) => address.invalid("must be a valid IPv4 address", errors),
        "IPv6" if !ip.is_some_and(|ip| ip.is_ipv6()) => address.invalid("must be a valid IPv6 address", errors),
        "IPv4" | "IPv6" => validate_non_special_ip(address, errors),
        "FQDN" => validate_fully_qualified_domain_name(address, errors),
        _ => {}
    }
}

/// Validates a domain name, optionally with a trailing dot, and reports the first error (`IsFullyQualifiedDomainName`).
fn validate_fully_qualified_domain_name(field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if field.text().is_empty() {
        return field.required("", errors);
    }
    let name = field.text().strip_suffix('.').unwrap_or(field.text());
    let mut invalid = |shown: &str, detail: &str| errors.invalid(&field.path(), &json!(shown), detail);
    let wrong = names::dns1123_subdomain(name);
    if !wrong.is_empty() {
        return invalid(name, &wrong.join(","));
    }
    if !name.contains('.') {
        return invalid(name, "should be a domain with at least two segments separated by dots");
    }
    let part = name.split('.').map(|part| (part, names::dns1123_label(part))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((part, wrong)) = part {
        invalid(part, &wrong.join(","));
    }
}

/// Validates zone or node hints, which must be unique.
fn validate_hints(hints: &FieldCursor<'_, '_>, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
    if hints.count() > MAX_HINTS {
        return hints.too_many(MAX_HINTS, errors);
    }
    let mut seen = BTreeSet::new();
    for hint in hints.items() {
        let name = hint.at("name");
        if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
        name.validate_text(rule, errors);
    }
}

fn validate_port<'v>(port: &FieldCursor<'v, '_>, names: &mut BTreeSet<&'v str>, errors: &mut FieldErrors) {
    let (name, application_protocol) = (port.at("name"), port.at("appProtocol"));
    if !name.text().is_empty() {
        name.validate_text(api::names::dns1123_label, errors);
    }
    if !names.insert(name.text()) {
        name.duplicate(errors);
    }
    port.at("protocol").supported(enums::PROTOCOLS, errors);
    if application_protocol.is_set() {
        application_protocol.validate_text(api::names::qualified_name, errors);
    }
}
