//! The attribute `#[e2e_test]`, which registers an end-to-end test.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Registers a function as an end-to-end test with a name: `#[e2e_test("a Pod runs")]`.
///
/// A function with a parameter `&Cluster` runs on the shared cluster. One without parameters starts its own clusters.
#[proc_macro_attribute]
pub fn e2e_test(name: TokenStream, function: TokenStream) -> TokenStream {
    let Some((identifier, parameters)) = signature(function.clone()) else {
        return error("`#[e2e_test]` is for functions");
    };
    if !is_string(&name) {
        return error("`#[e2e_test]` needs the test's name: `#[e2e_test(\"a Pod runs\")]`");
    }
    let body = if parameters.stream().is_empty() { "OwnCluster" } else { "SharedCluster" };
    let registration = format!(
        "::tests::inventory::submit! {{ ::tests::E2eTest {{
            name: {name}, file: ::core::file!(), line: ::core::line!(), body: ::tests::TestBody::{body}({identifier}),
        }} }}"
    );
    match registration.parse::<TokenStream>() {
        Ok(registration) => [function, registration].into_iter().collect(),
        Err(cause) => error(&format!("failed to register the test: {cause}")),
    }
}

/// Returns the name and the parameters of a function.
fn signature(function: TokenStream) -> Option<(TokenTree, Group)> {
    let mut tokens = function.into_iter().skip_while(|token| token.to_string() != "fn").skip(1);
    match (tokens.next(), tokens.next()) {
        (Some(name), Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Parenthesis => {
            Some((name, group))
        }
        _ => None,
    }
}

fn is_string(name: &TokenStream) -> bool {
    let text = name.to_string();
    name.clone().into_iter().count() == 1 && text.starts_with('"')
}

fn error(message: &str) -> TokenStream {
    format!("::core::compile_error!({message:?});").parse().unwrap_or_default()
}
