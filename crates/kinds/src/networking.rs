//! Kinds of `networking.k8s.io/v1`.

mod ingress;
mod network_policy;
mod service_cidr;

pub(super) use ingress::{INGRESS, INGRESS_CLASS};
pub(super) use network_policy::NETWORK_POLICY;

use super::{
    AGE, Cell, KindInfo, NAME, field_cursor::FieldCursor, field_validation::text as text_of, generic_kind::GenericKind,
    kind_info::METADATA_RESET_FOR_STATUS, text, validate_path_segment_name,
};
use serde_json::{Value, json};

const GROUP: &str = "networking.k8s.io";

pub(super) static IP_ADDRESS: GenericKind = GenericKind {
    columns: &[NAME, text("ParentRef", Cell::Computed(|a, _| json!(parent_cell(&a["spec"]["parentRef"]))))],
    fields: &["spec.parentRef.group", "spec.parentRef.resource", "spec.parentRef.namespace", "spec.parentRef.name"],
    name: |name| match name.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.to_string() == name => Vec::new(),
        Ok(ip) => vec![format!("must be in canonical form ({:?})", ip.to_string())],
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    },
    validate: |object, errors| {
        let object = FieldCursor::object(object);
        let spec = object.at("spec");
        let reference = spec.at("parentRef");
        if reference.is_null() {
            return reference.required("", errors);
        }
        let (group, namespace) = (reference.at("group"), reference.at("namespace"));
        if !group.text().is_empty() {
            group.validate_text(api::names::dns1123_subdomain, errors);
        }
        reference.at("resource").validate_required_text(validate_path_segment_name, errors);
        reference.at("name").validate_required_text(validate_path_segment_name, errors);
        namespace.validate_text(validate_path_segment_name, errors);
    },
    validate_change: |object, old, errors| {
        FieldCursor::object(object).at("spec").validate_immutable(&FieldCursor::object(old).at("spec"), errors);
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["ip"],
        generation: true,
        ..KindInfo::cluster_scoped(GROUP, "IPAddress", "ipaddresses", "ipaddress")
    })
};
pub(super) static SERVICE_CIDR: GenericKind = GenericKind {
    columns: &[NAME, text("CIDRs", Cell::Computed(|c, _| json!(join_strings(&c["spec"]["cidrs"])))), AGE],
    validate: service_cidr::validate,
    validate_change: service_cidr::validate_change,
    ..GenericKind::new(&KindInfo {
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        ..KindInfo::cluster_scoped(GROUP, "ServiceCIDR", "servicecidrs", "servicecidr")
    })
};

fn join_strings(list: &Value) -> String {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// Returns the parent reference as `resource.group/namespace/name`.
fn parent_cell(reference: &Value) -> String {
    let part = |field: &str, before: &str, after: &str| match text_of(reference, field) {
        "" => String::new(),
        text => format!("{before}{text}{after}"),
    };
    format!(
        "{}{}/{}{}",
        part("resource", "", ""),
        part("group", ".", ""),
        part("namespace", "", "/"),
        part("name", "", "")
    )
}
