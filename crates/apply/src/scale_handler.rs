//! Conversion of `managedFields` between an object and its `scale` subresource
//! (`managedfields.ScaleHandler` of `k8s.io/apimachinery`).

use crate::{
    managed_fields::{ManagedFields, ManagedFieldsEntry},
    path::Path,
    set::Set,
};

/// Paths of the replicas field in the parent object and in its subresource.
pub struct ScaleHandler<'a> {
    /// Path in a version of the parent; `None` if that version has none.
    pub path_of: &'a dyn Fn(&str) -> Option<Path>,
    /// Path in the subresource.
    pub own_path: &'a Path,
    /// API version of the subresource.
    pub own_version: &'a str,
}

impl ScaleHandler<'_> {
    fn owned_parent_path(&self, entry: &ManagedFieldsEntry) -> Option<Path> {
        (self.path_of)(&entry.api_version).filter(|path| entry.fields.has(path))
    }

    /// Converts the managed fields of the parent to those of the subresource (`ToSubresource`).
    #[must_use]
    pub fn to_subresource(&self, parent: &ManagedFields) -> ManagedFields {
        let mut managers = ManagedFields::default();
        for entry in parent.entries().iter().filter(|entry| self.owned_parent_path(entry).is_some()) {
            let (api_version, fields) = (self.own_version.to_owned(), Set::of([self.own_path]));
            managers.insert(ManagedFieldsEntry { api_version, fields, ..entry.clone() });
        }
        managers
    }

    /// Merges the managed fields of the subresource into those of the parent (`ToParent`), which has version `version`.
    /// Managers that are missing in the subresource lose the field.
    #[must_use]
    pub fn to_parent(&self, parent: &ManagedFields, subresource: &ManagedFields, version: &str) -> ManagedFields {
        let is_same = |l: &ManagedFieldsEntry, r: &ManagedFieldsEntry| {
            l.manager == r.manager && l.operation == r.operation && l.subresource == r.subresource
        };
        let mut managers = ManagedFields::default();
        let mut new: Vec<&ManagedFieldsEntry> = subresource.entries().iter().collect();
        for entry in parent.entries() {
            let fields = match self.owned_parent_path(entry) {
                None => entry.fields.clone(),
                Some(_) if new.iter().any(|other| is_same(other, entry)) => {
                    new.retain(|other| !is_same(other, entry));
                    entry.fields.clone()
                }
                Some(path) => entry.fields.difference(&Set::of([&path])),
            };
            if !fields.is_empty() {
                managers.insert(ManagedFieldsEntry { fields, ..entry.clone() });
            }
        }
        let path = (self.path_of)(version);
        for entry in new.into_iter().filter(|entry| entry.fields.has(self.own_path)) {
            let Some(path) = &path else { break };
            let (api_version, fields) = (version.to_owned(), Set::of([path]));
            managers.insert(ManagedFieldsEntry { api_version, fields, ..entry.clone() });
        }
        managers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entry(manager: &str, operation: &str, version: &str, subresource: &str, fields: &Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": version,
            "fieldsType": "FieldsV1", "fieldsV1": fields});
        if !subresource.is_empty() {
            entry["subresource"] = json!(subresource);
        }
        entry
    }

    #[test]
    fn managed_fields_of_scale_and_parent_are_converted() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let both = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let rest = json!({"f:spec": {"f:paused": {}}});
        let parent = ManagedFields::from_json(&json!([
            entry("maker", "Update", "apps/v1", "", &both),
            entry("scaler", "Update", "apps/v1", "scale", &replicas),
            entry("other", "Apply", "apps/v1", "", &rest),
        ]))
        .unwrap();
        let path = Path::of_fields(&["spec", "replicas"]);
        let path_of = |version: &str| (version == "apps/v1").then(|| path.clone());
        let handler = ScaleHandler { path_of: &path_of, own_path: &path, own_version: "autoscaling/v1" };
        let managers = handler.to_subresource(&parent);
        let of_scale = json!([
            entry("maker", "Update", "autoscaling/v1", "", &replicas),
            entry("scaler", "Update", "autoscaling/v1", "scale", &replicas),
        ]);
        assert_eq!(managers.to_json(), Some(of_scale));
        assert_eq!(handler.to_parent(&parent, &managers, "apps/v1").to_json(), parent.to_json());
        let new = json!([entry("new", "Apply", "autoscaling/v1", "scale", &replicas)]);
        let merged = handler.to_parent(&parent, &ManagedFields::from_json(&new).unwrap(), "apps/v1");
        // An entry that lost its only field is removed.
        let expected = json!([
            entry("new", "Apply", "apps/v1", "scale", &replicas),
            entry("other", "Apply", "apps/v1", "", &rest),
            entry("maker", "Update", "apps/v1", "", &rest),
        ]);
        assert_eq!(merged.to_json(), Some(expected));
    }
}
