//! Parser and formatter of label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`, with the messages of
//! `k8s.io/apimachinery/pkg/labels`.

use super::{Operator, Requirement, SelectorError};
use crate::names;
use std::collections::BTreeSet;

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Error for an unknown operator of a label selector, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid label selector operator")]
pub struct UnknownOperatorError(String);

/// Formats a label selector, sorted by key (`labels.Selector.String`). `labels` are keys and values, `expressions` are keys,
/// operators and values; the text is empty without any.
///
/// # Errors
/// For an unknown operator.
pub fn format_label_selector<'a>(
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    expressions: impl IntoIterator<Item = (&'a str, &'a str, Vec<&'a str>)>,
) -> Result<String, UnknownOperatorError> {
    let mut all: Vec<(&str, String)> = labels.into_iter().map(|(key, value)| (key, format!("{key}={value}"))).collect();
    for (key, operator, mut values) in expressions {
        values.sort_unstable();
        let values = values.join(",");
        let requirement = match operator {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            other => return Err(UnknownOperatorError(other.to_owned())),
        };
        all.push((key, requirement));
    }
    all.sort();
    Ok(all.into_iter().map(|(_, requirement)| requirement).collect::<Vec<_>>().join(","))
}

/// An unexpected token of a label selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found '{found}', expected: {expected}")]
pub struct UnexpectedToken {
    /// The token; empty at the end of the selector.
    pub found: String,
    /// The tokens that may follow.
    pub expected: &'static str,
}

/// Error for an invalid requirement of a label selector, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// Unexpected token within the requirement.
    #[error(transparent)]
    UnexpectedToken(#[from] UnexpectedToken),
    /// Another token than the parenthesis before the values of `in` and `notin`.
    #[error("found '{0}' expected: '('")]
    MissingParenthesis(String),
    /// Unknown operator of a `LabelSelector`.
    #[error("{0:?} is not a valid label selector operator")]
    UnknownOperator(String),
    /// Invalid label key. Upstream's field path is nil here.
    #[error("<nil>: Invalid value: {key:?}: {}", problems.join("; "))]
    Key {
        /// The key.
        key: String,
        /// The rules that it violates.
        problems: Vec<String>,
    },
    /// Invalid values.
    #[error("{}", aggregate(.0))]
    Values(Vec<RequirementValueError>),
}

/// Error for an invalid value of a requirement, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementValueError {
    /// A value to compare with is not an integer.
    #[error("values[{index}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")]
    NotInteger {
        /// Index of the value.
        index: usize,
        /// The value.
        value: String,
    },
    /// Invalid label value.
    #[error("values[{index}][{key}]: Invalid value: {value:?}: {}", problems.join("; "))]
    InvalidLabel {
        /// Index of the value.
        index: usize,
        /// The label's key.
        key: String,
        /// The value.
        value: String,
        /// The rules that it violates.
        problems: Vec<String>,
    },
}

