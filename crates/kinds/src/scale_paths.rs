//! Paths of the scale fields in an object, and their validation (upstream's `customresource/validator.go` and
//! `unstructured/helpers.go`).

use crate::{FieldErrors, FieldPath};
use api::float;
use serde_json::{Value, json};

/// A field has the wrong type, with the message of upstream's accessors.
#[derive(Debug, thiserror::Error)]
#[error("{path} accessor error: {value} is of the type {found}, expected {expected}")]
pub struct FieldAccessorError {
    path: String,
    value: String,
    found: &'static str,
    expected: &'static str,
}

/// Paths of desired replicas, current replicas and selector.
#[derive(Debug, Clone, Default)]
pub struct ScalePaths {
    /// Path of the desired replicas.
    pub spec_replicas: Vec<String>,
    /// Path of the current replicas.
    pub status_replicas: Vec<String>,
    /// Path of the selector, a string.
    pub label_selector: Vec<String>,
}

/// The paths of built-in kinds.
pub(crate) static BUILT_IN: ScalePaths =
    ScalePaths { spec_replicas: Vec::new(), status_replicas: Vec::new(), label_selector: Vec::new() };

impl ScalePaths {
    /// Parses the paths of a custom resource's `scale` subresource.
    pub(crate) fn read(scale: &Value) -> Self {
        let path = |key: &str| -> Vec<String> {
            let text = scale[key].as_str().unwrap_or("");
            text.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        Self {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            label_selector: path("labelSelectorPath"),
        }
    }

    /// Whether they are those of built-in kinds, which have fixed fields.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.spec_replicas.is_empty()
    }

    /// Whether `specReplicasPath` of a custom resource does not exist.
    pub fn is_unset(&self, object: &Value) -> bool {
        !self.is_built_in() && matches!(nested_i64(object, &self.spec_replicas), Ok(None))
    }

    /// Returns `specReplicasPath`.
    pub fn spec_replicas_path(&self) -> String {
        path_text(&self.spec_replicas)
    }

    /// Checks the types of the scale fields (upstream's `scaleFromCustomResource`).
    pub fn check_types(&self, object: &Value) -> Result<(), FieldAccessorError> {
        if self.is_built_in() {
            return Ok(());
        }
        nested_i64(object, &self.spec_replicas)?;
        nested_i64(object, &self.status_replicas)?;
        nested_string(object, &self.label_selector)
    }

    /// `ValidateScaleSpec`.
    pub(crate) fn validate_spec(&self, object: &Value, errors: &mut FieldErrors) {
        if !self.is_built_in() {
            validate_replicas(object, &self.spec_replicas, errors);
        }
    }

    /// `ValidateScaleStatus`.
    pub(crate) fn validate_status(&self, object: &Value, errors: &mut FieldErrors) {
        if self.is_built_in() {
            return;
        }
        validate_replicas(object, &self.status_replicas, errors);
        if let Err(error) = nested_string(object, &self.label_selector) {
            errors.invalid(&FieldPath::new(&path_text(&self.label_selector)), &json!(""), &error.to_string());
        }
    }
}

/// Validates a number of replicas.
fn validate_replicas(object: &Value, path: &[String], errors: &mut FieldErrors) {
    let at = FieldPath::new(&path_text(path));
    match nested_i64(object, path) {
        Err(error) => errors.invalid(&at, &json!(0), &error.to_string()),
        Ok(Some(n)) if n < 0 => errors.invalid(&at, &json!(n), "should be a non-negative integer"),
        Ok(Some(n)) if n > i64::from(i32::MAX) => {
            errors.invalid(&at, &json!(n), &format!("should be less than or equal to {}", i32::MAX));
        }
        Ok(_) => {}
    }
}

/// `NestedInt64`.
fn nested_i64(object: &Value, path: &[String]) -> Result<Option<i64>, FieldAccessorError> {
    match nested_field(object, path)? {
        None => Ok(None),
        Some(found) => found.as_i64().map(Some).ok_or_else(|| wrong_type(path, found, "int64")),
    }
}

