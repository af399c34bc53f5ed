//! The rules of the house that the compiler does not know: who may use whom, and what every room must say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Each crate and the crates of the house that it may use (ARCHITECTURE.md). The binary may use all of them.
const ARROWS: [(&str, &[&str]); 17] = [
    ("admission", &["api", "expr"]),
    ("api", &[]),
    ("apply", &[]),
    ("controllers", &["admission", "api"]),
    ("encryption", &["api", "store"]),
    ("expr", &["api"]),
    ("files", &[]),
    ("kubelet", &["api", "files", "lifecycle", "runtime", "spdy"]),
    ("lifecycle", &["api"]),
    ("network", &["api", "files"]),
    ("runtime", &["files", "spdy"]),
    ("scheduler", &["api"]),
    ("schema", &["api", "expr"]),
    ("server", &["admission", "api", "apply", "files", "schema", "store"]),
    ("spdy", &[]),
    ("store", &[]),
    (
        "podium",
        &[
            "api",
            "controllers",
            "encryption",
            "files",
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
fn what_decides_is_pure() {
    let mut files = Vec::new();
    for name in ["lifecycle", "apply", "schema", "expr", "admission"] {
        let used = dependencies(name);
        let impure: Vec<_> = IMPURE.iter().filter(|d| used.contains(**d)).collect();
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
    for dir in ["crates", "xtask", "tests", "bench", "conformance", "fuzzer", "fuzz/targets"] {
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

/// A column of a table whose cells name tests, as `name` (file). More names are parted by commas, more files by semicolons.
/// A file alone stands for all that is in it.
struct Column {
    /// Which, from the end.
    from_end: usize,
    /// Where files are looked for.
    below: &'static [&'static str],
    /// What may stand there instead.
    honest: &'static [&'static str],
}

/// Every row of the tables in a file: its cells.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap();
    let mut rows = Vec::new();
    let mut head = true;
    for line in text.lines() {
        // The line below the names of the columns begins a table.
        if !line.starts_with('|') {
            head = true;
        } else if line.starts_with("| ---") {
            head = false;
        } else if !head {
            rows.push(line.trim_matches(['|', ' ']).split(" | ").map(|cell| cell.trim().to_owned()).collect());
        }
    }
    rows
}

/// What is wrong with a cell, if anything is.
fn wrong(cell: &str, column: &Column) -> Option<String> {
    if column.honest.contains(&cell) {
        return None;
    }
    cell.split("; ").find_map(|part| {
        let (names, path) = part.trim_end_matches(')').rsplit_once('(').unwrap_or(("", part.trim_matches('`')));
        let path = path.split(',').next().unwrap();
        let Some(path) = column.below.iter().map(|dir| root().join(dir).join(path)).find(|p| p.exists()) else {
            return Some(format!("there is no {path:?}"));
        };
        let mut files = Vec::new();
        if path.is_dir() {
            sources(&path, &mut files);
        } else {
            files.push(path.clone());
        }
        let all: String = files.iter().map(|f| fs::read_to_string(f).unwrap().replace('_', " ")).collect();
        let missing = names.split('`').skip(1).step_by(2).find(|name| !has_test(&all, &name.replace('_', " ")));
        missing.map(|name| format!("no test {name:?} in {}", path.display()))
    })
}

/// Whether there is a test of this name, or one that begins so and goes on …
fn has_test(text: &str, name: &str) -> bool {
    match name.strip_suffix('…') {
        Some(begin) => [format!("fn {begin}"), format!("\"{begin}")].iter().any(|n| text.contains(n)),
        None => [format!("fn {name}("), format!("\"{name}\"")].iter().any(|n| text.contains(n)),
    }
}

#[track_caller]
fn check_rows(file: &str, columns: &[Column]) -> usize {
    let rows = rows(&root().join(file));
    let mut faults = Vec::new();
    for row in &rows {
        for column in columns {
            let cell = row.len().checked_sub(column.from_end).and_then(|n| row.get(n)).map_or("", String::as_str);
            faults.extend(wrong(cell, column).map(|fault| format!("{}: {fault}", row[0])));
        }
    }
    assert!(faults.is_empty(), "{file}: {faults:#?}");
    rows.len()
}

#[test]
fn every_deviation_names_a_test_that_exists() {
    let test = Column { from_end: 1, below: &[""], honest: &["none yet"] };
    assert!(check_rows("docs/deviations.md", &[test]) > 20);
}

#[test]
fn every_defence_names_a_test_that_exists() {
    let test = Column { from_end: 1, below: &[""], honest: &[] };
    assert!(check_rows("docs/security.md", &[test]) > 20);
}

/// Files of the crates that write where `files` does not: each gives modes itself, or writes what is no file of its own.
const WRITERS: [(&str, &str); 19] = [
    ("files/src/lib.rs", "the one that others use"),
    ("files/src/open.rs", "the one that others use"),
    ("kubelet/src/actions/mounts.rs", "hosts file and termination messages, which containers read and write"),
    ("kubelet/src/actions/sub_path.rs", "mount points"),
    ("kubelet/src/cgroup/hierarchy.rs", "the kernel's files"),
    ("kubelet/src/log_rotation.rs", "logs, with the mode of the log"),
    ("kubelet/src/node_shutdown/logind.rs", "a configuration file of the machine"),
    ("kubelet/src/volumes.rs", "directories of volumes"),
    ("kubelet/src/volumes/atomic_writer.rs", "volumes"),
    ("kubelet/src/volumes/claim.rs", "directories of volumes"),
    ("kubelet/src/volumes/host_path.rs", "volumes"),
    ("kubelet/src/volumes/nested.rs", "mount points in volumes"),
    ("network/src/bridge.rs", "the kernel's files"),
    ("network/src/prepare.rs", "the data directory itself"),
    ("network/src/state.rs", "a lock, mode 0600"),
    ("podium/src/data_dir.rs", "the lock, which `files` opens"),
    ("podium/src/oom_score.rs", "the kernel's files"),
    ("podium/src/local_volumes.rs", "volumes"),
    ("store/src/engine/fjall/directory.rs", "its own directory, mode 0700"),
];

#[test]
fn files_are_written_by_the_private_helper() {
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
    assert_eq!(found, allowed, "use the crate `files`, or say why the mode is right");
}

/// docs/lifecycle: each statement names where it is decided and what shows it, or says plainly that nothing does yet.
#[test]
fn every_statement_of_the_lifecycle_names_tests_that_exist() {
    let honest = &["not yet", "–"];
    let mut count = 0;
    for entry in fs::read_dir(root().join("docs/lifecycle")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let columns = [
            Column { from_end: 1, below: &["tests/e2e"], honest },
            Column { from_end: 2, below: &["crates/lifecycle/tests", "crates"], honest },
            Column { from_end: 3, below: &["crates"], honest },
        ];
        count += check_rows(&format!("docs/lifecycle/{name}"), &columns);
    }
    assert!(count > 150, "only {count} rows were read");
}

/// docs/lifecycle-proof.md: what is checked, and what caught the rules that were broken on purpose.
#[test]
fn every_invariant_of_the_lifecycle_names_what_checks_it() {
    let checks =
        Column { from_end: 1, below: &["crates/lifecycle/tests/common", "crates/lifecycle/tests"], honest: &[] };
    assert!(check_rows("docs/lifecycle-proof.md", &[checks]) > 20);
}
