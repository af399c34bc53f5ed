//! A custom kind for one case: its definition, made and waited for before the case's own steps.

use crate::case::Case;
use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How long a definition may take to be served.
const SOON: u64 = 20;

/// What is particular about it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Custom {
    /// The schema's properties in its only version `v1`.
    #[serde(default)]
    properties: Value,
    /// What else that version has: `subresources`, `additionalPrinterColumns`, `selectableFields` ...
    #[serde(default)]
    version: Value,
    /// All versions, if there is more than one.
    versions: Option<Value>,
}

impl Custom {
    /// The case with a definition around it.
    pub(crate) fn defined_in(&self, case: &Case) -> Result<Case> {
        let name = "things.${ns}.example.com";
        let one = format!("{DEFINITIONS}/{name}");
        let established = json!({"status": {"conditions": {"$contains": [
            {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"},
        ]}}});
        let before = json!([
            {"post": DEFINITIONS, "body": {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name}, "spec": {"group": "${ns}.example.com", "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"}, "versions": self.versions()}}},
            {"get": one, "until": SOON, "expect": established},
            {"get": "${things}", "until": SOON, "expect": {"kind": "ThingList"}},
        ]);
        let mut case = case.clone();
        let mut steps: Vec<_> = serde_json::from_value(before)?;
        steps.append(&mut case.steps);
        case.steps = steps;
        case.cleanup.push(one);
        Ok(case)
    }

    fn versions(&self) -> Value {
        if let Some(versions) = &self.versions {
            return versions.clone();
        }
        let mut version = if self.version.is_object() { self.version.clone() } else { json!({}) };
        version["name"] = json!("v1");
        version["served"] = json!(true);
        version["storage"] = json!(true);
        let properties = if self.properties.is_object() { self.properties.clone() } else { json!({}) };
        version["schema"] = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
        json!([version])
    }
}
