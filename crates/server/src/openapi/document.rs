//! One group's document.

use super::{paths, schemas};
use crate::{discovery, kinds::Kind};
use serde_json::{Map, Value, json};

pub(super) fn build(group: &str, version: &str) -> Value {
    let kinds: Vec<&'static dyn Kind> = discovery::kinds(group, version).collect();
    let paths: Map<String, Value> = kinds.iter().flat_map(|k| paths::of(k.info())).collect();
    let title = json!({"title": "Kubernetes", "version": api::KUBERNETES_VERSION});
    json!({"openapi": "3.0.0", "info": title, "paths": paths, "components": {"schemas": schemas::of(&kinds)}})
}
