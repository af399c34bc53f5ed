//! The part of Kubernetes' JSONPath that columns, scale and selectable fields are written in: `.status.conditions[0].type`,
//! `.spec.list[*].name`, `.status.conditions[?(@.type=="Ready")].status`, `.metadata.labels.a\.b/c`, `['name']`, `..name`.

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
    Slice(Option<i64>, Option<i64>, usize),
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

    /// The names of the fields that it goes through, if it is nothing but fields.
    #[must_use]
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.0.iter().map(|step| if let Step::Field(name) = step { Some(name.as_str()) } else { None }).collect()
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
            (Self::Slice(from, to, step), Value::Array(items)) => {
                let bound =
                    |i: i64| if i < 0 { place(i, items.len()).unwrap_or(0) } else { usize::try_from(i).unwrap_or(0) };
                let (from, to) = (from.map_or(0, bound), to.map_or(items.len(), bound).min(items.len()));
                items.get(from..to).unwrap_or_default().iter().step_by((*step).max(1)).collect()
            }
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
            '[' => {
                let end = closing(rest).ok_or(PathError::Unterminated)?;
                steps.push(bracket(rest[1..end].trim())?);
                &rest[end + 1..]
            }
            other => return Err(PathError::Unexpected(other)),
        };
    }
    Ok(JsonPath(steps))
}

/// A name up to the next step; a backslash makes a dot part of it.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let (mut name, mut escaped) = (String::new(), false);
    for (i, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => {
                return end_of(name, steps, &text[i..]);
            }
            c => {
                name.push(c);
                escaped = false;
            }
        }
    }
    end_of(name, steps, "")
}

fn end_of<'a>(name: String, steps: &mut Vec<Step>, rest: &'a str) -> &'a str {
    match name.as_str() {
        "" => {}
        "*" => steps.push(Step::All),
        _ => steps.push(Step::Field(name)),
    }
    rest
}

/// Where the bracket ends that the text begins with.
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

fn bracket(inner: &str) -> Result<Step, PathError> {
    if inner == "*" {
        return Ok(Step::All);
    }
    if let Some(condition) = inner.strip_prefix("?(").and_then(|i| i.strip_suffix(')')) {
        return filter(condition.trim()).ok_or_else(|| PathError::Filter(condition.to_owned())).map(Step::Filter);
    }
    if let Some(Value::String(name)) = literal(inner) {
        return Ok(Step::Field(name));
    }
    let bad = || PathError::Index(inner.to_owned());
    let number = |text: &str| if text.is_empty() { Ok(None) } else { text.parse::<i64>().map(Some).map_err(|_| bad()) };
    let parts: Vec<&str> = inner.split(':').map(str::trim).collect();
    match parts.as_slice() {
        [one] => number(one)?.map(Step::Index).ok_or_else(bad),
        [from, to] => Ok(Step::Slice(number(from)?, number(to)?, 1)),
        [from, to, step] => {
            let step = number(step)?.unwrap_or(1);
            Ok(Step::Slice(number(from)?, number(to)?, usize::try_from(step).ok().filter(|s| *s > 0).ok_or_else(bad)?))
        }
        _ => Err(bad()),
    }
}

fn filter(text: &str) -> Option<Filter> {
    let all = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let own = |path: &str| steps(path.trim().strip_prefix('@')?).ok();
    match all.into_iter().find_map(|(sign, comparison)| Some((text.split_once(sign)?, comparison))) {
        Some(((left, right), comparison)) => {
            Some(Filter { path: own(left)?, condition: Some((comparison, literal(right.trim())?)) })
        }
        None => Some(Filter { path: own(text)?, condition: None }),
    }
}

/// Text in quotes of either kind, a number, or a flag.
fn literal(text: &str) -> Option<Value> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        return Some(Value::from(inner.replace("\\'", "'")));
    }
    serde_json::from_str(text).ok().filter(|v: &Value| v.is_string() || v.is_number() || v.is_boolean())
}
