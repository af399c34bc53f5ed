//! Reading manifests: YAML or JSON, several documents in a file, `List`s taken apart.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{io::Read, path::Path};

/// One object to create.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manifest {
    /// The object, with `metadata.namespace` as written.
    pub(crate) object: Value,
    /// Where it came from, for error messages.
    pub(crate) origin: String,
}

impl Manifest {
    /// A string field by its path.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
    }
}

/// Reads all objects of these files, in order; `-` is standard input.
///
/// # Errors
/// When a file cannot be read, is neither YAML nor JSON, or holds something that is no object of the API.
pub(crate) fn read(files: &[impl AsRef<Path>]) -> Result<Vec<Manifest>> {
    let mut all = Vec::new();
    for file in files {
        let file = file.as_ref();
        let mut text = String::new();
        if file == Path::new("-") {
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        } else {
            text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        }
        parse(&text, &file.display().to_string(), &mut all)?;
    }
    if all.is_empty() {
        bail!("the manifests hold no object");
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
        let Some(Value::Array(items)) = document.remove("items") else { bail!("{origin}: a List without items") };
        return items.into_iter().try_for_each(|item| push(item, origin, all));
    }
    let manifest = Manifest { object: Value::Object(document), origin: origin.to_owned() };
    for field in ["/apiVersion", "/kind", "/metadata"] {
        if manifest.object.pointer(field).is_none() {
            bail!("{origin}: an object without {}", &field[1..]);
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
    fn several_documents_and_lists_become_objects() {
        let text = "---\n# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        assert_eq!(parsed(text).unwrap(), ["Pod/a", "Secret/b"]);
        assert_eq!(parsed(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"}}"#).unwrap(), ["Pod/j"]);
    }

    #[test]
    fn what_is_no_object_is_named() {
        for (text, expected) in [
            ("a: [", "neither YAML nor JSON"),
            ("- a", "not an object"),
            ("kind: Pod\nmetadata: {}", "without apiVersion"),
        ] {
            let error = format!("{:#}", parsed(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
