//! The subset of Kubernetes' JSONPath for printer columns and selectable fields: `.status.conditions[0].type`,
//! `.spec.list[*].name`, `.status.conditions[?(@.type=="Ready")].status`, `.metadata.labels.a\.b/c`, `['a\.b/c']`,
//! `['a','b']`, `..name` (`client-go/util/jsonpath`). The crate `jsonpath-rust` implements RFC 9535, whose syntax differs.

use serde_json::Value;

/// A parsed JSONPath.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

/// Error for an invalid JSONPath.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    /// The path does not start with a dot.
    #[error("must be a json path starting with .")]
    Start,
    /// Invalid content of brackets.
    #[error("invalid array index {0}")]
    Index(String),
    /// Missing closing bracket.
    #[error("unterminated array")]
    Unterminated,
    /// Invalid filter.
    #[error("unrecognized filter {0}")]
    Filter(String),
    /// Unexpected character.
    #[error("unexpected {0:?}")]
    Unexpected(char),
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// Index, from the end if negative.
    Index(i64),
    /// Start, end and step.
    Slice(Option<i64>, Option<i64>, i64),
    /// The results of several paths.
    Union(Vec<JsonPath>),
    All,
    /// Recursive descent (`..`).
    Recursive,
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    path: JsonPath,
    /// Comparison; without one, the path must exist.
    condition: Option<(Comparison, Value)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path that starts with a dot, as paths in CustomResourceDefinitions must.
    ///
    /// # Errors
    /// When the path is not in the supported subset.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        if !text.starts_with('.') {
            return Err(JsonPathError::Start);
        }
        parse_steps(text)
    }

    /// Returns the values at the path.
    #[must_use]
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::Index(i), Value::Array(items)) => {
                resolve_index(*i, items.len()).and_then(|i| items.get(i)).into_iter().collect()
            }
            (Self::Slice(from, to, step), Value::Array(items)) => slice(*from, *to, *step, items),
            (Self::Union(paths), value) => paths.iter().flat_map(|path| path.find(value)).collect(),
            (Self::Filter(filter), Value::Array(items)) => items.iter().filter(|item| filter.matches(item)).collect(),
            (Self::Recursive, value) => {
                let mut all = Vec::new();
                collect_descendants(value, &mut all);
                all
            }
            _ => Vec::new(),
        }
    }
}

fn resolve_index(i: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if i < 0 { i + length } else { i }).ok()
}

/// Returns a slice of a list; empty if it is out of bounds, as upstream.
fn slice(from: Option<i64>, to: Option<i64>, step: i64, items: &[Value]) -> Vec<&Value> {
    let (from, to) = (
        resolve_index(from.unwrap_or(0), items.len()),
        to.map_or(Some(items.len()), |to| resolve_index(to, items.len())),
    );
    let (Some(from), Some(to), Ok(step)) = (from, to, usize::try_from(step)) else { return Vec::new() };
    if step == 0 {
        return Vec::new();
    }
    items.get(from..to).unwrap_or_default().iter().step_by(step).collect()
}

fn collect_descendants<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(value);
    match value {
        Value::Object(map) => map.values().for_each(|v| collect_descendants(v, all)),
        Value::Array(items) => items.iter().for_each(|v| collect_descendants(v, all)),
        _ => {}
    }
}

impl Filter {
    fn matches(&self, item: &Value) -> bool {
        let found = self.path.find(item);
        let Some((comparison, expected)) = &self.condition else { return !found.is_empty() };
        found.iter().any(|value| {
            let order = match (value, expected) {
                (Value::String(l), Value::String(r)) => Some(l.cmp(r)),
                (Value::Bool(l), Value::Bool(r)) => Some(l.cmp(r)),
                (l, r) => l.as_f64().zip(r.as_f64()).and_then(|(l, r)| l.partial_cmp(&r)),
            };
            order.is_some_and(|order| match comparison {
                Comparison::Equal => order.is_eq(),
                Comparison::NotEqual => order.is_ne(),
                Comparison::Less => order.is_lt(),
                Comparison::LessOrEqual => order.is_le(),
                Comparison::Greater => order.is_gt(),
                Comparison::GreaterOrEqual => order.is_ge(),
            })
        })
    }
}

