//! Project lints: names of tests, private references and private words in the source tree.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use regex::{Captures, Regex};
use std::{fs, sync::LazyLock};

/// Directories with Rust sources.
const DIRECTORIES: [&str; 7] = ["bench", "conformance", "crates", "fuzz", "fuzzer", "tests", "xtask"];

/// Directories whose words and test names are not checked yet. Remove an entry when its sources are clean.
const UNCHECKED: &[&str] = &[];

/// Lints that contain the references and words that they find.
const LINTS: [&str; 2] = ["xtask/tests/docs.rs", "xtask/tests/words.rs"];

/// Patterns of references that readers of the project cannot follow.
const PRIVATE_REFERENCES: [&str; 3] = [r"\bseed \d{3}\b", r"\bLIFECYCLE\.md\b", r"\bDESIGN\.md\b"];

/// Words that are no terms of Kubernetes, Rust or networking, and never needed in a comment or an identifier.
const PRIVATE_WORDS: [&str; 23] = [
    "anybody",
    "asked",
    "asks",
    "brings",
    "figure",
    "figures",
    "heard",
    "hears",
    "liked",
    "noted",
    "remembered",
    "remembers",
    "said",
    "shunned",
    "shuns",
    "sick",
    "somebody",
    "stranger",
    "strangers",
    "told",
    "trail",
    "trails",
    "whoever",
];

/// Names that say nothing about a variable, a parameter or a field. Functions may have them: `Digest::of`.
const PRIVATE_NAMES: [&str; 4] = ["more", "of", "what", "why"];

/// Files with the arguments of logind's D-Bus method `Inhibit`, which are named `what` and `why`.
const D_BUS_INTERFACES: [&str; 2] = ["crates/kubelet/src/node_shutdown/logind.rs", "tests/fake-logind/src/lib.rs"];

/// Comments, in a group, and literals of strings and characters.
static COMMENT_OR_LITERAL: LazyLock<Regex> = LazyLock::new(|| {
    let comments = r"//[^\n]*|/\*.*?\*/";
    let raw_strings = r###"\br##".*?"##|\br#".*?"#|\br"[^"]*"|\bbr#".*?"#|\bbr"[^"]*""###;
    let strings = r#""(?:\\.|[^"\\])*""#;
    let characters = r"'(?:\\.[^']*|[^\\'])'";
    Regex::new(&format!("(?s)({comments})|{raw_strings}|{strings}|{characters}")).unwrap()
});

/// Identifiers with the characters before them that tell functions and lifetimes from variables and fields.
static IDENTIFIER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(fn |::|\.+|')?\b([A-Za-z_][A-Za-z0-9_]*)").unwrap());

/// Parts of identifiers in snake_case and CamelCase, and words of comments.
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new("[A-Z]?[a-z]+|[A-Z]+").unwrap());

/// Maximum number of letters of a test function's name.
const MAX_TEST_NAME: usize = 60;

/// Maximum number of letters of an end-to-end test's name.
const MAX_E2E_TEST_NAME: usize = 80;

/// Returns the problems that `check` finds in the Rust files outside of some directories, each after the path of the file.
fn problems(unchecked: &[&str], check: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut files = Vec::new();
    DIRECTORIES.iter().for_each(|dir| sources(&root().join(dir), &mut files));
    let mut problems = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).unwrap().display().to_string();
        let is_unchecked = unchecked.iter().any(|dir| path.starts_with(&format!("{dir}/")));
        if !is_unchecked && !LINTS.contains(&path.as_str()) {
            let found = check(&fs::read_to_string(&file).unwrap());
            problems.extend(found.into_iter().map(|problem| format!("{path}: {problem}")));
        }
    }
    problems
}

fn private_references(text: &str) -> Vec<String> {
    let patterns = PRIVATE_REFERENCES.map(|pattern| Regex::new(pattern).unwrap());
    patterns.iter().flat_map(|pattern| pattern.find_iter(text)).map(|found| found.as_str().to_owned()).collect()
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

/// Returns the private words in comments and in parts of identifiers, with their lines.
fn private_words(text: &str) -> Vec<String> {
    let text = COMMENT_OR_LITERAL.replace_all(text, |found: &Captures<'_>| match found.get(1) {
        Some(comment) => comment.as_str().to_owned(),
        None => line_breaks(&found[0]),
    });
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = WORD.find_iter(line).map(|word| word.as_str().to_lowercase());
        let private = words.filter(|word| PRIVATE_WORDS.contains(&word.as_str()));
        found.extend(private.map(|word| format!("line {}: {word}", index + 1)));
    }
    found
}

/// Returns the private names of variables, parameters and fields, with their lines.
fn private_names(text: &str) -> Vec<String> {
    let text = COMMENT_OR_LITERAL.replace_all(text, |found: &Captures<'_>| line_breaks(&found[0]));
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let variables =
            IDENTIFIER.captures_iter(line).filter(|c| c.get(1).is_none_or(|before| before.as_str() == ".."));
        let private = variables.filter(|c| PRIVATE_NAMES.contains(&&c[2]));
        found.extend(private.map(|c| format!("line {}: {}", index + 1, &c[2])));
    }
    found
}

fn line_breaks(text: &str) -> String {
    "\n".repeat(text.matches('\n').count())
}

#[test]
fn sources_have_no_private_references() {
    let problems = problems(&[], private_references);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn tests_have_short_names() {
    let problems = problems(UNCHECKED, long_test_names);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn sources_have_no_private_words() {
    let problems = problems(UNCHECKED, private_words);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn sources_have_no_private_names() {
    let mut problems = problems(UNCHECKED, private_names);
    problems.retain(|problem| !D_BUS_INTERFACES.iter().any(|file| problem.starts_with(file)));
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn private_references_are_found() {
    assert_eq!(private_references("as upstream's computePodActions, seed 7"), [""; 0]);
    assert_eq!(private_references("see LIFECYCLE.md 3.4, seed 004"), ["seed 004", "LIFECYCLE.md"]);
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

#[test]
fn private_words_are_found_outside_of_literals() {
    let literals = r##"
        #[serde(rename = "told_overdue")] // "mimicked"
        const TASKED: [&str; 3] = ["is told", r#"a "quote" said"#, "\"\\"]; let (quote, lifetime) = ('"', &'a asked);
        /* it told */ fn was_asked(ToldTwice { .. }: WhoeverAsks) { "over
        two lines"; } // said
    "##;
    let words = [
        "line 3: asked",
        "line 4: told",
        "line 4: asked",
        "line 4: told",
        "line 4: whoever",
        "line 4: asks",
        "line 5: said",
    ];
    assert_eq!(private_words(literals), words);
}

#[test]
fn private_names_of_variables_are_found() {
    let text = r#"
        fn of(what: &str) -> Digest { Digest::of("of"); self.more() } // why
        let (of, _) = (&digest.of, [..more]); let whys = format!("{what}");
    "#;
    assert_eq!(private_names(text), ["line 2: what", "line 3: of", "line 3: more"]);
}
