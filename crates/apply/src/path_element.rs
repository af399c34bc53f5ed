//! Elements of field paths (`fieldpath.PathElement`).

use crate::value::{format_value, lexicographic_order, order};
use serde_json::{Map, Value};
use std::{cmp::Ordering, fmt, sync::Arc};

/// An element of a path: a field, or an item of a list.
///
/// Elements are ordered as upstream: fields, then items by key, by value, by index. Clones share their names.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A field of a struct, or a key of a map: `f:name`.
    Field(Arc<str>),
    /// The item of a list whose key fields have these values, sorted by name: `k:{"name":"a"}`.
    Key(Arc<[(Box<str>, Value)]>),
    /// The item of a set that has this value: `v:"a"`.
    Value(Value),
    /// The item at this index of a list: `i:0`.
    Index(i64),
}

/// Error for an invalid path element, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathElementError {
    /// Missing prefix of the element type.
    #[error("missing colon: {0}")]
    NoColon(String),
    /// The type is not one of `f`, `k`, `v` and `i`. Parsers of sets skip the element.
    #[error("unknown path element type")]
    UnknownType,
    /// The content is invalid for the type.
    #[error("{0}")]
    Content(String),
}

impl PathElement {
    /// Creates the element of a field.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Creates the element of a list item with these key fields.
    #[must_use]
    pub fn key<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let mut fields: Vec<(Box<str>, Value)> = fields.into_iter().map(|(k, v)| (k.into(), v)).collect();
        fields.sort_by(|l, r| l.0.cmp(&r.0));
        Self::Key(fields.into())
    }

    /// Serializes the element for `fieldsV1` (`SerializePathElement`).
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(k, v)| format!("{}:{v}", Value::from(k.as_ref()))).collect();
                format!("k:{}", escape_html(format!("{{{}}}", fields.join(","))))
            }
            Self::Value(value) => format!("v:{}", escape_html(value.to_string())),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Parses the output of [`Self::to_text`] (`DeserializePathElement`).
    ///
    /// # Errors
    /// When the text is not a path element.
    pub fn from_text(text: &str) -> Result<Self, PathElementError> {
        let (kind, content) = text.split_once(':').ok_or_else(|| PathElementError::NoColon(text.to_owned()))?;
        let bad = |e: &dyn fmt::Display| PathElementError::Content(e.to_string());
        match kind {
            "f" => Ok(Self::field(content)),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(content).map_err(|e| bad(&e))?;
                // JSON maps are sorted here, as key fields must be.
                Ok(Self::Key(fields.into_iter().map(|(k, v)| (k.into(), v)).collect()))
            }
            "v" => serde_json::from_str(content).map(Self::Value).map_err(|e| bad(&e)),
            "i" => content.parse().map(Self::Index).map_err(|e| bad(&e)),
            _ => Err(PathElementError::UnknownType),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// Escapes characters as Go's JSON encoder does to make its output safe for HTML.
fn escape_html(json: String) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => safe.push(c),
        }
    }
    safe
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(l), Self::Field(r)) => l.cmp(r),
            (Self::Key(l), Self::Key(r)) => {
                let pairs = l.iter().zip(r.iter()).map(|((lk, l), (rk, r))| lk.cmp(rk).then_with(|| order(l, r)));
                lexicographic_order(pairs, l.len(), r.len())
            }
            (Self::Value(l), Self::Value(r)) => order(l, r),
            (Self::Index(l), Self::Index(r)) => l.cmp(r),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// Formats the element for messages: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{k}={}", format_value(v))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", format_value(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}
