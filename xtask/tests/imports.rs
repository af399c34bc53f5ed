//! Project lint: imports have one order.
//!
//! The `use` declarations of a module are one block with one declaration per crate, which `cargo fmt` sorts: what
//! rustfmt does with `group_imports = "One"` and `imports_granularity = "Crate"`, which are not stable yet.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use std::{collections::BTreeSet, fs};

/// Returns what is wrong with the imports of a file, with line numbers.
fn wrong_imports(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut wrong = Vec::new();
    let (mut roots, mut depth) = (BTreeSet::new(), 0);
    let mut end_of_last = None;
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(import) = line.trim_start().strip_prefix("use ") else {
            // Another module begins or ends.
            if line.ends_with('{') && line.contains("mod ") || *line == "}" {
                roots.clear();
            }
            continue;
        };
        // An import of a function, or one with an attribute, stands where it is needed.
        let is_in_module = indent == 0 || module_indents(&lines, at) == Some(indent);
        if !is_in_module || at > 0 && lines[at - 1].trim_start().starts_with("#[") {
            continue;
        }
        if depth != indent {
            roots.clear();
            depth = indent;
        }
        let name = import.trim_start_matches("::").split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
        if !roots.insert(name) {
            wrong.push(format!("{}: another import of `{name}`", at + 1));
        }
        if end_of_last.is_some_and(|last: usize| last < at && lines[last + 1..at].iter().all(|l| l.is_empty()))
            && end_of_last != Some(at - 1)
        {
            wrong.push(format!("{}: an empty line between imports", at + 1));
        }
        end_of_last = (at..lines.len()).find(|end| lines[*end].ends_with(';'));
    }
    wrong
}

/// Returns the indentation of the items of the module that contains a line.
fn module_indents(lines: &[&str], at: usize) -> Option<usize> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let indentation = indent(lines[at]);
    let parent = lines[..at].iter().rev().find(|l| !l.is_empty() && indent(l) < indentation)?;
    (parent.contains("mod ") && parent.ends_with('{')).then(|| indent(parent) + 4)
}

#[test]
fn imports_are_one_block_with_one_declaration_per_crate() {
    let mut wrong = Vec::new();
    for dir in ["bench", "conformance", "crates", "fuzz", "fuzzer", "tests", "xtask"] {
        let mut files = Vec::new();
        sources(&root().join(dir), &mut files);
        for file in files {
            let found = wrong_imports(&fs::read_to_string(&file).unwrap());
            wrong.extend(found.into_iter().map(|problem| format!("{}:{problem}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn wrong_imports_are_found() {
    let cases: [(&str, &[&str]); 7] = [
        ("use a::{b, c};\nuse d::e;\n", &[]),
        ("use a::b;\nuse a::c;\n", &["2: another import of `a`"]),
        ("use a::{\n    b,\n    c,\n};\n\nuse d::e;\n", &["6: an empty line between imports"]),
        ("pub use a::b;\n\nuse a::c;\n", &[]),
        ("use a::b;\n#[cfg(test)]\nuse a::c;\n", &[]),
        ("use a::b;\n\nmod tests {\n    use a::c;\n    use a::d;\n}\n", &["5: another import of `a`"]),
        ("use a::b;\n\nfn f() {\n    use a::c;\n    use a::d;\n}\n", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(wrong_imports(text), expected, "{text}");
    }
}
