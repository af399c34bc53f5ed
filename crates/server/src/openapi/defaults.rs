//! The `default` of fields in version 3, as upstream's generator (`kube-openapi`, `mustEnforceDefault`) writes it: the zero of
//! what Go always writes, and what a type says itself (`+default`).

use crate::protobuf::table::{Field, Kind, Message, Shape, TABLE};
use serde_json::{Value, json};

/// A value that a type says itself.
enum Said {
    Text(&'static str),
    Number(i32),
    False,
}

impl Said {
    fn value(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(number) => json!(number),
            Self::False => json!(false),
        }
    }
}

/// What types say themselves: message, field, value.
const SAID: [(&str, &str, Said); 25] = [
    ("autoscaling/v1.ScaleSpec", "replicas", Said::Number(0)),
    ("core/v1.AzureDiskVolumeSource", "cachingMode", Said::Text("ReadWrite")),
    ("core/v1.AzureDiskVolumeSource", "fsType", Said::Text("ext4")),
    ("core/v1.AzureDiskVolumeSource", "kind", Said::Text("Shared")),
    ("core/v1.AzureDiskVolumeSource", "readOnly", Said::False),
    ("core/v1.ContainerPort", "protocol", Said::Text("TCP")),
    ("core/v1.FileKeySelector", "optional", Said::False),
    ("core/v1.GRPCAction", "service", Said::Text("")),
    ("core/v1.ISCSIPersistentVolumeSource", "iscsiInterface", Said::Text("default")),
    ("core/v1.ISCSIVolumeSource", "iscsiInterface", Said::Text("default")),
    ("core/v1.LocalObjectReference", "name", Said::Text("")),
    ("core/v1.RBDPersistentVolumeSource", "keyring", Said::Text("/etc/ceph/keyring")),
    ("core/v1.RBDPersistentVolumeSource", "pool", Said::Text("rbd")),
    ("core/v1.RBDPersistentVolumeSource", "user", Said::Text("admin")),
    ("core/v1.RBDVolumeSource", "keyring", Said::Text("/etc/ceph/keyring")),
    ("core/v1.RBDVolumeSource", "pool", Said::Text("rbd")),
    ("core/v1.RBDVolumeSource", "user", Said::Text("admin")),
    ("core/v1.ReplicationControllerSpec", "minReadySeconds", Said::Number(0)),
    ("core/v1.ReplicationControllerSpec", "replicas", Said::Number(1)),
    ("core/v1.ScaleIOPersistentVolumeSource", "fsType", Said::Text("xfs")),
    ("core/v1.ScaleIOPersistentVolumeSource", "storageMode", Said::Text("ThinProvisioned")),
    ("core/v1.ScaleIOVolumeSource", "fsType", Said::Text("xfs")),
    ("core/v1.ScaleIOVolumeSource", "storageMode", Said::Text("ThinProvisioned")),
    ("core/v1.ServicePort", "protocol", Said::Text("TCP")),
    ("resource/v1.DeviceToleration", "operator", Said::Text("Equal")),
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
            (_, Some((_, _, said))) => ("", Some(said.value())),
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
