//! The schemas of kinds that clients have defined.

use super::schemas::{
    API_VERSION, CONVENTIONS, EMBEDDED_API_VERSION, EMBEDDED_KIND, KIND, LIST_METADATA, METADATA, reference, text,
};
use crate::kinds::{Kind, KindInfo};
use serde_json::{Value, json};
use store::Object;

/// `com.example.v1.CronTab`: the group from its end.
pub(super) fn name(info: &KindInfo) -> String {
    let mut parts: Vec<&str> = info.group.split('.').rev().collect();
    parts.extend([info.version, info.kind]);
    parts.join(".")
}

/// What a definition says of a version, if it is the definition of this kind.
pub(super) fn schema(definition: &Object, info: &KindInfo) -> Option<Value> {
    let value: Value = serde_json::from_slice(&definition.data).ok()?;
    if value["status"]["acceptedNames"]["plural"] != info.plural {
        return None;
    }
    let versions = value["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|v| v["name"] == info.version)?;
    let mut schema = version["schema"]["openAPIV3Schema"].clone();
    if value["spec"]["preserveUnknownFields"] == true {
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    Some(schema)
}

/// The schemas of a kind and of its lists.
pub(super) fn schemas(kind: &dyn Kind, name: &str, mut schema: Value) -> Vec<(String, Value)> {
    let info = kind.info();
    let gvk = |kind: &str| json!([{"group": info.group, "version": info.version, "kind": kind}]);
    let (version, named) = (text(API_VERSION), text(KIND));
    let metadata = |of: &str, description: &str| {
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{of}");
        json!({"description": description, "allOf": [reference(&name)]})
    };
    let of_all = [("apiVersion", &version), ("kind", &named), ("metadata", &metadata("ObjectMeta", METADATA))];
    add_properties(&mut schema, &of_all);
    let (version_within, named_within) = (text(EMBEDDED_API_VERSION), text(EMBEDDED_KIND));
    let of_embedded = [("apiVersion", &version_within), ("kind", &named_within), of_all[2]];
    complete(&mut schema, &of_embedded);
    schema["x-kubernetes-group-version-kind"] = gvk(info.kind);
    let list = json!({
        "description": format!("{} is a list of {}", kind.list_kind(), info.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": version, "kind": named, "metadata": metadata("ListMeta", LIST_METADATA),
            "items": {
                "description": format!("List of {}. More info: {CONVENTIONS}", info.plural),
                "type": "array",
                "items": reference(name),
            },
        },
        "x-kubernetes-group-version-kind": gvk(&kind.list_kind()),
    });
    vec![(name.to_owned(), schema), (format!("{name}List"), list)]
}

fn add_properties(schema: &mut Value, more: &[(&str, &Value)]) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    for (field, of) in more {
        schema["properties"][*field] = (*of).clone();
    }
}

/// Resources within others have what all resources have (`addEmbeddedProperties`), and what is a number or a text says so
/// (`ToKubeOpenAPI`).
fn complete(schema: &mut Value, of_embedded: &[(&str, &Value)]) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|below| complete(below, of_embedded));
    }
    for below in ["items", "additionalProperties"] {
        fields.get_mut(below).into_iter().for_each(|below| complete(below, of_embedded));
    }
    if schema["x-kubernetes-int-or-string"] == true && schema["anyOf"].is_null() && schema["allOf"].is_null() {
        schema["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
    }
    if schema["x-kubernetes-embedded-resource"] != true {
        return;
    }
    add_properties(schema, of_embedded);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for field in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == field) {
            required.push(json!(field));
        }
    }
    schema["required"] = json!(required);
}
