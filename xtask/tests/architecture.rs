//! Project lints: invariants of ARCHITECTURE.md that the compiler does not check.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use std::{collections::BTreeSet, fs};

/// Each crate and the workspace crates that it may depend on (ARCHITECTURE.md).
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 34] = [
    ("admission", &["api", "decode", "expr"]),
    ("api", &[]),
    ("apply", &[]),
    ("audit", &["api", "kinds", "request", "response"]),
    ("auth", &["api", "errors", "files", "kinds", "request", "store"]),
    ("bundle", &["runtime"]),
    ("cni", &["api", "files", "runtime"]),
    ("controllers", &["admission", "api", "decode", "informer"]),
    ("decode", &[]),
    ("distribution", &["runtime", "tls"]),
    ("encryption", &["api", "store"]),
    ("engine", &["bundle", "distribution", "files", "images", "keeper", "runtime"]),
    ("errors", &["api"]),
    ("expr", &["api"]),
    ("files", &[]),
    ("flowcontrol", &["errors", "kinds", "request", "response", "store"]),
    ("images", &["distribution", "files"]),
    ("informer", &["api", "decode"]),
    ("keeper", &["files"]),
    ("kinds", &["admission", "api", "apply", "decode", "errors", "schema", "wire"]),
    ("kubelet", &["api", "decode", "files", "informer", "lifecycle", "runtime", "spdy", "tls"]),
    ("lifecycle", &["api", "decode"]),
    ("network", &["api", "decode", "files", "informer"]),
    ("request", &["api", "errors"]),
    ("response", &["errors", "wire"]),
    ("runtime", &["files", "spdy"]),
    ("scheduler", &["api", "informer"]),
    ("schema", &["api", "expr"]),
    (
        "server",
        &[
            "admission",
            "api",
            "apply",
            "audit",
            "auth",
            "decode",
            "errors",
            "files",
            "flowcontrol",
            "kinds",
            "request",
            "response",
            "store",
            "tls",
            "wire",
        ],
    ),
    ("spdy", &[]),
    ("store", &[]),
    ("tls", &[]),
    ("wire", &["api"]),
    (
        "podium",
        &[
            "api",
            "audit",
            "auth",
            "cni",
            "controllers",
            "distribution",
            "encryption",
            "engine",
            "files",
            "images",
            "keeper",
            "kubelet",
            "lifecycle",
            "network",
            "runtime",
            "scheduler",
            "server",
            "store",
        ],
    ),
];

/// Dependencies of I/O, clocks, randomness, tasks and logs, which pure crates must not have.
const IMPURE_DEPENDENCIES: [&str; 8] =
    ["tokio", "tokio-util", "futures", "rand", "tracing", "kube", "nix", "parking_lot"];

/// Exceptions: a custom kind's watches end by a cancellation token, and its names are interned under a lock.
const ALLOWED_IN_KINDS: [&str; 2] = ["parking_lot", "tokio-util"];

/// Maximum number of lines of a source file.
const MAX_LINES: usize = 450;

/// Returns the names of a crate's dependencies.
fn dependencies(name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    let section = text.split("\n[").find(|s| s.starts_with("dependencies]")).unwrap_or_default();
    section.lines().skip(1).filter_map(|l| l.split(['.', ' ', '=']).next()).map(str::to_owned).collect()
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let crates: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(crates, ALLOWED_DEPENDENCIES.iter().map(|(name, _)| (*name).to_owned()).collect());
    for (name, allowed) in ALLOWED_DEPENDENCIES {
        let used: BTreeSet<String> = dependencies(name).intersection(&crates).cloned().collect();
        let allowed: BTreeSet<String> = allowed.iter().map(|a| (*a).to_owned()).collect();
        assert!(used.is_subset(&allowed), "{name} depends on {:?}", used.difference(&allowed).collect::<Vec<_>>());
    }
}

