//! Endpoints.

use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, defaulting, enums,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of, validate_ip, validate_non_special_ip},
    generic_kind::GenericKind,
    text,
};
use serde_json::{Value, json};

pub(crate) static ENDPOINTS: GenericKind = GenericKind {
    columns: &[NAME, text("Endpoints", Cell::Computed(|e, _| json!(format_endpoints(e)))), AGE],
    default: |object| {
        for subset in object.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten() {
            for i in 0..items(subset, "ports").count() {
                defaulting::set_defaults_at(subset, &format!("/ports/{i}"), &[("protocol", json!("TCP"))]);
            }
        }
    },
    validate,
    warnings: |object, _| warnings(object),
    ..GenericKind::new(&KindInfo {
        short_names: &["ep"],
        allow_create_on_update: true,
        deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ..KindInfo::core("Endpoints", "endpoints", "endpoints")
    })
};

/// Maximum number of endpoints that a table shows.
const MAX_SHOWN: usize = 3;

/// Formats the first endpoints, each address with each port of its subset (`formatEndpoints`).
fn format_endpoints(object: &Value) -> String {
    // Only the first are formatted: addresses times ports can be many.
    let (mut first, mut count) = (Vec::new(), 0);
    for subset in items(object, "subsets") {
        let addresses = || items(subset, "addresses").map(|a| text_of(a, "ip"));
        let ports = || items(subset, "ports").filter_map(|p| p["port"].as_i64());
        let left = MAX_SHOWN - first.len();
        if items(subset, "ports").next().is_none() {
            first.extend(addresses().take(left).map(str::to_owned));
            count += addresses().count();
            continue;
        }
        let each = ports().flat_map(|port| addresses().map(move |ip| (ip, port)));
        first.extend(each.take(left).map(|(ip, port)| match ip.contains(':') {
            true => format!("[{ip}]:{port}"),
            false => format!("{ip}:{port}"),
        }));
        count += addresses().count() * ports().count();
    }
    match count {
        0 if items(object, "subsets").next().is_none() => "<none>".to_owned(),
        count if count > MAX_SHOWN => format!("{} + {} more...", first.join(","), count - MAX_SHOWN),
        _ => first.join(","),
    }
}

/// Warns of non-standard IP addresses, except in Endpoints of the controller.
fn warnings(object: &Value) -> Vec<String> {
    if object["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (i, subset) in items(object, "subsets").enumerate() {
        for list in ["addresses", "notReadyAddresses"] {
            for (j, address) in items(subset, list).enumerate() {
                let path = || FieldPath::new("subsets").index(i).child(list).index(j).child("ip");
                all.extend(api::address::ip_warning(text_of(address, "ip"), &path()));
            }
        }
    }
    all
}

/// Validates the subsets (`validateEndpointSubsets`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    for subset in FieldCursor::object(object).at("subsets").items() {
        let (ready, not_ready, ports) = (subset.at("addresses"), subset.at("notReadyAddresses"), subset.at("ports"));
        if ready.count() == 0 && not_ready.count() == 0 {
            subset.required("must specify `addresses` or `notReadyAddresses`", errors);
        }
        for address in ready.items().chain(not_ready.items()) {
            let (ip, hostname) = (address.at("ip"), address.at("hostname"));
            validate_ip(&ip, errors);
            validate_non_special_ip(&ip, errors);
            if !hostname.text().is_empty() {
                hostname.validate_text(api::names::dns1123_label, errors);
            }
        }
        for port in ports.items() {
            let name = port.at("name");
            match name.text() {
                "" if ports.count() > 1 => name.required("", errors),
                "" => {}
                _ => name.validate_text(api::names::dns1123_label, errors),
            }
            port.at("port").validate_port(errors);
            port.at("protocol").one_of(enums::PROTOCOLS, errors);
        }
    }
}
