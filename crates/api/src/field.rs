//! Field paths and field errors, with the messages of `k8s.io/apimachinery/pkg/util/validation/field`.

use crate::go_quote::quoted;
use serde_json::Value;
use std::fmt;

/// The path of a field: `spec.containers[0].name`, `metadata.labels[app]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldPath(String);

impl FieldPath {
    /// Returns the path of a top-level field.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the path of a child field.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self([&self.0, ".", name].concat()) }
    }

    /// Returns the path of a list element.
    #[must_use]
    pub fn index(&self, i: usize) -> Self {
        Self(format!("{}[{i}]", self.0))
    }

    /// Returns the path of a map value.
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

/// A validation error of a field: one entry of `Status.details.causes` in a 422 response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// `FieldValueRequired`, `FieldValueInvalid`, ...
    pub reason: &'static str,
    /// The path of the field.
    pub field: String,
    /// For example `Required value: name must be set`.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Maximum size of the errors of one object, in bytes. Each error contains the invalid value, so a body of n bytes could
/// cause errors of n² bytes.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// The validation errors of one object; errors beyond 1 MiB of text are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldErrors(pub Vec<FieldError>, usize);

impl FieldErrors {
    /// Returns whether there are no errors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the limit is reached, so that further errors are dropped.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.1 > MAX_ERROR_BYTES
    }

    /// Adds all errors of another list.
    pub fn extend(&mut self, others: Self) {
        for FieldError { reason, field, message } in others.0 {
            self.push(reason, &FieldPath(field), message);
        }
    }

    /// Adds an error for a missing value.
    pub fn required(&mut self, field: &FieldPath, detail: &str) {
        self.push("FieldValueRequired", field, with_detail("Required value", detail));
    }

    /// Adds an error for an invalid value.
    pub fn invalid(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        self.push_with("FieldValueInvalid", field, || {
            with_detail(&format!("Invalid value: {}", format_value(value)), detail)
        });
    }

    /// Adds an error for a value that is none of the supported ones.
    pub fn not_supported(&mut self, field: &FieldPath, value: &Value, supported: &[&str]) {
        self.push_with("FieldValueNotSupported", field, || {
            let list = supported.iter().map(|s| quoted(s)).collect::<Vec<_>>().join(", ");
            format!("Unsupported value: {}: supported values: {list}", format_value(value))
        });
    }

    /// Adds an error for a duplicate value.
    pub fn duplicate(&mut self, field: &FieldPath, value: &Value) {
        self.push_with("FieldValueDuplicate", field, || format!("Duplicate value: {}", format_value(value)));
    }

    /// Adds an error for a value that is forbidden here.
    pub fn forbidden(&mut self, field: &FieldPath, detail: &str) {
        self.push("FieldValueForbidden", field, with_detail("Forbidden", detail));
    }

    /// Adds an error for a value that is too long.
    pub fn too_long(&mut self, field: &FieldPath, max: usize) {
        self.push("FieldValueTooLong", field, format!("Too long: may not be more than {max} bytes"));
    }

    /// Adds an error for a list with too many elements.
    pub fn too_many(&mut self, field: &FieldPath, count: usize, max: usize) {
        self.push("FieldValueTooMany", field, format!("Too many: {count}: must have at most {max} items"));
    }

    /// Adds an error for a value that refers to something that does not exist.
    pub fn not_found(&mut self, field: &FieldPath, value: &Value) {
        self.not_found_because(field, value, "");
    }

    /// Adds an error for a value that refers to something that does not exist, with details.
    pub fn not_found_because(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        self.push_with("FieldValueNotFound", field, || {
            with_detail(&format!("Not found: {}", format_value(value)), detail)
        });
    }

    /// Adds an error for a value of the wrong type.
    pub fn type_invalid(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        let message = || with_detail(&format!("Invalid value: {}", format_value(value)), detail);
        self.push_with("FieldValueTypeInvalid", field, message);
    }

    /// Adds an error with a custom message.
    pub fn push(&mut self, reason: &'static str, field: &FieldPath, message: String) {
        self.push_with(reason, field, || message);
    }

    /// Adds an error whose message is formatted only if it is kept.
    fn push_with(&mut self, reason: &'static str, field: &FieldPath, message: impl FnOnce() -> String) {
        if self.is_full() {
            return;
        }
        let error = FieldError { reason, field: field.to_string(), message: message() };
        self.1 += error.field.len() + error.message.len();
        self.0.push(error);
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

/// Formats a value as Go's `%#v` does: strings quoted, everything else as JSON.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(s) => quoted(s),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_errors_with_large_values_are_bounded() {
        let (mut errors, large) = (FieldErrors::default(), Value::from("x".repeat(100_000)));
        (0..10_000).for_each(|i| errors.invalid(&FieldPath::new("list").index(i), &large, "no"));
        let bytes: usize = errors.0.iter().map(|e| e.field.len() + e.message.len()).sum();
        assert!(errors.is_full() && bytes < MAX_ERROR_BYTES + 200_000, "{bytes}");
        let mut all = FieldErrors::default();
        (0..100).for_each(|_| all.extend(errors.clone()));
        assert!(all.0.len() <= errors.0.len());
    }
}
