//! Validation of objects by their schema, with the messages of `kube-openapi/pkg/validation`.
//!
//! Unchanged values of an update are not validated (ratcheting, KEP-4008).

use crate::{
    AdditionalProperties, JsonType, RESOURCE_FIELDS, Schema,
    correlation::{OldItems, are_equal},
};
use api::field::{FieldErrors, FieldPath};
use serde_json::{Map, Value, json};

/// Maximum nesting depth of values, which exceeds that of any request.
const MAX_DEPTH: usize = 256;

impl Schema {
    /// Validates the values of a resource; `old` is the old resource of an update.
    pub fn validate_values(&self, resource: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        Validator { errors, depth: 0 }.validate_value_at(self, resource, old, "");
    }

    /// Finds duplicate list items. If the old resource has duplicates, none are reported.
    pub fn validate_list_sets_and_maps(&self, resource: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let find_duplicates = |resource: &Value| {
            let mut errors = FieldErrors::default();
            self.validate_list_sets(resource, &FieldPath::default(), &mut errors);
            errors
        };
        if old.is_none_or(|old| find_duplicates(old).is_empty()) {
            errors.extend(find_duplicates(resource));
        }
    }

    /// Validates a value that is not a resource, such as a default.
    pub(crate) fn validate_value(&self, value: &Value, path: &str, errors: &mut FieldErrors) {
        Validator { errors, depth: 0 }.validate_value_at(self, value, None, path);
    }
}

/// Validates values and collects their errors.
pub(crate) struct Validator<'a> {
    pub(crate) errors: &'a mut FieldErrors,
    depth: usize,
}

