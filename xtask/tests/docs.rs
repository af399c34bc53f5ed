//! Project lints: README, ARCHITECTURE, CONTRIBUTING and the pages of `docs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// Maximum number of lines of README.md.
const MAX_README_LINES: usize = 150;

/// Maximum number of letters of a table's cell.
const MAX_CELL_LETTERS: usize = 120;

/// Directories with files that pages may name by their path.
const SOURCE_DIRS: [&str; 7] = ["crates/", "tests/", "xtask/", "bench/", "conformance/", "fuzz/", "fuzzer/"];

/// References that readers of the project cannot follow.
const PRIVATE_REFERENCES: [&str; 3] = ["seed 0", "LIFECYCLE.md", "DESIGN.md"];

/// Labels of lines that name tests or functions, and their files.
const LABELS: [&str; 3] = ["- Test: ", "- End-to-end test: ", "- Checked by: "];

/// Adds every Markdown file below a directory.
fn markdown(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            markdown(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Returns all pages with their texts.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut found: Vec<_> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|p| root().join(p)).into();
    markdown(&root().join("docs"), &mut found);
    found.into_iter().map(|path| (normal(&path), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the texts of the pages of a directory of `docs`, except its index.
fn entries(dir: &str) -> BTreeMap<PathBuf, String> {
    let dir = normal(&root().join("docs").join(dir));
    let is_entry = |path: &Path| path.starts_with(&dir) && path.file_name().is_some_and(|name| name != "README.md");
    pages().into_iter().filter(|(path, _)| is_entry(path)).collect()
}

/// Resolves `..` without the file system, so that equal pages have equal paths.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

/// Returns the targets of a page's relative links, without fragments.
fn relative_links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let paths = targets.filter(|target| !target.contains("://")).map(|target| target.split('#').next().unwrap_or(""));
    paths.filter(|path| !path.is_empty()).collect()
}

/// Returns the code spans of a text, each with the text before it.
fn code_spans(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

fn is_source_path(span: &str) -> bool {
    SOURCE_DIRS.iter().any(|dir| span.starts_with(dir)) && !span.contains(' ')
}

/// Returns the text of a source file, or of all files of a directory; `None` if it does not exist.
fn source(path: &str) -> Option<String> {
    let path = root().join(path);
    if !path.is_dir() {
        return fs::read_to_string(path).ok();
    }
    let mut files = Vec::new();
    sources(&path, &mut files);
    Some(files.iter().map(|file| fs::read_to_string(file).unwrap()).collect())
}

/// Whether a text defines a function of this name, or an end-to-end test.
fn defines(text: &str, name: &str) -> bool {
    [format!("fn {name}("), format!("fn {name}<"), format!("\"{name}\"")].iter().any(|n| text.contains(n))
}

/// Returns the problems of a list of tests: names in code spans, followed by the path of their file. A path without names
/// means all tests of the file.
fn problems(list: &str) -> Vec<String> {
    if list == "none" {
        return Vec::new();
    }
    let (mut problems, mut names) = (Vec::new(), Vec::new());
    for (_, span) in code_spans(list) {
        if !is_source_path(span) {
            names.push(span);
            continue;
        }
        match source(span) {
            None => problems.push(format!("there is no {span}")),
            Some(text) => {
                let missing = names.iter().filter(|name| !defines(&text, name));
                problems.extend(missing.map(|name| format!("{span} has no test {name:?}")));
            }
        }
        names.clear();
    }
    problems.extend(names.iter().map(|name| format!("{name:?} has no file")));
    if problems.is_empty() && !list.contains('`') {
        problems.push(format!("no test in {list:?}"));
    }
    problems
}

/// Checks every list of tests of a page, and returns their number.
#[track_caller]
fn check_lists(path: &Path, text: &str) -> usize {
    let lists: Vec<_> =
        text.lines().filter_map(|l| LABELS.iter().find_map(|p| l.trim_start().strip_prefix(p))).collect();
    let problems: Vec<_> = lists.iter().flat_map(|list| problems(list)).collect();
    assert!(problems.is_empty(), "{}: {problems:#?}", path.display());
    lists.len()
}

#[test]
fn readme_has_at_most_150_lines() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= MAX_README_LINES, "{lines} lines");
}

#[test]
fn readme_has_the_command_that_ci_runs() {
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let command = ci.lines().find_map(|line| line.strip_prefix("exec ")).unwrap();
    assert!(fs::read_to_string(root().join("README.md")).unwrap().contains(&format!("    {command} ")), "{command}");
}

#[test]
fn table_cells_have_at_most_120_letters() {
    for (path, text) in pages() {
        let cells = text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('|')).map(str::trim);
        let long: Vec<_> = cells.filter(|cell| cell.chars().count() > MAX_CELL_LETTERS).collect();
        assert!(long.is_empty(), "{}: {long:#?}", path.display());
    }
}

