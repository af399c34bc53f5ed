//! The schemas of kinds that clients have defined.

use super::schemas::reference;
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
    let text = |what: &str| json!({"type": "string", "description": what});
    let gvk = |kind: &str| json!([{"group": info.group, "version": info.version, "kind": kind}]);
    let (version, named) =
        (text("APIVersion is the version of this object's form."), text("Kind is the kind of this object."));
    let metadata = |of: &str| {
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{of}");
        json!({"description": "Standard metadata.", "allOf": [reference(&name)]})
    };
    let of_all = [("apiVersion", &version), ("kind", &named), ("metadata", &metadata("ObjectMeta"))];
    add_properties(&mut schema, &of_all);
    complete_embedded(&mut schema, &of_all);
    schema["x-kubernetes-group-version-kind"] = gvk(info.kind);
    let list = json!({
        "description": format!("{} is a list of {}", kind.list_kind(), info.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": version, "kind": named, "metadata": metadata("ListMeta"),
            "items": {"description": format!("The {} objects.", info.kind), "type": "array", "items": reference(name)},
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

/// Resources within others have what all resources have (`addEmbeddedProperties`).
fn complete_embedded(schema: &mut Value, of_all: &[(&str, &Value)]) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|below| complete_embedded(below, of_all));
    }
    for below in ["items", "additionalProperties"] {
        fields.get_mut(below).into_iter().for_each(|below| complete_embedded(below, of_all));
    }
    if schema["x-kubernetes-embedded-resource"] != true {
        return;
    }
    add_properties(schema, of_all);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for field in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == field) {
            required.push(json!(field));
        }
    }
    schema["required"] = json!(required);
}
