//! Project lint: the message table has the fields of k8s-openapi's types, which are generated from the same release.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use regex::Regex;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use wire::protobuf::message_table::{Cardinality, Message, TABLE, ValueType};

/// Fields that k8s-openapi lacks or renames, as `message field`.
const DIFFERENT: [&str; 0] = [];

/// Minimum number of compared types.
const MIN_TYPES: usize = 500;

/// Returns the directory of k8s-openapi's types, from the registry of cargo.
fn k8s_openapi() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &platform]);
    metadata.current_dir(root());
    let output = metadata.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "k8s-openapi").unwrap();
    Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src/v1_35")
}

/// Returns the names of a message's fields in JSON.
fn names(message: &Message) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for field in &message.fields {
        match (field.cardinality, field.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => all.extend(names(&TABLE.messages[index])),
            _ => drop(all.insert(field.name.to_owned())),
        }
    }
    all
}

#[test]
fn message_table_has_the_fields_of_k8s_openapi() {
    let (directory, mut files) = (k8s_openapi(), Vec::new());
    sources(&directory, &mut files);
    let (structs, keys) =
        (Regex::new(r"pub struct (\w+)").unwrap(), Regex::new(r#""([^"]+)" => Field::Key_"#).unwrap());
    let (mut compared, mut different) = (0, BTreeSet::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let parents: Vec<&str> =
            file.parent().unwrap().iter().rev().take(2).map(|part| part.to_str().unwrap()).collect();
        let Some(name) = structs.captures(&text) else { continue };
        let name = format!("{}/{}.{}", parents[1], parents[0], &name[1]);
        let Some(message) = TABLE.message(&name) else { continue };
        let published = keys.captures_iter(&text).map(|key| key[1].to_owned());
        let published: BTreeSet<String> =
            published.filter(|key| !matches!(key.as_str(), "apiVersion" | "kind")).collect();
        let own: BTreeSet<String> =
            names(message).into_iter().filter(|n| !matches!(n.as_str(), "apiVersion" | "kind")).collect();
        different.extend(own.symmetric_difference(&published).map(|field| format!("{name} {field}")));
        compared += 1;
    }
    assert!(compared >= MIN_TYPES, "compared {compared} types");
    assert_eq!(different, DIFFERENT.iter().map(|field| (*field).to_owned()).collect());
}
