//! The `default` of fields in version 3, as upstream's generator (`kube-openapi`, `mustEnforceDefault`): the zero value of fields
//! without `omitempty`, and declared defaults (`+default`).

use serde_json::{Value, json};
use wire::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};

/// Declared default of a field.
enum DefaultValue {
    Text(&'static str),
    Number(i32),
    False,
}

impl DefaultValue {
    fn value(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(number) => json!(number),
            Self::False => json!(false),
        }
    }
}

/// Declared defaults: message, field, value.
const DECLARED_DEFAULTS: [(&str, &str, DefaultValue); 25] = [
    ("autoscaling/v1.ScaleSpec", "replicas", DefaultValue::Number(0)),
    ("core/v1.AzureDiskVolumeSource", "cachingMode", DefaultValue::Text("ReadWrite")),
    ("core/v1.AzureDiskVolumeSource", "fsType", DefaultValue::Text("ext4")),
    ("core/v1.AzureDiskVolumeSource", "kind", DefaultValue::Text("Shared")),
    ("core/v1.AzureDiskVolumeSource", "readOnly", DefaultValue::False),
    ("core/v1.ContainerPort", "protocol", DefaultValue::Text("TCP")),
    ("core/v1.FileKeySelector", "optional", DefaultValue::False),
    ("core/v1.GRPCAction", "service", DefaultValue::Text("")),
    ("core/v1.ISCSIPersistentVolumeSource", "iscsiInterface", DefaultValue::Text("default")),
    ("core/v1.ISCSIVolumeSource", "iscsiInterface", DefaultValue::Text("default")),
    ("core/v1.LocalObjectReference", "name", DefaultValue::Text("")),
    ("core/v1.RBDPersistentVolumeSource", "keyring", DefaultValue::Text("/etc/ceph/keyring")),
    ("core/v1.RBDPersistentVolumeSource", "pool", DefaultValue::Text("rbd")),
    ("core/v1.RBDPersistentVolumeSource", "user", DefaultValue::Text("admin")),
    ("core/v1.RBDVolumeSource", "keyring", DefaultValue::Text("/etc/ceph/keyring")),
    ("core/v1.RBDVolumeSource", "pool", DefaultValue::Text("rbd")),
    ("core/v1.RBDVolumeSource", "user", DefaultValue::Text("admin")),
    ("core/v1.ReplicationControllerSpec", "minReadySeconds", DefaultValue::Number(0)),
    ("core/v1.ReplicationControllerSpec", "replicas", DefaultValue::Number(1)),
    ("core/v1.ScaleIOPersistentVolumeSource", "fsType", DefaultValue::Text("xfs")),
    ("core/v1.ScaleIOPersistentVolumeSource", "storageMode", DefaultValue::Text("ThinProvisioned")),
    ("core/v1.ScaleIOVolumeSource", "fsType", DefaultValue::Text("xfs")),
    ("core/v1.ScaleIOVolumeSource", "storageMode", DefaultValue::Text("ThinProvisioned")),
    ("core/v1.ServicePort", "protocol", DefaultValue::Text("TCP")),
    ("resource/v1.DeviceToleration", "operator", DefaultValue::Text("Equal")),
];

/// Adds the defaults to a schema such as `io.k8s.api.core.v1.PodSpec`.
pub(super) fn add(name: &str, schema: &mut Value) {
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
        let declared = DECLARED_DEFAULTS
            .iter()
            .find(|(message_name, name, _)| (*message_name, *name) == (message.name.as_str(), field.name));
        let (at, default) = match (field.cardinality, declared) {
            (_, Some((_, _, default))) => ("", Some(default.value())),
            (Cardinality::Plain, None) => ("", plain(field)),
            (Cardinality::List, None) => ("/items", zero(field.value_type)),
            (Cardinality::Map, None) => ("/additionalProperties", zero(field.value_type)),
            _ => continue,
        };
        if let (Some(default), Some(target)) = (default, property.pointer_mut(at).filter(|p| p.is_object())) {
            // Siblings of a `$ref` are ignored, so it is wrapped in `allOf`, as upstream.
            if let Some(reference) = target.as_object_mut().and_then(|p| p.remove("$ref")) {
                target["allOf"] = json!([{"$ref": reference}]);
            }
            target["default"] = default;
        }
    }
}

/// Returns the default of a plain field: a struct is always encoded.
fn plain(field: &Field) -> Option<Value> {
    zero(field.value_type).filter(|zero| field.always_encoded || zero.is_object())
}

/// Returns the zero value of a type; none for types with their own encoding, for example times and quantities.
fn zero(value_type: ValueType) -> Option<Value> {
    match value_type {
        ValueType::Message(_) => Some(json!({})),
        ValueType::String => Some(json!("")),
        ValueType::Bool => Some(json!(false)),
        ValueType::Int32 | ValueType::Int64 => Some(json!(0)),
        _ => None,
    }
}
