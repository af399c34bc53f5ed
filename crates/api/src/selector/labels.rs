//! How label selectors are written: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1` (`k8s.io/apimachinery/pkg/labels`, whose
//! words its clients know).

use super::{Op, Requirement, SelectorError};
use crate::names;
use std::collections::BTreeSet;

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Writes what a `LabelSelector` says, in the order of its keys (`labels.Selector.String`): labels with their values, and
/// expressions as key, operator and values. Empty when it says nothing.
///
/// # Errors
/// For an unknown operator, in upstream's words.
pub fn text<'a>(
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    expressions: impl IntoIterator<Item = (&'a str, &'a str, Vec<&'a str>)>,
) -> Result<String, String> {
    let mut all: Vec<(&str, String)> = labels.into_iter().map(|(key, value)| (key, format!("{key}={value}"))).collect();
    for (key, operator, mut values) in expressions {
        values.sort_unstable();
        let values = values.join(",");
        let written = match operator {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            other => return Err(format!("{other:?} is not a valid label selector operator")),
        };
        all.push((key, written));
    }
    all.sort();
    Ok(all.into_iter().map(|(_, written)| written).collect::<Vec<_>>().join(","))
}

/// The requirements of a selector.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut tokens = Tokens { all: split(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match tokens.next_is() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Sign("!") => {}
            other => return Err(syntax(&other, "expected: !, identifier, or 'end of string'")),
        }
        requirements.push(tokens.requirement()?);
        match tokens.take() {
            Token::End => return Ok(requirements),
            Token::Sign(",") => {}
            other => return Err(syntax(&other, "expected: ',' or 'end of string'")),
        }
        let next = tokens.next_is();
        if !matches!(next, Token::Word(_) | Token::Sign("!")) {
            return Err(syntax(&next, "expected: identifier after ','"));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, `in` or `notin`.
    Word(&'a str),
    /// One of [`SIGNS`].
    Sign(&'static str),
    End,
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Word(text) => text,
            Self::Sign(text) => text,
            Self::End => "",
        }
    }
}

fn split(text: &str) -> Vec<Token<'_>> {
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let (mut rest, mut all) = (text.trim_start_matches(is_space), Vec::new());
    while !rest.is_empty() {
        let token = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Token::Sign(sign),
            None => {
                let end = rest.find(|c: char| is_space(c) || "=!(),><".contains(c)).unwrap_or(rest.len());
                Token::Word(&rest[..end])
            }
        };
        rest = rest[token.text().len()..].trim_start_matches(is_space);
        all.push(token);
    }
    all
}

/// What is wrong between two requirements.
fn syntax(found: &Token<'_>, expected: &str) -> SelectorError {
    SelectorError::Syntax(format!("found '{}', {expected}", found.text()))
}

/// What is wrong within one.
fn parse_error(found: &Token<'_>, expected: &str) -> SelectorError {
    SelectorError::Parse(format!("found '{}', {expected}", found.text()))
}

struct Tokens<'a> {
    all: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn next_is(&self) -> Token<'a> {
        self.all.get(self.at).copied().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.next_is();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let without = self.next_is() == Token::Sign("!");
        self.at += usize::from(without);
        let key = match self.take() {
            Token::Word(key) => key,
            other => return Err(parse_error(&other, "expected: identifier")),
        };
        let wrong = names::qualified_name(key);
        if !wrong.is_empty() {
            // Upstream's path leads nowhere here.
            return Err(SelectorError::Parse(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; "))));
        }
        let exists = matches!(self.next_is(), Token::End | Token::Sign(","));
        let op = match (without, exists) {
            (true, _) => Op::DoesNotExist,
            (false, true) => Op::Exists,
            (false, false) => self.comparison(key)?,
        };
        Ok(Requirement { key: key.to_owned(), op })
    }

    fn comparison(&mut self, key: &str) -> Result<Op, SelectorError> {
        let operator = self.take();
        let values = match operator {
            Token::Word("in" | "notin") => self.values()?,
            Token::Sign("=" | "==" | "!=" | ">" | "<") => BTreeSet::from([self.value()?]),
            other => return Err(parse_error(&other, &format!("expected: {OPERATORS}"))),
        };
        let number = check(key, &values, matches!(operator, Token::Sign(">" | "<")))?;
        let values = || values.iter().map(|value| (*value).to_owned()).collect();
        Ok(match operator {
            Token::Word("notin") | Token::Sign("!=") => Op::NotIn(values()),
            Token::Sign(">") => Op::GreaterThan(number),
            Token::Sign("<") => Op::LessThan(number),
            _ => Op::In(values()),
        })
    }

    /// The one value of `=` and its kin, which may be empty.
    fn value(&mut self) -> Result<&'a str, SelectorError> {
        if matches!(self.next_is(), Token::End | Token::Sign(",")) {
            return Ok("");
        }
        match self.take() {
            Token::Word(value) => Ok(value),
            other => Err(parse_error(&other, "expected: identifier")),
        }
    }

    /// `(a,b)`, of which any may be empty.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, SelectorError> {
        let open = self.take();
        if open != Token::Sign("(") {
            return Err(SelectorError::Parse(format!("found '{}' expected: '('", open.text())));
        }
        match self.next_is() {
            Token::Word(_) | Token::Sign("," | ")") => {}
            other => return Err(parse_error(&other, "expected: ',', ')' or identifier")),
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next_is() {
                Token::Word(value) => {
                    self.at += 1;
                    values.insert(value)
                }
                Token::Sign("," | ")") => values.insert(""),
                other => return Err(parse_error(&other, "expected: ',', or identifier")),
            };
            match self.take() {
                Token::Sign(")") => return Ok(values),
                Token::Sign(",") => {}
                other => return Err(parse_error(&other, "expected: ',' or ')'")),
            }
        }
    }
}

