//! Expressions in the arguments of macros.

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use std::collections::HashMap;
use syn::{Expr, Macro, Token, parse::Parser, punctuated::Punctuated};

pub(crate) enum Fragment {
    Expression(Expr),
    /// A key of an object in `json!`.
    Key(String, LineColumn),
}

/// Parsed arguments of macros. They are leaked, like all code.
#[derive(Default)]
pub(crate) struct Macros(HashMap<usize, &'static [Fragment]>);

impl Macros {
    pub(crate) fn fragments(&mut self, code: &'static Macro) -> &'static [Fragment] {
        self.0.entry(std::ptr::from_ref(code).addr()).or_insert_with(|| Box::leak(parse(code).into_boxed_slice()))
    }
}

fn parse(code: &Macro) -> Vec<Fragment> {
    let tokens = code.tokens.clone();
    if code.path.segments.last().is_some_and(|s| s.ident == "json") {
        let mut found = Vec::new();
        add_json(tokens, &mut found);
        return found;
    }
    let list = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(tokens.clone());
    match list {
        Ok(list) => list.into_iter().map(Fragment::Expression).collect(),
        // `matches!` has a pattern after the expression, `vec!` a length.
        Err(_) => split(tokens).into_iter().take(1).filter_map(expression).collect(),
    }
}

fn expression(tokens: TokenStream) -> Option<Fragment> {
    syn::parse2(tokens).ok().map(Fragment::Expression)
}

/// Splits tokens at commas and semicolons.
fn split(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match token {
            TokenTree::Punct(p) if matches!(p.as_char(), ',' | ';') => parts.push(Vec::new()),
            other => parts.last_mut().unwrap().push(other),
        }
    }
    parts.into_iter().map(TokenStream::from_iter).filter(|part| !part.is_empty()).collect()
}

fn add_json(tokens: TokenStream, found: &mut Vec<Fragment>) {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    match trees.as_slice() {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Brace => {
            split(group.stream()).into_iter().for_each(|entry| add_entry(entry, found));
        }
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Bracket => {
            split(group.stream()).into_iter().for_each(|item| add_json(item, found));
        }
        _ => found.extend(expression(tokens)),
    }
}

fn add_entry(tokens: TokenStream, found: &mut Vec<Fragment>) {
    let mut tokens = tokens.into_iter();
    match tokens.next() {
        Some(TokenTree::Literal(key)) => {
            let (place, text) = (key.span().start(), key.to_string());
            found.push(Fragment::Key(text.trim_matches('"').to_owned(), place));
        }
        Some(TokenTree::Group(key)) => found.extend(expression(key.stream())),
        Some(TokenTree::Ident(key)) => {
            found.extend(expression(TokenTree::Ident(key).into()));
            // The rest of a path: `Type::KEY`.
        }
        _ => {}
    }
    let rest = tokens.skip_while(|token| !matches!(token, TokenTree::Punct(p) if p.as_char() == ':')).skip(1);
    add_json(rest.collect(), found);
}
