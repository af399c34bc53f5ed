//! Schemas of kinds and of the types that they contain, corrected to upstream's.

use super::{
    defaults, enums, extensions, required,
    types::{SchemaType, TYPES, find},
};
use k8s_openapi::apimachinery::pkg::{apis::meta::v1 as meta, runtime::RawExtension};
use kinds::{Kind, KindInfo};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

// Upstream's descriptions of the common fields of objects and lists (`types_swagger_doc_generated.go`), which `kubectl explain`
// prints.
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

/// Returns the name of a kind's schema, for example `io.k8s.api.core.v1.Pod`.
pub(super) fn name(group: &str, version: &str, kind: &str) -> Option<String> {
    find(group, version, kind).map(|t| (t.name)().into_owned())
}

/// Returns the schemas of kinds, their lists and their subresources.
pub(super) fn of_kinds(kinds: &[&'static dyn Kind]) -> Map<String, Value> {
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
    // Also kinds that others contain, for example the claims of a StatefulSet.
    for kind in TYPES {
        if let Some(schema) = all.get_mut((kind.name)().as_ref()) {
            add_gvk(kind, schema);
        }
    }
    for info in kinds.iter().map(|k| k.info()).filter(|info| !info.create_only) {
        all.extend(list(info));
    }
    all.iter_mut().for_each(|(name, schema)| complete(name, schema));
    all
}

/// Returns the schemas of discovery and of the server's version.
pub(super) fn of_discovery() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    add::<meta::APIGroup>(&mut generator);
    add::<meta::APIGroupList>(&mut generator);
    add::<meta::APIVersions>(&mut generator);
    add::<k8s_openapi::apimachinery::pkg::version::Info>(&mut generator);
    let mut all = generator.take_definitions(true);
    all.iter_mut().for_each(|(name, schema)| complete(name, schema));
    all
}

/// Adds group, version and kind to a schema.
fn add_gvk(kind: &SchemaType, schema: &mut Value) {
    let (group, version, kind) = kind.gvk();
    schema["x-kubernetes-group-version-kind"] = json!([{"group": group, "kind": kind, "version": version}]);
}

/// Completes a schema of k8s-openapi to upstream's.
fn complete(name: &str, schema: &mut Value) {
    correct_special_types(name, schema);
    required::replace(name, schema);
    extensions::add(name, schema);
    defaults::add(name, schema);
    enums::add(name, schema);
}

/// Returns the built-in schemas that custom resources need.
pub(super) fn of_custom_resources() -> Map<String, Value> {
    let mut all = of_kinds(&[]);
    let mut generator = SchemaSettings::openapi3().into_generator();
    add::<meta::ObjectMeta>(&mut generator);
    add::<k8s_openapi::api::autoscaling::v1::Scale>(&mut generator);
    let mut definitions = generator.take_definitions(true);
    definitions.iter_mut().for_each(|(name, schema)| complete(name, schema));
    all.extend(definitions);
    all
}

/// Types whose schemas have no `type`, because they can have several (`OpenAPISchemaType`).
const WITHOUT_TYPE: [&str; 4] =
    ["JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"];

/// Corrects types that k8s-openapi describes differently.
fn correct_special_types(name: &str, schema: &mut Value) {
    let last = name.rsplit('.').next();
    if last.is_some_and(|last| WITHOUT_TYPE.contains(&last))
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

pub(super) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the schema of a kind's list.
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
