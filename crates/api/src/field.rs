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

/// How many bytes the errors of one object may take. A value that a client sends is in the text of each error about it,
/// so a body of n bytes can have errors of n² bytes.
const MAX_TEXT: usize = 1 << 20;

/// The errors of one object, which are those of all its fields until their texts take 1 MiB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldErrors(pub Vec<FieldError>, usize);

impl FieldErrors {
    /// Whether the object is valid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are so many errors that no more are kept.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.1 > MAX_TEXT
    }

    /// Adds the errors of a part of the object.
    pub fn extend(&mut self, others: Self) {
        for FieldError { reason, field, message } in others.0 {
            self.push(reason, &FieldPath(field), message);
        }
    }

    /// A value is missing.
    pub fn required(&mut self, field: &FieldPath, detail: &str) {
        self.push("FieldValueRequired", field, with_detail("Required value", detail));
    }

    /// A value is wrong.
    pub fn invalid(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        self.push_with("FieldValueInvalid", field, || with_detail(&format!("Invalid value: {}", shown(value)), detail));
    }

    /// A value is none of those allowed.
    pub fn not_supported(&mut self, field: &FieldPath, value: &Value, supported: &[&str]) {
        self.push_with("FieldValueNotSupported", field, || {
            let list = supported.iter().map(|s| quoted(s)).collect::<Vec<_>>().join(", ");
            format!("Unsupported value: {}: supported values: {list}", shown(value))
        });
    }

    /// A value stands twice.
    pub fn duplicate(&mut self, field: &FieldPath, value: &Value) {
        self.push_with("FieldValueDuplicate", field, || format!("Duplicate value: {}", shown(value)));
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
        self.push_with("FieldValueNotFound", field, || with_detail(&format!("Not found: {}", shown(value)), detail));
    }

    /// A value is of the wrong type.
    pub fn type_invalid(&mut self, field: &FieldPath, value: &Value, detail: &str) {
        let message = || with_detail(&format!("Invalid value: {}", shown(value)), detail);
        self.push_with("FieldValueTypeInvalid", field, message);
    }

    /// An error in words of one's own.
    pub fn push(&mut self, reason: &'static str, field: &FieldPath, message: String) {
        self.push_with(reason, field, || message);
    }

    /// An error whose text is made only if it is kept.
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

/// As Go's `%#v` of the JSON form: strings quoted, everything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => quoted(s),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_show_a_large_value_are_bounded() {
        let (mut errors, large) = (FieldErrors::default(), Value::from("x".repeat(100_000)));
        (0..10_000).for_each(|i| errors.invalid(&FieldPath::new("list").index(i), &large, "no"));
        let bytes: usize = errors.0.iter().map(|e| e.field.len() + e.message.len()).sum();
        assert!(errors.is_full() && bytes < MAX_TEXT + 200_000, "{bytes}");
        let mut all = FieldErrors::default();
        (0..100).for_each(|_| all.extend(errors.clone()));
        assert!(all.0.len() <= errors.0.len());
    }
}
