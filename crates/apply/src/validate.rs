//! Whether a value is of its type.

use crate::{
    identity::identity,
    schema::{List, ListType, Map, Scalar, Shape, TypeRef},
    typed::{Step, TypeError},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Whether an item may stand twice in a list whose items are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// They may, as in objects that came in another way than by apply.
    Allowed,
    /// They are an error.
    Refused,
}

/// Checks that a value is of this type; null is of every type.
///
/// # Errors
/// Everything that is wrong with it.
pub fn validate<'a>(of: TypeRef<'a>, value: &'a Value, duplicates: Duplicates) -> Result<(), TypeError> {
    let mut walk = Walk { duplicates, path: Vec::new(), errors: TypeError::default() };
    walk.any(of, value);
    walk.errors.result()
}

struct Walk<'a> {
    duplicates: Duplicates,
    path: Vec<Step<'a>>,
    errors: TypeError,
}

impl<'a> Walk<'a> {
    fn wrong(&mut self, why: impl Into<String>) {
        self.errors.add(&self.path, why);
    }

    fn any(&mut self, of: TypeRef<'a>, value: &'a Value) {
        match (of.shape(Some(value)), value) {
            (_, Value::Null) => {}
            (Shape::Scalar(scalar), _) => {
                if let Err(why) = check_scalar(scalar, value) {
                    self.wrong(why);
                }
            }
            (Shape::List(list), Value::Array(items)) => self.list(of, list, items),
            (Shape::List(_), other) => self.wrong(format!("expected list, got {}", shown(other))),
            (Shape::Map(map), Value::Object(fields)) => self.map(of, map, fields),
            (Shape::Map(_), other) => self.wrong(format!("expected map, got {}", shown(other))),
        }
    }

    fn list(&mut self, of: TypeRef<'a>, list: &'a List, items: &'a [Value]) {
        let mut seen = BTreeSet::new();
        for (place, item) in items.iter().enumerate() {
            let step = if list.list_type == ListType::Atomic {
                Step::Place(place)
            } else {
                match identity(of, list, item) {
                    Ok(identity) => Step::Item(identity),
                    Err(why) => return self.wrong(format!("element {place}: {why}")),
                }
            };
            if let Step::Item(identity) = &step
                && !seen.insert(identity.clone())
                && self.duplicates == Duplicates::Refused
            {
                self.wrong(format!("duplicate entries for key {identity}"));
            }
            self.path.push(step);
            self.any(of.at(list.element), item);
            self.path.pop();
        }
    }

    fn map(&mut self, of: TypeRef<'a>, map: &'a Map, fields: &'a serde_json::Map<String, Value>) {
        for (name, value) in fields {
            self.path.push(Step::Field(name));
            match map.of(name) {
                Some(field) => self.any(of.at(field), value),
                None => self.wrong("field not declared in schema"),
            }
            self.path.pop();
        }
    }
}

/// Whether a plain value is of this type; null is.
pub(crate) fn check_scalar(scalar: Scalar, value: &Value) -> Result<(), String> {
    let right = match scalar {
        Scalar::String => value.is_string(),
        Scalar::Numeric => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Any => value.is_string() || value.is_number() || value.is_boolean(),
    };
    if right || value.is_null() {
        return Ok(());
    }
    Err(match scalar {
        Scalar::String => format!("expected string, got {}", shown(value)),
        Scalar::Numeric => format!("expected numeric (int or float), got {}", go_type(value)),
        Scalar::Boolean => format!("expected boolean, got {}", shown(value)),
        Scalar::Any => format!("expected any scalar, got {}", shown(value)),
    })
}

/// What upstream's messages call the type of a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Number(_) => "int64",
        Value::Null => "null",
    }
}

/// A value in a message. Upstream's shows where in memory it stood.
fn shown(value: &Value) -> String {
    value.to_string()
}
