//! EndpointSlice (`discovery.k8s.io/v1`). No traffic follows them yet.

mod rules;

use super::{
    AGE, Cell, FieldPath, KindInfo, NAME,
    checks::{immutable, items},
    fill,
    plain::Plain,
    text,
};
use serde_json::{Value, json};

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
    prepare: |object, old, _| drop_topology(object, old),
    validate: rules::validate,
    validate_change: |object, old, errors| {
        immutable(&object["addressType"], &old["addressType"], &FieldPath::new("addressType"), errors);
    },
    warnings: |object, _| warnings(object),
    ..Plain::of(&KindInfo {
        generation: true,
        ..KindInfo::of("discovery.k8s.io", "EndpointSlice", "endpointslices", "endpointslice")
    })
};

/// Who writes slices with the addresses of others is told nothing of them.
const CONTROLLERS: [&str; 2] = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

/// `warnOnBadIPs`.
fn warnings(object: &Value) -> Vec<String> {
    let by = &object["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
    if CONTROLLERS.iter().any(|controller| by == controller) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (i, endpoint) in items(object, "endpoints").enumerate() {
        for (j, ip) in items(endpoint, "addresses").filter_map(Value::as_str).enumerate() {
            let path = || FieldPath::new("endpoints").index(i).child("addresses").index(j);
            all.extend(api::address::ip_warning(ip, &path()));
        }
    }
    all
}

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

/// Where an endpoint is says another field in this version: what is new does not say it in the old one
/// (`dropTopologyOnV1`).
fn drop_topology(object: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| old["endpoints"] == object["endpoints"]) {
        return;
    }
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten();
    for endpoint in endpoints.filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}
