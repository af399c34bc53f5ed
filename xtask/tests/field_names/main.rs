//! Project lint: names of fields that the sources read from JSON exist in the types of Kubernetes.
//!
//! `value["field"]` with a typo is silently null. This test evaluates all functions with the types of the message table in
//! place of values, so that a literal name is checked against the type of the value that it is read from. If the type of a
//! value is unknown, the name must be a field of some type, and what is read from that field is checked against its types.
//! A value must also be read as its type: `as_str()` of an integer is silently `None`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod allowed;
mod calls;
mod evaluate;
mod macros;
mod program;
mod reads;
mod schema;
mod typo_tests;
mod value;

use common::{root, sources};
use evaluate::{Evaluator, Place};
use program::{Function, Program, Source};
use quote::ToTokens;
use reads::Checked;
use regex::Regex;
use schema::Schema;
use std::{fs, sync::LazyLock};
use syn::{Expr, FnArg};
use value::{Abstract, Literal, Types};

static KIND: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"KindInfo\s*::\s*\w+\s*\((?:[^"()]|"[^A-Z"]*")*"([A-Z]\w+)""#).unwrap());

/// Returns the types of the kinds whose `KindInfo` is in the tokens of an expression or file.
fn kinds(tokens: &str) -> Abstract {
    let nodes = KIND.captures_iter(tokens).flat_map(|c| Schema::messages(&c[1])).collect();
    Abstract::Json(Types { nodes, ..Types::default() })
}

/// Evaluates the description of a kind with its functions.
fn evaluate_kind(evaluator: &mut Evaluator<'_>, description: &'static Expr) {
    let mut root = kinds(&description.to_token_stream().to_string());
    if root.is_nothing() {
        // Versions of a kind share a `KindInfo` in their file.
        root = kinds(&evaluator.program.sources[evaluator.place.file].syntax.to_token_stream().to_string());
    }
    evaluator.root = root.clone();
    let Expr::Struct(description) = description else {
        evaluator.expression(description);
        return;
    };
    for field in &description.fields {
        let value = evaluator.expression(&field.expr);
        let is_named = |name: &str| matches!(&field.member, syn::Member::Named(member) if member == name);
        match &value {
            Abstract::Function(index) => {
                let arguments = arguments(&evaluator.program.functions[*index], &root);
                evaluator.call(*index, arguments);
            }
            Abstract::Closure(_) => drop(evaluator.call_value(&value, vec![root.clone(); 3])),
            _ if is_named("number_fields") => drop(evaluator.reads.path(&root, &value.item(1), '.')),
            _ if is_named("fields") => drop(evaluator.reads.path(&root, &value, '.')),
            _ => {}
        }
    }
}

/// Returns the arguments of a function of a kind: the object for each parameter that is JSON.
fn arguments(function: &Function, root: &Abstract) -> Vec<Abstract> {
    let typed = function.signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed.ty.to_token_stream().to_string()),
        FnArg::Receiver(_) => None,
    });
    typed.map(|ty| if ty.contains("Value") { root.clone() } else { Abstract::Unknown }).collect()
}

/// Evaluates all code and returns the evaluator with its reads.
fn evaluate(program: &Program) -> Evaluator<'_> {
    let mut evaluator = Evaluator::new(program);
    for index in 0..program.functions.len() {
        let function = &program.functions[index];
        if function.of_kind {
            let tokens = program.sources[function.file].syntax.to_token_stream().to_string();
            let root = kinds(&tokens);
            if !root.is_nothing() {
                evaluator.root = root.clone();
                evaluator.call(index, arguments(function, &root));
                evaluator.root = Abstract::Unknown;
            }
        }
        evaluator.call(index, Vec::new());
    }
    for constant in &program.constants {
        let place = Place { file: constant.file, module: constant.module.as_str().into(), owner: None };
        evaluator.within(place, Vec::new(), |evaluator| {
            if constant.is_kind {
                evaluate_kind(evaluator, constant.value);
                evaluator.root = Abstract::Unknown;
            } else {
                evaluator.expression(constant.value);
            }
            Abstract::Unknown
        });
    }
    evaluator
}

/// Parses the sources of all crates, without tests.
fn workspace() -> Program {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    files.sort();
    let relative = files.iter().map(|file| file.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/test_");
    let all = relative.filter(|path| !is_test(path));
    Program::new(all.map(|path| Source::parse(&path, &fs::read_to_string(root().join(&path)).unwrap())).collect())
}

/// Returns the path, the name and the description of each problem, and the numbers of checked names.
fn check(program: &Program) -> (Vec<(String, String, String)>, Checked) {
    let (problems, checked) = evaluate(program).reads.problems();
    let describe = |(literal, problem): (Literal, String)| {
        let path = program.sources[literal.file].path.clone();
        let text = format!("{path}:{}: {problem}", literal.line);
        (path, literal.text, text)
    };
    (problems.into_iter().map(describe).collect(), checked)
}

/// Minimum numbers of names that the test checks: fewer would mean that it no longer understands the sources.
const MIN_BY_TYPE: usize = 3500;
const MIN_BY_NAME: usize = 2500;
/// Minimum number of reads of a field as a string, number, boolean, list or object that the test checks.
const MIN_ACCESSES: usize = 2000;

#[test]
fn names_of_fields_exist_in_the_types() {
    let (problems, checked) = check(&workspace());
    let (wrong, unused) = allowed::split(&problems);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "remove from the allowed names: {unused:#?}");
    let Checked { by_type, by_name, accesses } = checked;
    assert!(by_type >= MIN_BY_TYPE && by_name >= MIN_BY_NAME, "checked {by_type} by type, {by_name} by name");
    assert!(accesses >= MIN_ACCESSES, "checked the types of {accesses} reads");
}
