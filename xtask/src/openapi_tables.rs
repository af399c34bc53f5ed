//! Generates tables from upstream's published OpenAPI document: `crates/server/src/documents/openapi/parameters.txt`, the server's query
//! parameters, and `crates/server/src/documents/openapi/tests/published.txt`, which a test compares with the server's document.
//!
//! The document is `api/openapi-spec/swagger.json` of `kubernetes/kubernetes`.

use crate::{generate::write, openapi_lines::lines};
use anyhow::Context;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

const PARAMETERS: &str = "\
# Query parameters with upstream's descriptions; crates/server/src/documents/openapi/parameters.rs reads it.
# Generated from the OpenAPI document of Kubernetes v1.35 with `cargo xtask generate`. Do not edit.
# Each line: name, type, description. If they differ between operations, the name has a suffix: the action, or the kind of a connect operation.
";
const PUBLISHED: &str = "\
# Upstream's OpenAPI document; crates/server/src/documents/openapi/tests/published.rs compares it with the served one.
# Generated from the OpenAPI document of Kubernetes v1.35 with `cargo xtask generate`. Do not edit.
";

/// Type and description by parameter name and operation.
type Parameters = BTreeMap<String, BTreeMap<String, (String, String)>>;

pub(crate) fn run(document: &Path, to: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(document).with_context(|| format!("reading {}", document.display()))?;
    let document: Value = serde_json::from_str(&text)?;
    write(&to.join("parameters.txt"), &parameters(&document)?)?;
    write(&to.join("tests/published.txt"), &format!("{PUBLISHED}{}\n", lines(&document).join("\n")))
}

fn parameters(document: &Value) -> anyhow::Result<String> {
    let mut out = PARAMETERS.to_owned();
    for (name, by_owner) in collect(document) {
        let different: BTreeSet<&(String, String)> = by_owner.values().collect();
        let is_one = different.len() == 1;
        for (owner, (kind, text)) in by_owner.iter().take(if is_one { 1 } else { by_owner.len() }) {
            let owner = if is_one { String::new() } else { format!("@{owner}") };
            writeln!(out, "{name}{owner} {kind} {}", text.replace('\n', "\\n"))?;
        }
    }
    Ok(out)
}

fn collect(document: &Value) -> Parameters {
    let mut all = Parameters::new();
    for item in document["paths"].as_object().into_iter().flat_map(|paths| paths.values()) {
        for operation in item.as_object().into_iter().flat_map(|item| item.values()) {
            let Some(action) = operation["x-kubernetes-action"].as_str() else { continue };
            let kind = operation["x-kubernetes-group-version-kind"]["kind"].as_str().unwrap_or_default();
            let owner = if action == "connect" { kind } else { action };
            for list in [&item["parameters"], &operation["parameters"]] {
                for parameter in list.as_array().into_iter().flatten() {
                    let reference =
                        parameter["$ref"].as_str().and_then(|r| document.pointer(r.trim_start_matches('#')));
                    let parameter = reference.unwrap_or(parameter);
                    let text = |key: &str| parameter[key].as_str().unwrap_or_default().to_owned();
                    if text("in") == "query" {
                        let documented = (text("type"), text("description"));
                        all.entry(text("name")).or_default().insert(owner.to_owned(), documented);
                    }
                }
            }
        }
    }
    all
}
