//! Typed decoding of objects, as with upstream's Go types: finds unknown fields, checks types, and normalizes `omitempty`
//! fields.
//!
//! It is driven by the [`table`](crate::protobuf::table) of types, so that kinds need no code.

mod convert;
mod leaf;

pub(crate) use convert::{Unconvertible, convert};

use crate::protobuf::table::{Field, Kind, Message, Shape, TABLE};
use api::bounded_messages::BoundedMessages;
use serde_json::{Map, Value};

/// Embedded messages that have `apiVersion` and `kind`.
pub(crate) const WITH_TYPE: [&str; 1] = ["core/v1.PersistentVolumeClaim"];

/// Lists for which defaulting distinguishes empty from absent (upstream's `copyHPAScalingRules`). Validation rejects empty
/// ones, so none is stored.
const EMPTY_LIST_IS_SET: [(&str, &str); 1] = [("autoscaling/v2.HPAScalingRules", "policies")];

/// Removes the unknown fields of an object; returns `unknown field "path"` for each. Kinds that are not in the table are
/// unchanged.
///
/// # Errors
/// Error text of Go's decoder, when a value has the wrong type. The object is invalid then.
pub(crate) fn object(api_version: &str, kind: &str, object: &mut Value) -> Result<Vec<String>, String> {
    let Some(message) = TABLE.kind(api_version, kind) else { return Ok(Vec::new()) };
    let mut reader = Reader::default();
    reader.message(message, object, kind)?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Ok(reader.unknown.into_messages())
}

/// As [`object`], for `ObjectMeta` at a path.
///
/// # Errors
/// Error text of Go's decoder, when a value has the wrong type.
pub(crate) fn metadata(metadata: &mut Value, path: &str) -> Result<Vec<String>, String> {
    let Some(message) = TABLE.message("meta/v1.ObjectMeta") else { return Ok(Vec::new()) };
    let mut reader = Reader { path: path.to_owned(), unknown: BoundedMessages::default() };
    reader.message(message, metadata, "ObjectMeta")?;
    Ok(reader.unknown.into_messages())
}

/// Returns the fields that Go encodes of an empty object.
pub(crate) fn empty(api_version: &str, kind: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    TABLE.kind(api_version, kind).into_iter().for_each(|message| fill(message, &mut fields));
    fields
}

/// Decoder with the current path.
#[derive(Default)]
struct Reader {
    /// `spec.containers[0].name`
    path: String,
    unknown: BoundedMessages,
}

impl Reader {
    /// Decodes in place: most values need no change.
    fn message(&mut self, message: &Message, value: &mut Value, parent: &str) -> Result<(), String> {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        let Value::Object(fields) = value else { return Err(self.mismatch(parent, value, &go_name(message))) };
        let mut result = Ok(());
        fields.retain(|key, value| {
            let kept = if result.is_ok() { self.named(message, key, value) } else { Ok(true) };
            kept.unwrap_or_else(|error| {
                result = Err(error);
                true
            })
        });
        result?;
        fill(message, fields);
        Ok(())
    }

    /// Decodes the value of a key; returns whether it is kept.
    fn named(&mut self, message: &Message, key: &str, value: &mut Value) -> Result<bool, String> {
        let typed = self.path.is_empty() || WITH_TYPE.contains(&message.name.as_str());
        if typed && matches!(key, "apiVersion" | "kind") {
            return Ok(true);
        }
        let at = self.enter(key);
        let kept = match message.named(key) {
            None => {
                self.unknown.push(|| format!("unknown field {:?}", self.path));
                false
            }
            Some(_) if value.is_null() => false,
            Some(field) => {
                self.field(field, value, struct_name(message))?;
                let says = EMPTY_LIST_IS_SET.contains(&(message.name.as_str(), key));
                field.shape == Shape::Pointer || field.always || says || !is_empty(field, value)
            }
        };
        self.path.truncate(at);
        Ok(kept)
    }

