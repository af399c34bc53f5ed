//! Endpoints.

use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, defaulting, enums,
    field_validation::{
        items, text as text_of, validate_dns_label, validate_ip, validate_non_special_ip, validate_one_of,
        validate_port,
    },
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
    for (i, subset) in items(object, "subsets").enumerate() {
        let path = FieldPath::new("subsets").index(i);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| items(subset, list).next().is_none()) {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in lists {
            for (j, address) in items(subset, list).enumerate() {
                let path = path.child(list).index(j);
                validate_ip(&address["ip"], &path.child("ip"), errors);
                validate_non_special_ip(&address["ip"], &path.child("ip"), errors);
                if !text_of(address, "hostname").is_empty() {
                    validate_dns_label(&address["hostname"], &path.child("hostname"), errors);
                }
            }
        }
        let has_several_ports = items(subset, "ports").count() > 1;
        for (j, p) in items(subset, "ports").enumerate() {
            let path = path.child("ports").index(j);
            match text_of(p, "name") {
                "" if has_several_ports => errors.required(&path.child("name"), ""),
                "" => {}
                _ => validate_dns_label(&p["name"], &path.child("name"), errors),
            }
            validate_port(&p["port"], &path.child("port"), errors);
            validate_one_of(p, "protocol", enums::PROTOCOLS, &path, errors);
        }
    }
}
