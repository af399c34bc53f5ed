//! Whether an object is what its schema says, in the words of `kube-openapi/pkg/validation`.
//!
//! Of a change, what stays as it was is not looked at: a schema that became stricter hinders no one who changes
//! something else (KEP-4008).

use crate::{
    Additional, Kind, OF_EVERY_KIND, Schema,
    compare::{Earlier, same},
};
use api::field::{FieldErrors, FieldPath};
use serde_json::{Map, Value, json};

/// How deep values may stand in each other, beyond any that a client can send.
const DEEPEST: usize = 256;

impl Schema {
    /// Finds what is wrong with the values of a resource; `old` is there for a change.
    pub fn validate_values(&self, resource: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        Validator { errors, depth: 0 }.value(self, resource, old, "");
    }

    /// Finds what stands twice where it may not, unless something did so before: then no one is told of any.
    pub fn validate_lists(&self, resource: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let found = |resource: &Value| {
            let mut errors = FieldErrors::default();
            self.lists(resource, &FieldPath::default(), &mut errors);
            errors
        };
        if old.is_none_or(|old| found(old).is_empty()) {
            errors.extend(found(resource));
        }
    }

    /// Whether a value that is no resource, such as a default, is what this says.
    pub(crate) fn validate_value(&self, value: &Value, path: &str, errors: &mut FieldErrors) {
        Validator { errors, depth: 0 }.value(self, value, None, path);
    }
}

/// Goes through a value and collects what is wrong.
pub(crate) struct Validator<'a> {
    pub(crate) errors: &'a mut FieldErrors,
    depth: usize,
}

