//! Comparison of the types of server-side apply with their published OpenAPI schemas.

use crate::documents::openapi::schemas_of_all_kinds;
use apply::{ListType, Type, TypeRef};
use kinds::{ALL, apply_types};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Compares types with their published OpenAPI schemas.
struct Walk {
    published: serde_json::Map<String, Value>,
    seen: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Walk {
    fn message(&mut self, name: &str, type_ref: TypeRef<'_>) {
        let Some(published) = self.published.get(name).filter(|s| s["properties"].is_object()).cloned() else {
            return;
        };
        if !self.seen.insert(name.to_owned()) {
            return;
        }
        let Type::Map(map) = type_ref.schema.get(type_ref.id) else {
            return self.wrong.push(format!("{name} is no map"));
        };
        self.check(name, (map.atomic, published["x-kubernetes-map-type"] == "atomic"));
        let properties = published["properties"].as_object().unwrap();
        for (field, property) in properties {
            match map.field(field) {
                Some(declared) => {
                    self.field(&format!("{name}.{field}"), property, TypeRef { id: declared.type_id, ..type_ref });
                }
                None => self.wrong.push(format!("{name}.{field} has no type")),
            }
        }
        let undeclared = map.fields.iter().filter(|f| !properties.contains_key(f.name.as_ref()));
        self.wrong.extend(undeclared.map(|f| format!("{name}.{} is not published", f.name)));
    }

    fn field(&mut self, name: &str, property: &Value, type_ref: TypeRef<'_>) {
        let reference = |p: &Value| {
            let target = p["$ref"].as_str().or(p["allOf"][0]["$ref"].as_str())?;
            target.rsplit('/').next().map(str::to_owned)
        };
        match type_ref.schema.get(type_ref.id) {
            Type::List(list) => {
                let keys: Vec<Value> = match &list.list_type {
                    ListType::Map(keys) => keys.iter().map(|k| json!(k)).collect(),
                    ListType::Atomic | ListType::Set => Vec::new(),
                };
                let how = match &list.list_type {
                    ListType::Map(_) => "map",
                    ListType::Atomic => "atomic",
                    ListType::Set => "set",
                };
                let published = property["x-kubernetes-list-type"].as_str().unwrap_or("atomic");
                self.check(name, (how, published));
                let published = property["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
                self.check(name, (keys, published));
                if let Some(target) = reference(&property["items"]) {
                    self.message(&target, TypeRef { id: list.element, ..type_ref });
                }
            }
            Type::Map(map) => {
                let target = reference(property);
                let whole = target.as_ref().and_then(|t| self.published.get(t));
                let published = [Some(property), whole].into_iter().flatten();
                let published = published.map(|p| &p["x-kubernetes-map-type"]).any(|published| published == "atomic");
                self.check(name, (map.atomic, published));
                if let Some(target) = target {
                    self.message(&target, type_ref);
                }
            }
            Type::Scalar(_) | Type::Untyped { .. } => {}
        }
    }

    fn check<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, (derived, published): (T, T)) {
        if derived != published {
            self.wrong.push(format!("{name} is {derived:?}, published as {published:?}"));
        }
    }
}

#[test]
fn types_equal_published_openapi_schemas() {
    let mut walk = Walk { published: schemas_of_all_kinds(), seen: BTreeSet::new(), wrong: Vec::new() };
    for info in ALL.iter().map(|k| k.info()) {
        let gvk = json!([{"group": info.group, "kind": info.kind, "version": info.version}]);
        let found = walk.published.iter().find(|(_, s)| s["x-kubernetes-group-version-kind"] == gvk);
        let name = found.map(|(name, _)| name.clone()).unwrap();
        walk.message(&name, apply_types::type_ref(&info.api_version(), info.kind).unwrap());
    }
    assert!(walk.seen.len() > 150, "{}", walk.seen.len());
    assert_eq!(walk.wrong, Vec::<String>::new());
}
