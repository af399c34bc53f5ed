//! The `default` of fields in version 3, as upstream's generator (`kube-openapi`, `mustEnforceDefault`) writes it: the zero of
//! what Go always writes, and what a type says itself (`+default`).

use crate::protobuf::table::{Field, Kind, Message, Shape, TABLE};
use serde_json::{Value, json};

/// What types say themselves: message, field, value.
const SAID: [(&str, &str, &str); 12] = [
    ("core/v1.AzureDiskVolumeSource", "cachingMode", "ReadWrite"),
    ("core/v1.AzureDiskVolumeSource", "fsType", "ext4"),
    ("core/v1.AzureDiskVolumeSource", "kind", "Shared"),
    ("core/v1.ContainerPort", "protocol", "TCP"),
    ("core/v1.ISCSIVolumeSource", "iscsiInterface", "default"),
    ("core/v1.LocalObjectReference", "name", ""),
    ("core/v1.RBDVolumeSource", "keyring", "/etc/ceph/keyring"),
    ("core/v1.RBDVolumeSource", "pool", "rbd"),
    ("core/v1.RBDVolumeSource", "user", "admin"),
    ("core/v1.ScaleIOVolumeSource", "fsType", "xfs"),
    ("core/v1.ScaleIOVolumeSource", "storageMode", "ThinProvisioned"),
    ("core/v1.ServicePort", "protocol", "TCP"),
];

/// Adds them to a schema such as `io.k8s.api.core.v1.PodSpec`.
pub(super) fn tell(name: &str, schema: &mut Value) {
    let mut parts = name.rsplit('.');
    let (Some(message), Some(version), Some(package)) = (parts.next(), parts.next(), parts.next()) else { return };
    if let Some(message) = TABLE.message(&format!("{package}/{version}.{message}")) {
        fill(message, schema);
    }
}

fn fill(message: &Message, schema: &mut Value) {
    for field in &message.fields {
        if let (Shape::Inline, Kind::Message(place)) = (field.shape, field.kind) {
            fill(&TABLE.messages[place], schema);
        }
        let Some(property) = schema.pointer_mut(&format!("/properties/{}", field.name)) else { continue };
        let said = SAID.iter().find(|(of, name, _)| (*of, *name) == (message.name.as_str(), field.name));
        let (at, default) = match (field.shape, said) {
            (_, Some((_, _, said))) => ("", Some(json!(said))),
            (Shape::Plain, None) => ("", plain(field)),
            (Shape::List, None) => ("/items", zero(field.kind)),
            (Shape::Map, None) => ("/additionalProperties", zero(field.kind)),
            _ => continue,
        };
        if let (Some(default), Some(place)) = (default, property.pointer_mut(at).filter(|p| p.is_object())) {
            // Beside a reference nothing counts, so it stands inside, as upstream.
            if let Some(reference) = place.as_object_mut().and_then(|p| p.remove("$ref")) {
                place["allOf"] = json!([{"$ref": reference}]);
            }
            place["default"] = default;
        }
    }
}

/// A struct is never left out, another value only where it may not be.
fn plain(field: &Field) -> Option<Value> {
    zero(field.kind).filter(|zero| field.always || zero.is_object())
}

/// Types with a form of their own, such as times and quantities, have none.
fn zero(kind: Kind) -> Option<Value> {
    match kind {
        Kind::Message(_) => Some(json!({})),
        Kind::String => Some(json!("")),
        Kind::Bool => Some(json!(false)),
        Kind::Int32 | Kind::Int64 => Some(json!(0)),
        _ => None,
    }
}
