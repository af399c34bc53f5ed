//! Project lint: the values of published enums are listed in one file of the kinds, which a test compares with upstream.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::{root, sources};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use std::{
    collections::{BTreeSet, HashSet},
    fs,
};

/// The file that lists them.
const ENUMS: &str = "crates/kinds/src/enums.rs";

/// Minimum number of checked lists.
const MIN_LISTS: usize = 100;

/// Adds the lists of string literals, such as `["a", "b"]`.
fn lists(tokens: TokenStream, found: &mut Vec<BTreeSet<String>>) {
    for token in tokens {
        let TokenTree::Group(group) = token else { continue };
        let literals: Option<BTreeSet<String>> = group
            .stream()
            .into_iter()
            .filter(|token| token.to_string() != ",")
            .map(|token| syn::parse2::<syn::LitStr>(token.into_token_stream()).ok().map(|literal| literal.value()))
            .collect();
        match literals {
            Some(list) if group.delimiter() == Delimiter::Bracket && list.len() > 1 => found.push(list),
            _ => lists(group.stream(), found),
        }
    }
}

/// Returns the lists of a source, except for its tests.
fn lists_of(source: &str) -> Vec<BTreeSet<String>> {
    let mut found = Vec::new();
    for item in syn::parse_file(source).unwrap().items {
        let is_test = matches!(&item, syn::Item::Mod(module) if module.ident == "tests");
        if !is_test {
            lists(item.into_token_stream(), &mut found);
        }
    }
    found
}

#[test]
fn values_of_enums_are_listed_once() {
    let published: HashSet<BTreeSet<String>> =
        wire::enums::all().map(|values| values.iter().map(|value| (*value).to_owned()).collect()).collect();
    let mut files = Vec::new();
    sources(&root().join("crates/kinds/src"), &mut files);
    let (mut checked, mut repeated) = (0, Vec::new());
    for file in files {
        if file.ends_with(ENUMS) || file.ends_with("tests.rs") {
            continue;
        }
        let lists = lists_of(&fs::read_to_string(&file).unwrap());
        checked += lists.len();
        let known = lists.iter().filter(|list| published.contains(*list));
        repeated.extend(known.map(|list| format!("{}: {list:?}", file.display())));
    }
    assert!(checked >= MIN_LISTS, "{checked} lists");
    assert!(repeated.is_empty(), "take the values from {ENUMS}: {repeated:#?}");
}

#[test]
fn lists_of_literals_are_found() {
    let source = r#"fn f() { g(&["SCTP", "TCP"], json!([{"a": ["UDP", "TCP"]}]), a["x"]); } mod tests { fn f() { ["a", "b"]; } }"#;
    let expected = [["SCTP", "TCP"], ["UDP", "TCP"]].map(|list| BTreeSet::from(list.map(str::to_owned)));
    assert_eq!(lists_of(source), expected);
}
