//! One group's document.

use super::{custom, general, paths, schemas};
use crate::{
    kinds::Kind,
    registry::{self, ServedKinds},
};
use serde_json::{Map, Value, json};
use store::Object;

pub(super) fn built_in(group: &str, version: &str) -> Value {
    let kinds: Vec<&'static dyn Kind> = registry::built_in_kinds(group, version).collect();
    let named = |k: &&'static dyn Kind| (k.info(), schemas::name(group, version, k.info().kind));
    let paths = kinds.iter().map(named).flat_map(|(info, name)| name.map(|n| paths::of(info, &n)).unwrap_or_default());
    let resources = (format!("/{}/", paths::root(group, version)), general::resources(group, version));
    of(paths.chain([resources]).collect(), schemas::of(&kinds))
}

pub(super) fn custom(served: &ServedKinds, group: &str, version: &str, definitions: &[Object]) -> Value {
    let (mut all_paths, mut all_schemas) = (Map::new(), schemas::of_metadata());
    for kind in served.kinds(group, version) {
        let name = custom::name(kind.info());
        all_paths.extend(paths::of(kind.info(), &name));
        let found = definitions.iter().find_map(|d| custom::schema(d, kind.info()));
        let schema = found.unwrap_or_else(|| json!({"type": "object"}));
        all_schemas.extend(custom::schemas(kind, &name, schema));
    }
    of(all_paths, all_schemas)
}

/// A document with these paths, and of these schemas those that the paths need.
pub(super) fn of(paths: Map<String, Value>, mut schemas: Map<String, Value>) -> Value {
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

/// The names of the schemas to which a value refers.
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