/// What no label can have (`NewRequirement`); gives the number, where it must be one.
fn check(key: &str, values: &BTreeSet<&str>, is_number: bool) -> Result<i64, SelectorError> {
    let (mut wrong, mut number) = (Vec::new(), 0);
    for (i, value) in values.iter().enumerate().filter(|_| is_number) {
        match value.parse() {
            Ok(n) => number = n,
            Err(_) => wrong.push(format!(
                "values[{i}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )),
        }
    }
    for (i, value) in values.iter().enumerate() {
        let errors = names::label_value(value);
        if !errors.is_empty() {
            wrong.push(format!("values[{i}][{key}]: Invalid value: {value:?}: {}", errors.join("; ")));
        }
    }
    match wrong.as_slice() {
        [] => Ok(number),
        [one] => Err(SelectorError::Parse(one.clone())),
        many => Err(SelectorError::Parse(format!("[{}]", many.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, expected: &str) {
        assert_eq!(parse(selector).unwrap_err().to_string(), expected, "{selector}");
    }

    #[test]
    fn what_is_wrong_is_told_in_upstreams_words() {
        let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        check("-a=b", &format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {name}"));
        check("a=-b", &format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {value}"));
        check(
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        );
        check("a=b=c", "found '=', expected: ',' or 'end of string'");
        check("a===b", "unable to parse requirement: found '=', expected: identifier");
        check("!a=b", "found '=', expected: ',' or 'end of string'");
        check("!", "unable to parse requirement: found '', expected: identifier");
        check("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt");
        check("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        check("a in", "unable to parse requirement: found '' expected: '('");
        check("a in x)", "unable to parse requirement: found 'x' expected: '('");
        check("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'");
        check("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier");
        for (selector, found) in [("=b", "="), (",", ","), ("(a)", "(")] {
            check(selector, &format!("found '{found}', expected: !, identifier, or 'end of string'"));
        }
        check("a,", "found '', expected: identifier after ','");
        check("a,,b", "found ',', expected: identifier after ','");
    }

    #[test]
    fn keywords_may_be_keys_and_values_and_values_may_be_empty() {
        let of = |selector: &str| parse(selector).unwrap().remove(0);
        let values = |all: &[&str]| Op::In(all.iter().map(|v| (*v).to_owned()).collect());
        for (selector, key, op) in [
            ("in in (in,notin)", "in", values(&["in", "notin"])),
            ("a in ()", "a", values(&[""])),
            ("a in (b,)", "a", values(&["", "b"])),
            ("a in (,b)", "a", values(&["", "b"])),
            ("a in (b,,c)", "a", values(&["", "b", "c"])),
            ("a=", "a", values(&[""])),
            ("a=in", "a", values(&["in"])),
            ("notin", "notin", Op::Exists),
            ("! a", "a", Op::DoesNotExist),
            ("a < 3", "a", Op::LessThan(3)),
        ] {
            assert_eq!(of(selector), Requirement { key: key.to_owned(), op }, "{selector}");
        }
    }
}
