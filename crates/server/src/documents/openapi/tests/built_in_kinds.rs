//! A built-in kind is complete: what CONTRIBUTING.md lists under "Add a built-in kind".

use crate::documents::openapi::types;
use kinds::{ALL, KindInfo};
use std::{fmt::Write as _, fs, path::Path};
use wire::protobuf::message_table::TABLE;

/// Kinds without common conformance cases: an APIService is available only with a server behind it.
const NOT_IN_CONFORMANCE: [&str; 1] = ["APIService"];

/// Returns the text of all descriptions of kinds in the conformance suite.
fn conformance_kinds() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/kinds");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.fold(String::new(), |text, file| text + &fs::read_to_string(file).unwrap())
}

/// Returns the missing parts of a kind, one on each line.
fn missing(info: &KindInfo, conformance: &str) -> String {
    let (api_version, mut missing) = (info.api_version(), String::new());
    let mut report = |is_missing: bool, part: &str| {
        if is_missing {
            writeln!(missing, "{api_version} {} needs {part}", info.kind).unwrap();
        }
    };
    let list = format!("{}List", info.kind);
    let has_messages = [info.kind, &list].iter().all(|kind| TABLE.kind(&api_version, kind).is_some());
    report(
        !has_messages && !info.create_only || TABLE.kind(&api_version, info.kind).is_none(),
        "messages for itself and its list: add the package to PACKAGES of xtask/src/generate.rs, and run \
         `cargo xtask generate`",
    );
    report(
        types::find(info.group, info.version, info.kind).is_none(),
        "its schema: a row of TYPES in crates/server/src/documents/openapi/types.rs",
    );
    let is_tested = conformance.contains(&format!("- kind: {}\n  version: {api_version}\n", info.kind));
    let is_plain = !info.create_only && !info.computed && info.gate.is_none();
    report(
        is_plain && !is_tested && !NOT_IN_CONFORMANCE.contains(&info.kind),
        "common cases: an entry in a file of conformance/kinds",
    );
    missing
}

#[test]
fn built_in_kinds_are_complete() {
    let conformance = conformance_kinds();
    let missing: String = ALL.iter().map(|kind| missing(kind.info(), &conformance)).collect();
    assert!(missing.is_empty(), "\n{missing}");
}
