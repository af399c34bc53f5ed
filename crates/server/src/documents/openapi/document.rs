//! Documents of a group and version.

use super::{custom_resources, non_resource, paths, schemas};
use crate::objects::kind_registry::{self, ServedKinds};
use kinds::Kind;
use serde_json::{Map, Value, json};
use store::Object;

pub(super) fn built_in(group: &str, version: &str) -> Value {
    let kinds: Vec<&'static dyn Kind> = kind_registry::built_in_kinds(group, version).collect();
    let named = |k: &&'static dyn Kind| (k.info(), schemas::name(group, version, k.info().kind));
    let paths = kinds
        .iter()
        .map(named)
        .flat_map(|(info, name)| name.map(|n| paths::resource_paths(info, &n)).unwrap_or_default());
    let resources = (format!("/{}/", paths::root(group, version)), non_resource::api_resources(group, version));
    build(paths.chain([resources]).collect(), schemas::of_kinds(&kinds))
}

pub(super) fn custom(served: &ServedKinds, group: &str, version: &str, definitions: &[Object]) -> Value {
    let (mut all_paths, mut all_schemas) = (Map::new(), schemas::of_custom_resources());
    for kind in served.kinds(group, version) {
        let name = custom_resources::schema_name(kind.info());
        all_paths.extend(paths::resource_paths(kind.info(), &name));
        let found = definitions.iter().find_map(|d| custom_resources::schema_of_version(d, kind.info()));
        let schema = found.unwrap_or_else(|| json!({"type": "object"}));
        all_schemas.extend(custom_resources::schemas(kind, &name, schema));
    }
    build(all_paths, all_schemas)
}

/// Builds a document of paths, with the schemas that they reference.
pub(super) fn build(paths: Map<String, Value>, mut schemas: Map<String, Value>) -> Value {
    let title = json!({"title": "Kubernetes", "version": api::KUBERNETES_VERSION});
    let (mut needed, mut new) = (Map::new(), Vec::new());
    paths.values().for_each(|path| references(path, &mut new));
    while let Some(name) = new.pop() {
        if let Some(schema) = schemas.remove(&name) {
            references(&schema, &mut new);
            needed.insert(name, schema);
        }
    }
    json!({"openapi": "3.0.0", "info": title, "paths": paths, "components": {"schemas": needed}})
}

/// Adds the names of the schemas that a value references.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/components/schemas/"));
            found.extend(name.map(str::to_owned));
            map.values().for_each(|inner| references(inner, found));
        }
        Value::Array(all) => all.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}
