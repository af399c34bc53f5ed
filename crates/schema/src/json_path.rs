//! The part of Kubernetes' JSONPath that columns and selectable fields are written in: `.status.conditions[0].type`,
//! `.spec.list[*].name`, `.status.conditions[?(@.type=="Ready")].status`, `.metadata.labels.a\.b/c`, `['a\.b/c']`,
//! `['a','b']`, `..name` (`client-go/util/jsonpath`).

use serde_json::Value;

/// A path that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

/// Why a path is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin as paths do.
    #[error("must be a json path starting with .")]
    Start,
    /// What stands in brackets is not understood.
    #[error("invalid array index {0}")]
    Index(String),
    /// A bracket is not closed.
    #[error("unterminated array")]
    Unterminated,
    /// A filter is not understood.
    #[error("unrecognized filter {0}")]
    Filter(String),
    /// Something else stands where a step should begin.
    #[error("unexpected {0:?}")]
    Unexpected(char),
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// From the end, if it is negative.
    Index(i64),
    /// From, to, and how far apart.
    Slice(Option<i64>, Option<i64>, i64),
    /// What each of them leads to, one after the other.
    Union(Vec<JsonPath>),
    All,
    /// Of everything below, too.
    Descend,
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    path: JsonPath,
    /// Without one, it must only be there.
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
    /// Reads a path that begins with a dot, as those of CustomResourceDefinitions do.
    ///
    /// # Errors
    /// When it is not of the form described above.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if !text.starts_with('.') {
            return Err(PathError::Start);
        }
        steps(text)
    }

    /// What the path leads to.
    #[must_use]
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.from(value)).collect();
        }
        found
    }
}

impl Step {
    fn from<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::Index(i), Value::Array(items)) => {
                place(*i, items.len()).and_then(|i| items.get(i)).into_iter().collect()
            }
            (Self::Slice(from, to, step), Value::Array(items)) => slice(*from, *to, *step, items),
            (Self::Union(paths), value) => paths.iter().flat_map(|path| path.find(value)).collect(),
            (Self::Filter(filter), Value::Array(items)) => items.iter().filter(|item| filter.takes(item)).collect(),
            (Self::Descend, value) => {
                let mut all = Vec::new();
                descend(value, &mut all);
                all
            }
            _ => Vec::new(),
        }
    }
}

fn place(i: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if i < 0 { i + length } else { i }).ok()
}

/// Upstream shows nothing of a part that is not all there.
fn slice(from: Option<i64>, to: Option<i64>, step: i64, items: &[Value]) -> Vec<&Value> {
    let (from, to) = (place(from.unwrap_or(0), items.len()), to.map_or(Some(items.len()), |to| place(to, items.len())));
    let (Some(from), Some(to), Ok(step)) = (from, to, usize::try_from(step)) else { return Vec::new() };
    if step == 0 {
        return Vec::new();
    }
    items.get(from..to).unwrap_or_default().iter().step_by(step).collect()
}

fn descend<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(value);
    match value {
        Value::Object(map) => map.values().for_each(|v| descend(v, all)),
        Value::Array(items) => items.iter().for_each(|v| descend(v, all)),
        _ => {}
    }
}

impl Filter {
    fn takes(&self, item: &Value) -> bool {
        let found = self.path.find(item);
        let Some((comparison, wanted)) = &self.condition else { return !found.is_empty() };
        found.iter().any(|value| {
            let order = match (value, wanted) {
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

fn steps(text: &str) -> Result<JsonPath, PathError> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '.' if rest.starts_with("..") => {
                steps.push(Step::Descend);
                field(&rest[2..], &mut steps)
            }
            '.' => field(&rest[1..], &mut steps),
            '[' if rest.starts_with("[?(") => {
                let end = closing(rest).ok_or(PathError::Unterminated)?;
                steps.push(condition(&rest[1..end])?);
                &rest[end + 1..]
            }
            '[' => {
                let end = rest.find(']').ok_or(PathError::Unterminated)?;
                steps.extend(bracket(&rest[1..end])?);
                &rest[end + 1..]
            }
            // A space says nothing, and neither does the object that is meant anyway.
            ' ' | '@' | '$' => &rest[1..],
            other => return Err(PathError::Unexpected(other)),
        };
    }
    Ok(JsonPath(steps))
}

/// A name up to the next step; a backslash makes what follows it part of the name.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (mut name, mut escaped) = (String::new(), false);
    for (i, c) in text.char_indices() {
        if !escaped && is_end(c) {
            return end_of(name, steps, &text[i..]);
        }
        escaped = c == '\\' && !escaped;
        if c != '\\' {
            name.push(c);
        }
    }
    end_of(name, steps, "")
}

/// `isTerminator`.
fn is_end(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn end_of<'a>(name: String, steps: &mut Vec<Step>, rest: &'a str) -> &'a str {
    match name.as_str() {
        "" => {}
        "*" => steps.push(Step::All),
        _ => steps.push(Step::Field(name)),
    }
    rest
}

/// Where the bracket of a filter ends that the text begins with.
fn closing(text: &str) -> Option<usize> {
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

fn condition(inner: &str) -> Result<Step, PathError> {
    let text = inner.strip_prefix("?(").and_then(|i| i.strip_suffix(')')).unwrap_or(inner);
    filter(text.trim()).map(Step::Filter).ok_or_else(|| PathError::Filter(text.to_owned()))
}

/// What stands in brackets: several of them, a name in quotes, a place, or a part of a list.
fn bracket(inner: &str) -> Result<Vec<Step>, PathError> {
    if inner.contains(',') {
        let each = inner.split(',').map(|part| bracket(part.trim_matches(' ')).map(JsonPath));
        return Ok(vec![Step::Union(each.collect::<Result<_, _>>()?)]);
    }
    let quoted = inner.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
        // It is read as behind a dot: one that is not escaped ends the name, in quotes, too.
        return steps(&format!(".{name}")).map(|path| path.0);
    }
    let bad = || PathError::Index(inner.to_owned());
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

fn filter(text: &str) -> Option<Filter> {
    let is_sign = |c: char| "!<>=".contains(c);
    let own = |path: &str| steps(path.trim().strip_prefix('@')?).ok();
    let Some(begin) = text.find(is_sign) else { return Some(Filter { path: own(text)?, condition: None }) };
    let (left, rest) = text.split_at(begin);
    let (sign, right) = rest.split_at(rest.find(|c: char| !is_sign(c))?);
    let comparison = match sign {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<=" => Comparison::LessOrEqual,
        ">=" => Comparison::GreaterOrEqual,
        "<" => Comparison::Less,
        ">" => Comparison::Greater,
        _ => return None,
    };
    Some(Filter { path: own(left)?, condition: Some((comparison, literal(right.trim())?)) })
}

/// Text in quotes of either kind, a number, or a flag.
fn literal(text: &str) -> Option<Value> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        return Some(Value::from(inner.replace("\\'", "'")));
    }
    serde_json::from_str(text).ok().filter(|v: &Value| v.is_string() || v.is_number() || v.is_boolean())
}
