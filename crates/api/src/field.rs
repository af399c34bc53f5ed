//! Field paths and the errors that name them, in upstream's words (`k8s.io/apimachinery/pkg/util/validation/field`).

use crate::quote::quoted;
use serde_json::Value;
use std::fmt;

/// The path of a field: `spec.containers[0].name`, `metadata.labels[app]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldPath(String);

impl FieldPath {
    /// The path of a top-level field.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The path of a field of this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self([&self.0, ".", name].concat()) }
    }

    /// The path of an element of a list.
    #[must_use]
    pub fn index(&self, i: usize) -> Self {
        Self(format!("{}[{i}]", self.0))
    }

    /// The path of a value of a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self([&self.0, "[", key, "]"].concat())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One cause of a 422, as `Status.details.causes` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// `FieldValueRequired`, `FieldValueInvalid`, ...
    pub reason: &'static str,
    /// The field.
    pub field: String,
    /// For example `Required value: name must be set`.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All errors of one object: validation never stops at the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldErrors(pub Vec<FieldError>);

impl FieldErrors {
    /// Whether the object is valid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A value is missing.
    pub fn required(&mut self, field: &FieldPath, detail: &str) {
        self.push("FieldValueRequired", field, with_detail("Required value", detail));
    }

    /// A value is wrong.
    pub fn invalid(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        self.push("FieldValueInvalid", field, with_detail(&format!("Invalid value: {}", shown(value)), detail));
    }

    /// A value is none of those allowed.
    pub fn not_supported(&mut self, field: &FieldPath, value: &Value, supported: &[&str]) {
        let list = supported.iter().map(|s| quoted(s)).collect::<Vec<_>>().join(", ");
        self.push(
            "FieldValueNotSupported",
            field,
            format!("Unsupported value: {}: supported values: {list}", shown(value)),
        );
    }

    /// A value stands twice.
    pub fn duplicate(&mut self, field: &FieldPath, value: &Value) {
        self.push("FieldValueDuplicate", field, format!("Duplicate value: {}", shown(value)));
    }

    /// A value may not be set here.
    pub fn forbidden(&mut self, field: &FieldPath, detail: &str) {
        self.push("FieldValueForbidden", field, with_detail("Forbidden", detail));
    }

    /// A value is too long.
    pub fn too_long(&mut self, field: &FieldPath, max: usize) {
        self.push("FieldValueTooLong", field, format!("Too long: may not be more than {max} bytes"));
    }

    /// A list has too many elements.
    pub fn too_many(&mut self, field: &FieldPath, count: usize, max: usize) {
        self.push("FieldValueTooMany", field, format!("Too many: {count}: must have at most {max} items"));
    }

    /// Something that the value names does not exist.
    pub fn not_found(&mut self, field: &FieldPath, value: &Value) {
        self.not_found_because(field, value, "");
    }

    /// Something that the value names does not exist, with the names that do.
    pub fn not_found_because(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        self.push("FieldValueNotFound", field, with_detail(&format!("Not found: {}", shown(value)), detail));
    }

    /// A value is of the wrong type.
    pub fn type_invalid(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        self.push("FieldValueTypeInvalid", field, with_detail(&format!("Invalid value: {}", shown(value)), detail));
    }

    /// An error in words of one's own.
    pub fn push(&mut self, reason: &'static str, field: &FieldPath, message: String) {
        self.0.push(FieldError { reason, field: field.to_string(), message });
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

/// As Go's `%#v` of the JSON form: strings quoted, everything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => quoted(s),
        other => other.to_string(),
    }
}
