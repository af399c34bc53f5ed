//! Project lints: names of tests, and references in the source tree.
//!
//! Add a crate to the lists when it is clean.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use std::fs;

/// Directories of crates without private references.
const WITHOUT_PRIVATE_REFERENCES: &[&str] = &[];

/// Directories of crates whose tests have names of limited length.
const WITH_SHORT_TEST_NAMES: &[&str] = &[];

/// References that readers of the project cannot follow.
const PRIVATE_REFERENCES: [&str; 3] = ["seed 0", "LIFECYCLE.md", "DESIGN.md"];

/// Maximum number of letters of a test function's name.
const MAX_TEST_NAME: usize = 60;

/// Maximum number of letters of an end-to-end test's name.
const MAX_E2E_TEST_NAME: usize = 80;

/// Calls `check` with the path and the text of every Rust file of a crate.
fn for_each_source(dir: &str, mut check: impl FnMut(&str, &str)) {
    let mut files = Vec::new();
    sources(&root().join(dir), &mut files);
    assert!(!files.is_empty(), "{dir} has no sources");
    for file in files {
        check(&file.display().to_string(), &fs::read_to_string(&file).unwrap());
    }
}

fn private_references(text: &str) -> Vec<&'static str> {
    PRIVATE_REFERENCES.into_iter().filter(|reference| text.contains(reference)).collect()
}

/// Returns the names of a file's tests that are too long: test functions, and names in `#[e2e_test]`.
fn long_test_names(text: &str) -> Vec<String> {
    let mut long = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        let e2e_name = line.strip_prefix("#[e2e_test(\"").and_then(|rest| rest.strip_suffix("\")]"));
        long.extend(e2e_name.filter(|name| name.chars().count() > MAX_E2E_TEST_NAME).map(str::to_owned));
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test") || e2e_name.is_some();
        if let Some((name, _)) = line.split_once("fn ").filter(|_| is_test).and_then(|(_, rest)| rest.split_once('(')) {
            long.extend(Some(name).filter(|name| name.len() > MAX_TEST_NAME).map(str::to_owned));
            is_test = false;
        }
    }
    long
}

#[test]
fn clean_crates_have_no_private_references() {
    for dir in WITHOUT_PRIVATE_REFERENCES {
        for_each_source(dir, |path, text| {
            let found = private_references(text);
            assert!(found.is_empty(), "{path}: {found:?}");
        });
    }
}

#[test]
fn clean_crates_have_short_test_names() {
    for dir in WITH_SHORT_TEST_NAMES {
        for_each_source(dir, |path, text| {
            let long = long_test_names(text);
            assert!(long.is_empty(), "{path}: {long:#?}");
        });
    }
}

#[test]
fn private_references_are_found() {
    assert_eq!(private_references("as upstream's computePodActions"), [""; 0]);
    assert_eq!(private_references("see LIFECYCLE.md 3.4, seed 004"), ["seed 0", "LIFECYCLE.md"]);
}

#[test]
fn long_test_names_are_found() {
    let (short, long) = ("a".repeat(MAX_TEST_NAME), "b".repeat(MAX_TEST_NAME + 1));
    let function =
        |name: &str| format!("#[tokio::test]\nasync fn {name}() {{\n    helper_of_any_length({name:?});\n}}\n");
    assert_eq!(long_test_names(&function(&short)), [""; 0]);
    assert_eq!(long_test_names(&function(&long)), [long]);
    let long = "c".repeat(MAX_E2E_TEST_NAME + 1);
    let e2e = format!("#[e2e_test(\"short\")]\nfn f() {{}}\n\n#[e2e_test(\"{long}\")]\nfn g() {{}}\n");
    assert_eq!(long_test_names(&e2e), [long]);
}