#[test]
fn pure_crates_have_no_io_clock_or_async() {
    let mut files = Vec::new();
    for name in
        ["lifecycle", "decode", "apply", "schema", "expr", "admission", "errors", "request", "wire", "kinds", "bundle"]
    {
        let used = dependencies(name);
        let is_allowed = |d: &str| name == "kinds" && ALLOWED_IN_KINDS.contains(&d);
        let impure: Vec<_> = IMPURE_DEPENDENCIES.iter().filter(|d| used.contains(**d) && !is_allowed(d)).collect();
        assert!(impure.is_empty(), "{name} depends on {impure:?}");
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in ["Timestamp::now", "SystemTime", "Instant::now", "std::fs", "std::net::Tcp", "async fn", "println!"]
        {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}

/// Features of dependencies that only tests may enable.
const TEST_FEATURES: [(&str, &str); 1] = [("tokio", "test-util")];

#[test]
fn features_of_tests_are_not_in_production_builds() {
    for (dependency, feature) in TEST_FEATURES {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut tree = std::process::Command::new(cargo);
        tree.args(["tree", "--locked", "--package", "podium", "--edges", "normal,features", "--prefix", "none"]);
        let output = tree.args(["--invert", dependency]).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("{dependency} feature")), "{text}");
        assert!(!text.contains(&format!("{dependency} feature \"{feature}\"")), "{dependency} has {feature}");
    }
}

#[test]
fn only_the_status_writer_patches_status_in_the_kubelet() {
    let mut files = Vec::new();
    sources(&root().join("crates/kubelet/src"), &mut files);
    let writers: Vec<_> = files
        .iter()
        .filter(|f| fs::read_to_string(f).unwrap().contains("patch_status"))
        .filter_map(|f| f.file_name()?.to_str())
        .collect();
    // node_status.rs writes the status of the Node.
    assert!(writers.iter().all(|w| ["status_manager.rs", "node_status.rs"].contains(w)), "{writers:?}");
}

#[test]
fn every_crate_forbids_unsafe_code() {
    for (name, _) in ALLOWED_DEPENDENCIES {
        let src = root().join("crates").join(name).join("src");
        let main = if src.join("lib.rs").exists() { "lib.rs" } else { "main.rs" };
        let text = fs::read_to_string(src.join(main)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name}");
    }
}

