//! `networking.k8s.io/v1`. Nothing acts upon these yet: no traffic is led or held back.

mod ingress;
mod policy;
mod service_cidr;

pub(super) use ingress::{INGRESS, INGRESS_CLASS};
pub(super) use policy::NETWORK_POLICY;

use super::{
    AGE, Cell, FieldPath, KindInfo, NAME,
    checks::{immutable, path_part, subdomain, text as text_of},
    info::METADATA,
    plain::Plain,
    text,
};
use serde_json::{Value, json};

const GROUP: &str = "networking.k8s.io";

pub(super) static IP_ADDRESS: Plain = Plain {
    columns: &[NAME, text("ParentRef", Cell::Of(|a, _| json!(parent(&a["spec"]["parentRef"]))))],
    fields: &["spec.parentRef.group", "spec.parentRef.resource", "spec.parentRef.namespace", "spec.parentRef.name"],
    name: |name| match name.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.to_string() == name => Vec::new(),
        Ok(ip) => vec![format!("must be in canonical form ({:?})", ip.to_string())],
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    },
    validate: |object, errors| {
        let path = FieldPath::new("spec").child("parentRef");
        let reference = &object["spec"]["parentRef"];
        if reference.is_null() {
            return errors.required(&path, "");
        }
        if !text_of(reference, "group").is_empty() {
            subdomain(&reference["group"], &path.child("group"), errors);
        }
        path_part(&reference["resource"], &path.child("resource"), errors);
        path_part(&reference["name"], &path.child("name"), errors);
        if !text_of(reference, "namespace").is_empty() {
            path_part(&reference["namespace"], &path.child("namespace"), errors);
        }
    },
    validate_change: |object, old, errors| {
        let path = FieldPath::new("spec");
        immutable(&object["spec"], &old["spec"], &path, errors);
    },
    ..Plain::of(&KindInfo {
        short_names: &["ip"],
        generation: true,
        ..KindInfo::of_cluster(GROUP, "IPAddress", "ipaddresses", "ipaddress")
    })
};
pub(super) static SERVICE_CIDR: Plain = Plain {
    columns: &[NAME, text("CIDRs", Cell::Of(|c, _| json!(joined(&c["spec"]["cidrs"])))), AGE],
    validate: service_cidr::validate,
    validate_change: service_cidr::validate_change,
    ..Plain::of(&KindInfo {
        status: true,
        kept_by_status: METADATA,
        ..KindInfo::of_cluster(GROUP, "ServiceCIDR", "servicecidrs", "servicecidr")
    })
};

fn joined(list: &Value) -> String {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

/// `resource.group/namespace/name`
fn parent(reference: &Value) -> String {
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
