//! Validation of values by their schema.

use crate::{
    list_item_key::list_item_key,
    schema::{List, ListType, Map, Scalar, Shape, TypeRef},
    type_error::{PathStep, TypeError},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// A value does not match its scalar type, with upstream's message.
#[derive(Debug, thiserror::Error)]
#[error("expected {expected}, got {got}")]
pub(crate) struct ScalarError {
    expected: &'static str,
    got: String,
}

/// Whether duplicate items are allowed in associative lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// Duplicates are allowed, because writes other than apply accept them (`AllowDuplicates`).
    Allowed,
    /// Duplicates are an error.
    Refused,
}

/// Validates that a value matches a type; null matches every type.
///
/// # Errors
/// All mismatches of the value.
pub fn validate<'a>(type_ref: TypeRef<'a>, value: &'a Value, duplicates: Duplicates) -> Result<(), TypeError> {
    let mut validator = Validator { duplicates, path: Vec::new(), errors: TypeError::default() };
    validator.validate_value(type_ref, value);
    validator.errors.result()
}

struct Validator<'a> {
    duplicates: Duplicates,
    path: Vec<PathStep<'a>>,
    errors: TypeError,
}

impl<'a> Validator<'a> {
    fn add_error(&mut self, message: impl Into<String>) {
        self.errors.add(&self.path, message);
    }

    fn validate_value(&mut self, type_ref: TypeRef<'a>, value: &'a Value) {
        match (type_ref.shape(Some(value)), value) {
            (_, Value::Null) => {}
            (Shape::Scalar(scalar), _) => {
                if let Err(error) = check_scalar(scalar, value) {
                    self.add_error(error.to_string());
                }
            }
            (Shape::List(list), Value::Array(items)) => self.validate_list(type_ref, list, items),
            (Shape::List(_), other) => self.add_error(format!("expected list, got {}", format_value(other))),
            (Shape::Map(map), Value::Object(fields)) => self.validate_map(type_ref, map, fields),
            (Shape::Map(_), other) => self.add_error(format!("expected map, got {}", format_value(other))),
        }
    }

    fn validate_list(&mut self, type_ref: TypeRef<'a>, list: &'a List, items: &'a [Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = if list.list_type == ListType::Atomic {
                PathStep::Index(index)
            } else {
                match list_item_key(type_ref, list, item) {
                    Ok(list_item_key) => PathStep::Item(list_item_key),
                    Err(error) => return self.add_error(format!("element {index}: {error}")),
                }
            };
            if let PathStep::Item(list_item_key) = &step
                && !seen.insert(list_item_key.clone())
                && self.duplicates == Duplicates::Refused
            {
                self.add_error(format!("duplicate entries for key {list_item_key}"));
            }
            self.path.push(step);
            self.validate_value(type_ref.with_id(list.element), item);
            self.path.pop();
        }
    }

    fn validate_map(&mut self, type_ref: TypeRef<'a>, map: &'a Map, fields: &'a serde_json::Map<String, Value>) {
        for (name, value) in fields {
            self.path.push(PathStep::Field(name));
            match map.field_type(name) {
                Some(field) => self.validate_value(type_ref.with_id(field), value),
                None => self.add_error("field not declared in schema"),
            }
            self.path.pop();
        }
    }
}

/// Validates that a value matches a scalar type; null matches every type.
pub(crate) fn check_scalar(scalar: Scalar, value: &Value) -> Result<(), ScalarError> {
    let is_valid = match scalar {
        Scalar::String => value.is_string(),
        Scalar::Numeric => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Any => value.is_string() || value.is_number() || value.is_boolean(),
    };
    if is_valid || value.is_null() {
        return Ok(());
    }
    let (expected, got) = match scalar {
        Scalar::String => ("string", format_value(value)),
        Scalar::Numeric => ("numeric (int or float)", go_type(value).to_owned()),
        Scalar::Boolean => ("boolean", format_value(value)),
        Scalar::Any => ("any scalar", format_value(value)),
    };
    Err(ScalarError { expected, got })
}

/// Returns the Go type of a value, as in upstream's messages.
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

/// Formats a value for a message. Upstream prints its memory address.
fn format_value(value: &Value) -> String {
    value.to_string()
}