/// Formats errors (upstream's `Aggregate`).
fn aggregate(errors: &[RequirementValueError]) -> String {
    match errors {
        [one] => one.to_string(),
        many => format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Parses the requirements of a selector.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut tokens = Tokens { all: tokenize(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match tokens.peek() {
            Token::End => return Ok(requirements),
            Token::Identifier(_) | Token::Symbol("!") => {}
            other => return Err(unexpected(&other, "!, identifier, or 'end of string'").into()),
        }
        requirements.push(tokens.parse_requirement()?);
        match tokens.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => {}
            other => return Err(unexpected(&other, "',' or 'end of string'").into()),
        }
        let next = tokens.peek();
        if !matches!(next, Token::Identifier(_) | Token::Symbol("!")) {
            return Err(unexpected(&next, "identifier after ','").into());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, `in` or `notin`.
    Identifier(&'a str),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    End,
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Identifier(text) => text,
            Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

fn tokenize(text: &str) -> Vec<Token<'_>> {
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let (mut rest, mut all) = (text.trim_start_matches(is_space), Vec::new());
    while !rest.is_empty() {
        let token = match SYMBOLS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Token::Symbol(sign),
            None => {
                let end = rest.find(|c: char| is_space(c) || "=!(),><".contains(c)).unwrap_or(rest.len());
                Token::Identifier(&rest[..end])
            }
        };
        rest = rest[token.text().len()..].trim_start_matches(is_space);
        all.push(token);
    }
    all
}

fn unexpected(found: &Token<'_>, expected: &'static str) -> UnexpectedToken {
    UnexpectedToken { found: found.text().to_owned(), expected }
}

struct Tokens<'a> {
    all: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        self.all.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn parse_requirement(&mut self) -> Result<Requirement, RequirementError> {
        let negated = self.peek() == Token::Symbol("!");
        self.at += usize::from(negated);
        let key = match self.next() {
            Token::Identifier(key) => key,
            other => return Err(unexpected(&other, "identifier").into()),
        };
        let problems = names::qualified_name(key);
        if !problems.is_empty() {
            return Err(RequirementError::Key { key: key.to_owned(), problems });
        }
        let exists = matches!(self.peek(), Token::End | Token::Symbol(","));
        let op = match (negated, exists) {
            (true, _) => Operator::DoesNotExist,
            (false, true) => Operator::Exists,
            (false, false) => self.parse_comparison(key)?,
        };
        Ok(Requirement { key: key.to_owned(), op })
    }

    fn parse_comparison(&mut self, key: &str) -> Result<Operator, RequirementError> {
        let operator = self.next();
        let values = match operator {
            Token::Identifier("in" | "notin") => self.parse_values()?,
            Token::Symbol("=" | "==" | "!=" | ">" | "<") => BTreeSet::from([self.parse_value()?]),
            other => return Err(unexpected(&other, OPERATORS).into()),
        };
        let number = validate_values(key, &values, matches!(operator, Token::Symbol(">" | "<")))?;
        let values = || values.iter().map(|value| (*value).to_owned()).collect();
        Ok(match operator {
            Token::Identifier("notin") | Token::Symbol("!=") => Operator::NotIn(values()),
            Token::Symbol(">") => Operator::GreaterThan(number),
            Token::Symbol("<") => Operator::LessThan(number),
            _ => Operator::In(values()),
        })
    }

    /// Parses the value of `=`, `==`, `!=`, `>` or `<`, which may be empty.
    fn parse_value(&mut self) -> Result<&'a str, RequirementError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok("");
        }
        match self.next() {
            Token::Identifier(value) => Ok(value),
            other => Err(unexpected(&other, "identifier").into()),
        }
    }

    /// Parses `(a,b)`; values may be empty.
    fn parse_values(&mut self) -> Result<BTreeSet<&'a str>, RequirementError> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(RequirementError::MissingParenthesis(open.text().to_owned()));
        }
        match self.peek() {
            Token::Identifier(_) | Token::Symbol("," | ")") => {}
            other => return Err(unexpected(&other, "',', ')' or identifier").into()),
        }
        let mut values = BTreeSet::new();
        loop {
            match self.peek() {
                Token::Identifier(value) => {
                    self.at += 1;
                    values.insert(value)
                }
                Token::Symbol("," | ")") => values.insert(""),
                other => return Err(unexpected(&other, "',', or identifier").into()),
            };
            match self.next() {
                Token::Symbol(")") => return Ok(values),
                Token::Symbol(",") => {}
                other => return Err(unexpected(&other, "',' or ')'").into()),
            }
        }
    }
}

/// Validates the values of a requirement and returns the number of `Gt` and `Lt` (`NewRequirement`).
fn validate_values(key: &str, values: &BTreeSet<&str>, is_number: bool) -> Result<i64, RequirementError> {
    let (mut errors, mut number) = (Vec::new(), 0);
    for (index, value) in values.iter().enumerate().filter(|_| is_number) {
        match value.parse() {
            Ok(n) => number = n,
            Err(_) => errors.push(RequirementValueError::NotInteger { index, value: (*value).to_owned() }),
        }
    }
    for (index, value) in values.iter().enumerate() {
        let problems = names::label_value(value);
        if !problems.is_empty() {
            let (key, value) = (key.to_owned(), (*value).to_owned());
            errors.push(RequirementValueError::InvalidLabel { index, key, value, problems });
        }
    }
    if errors.is_empty() { Ok(number) } else { Err(RequirementError::Values(errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, expected: &str) {
        assert_eq!(parse(selector).unwrap_err().to_string(), expected, "{selector}");
    }

    #[test]
    fn invalid_selector_has_upstreams_message() {
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
    fn selector_keywords_may_be_keys_and_values_may_be_empty() {
        let requirement = |selector: &str| parse(selector).unwrap().remove(0);
        let values = |all: &[&str]| Operator::In(all.iter().map(|v| (*v).to_owned()).collect());
        for (selector, key, op) in [
            ("in in (in,notin)", "in", values(&["in", "notin"])),
            ("a in ()", "a", values(&[""])),
            ("a in (b,)", "a", values(&["", "b"])),
            ("a in (,b)", "a", values(&["", "b"])),
            ("a in (b,,c)", "a", values(&["", "b", "c"])),
            ("a=", "a", values(&[""])),
            ("a=in", "a", values(&["in"])),
            ("notin", "notin", Operator::Exists),
            ("! a", "a", Operator::DoesNotExist),
            ("a < 3", "a", Operator::LessThan(3)),
        ] {
            assert_eq!(requirement(selector), Requirement { key: key.to_owned(), op }, "{selector}");
        }
    }
}
