//! The `default` of fields in version 3, as upstream's generator (`kube-openapi`, `mustEnforceDefault`) writes it: the zero of
//! what Go always writes, and what a type says itself (`+default`).

use crate::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};
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
        if let (Cardinality::Inline, ValueType::Message(index)) = (field.cardinality, field.value_type) {
            fill(&TABLE.messages[index], schema);
        }
        let Some(property) = schema.pointer_mut(&format!("/properties/{}", field.name)) else { continue };
        let said = SAID.iter().find(|(of, name, _)| (*of, *name) == (message.name.as_str(), field.name));
        let (at, default) = match (field.cardinality, said) {
            (_, Some((_, _, said))) => ("", Some(said.value())),
            (Cardinality::Plain, None) => ("", plain(field)),
            (Cardinality::List, None) => ("/items", zero(field.value_type)),
            (Cardinality::Map, None) => ("/additionalProperties", zero(field.value_type)),
            _ => continue,
        };
        if let (Some(default), Some(target)) = (default, property.pointer_mut(at).filter(|p| p.is_object())) {
            // Beside a reference nothing counts, so it stands inside, as upstream.
            if let Some(reference) = target.as_object_mut().and_then(|p| p.remove("$ref")) {
                target["allOf"] = json!([{"$ref": reference}]);
            }
            target["default"] = default;
        }
    }
}

/// A struct is never left out, another value only where it may not be.
fn plain(field: &Field) -> Option<Value> {
    zero(field.value_type).filter(|zero| field.always_encoded || zero.is_object())
}

/// Types with a form of their own, such as times and quantities, have none.
fn zero(value_type: ValueType) -> Option<Value> {
    match value_type {
        ValueType::Message(_) => Some(json!({})),
        ValueType::String => Some(json!("")),
        ValueType::Bool => Some(json!(false)),
        ValueType::Int32 | ValueType::Int64 => Some(json!(0)),
        _ => None,
    }
}