/// `NestedString` of an optional path.
fn nested_string(object: &Value, path: &[String]) -> Result<(), FieldAccessorError> {
    match nested_field(object, path)? {
        Some(found) if !path.is_empty() && !found.is_string() => Err(wrong_type(path, found, "string")),
        _ => Ok(()),
    }
}

/// `NestedFieldNoCopy`: a null leaf is found; a null parent is not.
fn nested_field<'a>(object: &'a Value, path: &[String]) -> Result<Option<&'a Value>, FieldAccessorError> {
    let mut value = object;
    for (i, field) in path.iter().enumerate() {
        let fields = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => fields,
            other => return Err(wrong_type(&path[..=i], other, "map[string]interface{}")),
        };
        match fields.get(field) {
            Some(field) => value = field,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn wrong_type(path: &[String], found: &Value, expected: &'static str) -> FieldAccessorError {
    FieldAccessorError { path: path_text(path), value: go_value(found), found: go_type(found), expected }
}

fn path_text(path: &[String]) -> String {
    format!(".{}", path.join("."))
}

/// As Go's `%T` of the decoded value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As Go's `%v` of the decoded value.
fn go_value(value: &Value) -> String {
    let list = |parts: Vec<String>| format!("[{}]", parts.join(" "));
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(n) if !n.is_i64() => float::format_float(n.as_f64().unwrap_or(0.0)),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => list(items.iter().map(go_value).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            format!("map{}", list(fields.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ScalePaths;
    use crate::FieldErrors;
    use serde_json::{Value, json};

    fn paths() -> ScalePaths {
        ScalePaths::read(&json!({"specReplicasPath": ".spec.a.n", "statusReplicasPath": ".status.n",
            "labelSelectorPath": ".status.s"}))
    }

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        paths().validate_spec(&object, &mut errors);
        paths().validate_status(&object, &mut errors);
        let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(got, expected, "{object}");
    }

    #[test]
    fn invalid_scale_fields_have_the_errors_of_go() {
        check(json!({}), &[]);
        check(json!({"spec": null, "status": {"n": 0, "s": ""}}), &[]);
        check(json!({"spec": {"a": {"n": 2_147_483_647}}}), &[]);
        for (value, message) in [
            (json!({"n": -1}), "-1: should be a non-negative integer"),
            (json!({"n": 2_147_483_648_u32}), "2147483648: should be less than or equal to 2147483647"),
            (json!({"n": null}), "0: .spec.a.n accessor error: <nil> is of the type <nil>, expected int64"),
            (json!({"n": "x"}), "0: .spec.a.n accessor error: x is of the type string, expected int64"),
            (json!({"n": 1.5}), "0: .spec.a.n accessor error: 1.5 is of the type float64, expected int64"),
            (json!({"n": 1e30}), "0: .spec.a.n accessor error: 1e+30 is of the type float64, expected int64"),
            (
                json!({"n": [1, "b"]}),
                "0: .spec.a.n accessor error: [1 b] is of the type []interface {}, expected int64",
            ),
            (
                json!({"n": {"b": true, "a": null}}),
                "0: .spec.a.n accessor error: map[a:<nil> b:true] is of the type map[string]interface {}, expected int64",
            ),
            (json!(3), "0: .spec.a.n accessor error: 3 is of the type int64, expected map[string]interface{}"),
        ] {
            check(json!({"spec": {"a": value}}), &[&format!(".spec.a.n: Invalid value: {message}")]);
        }
        check(
            json!({"status": {"n": -2, "s": {}}}),
            &[
                ".status.n: Invalid value: -2: should be a non-negative integer",
                ".status.s: Invalid value: \"\": .status.s accessor error: map[] is of the type map[string]interface {}, expected string",
            ],
        );
    }
}
