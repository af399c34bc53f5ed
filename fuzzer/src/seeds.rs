//! Seed objects: valid objects of the conformance suite and of the fuzzer's custom kind.

use crate::values::HOME;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::HashMap, path::Path};

/// The used fields of a kind in the conformance suite.
#[derive(Deserialize)]
struct Kind {
    kind: String,
    version: String,
    name: Option<String>,
    object: Option<Value>,
}

/// Seed objects and their names, by `apiVersion` and `kind`.
#[derive(Default)]
pub(crate) struct Seeds(HashMap<(String, String), Seed>);

struct Seed {
    name: Option<String>,
    object: Value,
}

/// Path of CustomResourceDefinitions, of which one is created before the run.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Seeds {
    /// Reads the seed objects of a directory.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let mut seeds = Self::default();
        for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            let text = std::fs::read_to_string(&path)?;
            let kinds: Vec<Kind> = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
            for Kind { kind, version, name, object } in kinds {
                if let Some(object) = object {
                    seeds.0.insert((version, kind), Seed { name, object });
                }
            }
        }
        let custom_object = json!({"spec": {"size": 1, "list": [{"name": "a"}], "port": 80, "any": {"b": 1}}});
        seeds
            .0
            .insert(("fuzz.example.com/v1".to_owned(), "Thing".to_owned()), Seed { name: None, object: custom_object });
        Ok(seeds)
    }

    /// Returns the name of the `n`th object of a kind, if names are restricted.
    pub(crate) fn name(&self, about: &(String, String), n: usize) -> Option<String> {
        self.0.get(about)?.name.as_ref().map(|name| filled(name, n))
    }

    /// Returns the `n`th valid object of a kind, without type and metadata.
    pub(crate) fn object(&self, about: &(String, String), n: usize) -> Option<Value> {
        serde_json::from_str(&filled(&self.0.get(about)?.object.to_string(), n)).ok()
    }
}

fn filled(text: &str, n: usize) -> String {
    text.replace("{n}", &n.to_string()).replace("${ns}", HOME)
}

/// Returns a CustomResourceDefinition with most schema features.
pub(crate) fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
            "port": {"x-kubernetes-int-or-string": true},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "text": {"type": "string", "maxLength": 20, "pattern": "^[a-z]*$", "nullable": true},
            "when": {"type": "string", "format": "date-time"},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": 9},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 9, "items": {"type": "string"}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "maxItems": 9, "items": {
                "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "value": {"type": "integer"}}}},
        }, "x-kubernetes-validations": [
            {"rule": "self.size < 90 || has(self.text)", "messageExpression": "'size is ' + string(self.size)"},
            {"rule": "!has(self.list) || self.list.all(e, e.name != 'bad')"},
            {"rule": "!has(oldSelf.mode) || self.mode == oldSelf.mode || self.size > 1"},
        ]},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.fuzz.example.com"},
        "spec": {
            "group": "fuzz.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Names", "type": "string", "jsonPath": ".spec.list[*].name"}, {"name": "When", "type": "date", "jsonPath": ".spec.when"}],
                "selectableFields": [{"jsonPath": ".spec.mode"}],
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::Seeds;
    use std::path::Path;

    #[test]
    fn most_kinds_have_seed_objects() {
        let seeds = Seeds::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/kinds")).unwrap();
        assert!(seeds.0.len() > 40, "{}", seeds.0.len());
        let about = ("networking.k8s.io/v1".to_owned(), "IPAddress".to_owned());
        assert_eq!(seeds.name(&about, 2).unwrap(), "203.0.113.2");
        let pod = seeds.object(&("v1".to_owned(), "Pod".to_owned()), 0).unwrap();
        assert!(pod["spec"]["schedulingGates"].is_array(), "Pods do not run");
    }
}
