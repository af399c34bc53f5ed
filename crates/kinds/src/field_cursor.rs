//! A field with its path: a validation names a field once, for the value and for the path in its error.

use crate::{FieldErrors, FieldPath};
use serde_json::Value;
use std::collections::HashSet;

/// A field of an object. Reads do not allocate: the path is built when it is requested, which most validations do for an error
/// only.
///
/// `xtask/tests/field_names` checks the names of [`FieldCursor::at`] against the types of Kubernetes.
#[derive(Clone, Copy)]
pub(crate) struct FieldCursor<'v, 'p> {
    value: &'v Value,
    step: Step<'v, 'p>,
}

/// The last part of a path.
#[derive(Clone, Copy)]
enum Step<'v, 'p> {
    Object,
    /// A field whose path is known.
    Path(&'p FieldPath),
    Child(&'p FieldCursor<'v, 'p>, &'p str),
    Index(&'p FieldCursor<'v, 'p>, usize),
    Key(&'p FieldCursor<'v, 'p>, &'p str),
}

impl<'v, 'p> FieldCursor<'v, 'p> {
    /// Returns the cursor of an object, whose fields have paths such as `spec`.
    pub(crate) fn object(value: &'v Value) -> Self {
        Self { value, step: Step::Object }
    }

    /// Returns the cursor of a value with a path.
    pub(crate) fn new(value: &'v Value, path: &'p FieldPath) -> Self {
        Self { value, step: Step::Path(path) }
    }

    /// Returns a field of the object; its value is null if it is absent.
    pub(crate) fn at<'c>(&'c self, name: &'c str) -> FieldCursor<'v, 'c> {
        FieldCursor { value: &self.value[name], step: Step::Child(self, name) }
    }

    /// Returns the elements of the list; none if it is absent.
    pub(crate) fn items<'c>(&'c self) -> impl Iterator<Item = FieldCursor<'v, 'c>> {
        let all = self.value.as_array().into_iter().flatten().enumerate();
        all.map(|(i, value)| FieldCursor { value, step: Step::Index(self, i) })
    }

