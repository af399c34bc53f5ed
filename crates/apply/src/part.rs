//! Who owns the part of an object that is an object of its own: the number of a Scale
//! (`managedfields.ScaleHandler` of `k8s.io/apimachinery`).

use crate::{
    managers::{Entry, Managers},
    path::Path,
    set::Set,
};

/// Where a part stands in the versions of the whole, and in the part as an object.
pub struct Part<'a> {
    /// The path in a version of the whole; `None` where it has none.
    pub path_of: &'a dyn Fn(&str) -> Option<Path>,
    /// The path in the part.
    pub own_path: &'a Path,
    /// The version of the part.
    pub own_version: &'a str,
}

impl Part<'_> {
    fn of_whole(&self, entry: &Entry) -> Option<Path> {
        (self.path_of)(&entry.api_version).filter(|path| entry.fields.has(path))
    }

    /// The managers of the part, from those of the whole.
    #[must_use]
    pub fn managers(&self, whole: &Managers) -> Managers {
        let mut managers = Managers::default();
        for entry in whole.entries().iter().filter(|entry| self.of_whole(entry).is_some()) {
            let (api_version, fields) = (self.own_version.to_owned(), Set::of([self.own_path]));
            managers.put(Entry { api_version, fields, ..entry.clone() });
        }
        managers
    }

    /// The managers of the whole, which is written in this version, when those of the part are these: who is no longer
    /// among them has lost it.
    #[must_use]
    pub fn merged(&self, whole: &Managers, part: &Managers, version: &str) -> Managers {
        let is_same = |l: &Entry, r: &Entry| {
            l.manager == r.manager && l.operation == r.operation && l.subresource == r.subresource
        };
        let mut managers = Managers::default();
        let mut new: Vec<&Entry> = part.entries().iter().collect();
        for entry in whole.entries() {
            let fields = match self.of_whole(entry) {
                None => entry.fields.clone(),
                Some(_) if new.iter().any(|other| is_same(other, entry)) => {
                    new.retain(|other| !is_same(other, entry));
                    entry.fields.clone()
                }
                Some(path) => entry.fields.difference(&Set::of([&path])),
            };
            if !fields.is_empty() {
                managers.put(Entry { fields, ..entry.clone() });
            }
        }
        let path = (self.path_of)(version);
        for entry in new.into_iter().filter(|entry| entry.fields.has(self.own_path)) {
            let Some(path) = &path else { break };
            let (api_version, fields) = (version.to_owned(), Set::of([path]));
            managers.put(Entry { api_version, fields, ..entry.clone() });
        }
        managers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entry(manager: &str, operation: &str, version: &str, part: &str, fields: &Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": version,
            "fieldsType": "FieldsV1", "fieldsV1": fields});
        if !part.is_empty() {
            entry["subresource"] = json!(part);
        }
        entry
    }

    #[test]
    fn who_owns_the_number_of_an_object_owns_that_of_its_scale_and_the_other_way_round() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let both = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let rest = json!({"f:spec": {"f:paused": {}}});
        let whole = Managers::from_json(&json!([
            entry("maker", "Update", "apps/v1", "", &both),
            entry("scaler", "Update", "apps/v1", "scale", &replicas),
            entry("other", "Apply", "apps/v1", "", &rest),
        ]))
        .unwrap();
        let path = Path::of_fields(&["spec", "replicas"]);
        let path_of = |version: &str| (version == "apps/v1").then(|| path.clone());
        let part = Part { path_of: &path_of, own_path: &path, own_version: "autoscaling/v1" };
        let managers = part.managers(&whole);
        let of_scale = json!([
            entry("maker", "Update", "autoscaling/v1", "", &replicas),
            entry("scaler", "Update", "autoscaling/v1", "scale", &replicas),
        ]);
        assert_eq!(managers.to_json(), Some(of_scale));
        assert_eq!(part.merged(&whole, &managers, "apps/v1").to_json(), whole.to_json());
        let new = json!([entry("new", "Apply", "autoscaling/v1", "scale", &replicas)]);
        let merged = part.merged(&whole, &Managers::from_json(&new).unwrap(), "apps/v1");
        // Who has lost the number and had nothing else is gone.
        let expected = json!([
            entry("new", "Apply", "apps/v1", "scale", &replicas),
            entry("other", "Apply", "apps/v1", "", &rest),
            entry("maker", "Update", "apps/v1", "", &rest),
        ]);
        assert_eq!(merged.to_json(), Some(expected));
    }
}
