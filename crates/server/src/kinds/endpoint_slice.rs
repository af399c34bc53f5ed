//! EndpointSlice (`discovery.k8s.io/v1`). No traffic follows them yet.

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{immutable, items, special_ip, subdomain, text as text_of},
    fill,
    plain::Plain,
    text,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) static ENDPOINT_SLICE: Plain = Plain {
    columns: &[
        NAME,
        text("AddressType", Cell::At("/addressType")),
        text("Ports", Cell::Of(|s, _| json!(ports(s)))),
        text("Endpoints", Cell::Of(|s, _| json!(addresses(s)))),
        AGE,
    ],
    default: |object| {
        for i in 0..items(object, "ports").count() {
            fill::at(object, &format!("/ports/{i}"), &[("name", json!("")), ("protocol", json!("TCP"))]);
        }
    },
    validate,
    validate_change: |object, old, errors| {
        immutable(&object["addressType"], &old["addressType"], &FieldPath::new("addressType"), errors);
    },
    ..Plain::of(&KindInfo {
        generation: true,
        ..KindInfo::of("discovery.k8s.io", "EndpointSlice", "endpointslices", "endpointslice")
    })
};

/// How many a table shows.
const MOST: usize = 3;

fn first(all: &[String]) -> String {
    match all.len() {
        0 => "<unset>".to_owned(),
        count if count > MOST => format!("{} + {} more...", all[..MOST].join(","), count - MOST),
        _ => all.join(","),
    }
}

fn ports(slice: &Value) -> String {
    let one = |p: &Value| match (p["port"].as_i64(), p["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    first(&items(slice, "ports").map(one).collect::<Vec<_>>())
}

fn addresses(slice: &Value) -> String {
    let all = items(slice, "endpoints").flat_map(|e| items(e, "addresses"));
    first(&all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
}

/// `ValidateEndpointSlice`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let kind = text_of(object, "addressType");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    match kind {
        "" => errors.required(&FieldPath::new("addressType"), ""),
        _ if kinds.contains(&kind) => {}
        _ => errors.not_supported(&FieldPath::new("addressType"), &object["addressType"], &kinds),
    }
    for (i, endpoint) in items(object, "endpoints").enumerate() {
        let path = FieldPath::new("endpoints").index(i).child("addresses");
        match items(endpoint, "addresses").count() {
            0 => errors.required(&path, "must contain at least 1 address"),
            count if count > 100 => errors.too_many(&path, count, 100),
            _ => {}
        }
        for (j, address) in items(endpoint, "addresses").enumerate() {
            let (path, ip) = (path.index(j), address.as_str().and_then(|a| a.parse::<std::net::IpAddr>().ok()));
            match kind {
                "IPv4" if !ip.is_some_and(|ip| ip.is_ipv4()) => {
                    errors.invalid(&path, address, "must be a valid IPv4 address");
                }
                "IPv6" if !ip.is_some_and(|ip| ip.is_ipv6()) => {
                    errors.invalid(&path, address, "must be a valid IPv6 address");
                }
                "IPv4" | "IPv6" => special_ip(address, &path, errors),
                "FQDN" => subdomain(address, &path, errors),
                _ => {}
            }
        }
    }
    let mut names = BTreeSet::new();
    for (i, port) in items(object, "ports").enumerate() {
        let path = FieldPath::new("ports").index(i);
        if !names.insert(text_of(port, "name")) {
            errors.duplicate(&path.child("name"), &port["name"]);
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        if !protocols.contains(&text_of(port, "protocol")) {
            errors.not_supported(&path.child("protocol"), &port["protocol"], &protocols);
        }
    }
}
