//! An object as Go's types would hold it: unknown fields are found, types are checked, and what those types leave out when
//! they are written (zero values that may be left out) or always write is as upstream stores it.
//!
//! Driven by the facts of [`table`](crate::protobuf::table), so a kind costs no code.

mod leaf;

use crate::protobuf::table::{Field, Kind, Message, Shape, TABLE};
use serde_json::{Map, Value};

/// Messages that name their version and kind although they stand in another.
pub(crate) const WITH_TYPE: [&str; 1] = ["core/v1.PersistentVolumeClaim"];

/// The object as its kind has it, and `unknown field "path"` for each field that it has not. A kind without facts is
/// taken as it is.
///
/// # Errors
/// When a value is of the wrong type: the words of Go's decoder.
pub(crate) fn object(api_version: &str, kind: &str, object: &Value) -> Result<(Value, Vec<String>), String> {
    let Some(message) = TABLE.kind(api_version, kind) else { return Ok((object.clone(), Vec::new())) };
    let mut reader = Reader::default();
    let mut clean = reader.message(message, object, kind)?;
    clean.insert("apiVersion".to_owned(), api_version.into());
    clean.insert("kind".to_owned(), kind.into());
    Ok((Value::Object(clean), reader.unknown))
}

/// The metadata of any object, and `unknown field "path"` for each field that it has not.
///
/// # Errors
/// When a value is of the wrong type: the words of Go's decoder.
pub(crate) fn metadata(metadata: &Value) -> Result<(Value, Vec<String>), String> {
    let Some(message) = TABLE.message("meta/v1.ObjectMeta") else { return Ok((metadata.clone(), Vec::new())) };
    let mut reader = Reader { path: "metadata".to_owned(), unknown: Vec::new() };
    let clean = reader.message(message, metadata, "ObjectMeta")?;
    Ok((Value::Object(clean), reader.unknown))
}

/// What Go writes of an object of this kind about which nothing is said.
pub(crate) fn empty(api_version: &str, kind: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    TABLE.kind(api_version, kind).into_iter().for_each(|message| fill(message, &mut fields));
    fields
}

/// Goes through an object, and knows where it is.
#[derive(Default)]
struct Reader {
    /// `spec.containers[0].name`
    path: String,
    unknown: Vec<String>,
}

impl Reader {
    fn message(&mut self, message: &Message, value: &Value, parent: &str) -> Result<Map<String, Value>, String> {
        let given = match value {
            Value::Object(given) => given,
            Value::Null => &Map::new(),
            other => return Err(self.mismatch(parent, other, &go_name(message))),
        };
        let typed = self.path.is_empty() || WITH_TYPE.contains(&message.name.as_str());
        let mut clean = Map::new();
        for (key, value) in given {
            let field = match key.as_str() {
                "apiVersion" | "kind" if typed => {
                    clean.insert(key.clone(), value.clone());
                    continue;
                }
                _ => message.named(key),
            };
            let at = self.enter(key);
            match field {
                None => self.unknown.push(format!("unknown field {:?}", self.path)),
                Some(_) if value.is_null() => {}
                Some(field) => {
                    let value = self.field(field, value, struct_name(message))?;
                    if field.shape == Shape::Pointer || field.always || !is_empty(field, &value) {
                        clean.insert(key.clone(), value);
                    }
                }
            }
            self.path.truncate(at);
        }
        fill(message, &mut clean);
        Ok(clean)
    }

    fn field(&mut self, field: &Field, value: &Value, parent: &str) -> Result<Value, String> {
        match (field.shape, value) {
            (Shape::List, Value::Array(items)) => {
                let mut clean = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    let at = self.path.len();
                    self.path.push_str(&format!("[{i}]"));
                    clean.push(self.one(field, item, parent)?);
                    self.path.truncate(at);
                }
                Ok(Value::Array(clean))
            }
            (Shape::Map, Value::Object(entries)) => {
                let mut clean = Map::new();
                for (key, value) in entries {
                    let at = self.path.len();
                    self.path.push_str(&format!("[{key}]"));
                    let value = self.one(field, value, parent)?;
                    clean.insert(key.clone(), if field.kind == Kind::Quantity { leaf::in_list(value) } else { value });
                    self.path.truncate(at);
                }
                Ok(Value::Object(clean))
            }
            (Shape::List | Shape::Map, other) => Err(self.mismatch(parent, other, &type_name(field))),
            _ => self.one(field, value, parent),
        }
    }

    /// One value of a field: the whole of it, or one of a list or map.
    fn one(&mut self, field: &Field, value: &Value, parent: &str) -> Result<Value, String> {
        match field.kind {
            Kind::Message(place) => {
                let message = &TABLE.messages[place];
                self.message(message, value, parent).map(Value::Object)
            }
            Kind::Raw | Kind::Json => Ok(value.clone()),
            Kind::BoolOr(_) if value.is_boolean() => Ok(value.clone()),
            Kind::ListOr(place) if value.is_array() => {
                let message = &TABLE.messages[place];
                let items = value.as_array().into_iter().flatten();
                let clean = items.map(|item| self.message(message, item, parent).map(Value::Object));
                clean.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            Kind::BoolOr(place) | Kind::ListOr(place) => {
                self.message(&TABLE.messages[place], value, parent).map(Value::Object)
            }
            kind => match leaf::clean(kind, value) {
                Ok(value) => Ok(value),
                Err(leaf::Wrong::Type) => Err(self.mismatch(parent, value, element_name(field))),
                Err(leaf::Wrong::Number) => {
                    Err(self.mismatch_of(parent, &format!("number {value}"), element_name(field)))
                }
                Err(leaf::Wrong::Value(why)) => Err(format!("{}: {why}", self.path)),
            },
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

/// What Go writes though nobody said it: structs, and values that may not be left out.
fn fill(message: &Message, clean: &mut Map<String, Value>) {
    for field in &message.fields {
        let value = match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(place)) => {
                fill(&TABLE.messages[place], clean);
                continue;
            }
            _ if clean.contains_key(field.name) => continue,
            (Shape::Plain, Kind::Message(place)) => {
                let mut inner = Map::new();
                fill(&TABLE.messages[place], &mut inner);
                Value::Object(inner)
            }
            (Shape::Plain, Kind::String) if field.always => Value::from(""),
            (Shape::Plain, Kind::Bool) if field.always => Value::from(false),
            (Shape::Plain, Kind::Int32 | Kind::Int64) if field.always => Value::from(0),
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
        Kind::String | Kind::Quantity | Kind::IntOrString | Kind::Time | Kind::MicroTime => "string",
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
#[path = "typed/tests.rs"]
mod tests;
