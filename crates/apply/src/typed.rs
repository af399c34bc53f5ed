//! What all walks over typed values share: the identity of a list's items, and errors with their paths.

use crate::{
    element::Element,
    schema::{List, ListType, Shape, TypeRef},
    value,
};
use serde_json::Value;
use std::fmt;

/// In what ways a value is not of its type; in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeError(Vec<(String, String)>);

impl TypeError {
    /// Notes what is wrong at a path.
    pub(crate) fn add(&mut self, path: &[Step<'_>], why: impl Into<String>) {
        let path: String = path.iter().map(ToString::to_string).collect();
        self.0.push((path, why.into()));
    }

    pub(crate) fn result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line =
            |(path, why): &(String, String)| if path.is_empty() { why.clone() } else { format!("{path}: {why}") };
        match self.0.as_slice() {
            [one] => f.write_str(&line(one)),
            all => {
                f.write_str("errors:")?;
                all.iter().try_for_each(|e| write!(f, "\n  {}", line(e)))
            }
        }
    }
}

impl std::error::Error for TypeError {}

/// A step of the path of an error; made into text only when there is one.
#[derive(Debug, Clone)]
pub(crate) enum Step<'a> {
    Field(&'a str),
    Item(Element),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Item(element) => element.fmt(f),
        }
    }
}

/// What tells an item of a merged list from the others.
pub(crate) fn identity(of: TypeRef<'_>, list: &List, item: &Value) -> Result<Element, String> {
    match &list.list_type {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListType::Map(keys) => key(of, list, keys, item),
        ListType::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            plain => Ok(Element::Value(plain.clone())),
        },
    }
}

fn key(of: TypeRef<'_>, list: &List, keys: &[Box<str>], item: &Value) -> Result<Element, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let default = |name: &str| match of.at(list.element).shape(None) {
        Shape::Map(map) => map.field(name).and_then(|f| f.default.clone()),
        Shape::List(_) | Shape::Scalar(_) => None,
    };
    let values = keys.iter().filter_map(|name| {
        // A key that is absent and has no default makes another item than any value of it.
        let value = fields.get(name.as_ref()).cloned().or_else(|| default(name))?;
        Some((name.as_ref(), value))
    });
    match Element::key(values) {
        Element::Key(found) if found.is_empty() => {
            let names: Vec<String> = keys.iter().map(|k| value::quote(k)).collect();
            Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ))
        }
        element => Ok(element),
    }
}