#[test]
fn source_files_have_at_most_450_lines() {
    let mut files = Vec::new();
    for dir in ["crates", "xtask", "tests", "bench", "conformance", "fuzzer", "fuzz/targets"] {
        sources(&root().join(dir), &mut files);
    }
    let long: Vec<String> = files
        .iter()
        .map(|f| (f, fs::read_to_string(f).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(f, lines)| format!("{} has {lines} lines", f.display()))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// Files that write without the crate `files`, each with the reason why its modes are right.
const WRITERS: [(&str, &str); 27] = [
    ("engine/src/cgroup.rs", "the kernel's files"),
    ("files/src/lib.rs", "the crate `files` itself"),
    ("files/src/open.rs", "the crate `files` itself"),
    ("images/src/lock.rs", "locks and partial downloads, which `files` opens"),
    ("images/src/overlay.rs", "root directories of containers, which any user may pass"),
    ("keeper/src/cri_log.rs", "logs of containers, with containerd's mode"),
    ("keeper/src/namespaces.rs", "the kernel's files"),
    ("keeper/src/user_namespace.rs", "the kernel's files"),
    ("kubelet/src/actions/mounts.rs", "hosts file and termination messages, which containers read and write"),
    ("kubelet/src/actions/sub_path.rs", "mount points"),
    ("kubelet/src/cgroup/hierarchy.rs", "the kernel's files"),
    ("kubelet/src/log_rotation.rs", "logs, with the mode of the log"),
    ("kubelet/src/node_shutdown/logind.rs", "a configuration file of the machine"),
    ("kubelet/src/volumes.rs", "directories of volumes"),
    ("kubelet/src/volumes/atomic_writer.rs", "volumes"),
    ("kubelet/src/volumes/plugins/host_path.rs", "volumes"),
    ("kubelet/src/volumes/nested.rs", "mount points in volumes"),
    ("network/src/attach/addresses.rs", "a record of the last address, mode 0600"),
    ("network/src/attach/record.rs", "records that are locks, mode 0600"),
    ("network/src/attach/tables.rs", "a lock, mode 0600"),
    ("network/src/bridge.rs", "the kernel's files"),
    ("network/src/prepare.rs", "the data directory itself"),
    ("network/src/state.rs", "a lock, mode 0600"),
    ("podium/src/data_dir.rs", "the lock, which `files` opens"),
    ("podium/src/oom_score.rs", "the kernel's files"),
    ("podium/src/local_volumes.rs", "volumes"),
    ("store/src/engine/fjall/directory.rs", "its own directory, mode 0700"),
];

#[test]
fn files_are_written_through_the_files_crate() {
    let mut files = Vec::new();
    let crates = root().join("crates");
    for entry in fs::read_dir(&crates).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let writes = ["fs::write(", "File::create(", "create_dir", "DirBuilder", ".create(true)", ".create_new(true)"];
    let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("/tests/");
    let mut found = BTreeSet::new();
    for file in &files {
        let path = file.strip_prefix(&crates).unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap().replace("files::create_dir_all_with_mode", "");
        if !is_test(&path) && writes.iter().any(|word| text.contains(word)) {
            found.insert(path);
        }
    }
    let allowed: BTreeSet<String> = WRITERS.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(found, allowed, "use the crate `files`, or add the file with the reason why its mode is right");
}

/// Folders of the server, from the lowest layer up: each imports only those before it, and nothing of the crate's root.
const SERVER_LAYERS: [&str; 10] = [
    "http",
    "proxy",
    "objects",
    "ip_allocator",
    "admission",
    "rest",
    "registry",
    "customresources",
    "aggregation",
    "documents",
];

/// Returns the first segments of the paths that a text names below the crate's root. `depth` is the depth of its module.
fn root_paths(text: &str, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for prefix in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (start, _) in text.match_indices(&prefix) {
            let is_longer = text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
            let rest = &text[start + prefix.len()..];
            if is_longer || rest.starts_with("super::") {
                continue;
            }
            let Some(group) = rest.strip_prefix('{') else {
                found.insert(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned());
                continue;
            };
            let (mut level, mut is_first) = (0_u32, true);
            for word in group.split_inclusive(|c: char| "{},".contains(c)) {
                if level == 0 && is_first {
                    let name = word.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next();
                    found.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
                }
                is_first = word.ends_with(',') || (word.ends_with('}') && level == 1);
                match word.chars().last() {
                    Some('{') => level += 1,
                    Some('}') if level == 0 => break,
                    Some('}') => level -= 1,
                    _ => {}
                }
            }
        }
    }
    found
}

#[test]
fn root_paths_of_imports_are_found() {
    let text = "use crate::{admission::{self, dynamic::x}, call, rest::{a, b::{c, d}}, http};\nuse super::super::ApiServer;\n\
                let x = crate::patch::apply(); use super::other;";
    let expected = ["ApiServer", "admission", "call", "http", "patch", "rest"].map(str::to_owned);
    assert_eq!(root_paths(text, 2), BTreeSet::from(expected));
}

#[test]
fn folders_of_the_server_import_only_lower_ones() {
    let source = root().join("crates/server/src");
    let mut violations = Vec::new();
    for (rank, folder) in SERVER_LAYERS.iter().enumerate() {
        let mut files = vec![source.join(format!("{folder}.rs"))];
        sources(&source.join(folder), &mut files);
        for file in files {
            let path = file.strip_prefix(&source).unwrap().with_extension("");
            if path.ends_with("tests") || path.iter().any(|part| part == "tests") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let code: String =
                code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|l| format!("{l}\n")).collect();
            for name in root_paths(&code, path.iter().count()) {
                if SERVER_LAYERS.iter().position(|layer| *layer == name).is_none_or(|layer| layer > rank) {
                    violations.push(format!("{} imports {name}", path.display()));
                }
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

/// The fuzz targets are a workspace of their own, whose lock file lists the dependencies of Podium's crates, too.
#[test]
fn lock_file_of_the_fuzz_targets_is_current() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = std::process::Command::new(cargo);
    metadata.args(["metadata", "--locked", "--format-version", "1", "--manifest-path", "fuzz/Cargo.toml"]);
    let output = metadata.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
