//! Common cases of every built-in kind, generated from the descriptions in `kinds/*.yaml`.

mod cases;

use crate::case::{Case, files, read_yaml};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path};

const ALL_VERBS: &str = "create,delete,deletecollection,get,list,patch,update,watch";

/// A built-in kind.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    kind: String,
    /// Group and version, as in `apiVersion`.
    version: String,
    plural: String,
    #[serde(default = "yes")]
    namespaced: bool,
    #[serde(default)]
    short: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default = "all_verbs")]
    verbs: String,
    /// Subresources with their verbs.
    #[serde(default)]
    subresources: BTreeMap<String, String>,
    /// Columns of a Table. Those of `-o wide` end in ` (wide)`.
    #[serde(default)]
    columns: Vec<String>,
    /// Cells of a row without the age.
    cells: Option<Value>,
    /// Name of objects, if it is restricted. `{n}` is a number that only this case uses.
    name: Option<String>,
    /// A valid object without type and metadata. Without it only discovery is tested.
    object: Option<Value>,
    /// Fields that the server sets or defaults.
    #[serde(default)]
    filled: Value,
    /// Whether the kind has `metadata.generation`.
    #[serde(default)]
    generation: bool,
    /// Invalid objects.
    #[serde(default)]
    invalid: Vec<Invalid>,
}

/// A change that makes an object invalid, and the expected message.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Invalid {
    /// A merge patch of the valid object.
    with: Value,
    /// The message after `Kind "name" is invalid: `.
    message: String,
}

fn yes() -> bool {
    true
}

fn all_verbs() -> String {
    ALL_VERBS.to_owned()
}

/// Returns the cases of all kinds with their sections.
pub(crate) fn load(dir: &Path) -> Result<Vec<(String, Case)>> {
    let mut cases = Vec::new();
    for (file, text) in files(dir)? {
        let kinds: Vec<Kind> = read_yaml(&text).with_context(|| format!("kinds/{file}.yaml"))?;
        for kind in kinds {
            cases.extend(kind.cases().with_context(|| kind.kind.clone())?);
        }
    }
    Ok(cases.into_iter().map(|case| ("kinds".to_owned(), case)).collect())
}

impl Kind {
    fn root(&self) -> String {
        if self.version.contains('/') { format!("/apis/{}", self.version) } else { format!("/api/{}", self.version) }
    }

    fn path(&self) -> String {
        let namespace = if self.namespaced { "/namespaces/${ns}" } else { "" };
        format!("{}{namespace}/{}", self.root(), self.plural)
    }

    fn group(&self) -> &str {
        self.version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the resource as in Status messages.
    fn resource(&self) -> String {
        if self.group().is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group()) }
    }

    /// Returns the kind as in messages about invalid objects.
    fn qualified(&self) -> String {
        if self.group().is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group()) }
    }

    fn name(&self, n: usize) -> String {
        let default = if self.namespaced { "one" } else { "${ns}" };
        self.name.as_deref().unwrap_or(default).replace("{n}", &n.to_string())
    }

    fn object(&self, n: usize) -> Value {
        let mut object = self.object.clone().unwrap_or_else(|| json!({}));
        object["apiVersion"] = json!(self.version);
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": self.name(n), "labels": {"conformance": "${ns}"}});
        let text = object.to_string().replace("{n}", &n.to_string());
        serde_json::from_str(&text).unwrap_or(object)
    }

    fn case(&self, n: usize, behaviour: &str, source: &str, steps: Value) -> Result<Case> {
        let case = Case {
            name: format!("{} {behaviour}", self.qualified_version()),
            source: source.to_owned(),
            namespace: self.namespaced,
            custom: None,
            steps: serde_json::from_value(steps)?,
            cleanup: vec![format!("{}/{}", self.path(), self.name(n))],
        };
        case.check()?;
        Ok(case)
    }

    fn qualified_version(&self) -> String {
        format!("{}/{}", self.version, self.kind)
    }
}

/// Applies a merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Value::Object(into) = target {
        for (key, field) in fields {
            if field.is_null() {
                into.remove(key);
            } else {
                merge(into.entry(key.clone()).or_insert(Value::Null), field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{Kind, merge};
    use crate::case::read_yaml;
    use serde_json::json;

    #[test]
    fn merge_patch_sets_merges_and_removes() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut target, &json!({"a": {"b": null, "e": 3}, "d": [2], "f": {"g": 4}}));
        assert_eq!(target, json!({"a": {"c": 2, "e": 3}, "d": [2], "f": {"g": 4}}));
    }

    #[test]
    fn kind_has_common_cases_and_one_per_invalid_object() {
        let text = "
- kind: Thing
  version: a.example/v1
  plural: things
  namespaced: false
  name: t-{n}
  columns: [Name]
  object: {spec: {ip: '192.0.2.{n}'}}
  invalid: [{with: {spec: {ip: x}}, message: 'spec.ip: Invalid value: \"x\": no'}]
";
        let kinds: Vec<Kind> = read_yaml(text).unwrap();
        let kind = kinds.first().unwrap();
        let cases = kind.cases().unwrap();
        assert_eq!(cases.len(), 9);
        let refused = cases.last().unwrap();
        assert_eq!(refused.name, "a.example/v1/Thing is refused for its spec.ip");
        let step = refused.steps.first().unwrap();
        assert_eq!(step.post.as_deref(), Some("/apis/a.example/v1/things"));
        assert_eq!(step.body.as_ref().unwrap()["metadata"]["name"], "t-8");
        assert_eq!(step.expected_status(), 422);
    }
}
