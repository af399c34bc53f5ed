//! Schemas of custom resources.

use super::schemas::{
    API_VERSION, CONVENTIONS, EMBEDDED_API_VERSION, EMBEDDED_KIND, KIND, LIST_METADATA, METADATA, reference, text,
};
use kinds::{Kind, KindInfo};
use serde_json::{Value, json};
use store::Object;

/// Returns the name of a schema: `com.example.v1.CronTab`.
pub(super) fn schema_name(info: &KindInfo) -> String {
    let mut parts: Vec<&str> = info.group.split('.').rev().collect();
    parts.extend([info.version, info.kind]);
    parts.join(".")
}

/// Returns the schema of a version in a CustomResourceDefinition, if it defines this kind.
pub(super) fn schema_of_version(definition: &Object, info: &KindInfo) -> Option<Value> {
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

/// Returns the schemas of a kind and of its list.
pub(super) fn schemas(kind: &dyn Kind, name: &str, mut schema: Value) -> Vec<(String, Value)> {
    let info = kind.info();
    let gvk = |kind: &str| json!([{"group": info.group, "version": info.version, "kind": kind}]);
    let (api_version, kind_property) = (text(API_VERSION), text(KIND));
    let metadata = |schema: &str, description: &str| {
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{schema}");
        json!({"description": description, "allOf": [reference(&name)]})
    };
    let type_and_metadata =
        [("apiVersion", &api_version), ("kind", &kind_property), ("metadata", &metadata("ObjectMeta", METADATA))];
    add_properties(&mut schema, &type_and_metadata);
    let (embedded_version, embedded_kind) = (text(EMBEDDED_API_VERSION), text(EMBEDDED_KIND));
    let embedded = [("apiVersion", &embedded_version), ("kind", &embedded_kind), type_and_metadata[2]];
    complete_nested(&mut schema, &embedded);
    schema["x-kubernetes-group-version-kind"] = gvk(info.kind);
    let list = json!({
        "description": format!("{} is a list of {}", kind.list_kind(), info.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": api_version, "kind": kind_property, "metadata": metadata("ListMeta", LIST_METADATA),
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

fn add_properties(schema: &mut Value, added: &[(&str, &Value)]) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    for (field, property) in added {
        schema["properties"][*field] = (*property).clone();
    }
}

/// Adds type and metadata of embedded resources (`addEmbeddedProperties`), and the types of `x-kubernetes-int-or-string`
/// (`ToKubeOpenAPI`).
fn complete_nested(schema: &mut Value, embedded: &[(&str, &Value)]) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|below| complete_nested(below, embedded));
    }
    for below in ["items", "additionalProperties"] {
        fields.get_mut(below).into_iter().for_each(|below| complete_nested(below, embedded));
    }
    if schema["x-kubernetes-int-or-string"] == true && schema["anyOf"].is_null() && schema["allOf"].is_null() {
        schema["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
    }
    if schema["x-kubernetes-embedded-resource"] != true {
        return;
    }
    add_properties(schema, embedded);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for field in ["kind", "apiVersion"] {
        if !required.iter().any(|name| name == field) {
            required.push(json!(field));
        }
    }
    schema["required"] = json!(required);
}