    fn field(&mut self, field: &Field, value: &mut Value, parent: &str) -> Result<(), String> {
        let at = self.path.len();
        match (field.shape, value) {
            (Shape::List, Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{i}]"));
                    self.one(field, item, parent)?;
                    self.path.truncate(at);
                }
                Ok(())
            }
            (Shape::Map, Value::Object(entries)) => {
                for (key, value) in entries {
                    self.path.extend(["[", key.as_str(), "]"]);
                    self.one(field, value, parent)?;
                    if field.kind == Kind::Quantity {
                        leaf::in_list(value);
                    }
                    self.path.truncate(at);
                }
                Ok(())
            }
            (Shape::List | Shape::Map, other) => Err(self.mismatch(parent, other, &type_name(field))),
            (_, value) => self.one(field, value, parent),
        }
    }

    /// Decodes one value of a field, or one element of a list or map.
    fn one(&mut self, field: &Field, value: &mut Value, parent: &str) -> Result<(), String> {
        match (field.kind, value) {
            (Kind::Raw | Kind::Json, _) | (Kind::BoolOr(_), Value::Bool(_)) => Ok(()),
            (Kind::ListOr(place), Value::Array(items)) => {
                items.iter_mut().try_for_each(|item| self.message(&TABLE.messages[place], item, parent))
            }
            (Kind::Message(place) | Kind::BoolOr(place) | Kind::ListOr(place), value) => {
                self.message(&TABLE.messages[place], value, parent)
            }
            (kind, value) => leaf::clean(kind, value).map_err(|wrong| match wrong {
                leaf::Wrong::Type => self.mismatch(parent, value, element_name(field)),
                leaf::Wrong::Number => self.mismatch_of(parent, &format!("number {value}"), element_name(field)),
                leaf::Wrong::Value(why) => format!("{}: {why}", self.path),
            }),
        }
    }

    /// Goes into a field; gives where to come back to.
    fn enter(&mut self, key: &str) -> usize {
        let at = self.path.len();
        if at > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        at
    }

    /// Go's `UnmarshalTypeError`.
    fn mismatch(&self, parent: &str, value: &Value, expected: &str) -> String {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        self.mismatch_of(parent, found, expected)
    }

    fn mismatch_of(&self, parent: &str, found: &str, expected: &str) -> String {
        let mut path = String::new();
        let mut depth = 0_u32;
        for c in self.path.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => path.push(c),
                _ => {}
            }
        }
        format!("json: cannot unmarshal {found} into Go struct field {parent}.{path} of type {expected}")
    }
}

/// Whether Go leaves a value out that may be left out.
fn is_empty(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0) && field.kind != Kind::IntOrString,
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        // A struct is never left out.
        Value::Object(map) => map.is_empty() && field.shape == Shape::Map,
    }
}

/// Adds the absent fields that Go always encodes: structs, and values without `omitempty`.
fn fill(message: &Message, clean: &mut Map<String, Value>) {
    for field in &message.fields {
        let is_absent = || !clean.contains_key(field.name);
        let value = match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(place)) => {
                fill(&TABLE.messages[place], clean);
                continue;
            }
            (Shape::Plain, Kind::Message(place)) if is_absent() => {
                let mut inner = Map::new();
                fill(&TABLE.messages[place], &mut inner);
                Value::Object(inner)
            }
            (Shape::Plain, Kind::String) if field.always && is_absent() => Value::from(""),
            (Shape::Plain, Kind::Bool) if field.always && is_absent() => Value::from(false),
            (Shape::Plain, Kind::Int32 | Kind::Int64) if field.always && is_absent() => Value::from(0),
            _ => continue,
        };
        clean.insert(field.name.to_owned(), value);
    }
}

/// `Container` of `core/v1.Container`.
fn struct_name(message: &Message) -> &str {
    message.name.rsplit('.').next().unwrap_or_default()
}

/// `v1.Container` of `core/v1.Container`.
fn go_name(message: &Message) -> String {
    message.name.rsplit('/').next().unwrap_or_default().to_owned()
}

fn type_name(field: &Field) -> String {
    let element = match field.kind {
        Kind::Message(place) => go_name(&TABLE.messages[place]),
        _ => element_name(field).to_owned(),
    };
    match field.shape {
        Shape::List => format!("[]{element}"),
        Shape::Map => format!("map[string]{element}"),
        _ => element,
    }
}

/// Go's type of one value that is no message.
fn element_name(field: &Field) -> &'static str {
    match field.kind {
        Kind::String | Kind::Quantity | Kind::IntOrString | Kind::Time | Kind::MicroTime | Kind::Duration => "string",
        Kind::Bool => "bool",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Bytes => "[]uint8",
        Kind::Strings => "[]string",
        Kind::Double => "float64",
        Kind::Raw | Kind::Json | Kind::Message(_) | Kind::BoolOr(_) | Kind::ListOr(_) => "struct",
    }
}

#[cfg(test)]
mod tests;
