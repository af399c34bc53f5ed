//! What an EndpointSlice may say (`ValidateEndpointSlice`).

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{dns_label, items, qualified, special_ip, subdomain, text as text_of},
};
use api::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
/// For how many zones, and for how many nodes, an endpoint may be.
const MOST_HINTS: usize = 8;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let kind = text_of(object, "addressType");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    match kind {
        "" => errors.required(&FieldPath::new("addressType"), ""),
        _ if kinds.contains(&kind) => {}
        _ => errors.not_supported(&FieldPath::new("addressType"), &object["addressType"], &kinds),
    }
    let (path, count) = (FieldPath::new("endpoints"), items(object, "endpoints").count());
    if count > MOST_ENDPOINTS {
        errors.too_many(&path, count, MOST_ENDPOINTS);
    } else {
        for (i, endpoint) in items(object, "endpoints").enumerate() {
            self::endpoint(endpoint, kind, &path.index(i), errors);
        }
    }
    let (path, count) = (FieldPath::new("ports"), items(object, "ports").count());
    if count > MOST_PORTS {
        return errors.too_many(&path, count, MOST_PORTS);
    }
    let mut names = BTreeSet::new();
    for (i, port) in items(object, "ports").enumerate() {
        self::port(port, &mut names, &path.index(i), errors);
    }
}

fn endpoint(endpoint: &Value, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("addresses");
    match items(endpoint, "addresses").count() {
        0 => errors.required(&at, "must contain at least 1 address"),
        count if count > MOST_ADDRESSES => errors.too_many(&at, count, MOST_ADDRESSES),
        _ => {}
    }
    for (i, value) in items(endpoint, "addresses").enumerate() {
        address(value, kind, &at.index(i), errors);
    }
    if !endpoint["nodeName"].is_null() {
        subdomain(&endpoint["nodeName"], &path.child("nodeName"), errors);
    }
    if !endpoint["hostname"].is_null() {
        dns_label(&endpoint["hostname"], &path.child("hostname"), errors);
    }
    let path = path.child("hints");
    hints(&endpoint["hints"], "forZones", names::label_value, &path, errors);
    hints(&endpoint["hints"], "forNodes", names::dns1123_subdomain, &path, errors);
}

fn address(address: &Value, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let ip = address.as_str().and_then(api::address::ip);
    match kind {
        "IPv4" if !ip.is_some_and(|ip| ip.is_ipv4()) => errors.invalid(path, address, "must be a valid IPv4 address"),
        "IPv6" if !ip.is_some_and(|ip| ip.is_ipv6()) => errors.invalid(path, address, "must be a valid IPv6 address"),
        "IPv4" | "IPv6" => special_ip(address, path, errors),
        "FQDN" => domain_name(address.as_str().unwrap_or(""), path, errors),
        _ => {}
    }
}

/// A name of several parts, which may end with a dot (`IsFullyQualifiedDomainName`): the first that is wrong.
fn domain_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::dns1123_subdomain(name);
    if !wrong.is_empty() {
        return errors.invalid(path, &json!(name), &wrong.join(","));
    }
    if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        return errors.invalid(path, &json!(name), why);
    }
    let part = name.split('.').map(|part| (part, names::dns1123_label(part))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((part, wrong)) = part {
        errors.invalid(path, &json!(part), &wrong.join(","));
    }
}

/// Whom the endpoint is meant for: each is named once.
fn hints(hints: &Value, list: &str, rule: fn(&str) -> Vec<String>, path: &FieldPath, errors: &mut FieldErrors) {
    let (path, count) = (path.child(list), items(hints, list).count());
    if count > MOST_HINTS {
        return errors.too_many(&path, count, MOST_HINTS);
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

fn port<'a>(port: &'a Value, names: &mut BTreeSet<&'a str>, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, at) = (text_of(port, "name"), path.child("name"));
    if !name.is_empty() {
        dns_label(&port["name"], &at, errors);
    }
    if !names.insert(name) {
        errors.duplicate(&at, &port["name"]);
    }
    let protocols = ["SCTP", "TCP", "UDP"];
    if !protocols.contains(&text_of(port, "protocol")) {
        errors.not_supported(&path.child("protocol"), &port["protocol"], &protocols);
    }
    if !port["appProtocol"].is_null() {
        qualified(&port["appProtocol"], &path.child("appProtocol"), errors);
    }
}
