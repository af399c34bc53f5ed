//! NetworkPolicy.

use super::{GROUP, is_cidr};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{items, text as text_of},
    fill,
    plain::Plain,
    selector, text,
};
use serde_json::{Value, json};

pub(in crate::kinds) static NETWORK_POLICY: Plain = Plain {
    columns: &[NAME, text("Pod-Selector", Cell::Of(|p, _| selector::shown(&p["spec"]["podSelector"]))), AGE],
    default: default_policy,
    validate: network_policy,
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
    for (i, kind) in items(spec, "policyTypes").enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            let path = path.child("policyTypes").index(i);
            errors.not_supported(&path, kind, &["Egress", "Ingress"]);
        }
    }
}

fn policy_port(port: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let protocols = ["SCTP", "TCP", "UDP"];
    if !protocols.contains(&text_of(port, "protocol")) {
        errors.not_supported(&path.child("protocol"), &port["protocol"], &protocols);
    }
    let at = path.child("port");
    match &port["port"] {
        Value::Null => {}
        Value::String(name) => {
            api::names::port_name(name).iter().for_each(|e| errors.invalid(&at, &port["port"], e));
        }
        number if !number.as_i64().is_some_and(|n| (1..=65_535).contains(&n)) => {
            errors.invalid(&at, number, "must be between 1 and 65535, inclusive");
        }
        number => {
            let end = &port["endPort"];
            if end.as_i64().is_some_and(|end| end < number.as_i64().unwrap_or(0)) {
                errors.invalid(&path.child("endPort"), end, "must be greater than or equal to `port`");
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
            let at = path.child("ipBlock").child("cidr");
            if text_of(block, "cidr").is_empty() {
                errors.required(&at, "");
            } else if !is_cidr(&block["cidr"]) {
                let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                errors.invalid(&at, &block["cidr"], why);
            }
        }
    }
}
