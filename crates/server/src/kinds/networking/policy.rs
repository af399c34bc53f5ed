//! NetworkPolicy.

use super::GROUP;
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{self, cidr, items, must_be_cidr, text as text_of},
    fill,
    plain::Plain,
    selector, text,
};
use api::address;
use serde_json::{Value, json};
use std::net::IpAddr;

pub(in crate::kinds) static NETWORK_POLICY: Plain = Plain {
    columns: &[NAME, text("Pod-Selector", Cell::Of(|p, _| selector::shown(&p["spec"]["podSelector"]))), AGE],
    default: default_policy,
    validate: network_policy,
    warnings: |object, _| warnings(object),
    ..Plain::of(&KindInfo {
        short_names: &["netpol"],
        generation: true,
        ..KindInfo::of(GROUP, "NetworkPolicy", "networkpolicies", "networkpolicy")
    })
};
/// `SetDefaults_NetworkPolicy`.
fn default_policy(object: &mut Value) {
    for list in ["ingress", "egress"] {
        for rule in object["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for i in 0..items(rule, "ports").count() {
                fill::at(rule, &format!("/ports/{i}"), &[("protocol", json!("TCP"))]);
            }
        }
    }
    if items(&object["spec"], "policyTypes").next().is_none() {
        let egress = items(&object["spec"], "egress").next().is_some();
        object["spec"]["policyTypes"] = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
}

/// `ValidateNetworkPolicySpec`.
fn network_policy(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    selector::validate(&spec["podSelector"], &path.child("podSelector"), errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(spec, list).enumerate() {
            let path = path.child(list).index(i);
            for (j, port) in items(rule, "ports").enumerate() {
                policy_port(port, &path.child("ports").index(j), errors);
            }
            for (j, peer) in items(rule, peers).enumerate() {
                policy_peer(peer, &path.child(peers).index(j), errors);
            }
        }
    }
    if items(spec, "policyTypes").count() > 2 {
        let why = "may not specify more than two policyTypes";
        return errors.invalid(&path.child("policyTypes"), &spec["policyTypes"], why);
    }
    for (i, kind) in items(spec, "policyTypes").enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            let path = path.child("policyTypes").index(i);
            errors.not_supported(&path, kind, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(port: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let protocols = ["SCTP", "TCP", "UDP"];
    if !protocols.contains(&text_of(port, "protocol")) {
        errors.not_supported(&path.child("protocol"), &port["protocol"], &protocols);
    }
    let (at, last) = (path.child("endPort"), &port["endPort"]);
    let mut wrong_end = |why: &str| {
        if !last.is_null() {
            errors.invalid(&at, last, why);
        }
    };
    match &port["port"] {
        Value::Null => wrong_end("may not be specified when `port` is not specified"),
        Value::String(name) => {
            wrong_end("may not be specified when `port` is non-numeric");
            let wrong = api::names::port_name(name);
            wrong.iter().for_each(|e| errors.invalid(&path.child("port"), &port["port"], e));
        }
        number => {
            checks::port(number, &path.child("port"), errors);
            if last.as_i64() < number.as_i64() && !last.is_null() {
                errors.invalid(&at, last, "must be greater than or equal to `port`");
            }
            if !last.is_null() {
                checks::port(last, &at, errors);
            }
        }
    }
}

fn policy_peer(peer: &Value, path: &FieldPath, errors: &mut FieldErrors) {
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
            ip_block(block, &path.child("ipBlock"), errors);
        }
    }
}

/// `ValidateIPBlock`.
fn ip_block(block: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("cidr");
    if text_of(block, "cidr").is_empty() {
        return errors.required(&at, "");
    }
    must_be_cidr(&block["cidr"], &at, errors);
    let Some(whole) = cidr(&block["cidr"]) else { return };
    for (i, except) in items(block, "except").enumerate() {
        let at = path.child("except").index(i);
        must_be_cidr(except, &at, errors);
        if cidr(except).is_some_and(|part| !lies_in(part, whole)) {
            errors.invalid(&at, except, "must be a strict subset of `cidr`");
        }
    }
}

/// `networkPolicyWarnings`.
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

/// Whether a network is a part of another, and smaller.
fn lies_in((ip, bits): (IpAddr, u8), (whole, least): (IpAddr, u8)) -> bool {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)) << 96,
        IpAddr::V6(ip) => u128::from(ip),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(least)).unwrap_or(0);
    ip.is_ipv4() == whole.is_ipv4() && bits > least && number(ip) & mask == number(whole) & mask
}
