//! EndpointSlice (`discovery.k8s.io/v1`).

mod validate;

use super::{
    AGE, Cell, FieldPath, KindInfo, NAME, defaulting, field_cursor::FieldCursor, field_validation::items,
    generic_kind::GenericKind, text,
};
use serde_json::{Value, json};

pub(super) static ENDPOINT_SLICE: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("AddressType", Cell::Pointer("/addressType")),
        text("Ports", Cell::Computed(|s, _| json!(ports_cell(s)))),
        text("Endpoints", Cell::Computed(|s, _| json!(addresses_cell(s)))),
        AGE,
    ],
    default: |object| {
        for i in 0..items(object, "ports").count() {
            defaulting::set_defaults_at(
                object,
                &format!("/ports/{i}"),
                &[("name", json!("")), ("protocol", json!("TCP"))],
            );
        }
    },
    prepare: |object, old, _| drop_deprecated_topology(object, old),
    validate: validate::validate,
    validate_change: |object, old, errors| {
        let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
        object.at("addressType").validate_immutable(&old.at("addressType"), errors);
    },
    warnings: |object, _| warnings(object),
    ..GenericKind::new(&KindInfo {
        generation: true,
        ..KindInfo::namespaced("discovery.k8s.io", "EndpointSlice", "endpointslices", "endpointslice")
    })
};

/// Controllers that copy addresses, whose slices get no warnings.
const CONTROLLERS: [&str; 2] = ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

/// Warns of non-standard IP addresses (`warnOnBadIPs`).
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

/// Maximum number of ports and addresses that a table shows.
const MAX_SHOWN: usize = 3;

fn join_first(all: &[String]) -> String {
    match all.len() {
        0 => "<unset>".to_owned(),
        count if count > MAX_SHOWN => format!("{} + {} more...", all[..MAX_SHOWN].join(","), count - MAX_SHOWN),
        _ => all.join(","),
    }
}

fn ports_cell(slice: &Value) -> String {
    let one = |p: &Value| match (p["port"].as_i64(), p["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    join_first(&items(slice, "ports").map(one).collect::<Vec<_>>())
}

fn addresses_cell(slice: &Value) -> String {
    let all = items(slice, "endpoints").flat_map(|e| items(e, "addresses"));
    join_first(&all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
}

/// Drops the deprecated topology of changed endpoints, which `v1` replaces by other fields (`dropTopologyOnV1`).
fn drop_deprecated_topology(object: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| old["endpoints"] == object["endpoints"]) {
        return;
    }
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten();
    for endpoint in endpoints.filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}
