//! One group's document.

use super::{custom, paths, schemas};
use crate::{
    kinds::Kind,
    registry::{self, Served},
};
use serde_json::{Map, Value, json};
use store::Object;

pub(super) fn built_in(group: &str, version: &str) -> Value {
    let kinds: Vec<&'static dyn Kind> = registry::built_in(group, version).collect();
    let named = |k: &&'static dyn Kind| (k.info(), schemas::name(group, version, k.info().kind));
    let paths = kinds.iter().map(named).flat_map(|(info, name)| name.map(|n| paths::of(info, &n)).unwrap_or_default());
    document(paths.collect(), schemas::of(&kinds))
}

pub(super) fn custom(served: &Served, group: &str, version: &str, definitions: &[Object]) -> Value {
    let (mut all_paths, mut all_schemas) = (Map::new(), schemas::of_metadata());
    for kind in served.kinds(group, version) {
        let name = custom::name(kind.info());
        all_paths.extend(paths::of(kind.info(), &name));
        let found = definitions.iter().find_map(|d| custom::schema(d, kind.info()));
        let schema = found.unwrap_or_else(|| json!({"type": "object"}));
        all_schemas.extend(custom::schemas(kind, &name, schema));
    }
    document(all_paths, all_schemas)
}

fn document(paths: Map<String, Value>, schemas: Map<String, Value>) -> Value {
    let title = json!({"title": "Kubernetes", "version": api::KUBERNETES_VERSION});
    json!({"openapi": "3.0.0", "info": title, "paths": paths, "components": {"schemas": schemas}})
}
