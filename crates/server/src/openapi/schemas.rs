//! The schemas of kinds and of everything that they are made of, in upstream's form.

use super::{
    defaults, enums, extensions, required,
    types::{TYPES, Type, find},
};
use crate::{
    kinds::{Kind, KindInfo},
    protobuf::merge_strategies,
};
use k8s_openapi::apimachinery::pkg::{apis::meta::v1 as meta, runtime::RawExtension};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

// What upstream says of what all objects and lists have (`types_swagger_doc_generated.go`); `kubectl explain` shows it, and
// clients look for it.
pub(super) const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
pub(super) const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
pub(super) const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
pub(super) const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
pub(super) const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
pub(super) const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
pub(super) const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
    let _ = generator.subschema_for::<T>();
}

/// The name of a kind's schema, for example `io.k8s.api.core.v1.Pod`; `None` when it has none.
pub(super) fn name(group: &str, version: &str, kind: &str) -> Option<String> {
    find(group, version, kind).map(|t| (t.name)().into_owned())
}

/// The schemas that these kinds, their lists and their subresources need.
pub(super) fn of(kinds: &[&'static dyn Kind]) -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    add::<meta::Status>(&mut generator);
    add::<meta::DeleteOptions>(&mut generator);
    add::<meta::Patch>(&mut generator);
    add::<meta::ListMeta>(&mut generator);
    add::<meta::APIResourceList>(&mut generator);
    add::<meta::WatchEvent<RawExtension>>(&mut generator);
    for info in kinds.iter().map(|k| k.info()) {
        let others = info.subresources.iter().map(|s| (s.group, s.version, s.kind));
        for (group, version, kind) in std::iter::once((info.group, info.version, info.kind)).chain(others) {
            if let Some(found) = find(group, version, kind) {
                (found.add)(&mut generator);
            }
        }
    }
    let mut all = generator.take_definitions(true);
    // Kinds that stand in others too, such as the claims of a StatefulSet.
    for kind in TYPES {
        if let Some(schema) = all.get_mut((kind.name)().as_ref()) {
            name_kind(kind, schema);
        }
    }
    for info in kinds.iter().map(|k| k.info()).filter(|info| !info.create_only) {
        all.extend(list(info));
    }
    all.iter_mut().for_each(|(name, schema)| complete(name, schema));
    all
}

/// The schemas of what is served beside resources: the groups, their versions, and the version of the server.
pub(super) fn of_general() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    add::<meta::APIGroup>(&mut generator);
    add::<meta::APIGroupList>(&mut generator);
    add::<meta::APIVersions>(&mut generator);
    add::<k8s_openapi::apimachinery::pkg::version::Info>(&mut generator);
    let mut all = generator.take_definitions(true);
    all.iter_mut().for_each(|(name, schema)| complete(name, schema));
    all
}

/// Names the kind of a schema. The typed form insists on metadata; the API does so for the core group's Events only.
fn name_kind(kind: &Type, schema: &mut Value) {
    let (group, version, kind) = kind.gvk();
    schema["x-kubernetes-group-version-kind"] = json!([{"group": group, "kind": kind, "version": version}]);
    if (group, kind) != ("", "Event")
        && let Some(required) = schema["required"].as_array_mut()
    {
        required.retain(|field| field != "metadata");
    }
    if schema["required"].as_array().is_none_or(Vec::is_empty) {
        schema.as_object_mut().map(|s| s.remove("required"));
    }
}

/// Adds what upstream says and the typed form does not.
fn complete(name: &str, schema: &mut Value) {
    as_upstream(name, schema);
    required::tell(name, schema);
    tell_merging(name, schema);
    extensions::tell(name, schema);
    defaults::tell(name, schema);
    enums::tell(name, schema);
}

/// The schemas that kinds need whose own are not built in.
pub(super) fn of_metadata() -> Map<String, Value> {
    let mut all = of(&[]);
    let mut generator = SchemaSettings::openapi3().into_generator();
    add::<meta::ObjectMeta>(&mut generator);
    add::<k8s_openapi::api::autoscaling::v1::Scale>(&mut generator);
    let mut more = generator.take_definitions(true);
    more.iter_mut().for_each(|(name, schema)| complete(name, schema));
    all.extend(more);
    all
}

/// Types whose schemas are of no type, for they may hold several (`OpenAPISchemaType` of each).
const OF_ANY_TYPE: [&str; 4] =
    ["JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"];

/// What the typed form describes otherwise.
fn as_upstream(name: &str, schema: &mut Value) {
    let last = name.rsplit('.').next();
    if last.is_some_and(|last| OF_ANY_TYPE.contains(&last))
        && let Some(schema) = schema.as_object_mut()
    {
        schema.retain(|key, _| key == "description");
    }
    let one_of = match last {
        Some("IntOrString") => {
            schema["format"] = json!("int-or-string");
            json!([{"type": "integer"}, {"type": "string"}])
        }
        Some("Quantity") => json!([{"type": "string"}, {"type": "number"}]),
        _ => return,
    };
    schema.as_object_mut().map(|s| s.remove("x-kubernetes-int-or-string"));
    schema["oneOf"] = one_of;
}

/// Says how apply and strategic merge patches take each field, in upstream's words.
fn tell_merging(name: &str, schema: &mut Value) {
    let Some(message) = merge_strategies::of_schema(name) else { return };
    if message.atomic {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    for field in message.fields {
        let Some(property) = schema.pointer_mut(&format!("/properties/{}", field.name)) else { continue };
        if let Some((how, keys)) = field.apply {
            if property["type"] == "array" {
                property["x-kubernetes-list-type"] = json!(how);
            } else {
                property["x-kubernetes-map-type"] = json!(how);
            }
            if !keys.is_empty() {
                property["x-kubernetes-list-map-keys"] = json!(keys);
            }
        }
        if let Some((strategy, key)) = field.patch {
            property["x-kubernetes-patch-strategy"] = json!(strategy);
            if let Some(key) = key {
                property["x-kubernetes-patch-merge-key"] = json!(key);
            }
        }
    }
}

pub(super) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The schema of a kind's list.
fn list(info: &KindInfo) -> Option<(String, Value)> {
    let item = name(info.group, info.version, info.kind)?;
    let schema = json!({
        "description": format!("{0}List is a list of {0} objects.", info.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text(API_VERSION),
            "kind": text(KIND),
            "metadata": {"description": LIST_METADATA, "default": {}, "allOf": [reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")]},
            "items": {"description": format!("The {} objects.", info.kind), "type": "array", "items": {"allOf": [reference(&item)], "default": {}}},
        },
        "x-kubernetes-group-version-kind": [{"group": info.group, "kind": format!("{}List", info.kind), "version": info.version}],
    });
    Some((format!("{item}List"), schema))
}