impl Validator<'_> {
    fn validate_value_at(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &str) {
        if old.is_some_and(|old| schema.unchanged(old, value)) || self.depth > MAX_DEPTH {
            return;
        }
        self.depth += 1;
        self.validate_type(schema, value, path);
        if !value.is_null() {
            self.validate_logical_junctors(schema, value, path);
            self.validate_simple_value(schema, value, path);
            if let Value::Array(items) = value {
                self.validate_items(schema, items, old, path);
            }
        }
        self.validate_enum(schema, value, path);
        if let Value::Object(fields) = value {
            self.validate_object(schema, fields, old, path);
        }
        self.depth -= 1;
    }

    fn validate_type(&mut self, schema: &Schema, value: &Value, path: &str) {
        let matches = match (value, schema.kind) {
            (Value::Null, kind) => schema.nullable || (kind.is_none() && !schema.int_or_string),
            (Value::Number(_), _) if schema.int_or_string => is_integer(value),
            (Value::String(_), _) | (_, None) if schema.int_or_string => value.is_string(),
            (_, None) => true,
            (Value::Number(_), Some(JsonType::Integer)) => is_integer(value),
            (value, Some(kind)) => matches!(
                (value, kind),
                (Value::Object(_), JsonType::Object)
                    | (Value::Array(_), JsonType::Array)
                    | (Value::String(_), JsonType::String)
                    | (Value::Number(_), JsonType::Number)
                    | (Value::Bool(_), JsonType::Boolean)
            ),
        };
        if !matches {
            let expected = if schema.int_or_string { "integer,string" } else { schema.kind.map_or("", JsonType::name) };
            // For numbers, upstream reports the format instead of the type.
            let (expected, actual) = match (&schema.value_validation.format, value) {
                (Some(format), Value::Number(n)) => (&**format, if n.is_i64() { "int64" } else { "double" }),
                _ => (expected, type_name(value)),
            };
            self.type_invalid(path, &json!(actual), &format!("must be of type {expected}: {actual:?}"));
        }
    }

    /// Validates `allOf`, `anyOf`, `oneOf` and `not`.
    fn validate_logical_junctors(&mut self, schema: &Schema, value: &Value, path: &str) {
        let checks = &schema.value_validation;
        let failures = |parts: &[Schema]| -> Vec<FieldErrors> {
            let validate_part = |part: &Schema| {
                let mut errors = FieldErrors::default();
                Validator { errors: &mut errors, depth: self.depth }.validate_value_at(part, value, None, path);
                errors
            };
            parts.iter().map(validate_part).collect()
        };
        let (any, one, all) = (failures(&checks.any_of), failures(&checks.one_of), failures(&checks.all_of));
        let forbidden = checks.not.as_ref().map(|not| failures(std::slice::from_ref(not.as_ref())));
        if !any.is_empty() && !any.iter().any(FieldErrors::is_empty) {
            self.invalid_without_field(&format!("{path:?} must validate at least one schema (anyOf)"));
            any.into_iter().take(1).for_each(|e| self.errors.extend(e));
        }
        let valid = one.iter().filter(|e| e.is_empty()).count();
        if !one.is_empty() && valid != 1 {
            let actual = if valid == 0 { "none valid".to_owned() } else { format!("{valid} valid alternatives") };
            self.invalid_without_field(&format!(
                "{path:?} must validate one and only one schema (oneOf). Found {actual}"
            ));
            if valid == 0 {
                one.into_iter().take(1).for_each(|e| self.errors.extend(e));
            }
        }
        if all.iter().any(|e| !e.is_empty()) {
            let none = if all.iter().any(FieldErrors::is_empty) { "" } else { ". None validated" };
            all.into_iter().for_each(|e| self.errors.extend(e));
            self.invalid_without_field(&format!("{path:?} must validate all the schemas (allOf){none}"));
        }
        if forbidden.is_some_and(|errors| errors.iter().all(FieldErrors::is_empty)) {
            self.invalid_without_field(&format!("{path:?} must not validate the schema (not)"));
        }
    }

    fn validate_enum(&mut self, schema: &Schema, value: &Value, path: &str) {
        let allowed = &schema.value_validation.allowed;
        if allowed.is_empty() || allowed.iter().any(|a| are_equal(a, value)) {
            return;
        }
        let names: Vec<String> =
            allowed.iter().map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.errors.not_supported(&field(path), value, &names);
    }

    fn validate_items(&mut self, schema: &Schema, items: &[Value], old: Option<&Value>, path: &str) {
        if let Some(item_schema) = &schema.items {
            let old_items = OldItems::of(schema, old);
            for (i, item) in items.iter().enumerate() {
                self.validate_value_at(item_schema, item, old_items.find(item), &format!("{path}[{i}]"));
            }
        }
    }

    fn validate_object(&mut self, schema: &Schema, fields: &Map<String, Value>, old: Option<&Value>, path: &str) {
        let checks = &schema.value_validation;
        let count = fields.len() as u64;
        if let Some(min) = checks.min_properties.filter(|min| count < *min) {
            self.invalid(path, &json!(count), &format!("should have at least {min} properties"));
        }
        if let Some(max) = checks.max_properties.filter(|max| count > *max) {
            self.invalid(path, &json!(count), &format!("should have at most {max} properties"));
        }
        let is_resource = schema.embedded || path.is_empty();
        for (name, field_value) in fields {
            let at = join(path, name);
            let old_property = old.and_then(|old| old.get(name));
            match (schema.properties.get(name.as_str()), &schema.additional) {
                (Some(property), _) => self.validate_value_at(property, field_value, old_property, &at),
                (None, AdditionalProperties::Schema(additional)) => {
                    self.validate_value_at(additional, field_value, old_property, &at);
                }
                (None, AdditionalProperties::Forbidden)
                    if !(is_resource && RESOURCE_FIELDS.contains(&name.as_str())) =>
                {
                    self.errors.invalid(&field(path), &json!(""), &format!("{at} in body is a forbidden property"));
                }
                _ => {}
            }
        }
        for name in checks.required.iter().filter(|name| !fields.contains_key(name.as_ref())) {
            self.errors.required(&field(&join(path, name)), "");
        }
    }

    pub(crate) fn invalid(&mut self, path: &str, value: &Value, detail: &str) {
        self.errors.invalid(&field(path), value, &format!("{path} in body {detail}"));
    }

    pub(crate) fn type_invalid(&mut self, path: &str, value: &Value, detail: &str) {
        self.errors.type_invalid(&field(path), value, &format!("{path} in body {detail}"));
    }

    /// Adds an error whose field is named only in the message.
    fn invalid_without_field(&mut self, detail: &str) {
        self.errors.invalid(&FieldPath::new("<nil>"), &json!(""), detail);
    }
}

/// Returns whether a number is an integer, such as `1` or `1.0`.
pub(crate) fn is_integer(value: &Value) -> bool {
    // Larger floats are not exact in Go's JSON.
    const MAX_EXACT: f64 = 9_007_199_254_740_991.0;
    value.is_i64() || value.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() <= MAX_EXACT)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if !n.is_i64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(crate) fn field(path: &str) -> FieldPath {
    FieldPath::new(if path.is_empty() { "<nil>" } else { path })
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
