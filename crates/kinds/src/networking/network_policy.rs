//! NetworkPolicy.

use super::GROUP;
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, defaulting, enums,
    field_cursor::FieldCursor,
    field_validation::{items, parse_cidr, text as text_of, validate_cidr},
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
        object["spec"]["policyTypes"] = if egress { json!(enums::POLICY_TYPES) } else { json!(["Ingress"]) };
    }
}

/// Validates a NetworkPolicy (`ValidateNetworkPolicySpec`).
fn validate_network_policy(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    selector::validate(&spec.at("podSelector"), errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(list).items() {
            rule.at("ports").items().for_each(|port| validate_port(&port, errors));
            rule.at(peers).items().for_each(|peer| validate_peer(&peer, errors));
        }
    }
    let policy_types = spec.at("policyTypes");
    if policy_types.count() > 2 {
        return policy_types.invalid("may not specify more than two policyTypes", errors);
    }
    policy_types.items().for_each(|policy_type| policy_type.supported(enums::POLICY_TYPES, errors));
}

fn validate_port(policy_port: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (port, last) = (policy_port.at("port"), policy_port.at("endPort"));
    policy_port.at("protocol").supported(enums::PROTOCOLS, errors);
    let invalid_end_port = |detail: &str, errors: &mut FieldErrors| {
        if !last.is_null() {
            last.invalid(detail, errors);
        }
    };
    match port.value() {
        Value::Null => invalid_end_port("may not be specified when `port` is not specified", errors),
        Value::String(_) => {
            invalid_end_port("may not be specified when `port` is non-numeric", errors);
            port.validate_text(api::names::port_name, errors);
        }
        _ => {
            port.validate_port(errors);
            if last.integer() < port.integer() {
                invalid_end_port("must be greater than or equal to `port`", errors);
            }
            if !last.is_null() {
                last.validate_port(errors);
            }
        }
    }
}

fn validate_peer(peer: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let selectors = [peer.at("podSelector"), peer.at("namespaceSelector")];
    selectors.iter().for_each(|selector| selector::validate(selector, errors));
    let (selects, block) = (selectors.iter().any(|selector| !selector.is_null()), peer.at("ipBlock"));
    match (selects, block.is_null()) {
        (false, true) => peer.required("must specify a peer", errors),
        (true, false) => peer.forbidden("may not specify both ipBlock and another peer", errors),
        (true, true) => {}
        (false, false) => validate_ip_block(&block, errors),
    }
}

/// Validates an IP block (`ValidateIPBlock`).
fn validate_ip_block(block: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let cidr = block.at("cidr");
    if cidr.text().is_empty() {
        return cidr.required("", errors);
    }
    validate_cidr(&cidr, errors);
    let Some(cidr) = parse_cidr(cidr.value()) else { return };
    for except in block.at("except").items() {
        validate_cidr(&except, errors);
        if parse_cidr(except.value()).is_some_and(|part| !is_strict_subset(part, cidr)) {
            except.invalid("must be a strict subset of `cidr`", errors);
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
