//! NetworkPolicy.

use super::GROUP;
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, defaulting,
    field_validation::{self, items, parse_cidr, text as text_of, validate_cidr},
    generic_kind::GenericKind,
    selector, text,
};
use api::address;
use serde_json::{Value, json};
use std::net::IpAddr;

pub(crate) static NETWORK_POLICY: GenericKind = GenericKind {
    columns: &[NAME, text("Pod-Selector", Cell::Computed(|p, _| selector::table_cell(&p["spec"]["podSelector"]))), AGE],
    default: set_network_policy_defaults,
    validate: validate_network_policy,
    warnings: |object, _| warnings(object),
    ..GenericKind::new(&KindInfo {
        short_names: &["netpol"],
        generation: true,
        ..KindInfo::namespaced(GROUP, "NetworkPolicy", "networkpolicies", "networkpolicy")
    })
};
/// Sets the defaults of a NetworkPolicy (`SetDefaults_NetworkPolicy`).
fn set_network_policy_defaults(object: &mut Value) {
    for list in ["ingress", "egress"] {
        for rule in object["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for i in 0..items(rule, "ports").count() {
                defaulting::set_defaults_at(rule, &format!("/ports/{i}"), &[("protocol", json!("TCP"))]);
            }
        }
    }
    if items(&object["spec"], "policyTypes").next().is_none() {
        let egress = items(&object["spec"], "egress").next().is_some();
        object["spec"]["policyTypes"] = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
}

/// Validates a NetworkPolicy (`ValidateNetworkPolicySpec`).
fn validate_network_policy(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    selector::validate(&spec["podSelector"], &path.child("podSelector"), errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(spec, list).enumerate() {
            let path = path.child(list).index(i);
            for (j, port) in items(rule, "ports").enumerate() {
                validate_port(port, &path.child("ports").index(j), errors);
            }
            for (j, peer) in items(rule, peers).enumerate() {
                validate_peer(peer, &path.child(peers).index(j), errors);
            }
        }
    }
    if items(spec, "policyTypes").count() > 2 {
        let detail = "may not specify more than two policyTypes";
        return errors.invalid(&path.child("policyTypes"), &spec["policyTypes"], detail);
    }
    for (i, kind) in items(spec, "policyTypes").enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            let path = path.child("policyTypes").index(i);
            errors.not_supported(&path, kind, &["Ingress", "Egress"]);
        }
    }
}

fn validate_port(port: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let protocols = ["SCTP", "TCP", "UDP"];
    if !protocols.contains(&text_of(port, "protocol")) {
        errors.not_supported(&path.child("protocol"), &port["protocol"], &protocols);
    }
    let (at, last) = (path.child("endPort"), &port["endPort"]);
    let mut invalid_end_port = |detail: &str| {
        if !last.is_null() {
            errors.invalid(&at, last, detail);
        }
    };
    match &port["port"] {
        Value::Null => invalid_end_port("may not be specified when `port` is not specified"),
        Value::String(name) => {
            invalid_end_port("may not be specified when `port` is non-numeric");
            let wrong = api::names::port_name(name);
            wrong.iter().for_each(|e| errors.invalid(&path.child("port"), &port["port"], e));
        }
        number => {
            field_validation::validate_port(number, &path.child("port"), errors);
            if last.as_i64() < number.as_i64() && !last.is_null() {
                errors.invalid(&at, last, "must be greater than or equal to `port`");
            }
            if !last.is_null() {
                field_validation::validate_port(last, &at, errors);
            }
        }
    }
}

fn validate_peer(peer: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for list in ["podSelector", "namespaceSelector"] {
        selector::validate(&peer[list], &path.child(list), errors);
    }
    let selects = !peer["podSelector"].is_null() || !peer["namespaceSelector"].is_null();
    let block = &peer["ipBlock"];
    match (selects, block.is_null()) {
        (false, true) => errors.required(path, "must specify a peer"),
        (true, false) => errors.forbidden(path, "may not specify both ipBlock and another peer"),
        (true, true) => {}
        (false, false) => {
            validate_ip_block(block, &path.child("ipBlock"), errors);
        }
    }
}

/// Validates an IP block (`ValidateIPBlock`).
fn validate_ip_block(block: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("cidr");
    if text_of(block, "cidr").is_empty() {
        return errors.required(&at, "");
    }
    validate_cidr(&block["cidr"], &at, errors);
    let Some(cidr) = parse_cidr(&block["cidr"]) else { return };
    for (i, except) in items(block, "except").enumerate() {
        let at = path.child("except").index(i);
        validate_cidr(except, &at, errors);
        if parse_cidr(except).is_some_and(|part| !is_strict_subset(part, cidr)) {
            errors.invalid(&at, except, "must be a strict subset of `cidr`");
        }
    }
}

/// Returns the warnings of a NetworkPolicy (`networkPolicyWarnings`).
fn warnings(object: &Value) -> Vec<String> {
    let (path, mut all) = (FieldPath::new("spec"), Vec::new());
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(&object["spec"], list).enumerate() {
            for (j, peer) in items(rule, peers).enumerate().filter(|(_, peer)| !peer["ipBlock"].is_null()) {
                let (at, block) = (path.child(list).index(i).child(peers).index(j).child("ipBlock"), &peer["ipBlock"]);
                all.extend(address::cidr_warnings(text_of(block, "cidr"), &at.child("cidr")));
                for (k, except) in items(block, "except").filter_map(Value::as_str).enumerate() {
                    all.extend(address::cidr_warnings(except, &at.child("except").index(k)));
                }
            }
        }
    }
    all
}

/// Whether a CIDR is a strict subset of another.
fn is_strict_subset((ip, bits): (IpAddr, u8), (cidr, cidr_bits): (IpAddr, u8)) -> bool {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)) << 96,
        IpAddr::V6(ip) => u128::from(ip),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(cidr_bits)).unwrap_or(0);
    ip.is_ipv4() == cidr.is_ipv4() && bits > cidr_bits && number(ip) & mask == number(cidr) & mask
}
