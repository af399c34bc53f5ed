//! The CustomResourceDefinition of a case, which is created and established before the case's steps.

use crate::case::Case;
use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Timeout in seconds for a definition to be established.
const ESTABLISHED_TIMEOUT_SECONDS: u64 = 20;

/// The variable parts of the definition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Custom {
    /// Schema properties of the version `v1`.
    #[serde(default)]
    properties: Value,
    /// Further fields of that version: `subresources`, `additionalPrinterColumns`, `selectableFields` and so on.
    #[serde(default)]
    version: Value,
    /// All versions, if there are several.
    versions: Option<Value>,
}

impl Custom {
    /// Returns the case with steps that create and delete the definition.
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
            {"get": one, "until": ESTABLISHED_TIMEOUT_SECONDS, "expect": established},
            {"get": "${things}", "until": ESTABLISHED_TIMEOUT_SECONDS, "expect": {"kind": "ThingList"}},
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
