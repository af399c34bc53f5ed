//! Manifest parser: YAML or JSON, multi-document files, expanded `List`s.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{io::Read, path::Path};

/// One object to create.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manifest {
    /// The object, with `metadata.namespace` as written.
    pub(crate) object: Value,
    /// Name of the source file, for error messages.
    pub(crate) origin: String,
}

impl Manifest {
    /// Returns a string field by its JSON pointer, or `""`.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
    }
}

/// Reads all objects of these files, in order; `-` is standard input.
///
/// # Errors
/// If a file cannot be read, is neither YAML nor JSON, or contains a value that is not an API object.
pub(crate) fn read(files: &[impl AsRef<Path>]) -> Result<Vec<Manifest>> {
    let mut all = Vec::new();
    for file in files {
        let file = file.as_ref();
        let mut text = String::new();
        if file == Path::new("-") {
            std::io::stdin().read_to_string(&mut text).context("failed to read standard input")?;
        } else {
            text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        }
        parse(&text, &file.display().to_string(), &mut all)?;
    }
    if all.is_empty() {
        bail!("the manifests contain no objects");
    }
    Ok(all)
}

fn parse(text: &str, origin: &str, all: &mut Vec<Manifest>) -> Result<()> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).with_context(|| format!("{origin} is neither YAML nor JSON"))?;
    for document in documents {
        push(document, origin, all)?;
    }
    Ok(())
}

fn push(document: Value, origin: &str, all: &mut Vec<Manifest>) -> Result<()> {
    let mut document = match document {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        other => bail!("{origin}: not an object: {other}"),
    };
    if document.get("kind").and_then(Value::as_str) == Some("List") {
        let Some(Value::Array(items)) = document.remove("items") else { bail!("{origin}: items: required in a List") };
        return items.into_iter().try_for_each(|item| push(item, origin, all));
    }
    let manifest = Manifest { object: Value::Object(document), origin: origin.to_owned() };
    for field in ["/apiVersion", "/kind", "/metadata"] {
        if manifest.object.pointer(field).is_none() {
            bail!("{origin}: {}: required", &field[1..]);
        }
    }
    all.push(manifest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<String>> {
        let mut all = Vec::new();
        parse(text, "test.yaml", &mut all)?;
        Ok(all.iter().map(|m| format!("{}/{}", m.text("/kind"), m.text("/metadata/name"))).collect())
    }

    #[test]
    fn multiple_documents_and_lists_are_expanded() {
        let text = "---\n# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        assert_eq!(parsed(text).unwrap(), ["Pod/a", "Secret/b"]);
        assert_eq!(parsed(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"}}"#).unwrap(), ["Pod/j"]);
    }

    #[test]
    fn manifest_errors_name_the_invalid_field() {
        for (text, expected) in [
            ("a: [", "neither YAML nor JSON"),
            ("- a", "not an object"),
            ("kind: Pod\nmetadata: {}", "apiVersion: required"),
        ] {
            let error = format!("{:#}", parsed(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
