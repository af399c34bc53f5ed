//! Project lints: every end-to-end test runs, has a name of its own, and starts its observers in time.
//!
//! A function without `#[e2e_test]` is dead code, which `tests/e2e/main.rs` denies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use std::{collections::BTreeSet, fs, path::Path};

const DIRECTORY: &str = "tests/e2e";

/// Returns the files of a directory that their parent module does not declare with `mod`.
fn undeclared_modules(dir: &Path, parent: &Path) -> Vec<String> {
    let declarations = fs::read_to_string(parent).unwrap();
    let mut undeclared = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path == parent {
            continue;
        }
        if path.is_dir() {
            undeclared.extend(undeclared_modules(&path, &path.with_extension("rs")));
            continue;
        }
        let module = format!("mod {};", path.file_stem().unwrap().to_str().unwrap());
        if !declarations.lines().any(|line| line.trim_start_matches("pub(crate) ") == module) {
            undeclared.push(path.display().to_string());
        }
    }
    undeclared
}

/// Returns the names in the attributes `#[e2e_test]` of a file.
fn test_names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("#[e2e_test(\"")?.strip_suffix("\")]"))
}

#[test]
fn every_e2e_file_is_a_module() {
    let dir = root().join(DIRECTORY);
    let undeclared = undeclared_modules(&dir, &dir.join("main.rs"));
    assert!(undeclared.is_empty(), "{undeclared:#?}");
}

fn texts() -> Vec<String> {
    let mut files = Vec::new();
    sources(&root().join(DIRECTORY), &mut files);
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// A test that starts such a command by itself does not know when it sees changes: it fails where the change is faster.
#[test]
fn commands_that_follow_are_started_by_follow() {
    let starts = ["logs", "get", "wait"].map(|command| format!(".command(&[\"{command}\""));
    let texts = texts();
    let lines = texts.iter().flat_map(|text| text.lines());
    let found: Vec<&str> = lines.filter(|line| starts.iter().any(|start| line.contains(start))).collect();
    assert!(found.is_empty(), "use Kubectl::follow: {found:#?}");
}

#[test]
fn e2e_test_names_are_unique() {
    let texts = texts();
    let mut seen = BTreeSet::new();
    let duplicates: Vec<&str> =
        texts.iter().flat_map(|text| test_names(text)).filter(|name| !seen.insert(*name)).collect();
    assert!(!seen.is_empty(), "{DIRECTORY} has no tests");
    assert!(duplicates.is_empty(), "{duplicates:#?}");
}
