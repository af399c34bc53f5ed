//! The `required` fields of a schema. The typed schemas of k8s-openapi require some optional fields.

use serde_json::{Value, json};
use wire::protobuf::message_table::TABLE;

/// Required fields with `omitempty` (`+required`).
const REQUIRED_OMITEMPTY: [(&str, &str); 10] = [
    ("core/v1.ContainerRestartRule", "action"),
    ("core/v1.ContainerRestartRuleOnExitCodes", "operator"),
    ("core/v1.PodCertificateProjection", "keyType"),
    ("core/v1.PodCertificateProjection", "signerName"),
    ("networking/v1.IPAddressSpec", "parentRef"),
    ("networking/v1.ParentReference", "name"),
    ("networking/v1.ParentReference", "resource"),
    ("resource/v1.CapacityRequestPolicyRange", "min"),
    ("resource/v1.CounterSet", "counters"),
    ("resource/v1.DeviceCounterConsumption", "counters"),
];

/// Required fields that are optional in k8s-openapi.
const MISSING_REQUIRED: [(&str, &str); 1] = [("events/v1.Event", "eventTime")];

/// Corrects the required fields as upstream's generator (`hasOptionalTag`).
pub(super) fn correct(name: &str, schema: &mut Value) {
    let mut parts = name.rsplit('.');
    let (Some(message), Some(version), Some(package)) = (parts.next(), parts.next(), parts.next()) else { return };
    let Some(message) = TABLE.message(&format!("{package}/{version}.{message}")) else { return };
    for (_, field) in MISSING_REQUIRED.iter().filter(|(message_name, _)| *message_name == message.name) {
        match schema.get_mut("required").and_then(Value::as_array_mut) {
            Some(required) => required.push(json!(field)),
            None => schema["required"] = json!([field]),
        }
    }
    let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) else { return };
    required.retain(|field| {
        let field = field.as_str().unwrap_or_default();
        REQUIRED_OMITEMPTY.contains(&(message.name.as_str(), field))
            || message.field_named(field).is_none_or(|field| field.always_encoded)
    });
    if required.is_empty() {
        schema.as_object_mut().map(|schema| schema.remove("required"));
    }
}