fn parse_steps(text: &str) -> Result<JsonPath, JsonPathError> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '.' if rest.starts_with("..") => {
                steps.push(Step::Recursive);
                parse_field(&rest[2..], &mut steps)
            }
            '.' => parse_field(&rest[1..], &mut steps),
            '[' if rest.starts_with("[?(") => {
                let end = closing_bracket(rest).ok_or(JsonPathError::Unterminated)?;
                steps.push(parse_filter_step(&rest[1..end])?);
                &rest[end + 1..]
            }
            '[' => {
                let end = rest.find(']').ok_or(JsonPathError::Unterminated)?;
                steps.extend(parse_brackets(&rest[1..end])?);
                &rest[end + 1..]
            }
            // Spaces and references to the root object are ignored.
            ' ' | '@' | '$' => &rest[1..],
            other => return Err(JsonPathError::Unexpected(other)),
        };
    }
    Ok(JsonPath(steps))
}

/// Parses a field name up to the next step; a backslash escapes the next character.
fn parse_field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (mut name, mut escaped) = (String::new(), false);
    for (i, c) in text.char_indices() {
        if !escaped && is_terminator(c) {
            return push_field(name, steps, &text[i..]);
        }
        escaped = c == '\\' && !escaped;
        if c != '\\' {
            name.push(c);
        }
    }
    push_field(name, steps, "")
}

/// Returns whether a character ends a field name (`isTerminator`).
fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn push_field<'a>(name: String, steps: &mut Vec<Step>, rest: &'a str) -> &'a str {
    match name.as_str() {
        "" => {}
        "*" => steps.push(Step::All),
        _ => steps.push(Step::Field(name)),
    }
    rest
}

/// Returns the index of the closing bracket of the filter at the start of the text.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

fn parse_filter_step(inner: &str) -> Result<Step, JsonPathError> {
    let text = inner.strip_prefix("?(").and_then(|i| i.strip_suffix(')')).unwrap_or(inner);
    parse_filter(text.trim()).map(Step::Filter).ok_or_else(|| JsonPathError::Filter(text.to_owned()))
}

/// Parses the content of brackets: a union, a quoted name, an index, or a slice.
fn parse_brackets(inner: &str) -> Result<Vec<Step>, JsonPathError> {
    if inner.contains(',') {
        let each = inner.split(',').map(|part| parse_brackets(part.trim_matches(' ')).map(JsonPath));
        return Ok(vec![Step::Union(each.collect::<Result<_, _>>()?)]);
    }
    let quoted = inner.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
        // Upstream parses a quoted name like one after a dot, so an unescaped dot ends it.
        return parse_steps(&format!(".{name}")).map(|path| path.0);
    }
    let bad = || JsonPathError::Index(inner.to_owned());
    let number = |text: &str| if text.is_empty() { Ok(None) } else { text.parse::<i64>().map(Some).map_err(|_| bad()) };
    let parts: Vec<&str> = inner.split(':').collect();
    Ok(vec![match parts.as_slice() {
        ["*"] => Step::Slice(None, None, 1),
        [one] => number(one)?.map(Step::Index).ok_or_else(bad)?,
        [from, to] => Step::Slice(number(from)?, number(to)?, 1),
        [from, to, step] => Step::Slice(number(from)?, number(to)?, number(step)?.unwrap_or(1)),
        _ => return Err(bad()),
    }])
}

fn parse_filter(text: &str) -> Option<Filter> {
    let is_operator = |c: char| "!<>=".contains(c);
    let parse_path = |path: &str| parse_steps(path.trim().strip_prefix('@')?).ok();
    let Some(begin) = text.find(is_operator) else { return Some(Filter { path: parse_path(text)?, condition: None }) };
    let (left, rest) = text.split_at(begin);
    let (operator, right) = rest.split_at(rest.find(|c: char| !is_operator(c))?);
    let comparison = match operator {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<=" => Comparison::LessOrEqual,
        ">=" => Comparison::GreaterOrEqual,
        "<" => Comparison::Less,
        ">" => Comparison::Greater,
        _ => return None,
    };
    Some(Filter { path: parse_path(left)?, condition: Some((comparison, parse_literal(right.trim())?)) })
}

/// Parses a literal: a string in single or double quotes, a number, or a boolean.
fn parse_literal(text: &str) -> Option<Value> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        return Some(Value::from(inner.replace("\\'", "'")));
    }
    serde_json::from_str(text).ok().filter(|v: &Value| v.is_string() || v.is_number() || v.is_boolean())
}
