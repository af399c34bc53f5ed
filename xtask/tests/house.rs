//! The rules of the house that the compiler does not know: who may use whom, and what every room must say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Each crate and the crates of the house that it may use (ARCHITECTURE.md). The binary may use all of them.
const ARROWS: [(&str, &[&str]); 11] = [
    ("api", &[]),
    ("controllers", &["api"]),
    ("kubelet", &["api", "lifecycle", "runtime", "spdy"]),
    ("lifecycle", &["api"]),
    ("network", &[]),
    ("runtime", &["spdy"]),
    ("scheduler", &["api"]),
    ("server", &["api", "store"]),
    ("spdy", &[]),
    ("store", &[]),
    ("podium", &["api", "controllers", "kubelet", "lifecycle", "network", "runtime", "scheduler", "server", "store"]),
];

/// What a pure crate has no use for: I/O, clocks, randomness, tasks, logs.
const IMPURE: [&str; 8] = ["tokio", "tokio-util", "futures", "rand", "tracing", "kube", "nix", "parking_lot"];

/// A file this long has more than one idea.
const LONGEST: usize = 450;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn dependencies(name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    let section = text.split("\n[").find(|s| s.starts_with("dependencies]")).unwrap_or_default();
    section.lines().skip(1).filter_map(|l| l.split(['.', ' ', '=']).next()).map(str::to_owned).collect()
}

/// Every Rust file below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn arrows_point_only_where_the_architecture_says() {
    let rooms: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(rooms, ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect());
    for (name, allowed) in ARROWS {
        let used: BTreeSet<String> = dependencies(name).intersection(&rooms).cloned().collect();
        let allowed: BTreeSet<String> = allowed.iter().map(|a| (*a).to_owned()).collect();
        assert!(used.is_subset(&allowed), "{name} uses {:?}", used.difference(&allowed).collect::<Vec<_>>());
    }
}

#[test]
fn lifecycle_is_pure() {
    let used = dependencies("lifecycle");
    let impure: Vec<_> = IMPURE.iter().filter(|d| used.contains(**d)).collect();
    assert!(impure.is_empty(), "lifecycle depends on {impure:?}");
    let mut files = Vec::new();
    sources(&root().join("crates/lifecycle/src"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in ["Timestamp::now", "SystemTime", "Instant::now", "std::fs", "std::net::Tcp", "async fn", "println!"]
        {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}

#[test]
fn only_the_status_writer_writes_status_in_the_kubelet() {
    let mut files = Vec::new();
    sources(&root().join("crates/kubelet/src"), &mut files);
    let writers: Vec<_> = files
        .iter()
        .filter(|f| fs::read_to_string(f).unwrap().contains("patch_status"))
        .filter_map(|f| f.file_name()?.to_str())
        .collect();
    // The node's own status has its own writer.
    assert!(writers.iter().all(|w| ["status.rs", "node_status.rs"].contains(w)), "{writers:?}");
}

#[test]
fn every_crate_forbids_unsafe_code() {
    for (name, _) in ARROWS {
        let src = root().join("crates").join(name).join("src");
        let main = if src.join("lib.rs").exists() { "lib.rs" } else { "main.rs" };
        let text = fs::read_to_string(src.join(main)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name}");
    }
}

#[test]
fn files_have_one_idea_and_fit_a_few_screens() {
    let mut files = Vec::new();
    for dir in ["crates", "xtask", "tests", "bench"] {
        sources(&root().join(dir), &mut files);
    }
    let long: Vec<String> = files
        .iter()
        .map(|f| (f, fs::read_to_string(f).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(f, lines)| format!("{} has {lines} lines", f.display()))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// The last cell of a row names a test and its file; "none yet" is an honest word.
#[test]
fn every_deviation_names_a_test_that_exists() {
    let text = fs::read_to_string(root().join("docs/deviations.md")).unwrap();
    let rows = text.lines().filter(|l| l.starts_with("| ")).skip(2);
    let mut checked = 0;
    for row in rows {
        let cell = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap();
        if cell == "none yet" {
            continue;
        }
        let path = cell.rsplit('(').next().unwrap().trim_end_matches(')').trim_matches('`');
        let path = root().join(path.split(',').next().unwrap());
        assert!(path.exists(), "no {} in: {row}", path.display());
        let mut files = Vec::new();
        if path.is_dir() {
            sources(&path, &mut files);
        } else {
            files.push(path);
        }
        let all: String = files.iter().map(|f| fs::read_to_string(f).unwrap().replace('_', " ")).collect();
        let names = cell.split('`').skip(1).step_by(2).map(|n| n.trim_end_matches('…'));
        for name in names.filter(|n| !n.contains('/')) {
            assert!(all.contains(&name.replace('_', " ")), "{name:?} is not in {files:?}");
        }
        checked += 1;
    }
    assert!(checked > 20, "only {checked} rows were read");
}