    /// Returns the elements of the list that equal an earlier one.
    pub(crate) fn duplicates<'c>(&'c self) -> impl Iterator<Item = FieldCursor<'v, 'c>> {
        let mut seen = HashSet::new();
        self.items().filter(move |item| !seen.insert(item.value))
    }

    /// Returns the value of a key of the map; it is null if it is absent. Its path is `labels[app]`.
    pub(crate) fn key<'c>(&'c self, key: &'c str) -> FieldCursor<'v, 'c> {
        FieldCursor { value: &self.value[key], step: Step::Key(self, key) }
    }

    /// Returns the keys of the map with their values; none if it is absent.
    pub(crate) fn entries<'c>(&'c self) -> impl Iterator<Item = (&'v str, FieldCursor<'v, 'c>)> {
        let all = self.value.as_object().into_iter().flatten();
        all.map(|(key, value)| (key.as_str(), FieldCursor { value, step: Step::Key(self, key) }))
    }

    /// Returns another value with the path of this field, for errors whose path in upstream differs from the field's.
    pub(crate) fn with_value(&self, value: &'v Value) -> Self {
        Self { value, ..*self }
    }

    /// Returns the field with another name in its path, for errors whose path in upstream differs from the field's.
    pub(crate) fn shown_as(&self, name: &'p str) -> Self {
        match self.step {
            Step::Child(parent, _) => Self { step: Step::Child(parent, name), ..*self },
            _ => *self,
        }
    }

    /// Returns the number of elements of the list.
    pub(crate) fn count(&self) -> usize {
        self.value.as_array().map_or(0, Vec::len)
    }

    pub(crate) fn value(&self) -> &'v Value {
        self.value
    }

    /// Returns the string; an empty one if it is absent.
    pub(crate) fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or("")
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(crate) fn is_true(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    pub(crate) fn is_false(&self) -> bool {
        self.value == &Value::Bool(false)
    }

    /// Whether the field is absent or null.
    pub(crate) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    /// Whether the field is present and not null.
    pub(crate) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    pub(crate) fn path(&self) -> FieldPath {
        match self.step {
            Step::Object => FieldPath::default(),
            Step::Path(path) => path.clone(),
            Step::Child(parent, name) => parent.path().child(name),
            Step::Index(parent, i) => parent.path().index(i),
            Step::Key(parent, key) => parent.path().key(key),
        }
    }

    /// Adds an error for a missing value.
    pub(crate) fn required(&self, detail: &str, errors: &mut FieldErrors) {
        errors.required(&self.path(), detail);
    }

    /// Adds an error for an invalid value.
    pub(crate) fn invalid(&self, detail: &str, errors: &mut FieldErrors) {
        errors.invalid(&self.path(), self.value, detail);
    }

    /// Adds an error for an invalid value, which it does not show (`field.OmitValueType`).
    pub(crate) fn invalid_without_value(&self, detail: &str, errors: &mut FieldErrors) {
        errors.push("FieldValueInvalid", &self.path(), format!("Invalid value: {detail}"));
    }

    /// Adds an error for a value that is forbidden here.
    pub(crate) fn forbidden(&self, detail: &str, errors: &mut FieldErrors) {
        errors.forbidden(&self.path(), detail);
    }

    /// Adds an error for a list with too many elements.
    pub(crate) fn too_many(&self, max: usize, errors: &mut FieldErrors) {
        errors.too_many(&self.path(), self.count(), max);
    }

    /// Adds an error for a value that is too long.
    pub(crate) fn too_long(&self, max: usize, errors: &mut FieldErrors) {
        errors.too_long(&self.path(), max);
    }

    /// Adds an error for a value that is none of the supported ones.
    pub(crate) fn not_supported(&self, allowed: &[&str], errors: &mut FieldErrors) {
        errors.not_supported(&self.path(), self.value, allowed);
    }

    /// Adds an error for a value that refers to something that does not exist.
    pub(crate) fn not_found(&self, errors: &mut FieldErrors) {
        errors.not_found(&self.path(), self.value);
    }

    /// Adds an error for a value that equals another one.
    pub(crate) fn duplicate(&self, errors: &mut FieldErrors) {
        errors.duplicate(&self.path(), self.value);
    }

    /// Validates a required field with an enumeration of values.
    pub(crate) fn one_of(&self, allowed: &[&str], errors: &mut FieldErrors) {
        if self.text().is_empty() { self.required("", errors) } else { self.supported(allowed, errors) }
    }

    /// Validates a field with an enumeration of values, which a default has set: an empty value is not supported.
    pub(crate) fn supported(&self, allowed: &[&str], errors: &mut FieldErrors) {
        if !allowed.contains(&self.text()) {
            self.not_supported(allowed, errors);
        }
    }

    /// Applies a validation of strings, which returns the problems.
    pub(crate) fn validate_text(&self, validate: impl FnOnce(&str) -> Vec<String>, errors: &mut FieldErrors) {
        validate(self.text()).iter().for_each(|problem| self.invalid(problem, errors));
    }

    /// Applies a validation of strings to a required field.
    pub(crate) fn validate_required_text(&self, validate: impl FnOnce(&str) -> Vec<String>, errors: &mut FieldErrors) {
        if self.text().is_empty() { self.required("", errors) } else { self.validate_text(validate, errors) }
    }

    /// Validates that the field does not change (`ValidateImmutableField`).
    pub(crate) fn validate_immutable(&self, old: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
        if self.value != old.value {
            self.invalid("field is immutable", errors);
        }
    }

    /// Validates that the integer is a port number.
    pub(crate) fn validate_port(&self, errors: &mut FieldErrors) {
        if !self.integer().is_some_and(|n| (1..=65_535).contains(&n)) {
            self.invalid("must be between 1 and 65535, inclusive", errors);
        }
    }

    /// Validates that the integer is not negative (`ValidateNonnegativeField`).
    pub(crate) fn nonnegative(&self, errors: &mut FieldErrors) {
        if self.integer().is_some_and(|n| n < 0) {
            self.invalid("must be greater than or equal to 0", errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cursor_reads_value_and_reports_its_path() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "stdin": true}], "priority": -1}});
        let (pod, mut errors) = (FieldCursor::object(&pod), FieldErrors::default());
        let spec = pod.at("spec");
        for container in spec.at("containers").items() {
            container.at("name").supported(&["a"], &mut errors);
        }
        spec.at("priority").nonnegative(&mut errors);
        spec.at("restartPolicy").one_of(&["Always"], &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "spec.containers[1].name: Unsupported value: \"b\": supported values: \"a\"",
                "spec.priority: Invalid value: -1: must be greater than or equal to 0",
                "spec.restartPolicy: Required value",
            ]
        );
        assert_eq!(spec.at("containers").count(), 2);
        let path = FieldPath::new("template").child("spec");
        assert_eq!(FieldCursor::new(pod.value(), &path).at("hostname").path().to_string(), "template.spec.hostname");
    }

    #[test]
    fn map_entry_has_path_with_its_key() {
        let pod = json!({"metadata": {"labels": {"app": "web", "b": "B_"}}});
        let (pod, mut errors) = (FieldCursor::object(&pod), FieldErrors::default());
        let metadata = pod.at("metadata");
        let labels = metadata.at("labels");
        let keys: Vec<&str> = labels.entries().map(|(key, _)| key).collect();
        assert_eq!(keys, ["app", "b"]);
        labels.entries().for_each(|(_, value)| value.supported(&["web"], &mut errors));
        labels.key("c").required("", &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "metadata.labels[b]: Unsupported value: \"B_\": supported values: \"web\"",
                "metadata.labels[c]: Required value",
            ]
        );
    }

    #[test]
    fn error_can_have_another_name_or_value() {
        let spec = json!({"hostPID": true, "hostnames": ["a", "b", "a"]});
        let (spec, mut errors) = (FieldCursor::object(&spec), FieldErrors::default());
        let names = spec.at("hostnames");
        spec.at("hostPID").shown_as("HostPID").forbidden("no", &mut errors);
        names.duplicates().for_each(|name| name.duplicate(&mut errors));
        names.items().skip(1).take(1).for_each(|name| names.with_value(name.value()).invalid("no", &mut errors));
        let old = json!({"hostPID": false});
        spec.at("hostPID").validate_immutable(&FieldCursor::object(&old).at("hostPID"), &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "HostPID: Forbidden: no",
                "hostnames[2]: Duplicate value: \"a\"",
                "hostnames: Invalid value: \"b\": no",
                "hostPID: Invalid value: true: field is immutable",
            ]
        );
    }
}
