//! Project lint: every Rust file belongs to a target. A file that no module declares is never compiled, and rots.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Directories whose files are targets by themselves, as are `DIRECTORY/NAME/main.rs`.
const TARGET_DIRECTORIES: [&str; 6] = ["benches", "bin", "examples", "targets", "tests", "src"];

/// Returns whether Cargo compiles the file without a declaration.
fn is_target(path: &Path) -> bool {
    let name_of = |path: Option<&Path>| path?.file_name()?.to_str().map(str::to_owned);
    let name = name_of(Some(path)).unwrap();
    let dir = path.parent();
    let in_package = |dir: Option<&Path>| dir.and_then(Path::parent).is_some_and(|p| p.join("Cargo.toml").exists());
    match name.as_str() {
        "build.rs" => dir.is_some_and(|d| d.join("Cargo.toml").exists()),
        "lib.rs" => in_package(dir),
        "main.rs" => in_package(dir) || in_package(dir.and_then(Path::parent)),
        _ => match name_of(dir).as_deref() {
            Some("src") | None => false,
            Some("bin") => name_of(dir.and_then(Path::parent)).as_deref() == Some("src"),
            Some(other) => TARGET_DIRECTORIES.contains(&other) && in_package(dir),
        },
    }
}

/// Returns the files that a file declares as modules.
fn declared_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let dir = path.parent().unwrap();
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let below = if stem == "mod" || is_target(path) { dir.to_owned() } else { dir.join(stem) };
    let mut found = Vec::new();
    let mut attribute = None;
    for line in text.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            attribute = Some(dir.join(named));
            continue;
        }
        let item = line.strip_prefix("pub ").or_else(|| Some(line.strip_prefix("pub(")?.split_once(") ")?.1));
        let declaration = item.unwrap_or(line).strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        if let Some(name) = declaration {
            let default = [below.join(format!("{name}.rs")), below.join(name).join("mod.rs")];
            found.extend(attribute.take().map_or(default.to_vec(), |file| vec![file]));
        }
    }
    found
}

#[test]
fn every_rust_file_belongs_to_a_target() {
    let mut files = Vec::new();
    for dir in ["bench", "conformance", "crates", "fuzz", "fuzzer", "tests", "xtask"] {
        sources(&root().join(dir), &mut files);
    }
    let declared: BTreeSet<PathBuf> =
        files.iter().flat_map(|file| declared_modules(file, &fs::read_to_string(file).unwrap())).collect();
    let orphans: Vec<&PathBuf> = files.iter().filter(|file| !is_target(file) && !declared.contains(*file)).collect();
    assert!(orphans.is_empty(), "no module declares {orphans:#?}");
}

#[test]
fn declared_modules_follow_the_rules_of_rust() {
    let package = root().join("xtask");
    let modules = |path: &str, text: &str| -> Vec<String> {
        let relative = |path: PathBuf| path.strip_prefix(&package).unwrap().display().to_string();
        declared_modules(&package.join(path), text).into_iter().map(relative).collect()
    };
    assert_eq!(modules("src/main.rs", "pub(crate) mod a;"), ["src/a.rs", "src/a/mod.rs"]);
    assert_eq!(modules("src/setup.rs", "    mod tests;"), ["src/setup/tests.rs", "src/setup/tests/mod.rs"]);
    assert_eq!(modules("src/setup.rs", "#[path = \"x.rs\"]\npub mod tests;"), ["src/x.rs"]);
    assert_eq!(modules("tests/words.rs", "mod common;"), ["tests/common.rs", "tests/common/mod.rs"]);
    assert_eq!(modules("src/setup.rs", "mod inline {\n}\n// mod comment;"), [""; 0]);
}