#[test]
fn relative_links_resolve() {
    for (path, text) in pages() {
        let dir = path.parent().unwrap();
        let broken: Vec<_> = relative_links(&text).into_iter().filter(|link| !dir.join(link).exists()).collect();
        assert!(broken.is_empty(), "{}: {broken:?}", path.display());
    }
}

#[test]
fn every_page_is_reachable_from_the_index() {
    let pages = pages();
    let (mut reached, mut queue) = (BTreeSet::new(), vec![normal(&root().join("docs/README.md"))]);
    while let Some(path) = queue.pop() {
        let Some(text) = pages.get(&path) else { continue };
        if reached.insert(path.clone()) {
            let dir = path.parent().unwrap();
            queue.extend(relative_links(text).into_iter().map(|link| normal(&dir.join(link))));
        }
    }
    let docs = normal(&root().join("docs"));
    let lost: Vec<_> = pages.keys().filter(|path| path.starts_with(&docs) && !reached.contains(*path)).collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn docs_have_no_private_references() {
    for (path, text) in pages() {
        let found: Vec<_> = PRIVATE_REFERENCES.iter().filter(|reference| text.contains(**reference)).collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

#[test]
fn docs_name_tests_that_exist() {
    let mut count = 0;
    for (path, text) in entries("deviations") {
        let entries = text.lines().filter(|line| line.starts_with("- **Podium:**")).count();
        let lists = check_lists(&path, &text);
        assert_eq!(entries, lists, "{}: an entry has no test", path.display());
        count += lists;
    }
    assert!(count > 150, "only {count} deviations were read");
    let path = root().join("docs/security.md");
    let text = fs::read_to_string(&path).unwrap();
    assert!(check_lists(&path, &text) > 20);
}

/// A statement is a list item with the lines `Code`, `Test` and `End-to-end test`, or with the line `No test`.
#[test]
fn lifecycle_statements_name_code_and_tests() {
    let mut count = 0;
    for (path, text) in entries("lifecycle") {
        let lists = check_lists(&path, &text);
        if path.ends_with("verification.md") {
            assert!(lists > 20, "only {lists} lists were read");
            continue;
        }
        for statement in text.split("\n- ").skip(1) {
            let has = |label: &str| statement.contains(&format!("\n  - {label}: "));
            let is_complete = has("No test") || has("Code") && has("Test") && has("End-to-end test");
            assert!(is_complete, "{}: {statement}", path.display());
            count += 1;
        }
    }
    assert!(count > 150, "only {count} statements were read");
}

/// Paths of source files exist. A path that is followed by a name is followed by one of its functions.
#[test]
fn walkthroughs_name_functions_that_exist() {
    let mut problems = Vec::new();
    for (path, text) in pages() {
        for paragraph in text.split("\n\n") {
            let spans = code_spans(paragraph);
            for (n, (_, span)) in spans.iter().enumerate().filter(|(_, (_, span))| is_source_path(span)) {
                let span = span.trim_end_matches('/');
                if !root().join(span).exists() {
                    problems.push(format!("{}: there is no {span}", path.display()));
                    continue;
                }
                let name = spans.get(n + 1).filter(|(between, _)| between.trim().is_empty()).map(|(_, name)| *name);
                let Some(name) = name.filter(|_| span.ends_with(".rs")) else { continue };
                if !defines(&source(span).unwrap_or_default(), name) {
                    problems.push(format!("{}: {span} has no function {name}", path.display()));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