impl Validator<'_> {
    fn value(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, path: &str) {
        if old.is_some_and(|old| schema.unchanged(old, value)) || self.depth > DEEPEST {
            return;
        }
        self.depth += 1;
        self.type_of(schema, value, path);
        if !value.is_null() {
            self.junctors(schema, value, path);
            self.simple(schema, value, path);
            if let Value::Array(items) = value {
                self.items(schema, items, old, path);
            }
        }
        self.allowed(schema, value, path);
        if let Value::Object(fields) = value {
            self.object(schema, fields, old, path);
        }
        self.depth -= 1;
    }

    fn type_of(&mut self, schema: &Schema, value: &Value, path: &str) {
        let fits = match (value, schema.kind) {
            (Value::Null, kind) => schema.nullable || (kind.is_none() && !schema.int_or_string),
            (Value::Number(_), _) if schema.int_or_string => is_whole(value),
            (Value::String(_), _) | (_, None) if schema.int_or_string => value.is_string(),
            (_, None) => true,
            (Value::Number(_), Some(Kind::Integer)) => is_whole(value),
            (value, Some(kind)) => matches!(
                (value, kind),
                (Value::Object(_), Kind::Object)
                    | (Value::Array(_), Kind::Array)
                    | (Value::String(_), Kind::String)
                    | (Value::Number(_), Kind::Number)
                    | (Value::Bool(_), Kind::Boolean)
            ),
        };
        if !fits {
            let wanted = if schema.int_or_string { "integer,string" } else { schema.kind.map_or("", Kind::name) };
            // Of numbers, a format says more than the type.
            let (wanted, found) = match (&schema.checks.format, value) {
                (Some(format), Value::Number(n)) => (&**format, if n.is_i64() { "int64" } else { "double" }),
                _ => (wanted, type_name(value)),
            };
            self.type_invalid(path, &json!(found), &format!("must be of type {wanted}: {found:?}"));
        }
    }

    /// `allOf`, `anyOf`, `oneOf` and `not`.
    fn junctors(&mut self, schema: &Schema, value: &Value, path: &str) {
        let checks = &schema.checks;
        let failures = |parts: &[Schema]| -> Vec<FieldErrors> {
            let one = |part: &Schema| {
                let mut errors = FieldErrors::default();
                Validator { errors: &mut errors, depth: self.depth }.value(part, value, None, path);
                errors
            };
            parts.iter().map(one).collect()
        };
        let (any, one, all) = (failures(&checks.any_of), failures(&checks.one_of), failures(&checks.all_of));
        let forbidden = checks.not.as_ref().map(|not| failures(std::slice::from_ref(not.as_ref())));
        if !any.is_empty() && !any.iter().any(FieldErrors::is_empty) {
            self.whole(&format!("{path:?} must validate at least one schema (anyOf)"));
            any.into_iter().take(1).for_each(|e| self.errors.extend(e));
        }
        let valid = one.iter().filter(|e| e.is_empty()).count();
        if !one.is_empty() && valid != 1 {
            let found = if valid == 0 { "none valid".to_owned() } else { format!("{valid} valid alternatives") };
            self.whole(&format!("{path:?} must validate one and only one schema (oneOf). Found {found}"));
            if valid == 0 {
                one.into_iter().take(1).for_each(|e| self.errors.extend(e));
            }
        }
        if all.iter().any(|e| !e.is_empty()) {
            let none = if all.iter().any(FieldErrors::is_empty) { "" } else { ". None validated" };
            all.into_iter().for_each(|e| self.errors.extend(e));
            self.whole(&format!("{path:?} must validate all the schemas (allOf){none}"));
        }
        if forbidden.is_some_and(|errors| errors.iter().all(FieldErrors::is_empty)) {
            self.whole(&format!("{path:?} must not validate the schema (not)"));
        }
    }

    fn allowed(&mut self, schema: &Schema, value: &Value, path: &str) {
        let allowed = &schema.checks.allowed;
        if allowed.is_empty() || allowed.iter().any(|a| same(a, value)) {
            return;
        }
        let names: Vec<String> =
            allowed.iter().map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.errors.not_supported(&field(path), value, &names);
    }

    fn items(&mut self, schema: &Schema, items: &[Value], old: Option<&Value>, path: &str) {
        if let Some(part) = &schema.items {
            let earlier = Earlier::of(schema, old);
            for (i, item) in items.iter().enumerate() {
                self.value(part, item, earlier.find(item), &format!("{path}[{i}]"));
            }
        }
    }

    fn object(&mut self, schema: &Schema, fields: &Map<String, Value>, old: Option<&Value>, path: &str) {
        let checks = &schema.checks;
        let count = fields.len() as u64;
        if let Some(min) = checks.min_properties.filter(|min| count < *min) {
            self.invalid(path, &json!(count), &format!("should have at least {min} properties"));
        }
        if let Some(max) = checks.max_properties.filter(|max| count > *max) {
            self.invalid(path, &json!(count), &format!("should have at most {max} properties"));
        }
        let whole = schema.embedded || path.is_empty();
        for (name, held) in fields {
            let at = join(path, name);
            let before = old.and_then(|old| old.get(name));
            match (schema.properties.get(name.as_str()), &schema.additional) {
                (Some(property), _) => self.value(property, held, before, &at),
                (None, Additional::Like(part)) => self.value(part, held, before, &at),
                (None, Additional::Forbidden) if !(whole && OF_EVERY_KIND.contains(&name.as_str())) => {
                    self.errors.invalid(&field(path), &json!(""), &format!("{at} in body is a forbidden property"));
                }
                _ => {}
            }
        }
        for name in checks.required.iter().filter(|name| !fields.contains_key(name.as_ref())) {
            self.errors.required(&field(&join(path, name)), "");
        }
    }

    pub(crate) fn invalid(&mut self, path: &str, value: &Value, why: &str) {
        self.errors.invalid(&field(path), value, &format!("{path} in body {why}"));
    }

    pub(crate) fn type_invalid(&mut self, path: &str, value: &Value, why: &str) {
        self.errors.type_invalid(&field(path), value, &format!("{path} in body {why}"));
    }

    /// An error that names its field in its words only.
    fn whole(&mut self, why: &str) {
        self.errors.invalid(&FieldPath::new("<nil>"), &json!(""), why);
    }
}

/// A whole number, however it is written.
pub(crate) fn is_whole(value: &Value) -> bool {
    // Of what is larger, Go's JSON would not keep the last digits.
    const EXACT: f64 = 9_007_199_254_740_991.0;
    value.is_i64() || value.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() <= EXACT)
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
