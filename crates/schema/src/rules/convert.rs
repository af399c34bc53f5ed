//! Values and their types, as rules see them.

use crate::{Additional, Kind, Schema};
use base64::{Engine, engine::general_purpose::STANDARD};
use expr::{Key, RESERVED, Type, Value};
use jiff::Timestamp;
use serde_json::{Map, Value as Json};
use std::{collections::BTreeMap, sync::Arc};

/// The name of a field in rules; `None` when it has none.
pub(super) fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = |c: char| c.is_ascii_alphabetic() || "_.-/".contains(c);
    let sound = name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit());
    sound.then(|| {
        name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
    })
}

impl Schema {
    /// The type of such values; `root` is for a whole resource.
    pub(crate) fn as_type(&self, root: bool) -> Type {
        match self.kind {
            _ if self.int_or_string => Type::Dyn,
            None => Type::Dyn,
            Some(Kind::Boolean) => Type::BOOL,
            Some(Kind::Integer) => Type::INT,
            Some(Kind::Number) => Type::DOUBLE,
            Some(Kind::String) => match self.checks.format.as_deref() {
                Some("byte") => Type::BYTES,
                Some("duration") => Type::DURATION,
                Some("date" | "date-time") => Type::TIMESTAMP,
                _ => Type::STRING,
            },
            Some(Kind::Array) => Type::list(self.items.as_ref().map_or(Type::Dyn, |items| items.as_type(false))),
            Some(Kind::Object) => match &self.additional {
                Additional::Like(like) => Type::Map(Box::new(like.as_type(false))),
                Additional::Allowed => Type::Map(Box::new(Type::Dyn)),
                Additional::Unsaid | Additional::Forbidden => Type::Object(Arc::new(self.field_types(root))),
            },
        }
    }

    fn field_types(&self, root: bool) -> BTreeMap<String, Type> {
        let mut fields = BTreeMap::new();
        if root || self.embedded {
            let names = ["name", "generateName"].map(|n| (n.to_owned(), Type::STRING));
            fields.insert("metadata".to_owned(), Type::Object(Arc::new(BTreeMap::from(names))));
            fields.extend(["apiVersion", "kind"].map(|n| (n.to_owned(), Type::STRING)));
        }
        let own = self.properties.iter().filter(|(name, _)| !fields.contains_key(name.as_ref()));
        let own: Vec<_> = own.filter_map(|(name, of)| Some((escaped(name)?, of.as_type(false)))).collect();
        fields.extend(own);
        fields
    }

    /// A value of this schema; `root` is for a whole resource. Nulls are absent.
    pub(crate) fn as_value(&self, json: &Json, root: bool) -> Value {
        match (json, self.kind) {
            _ if self.int_or_string || self.kind.is_none() => plain(json),
            (Json::Number(number), Some(Kind::Number)) => Value::Double(number.as_f64().unwrap_or_default()),
            (Json::String(text), Some(Kind::String)) => self.text(text),
            (Json::Array(items), Some(Kind::Array)) => match &self.items {
                Some(part) => Value::List(Arc::new(items.iter().map(|item| part.as_value(item, false)).collect())),
                None => plain(json),
            },
            (Json::Object(fields), Some(Kind::Object)) => match &self.additional {
                Additional::Like(like) => {
                    map(fields, |_, held| Some(like.as_value(held, false)), |name| Some(name.to_owned()))
                }
                Additional::Allowed => plain(json),
                Additional::Unsaid | Additional::Forbidden => self.object(fields, root || self.embedded),
            },
            _ => plain(json),
        }
    }

    fn object(&self, fields: &Map<String, Json>, resource: bool) -> Value {
        let value = |name: &str, held: &Json| match name {
            "metadata" if resource => Some(map(
                held.as_object().unwrap_or(&Map::new()),
                |_, held| Some(plain(held)),
                |name| matches!(name, "name" | "generateName").then(|| name.to_owned()),
            )),
            "apiVersion" | "kind" if resource => Some(plain(held)),
            name => self.properties.get(name).map(|property| property.as_value(held, false)),
        };
        map(fields, value, escaped)
    }

    fn text(&self, text: &str) -> Value {
        let read = match self.checks.format.as_deref() {
            Some("byte") => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
            Some("date-time") => date_time(text).map(Value::Time),
            Some("date") => format!("{text}T00:00:00Z").parse().ok().map(Value::Time),
            Some("duration") => expr::duration(text).map(Value::Duration),
            _ => None,
        };
        read.unwrap_or_else(|| Value::text(text))
    }
}

/// A time; the last hours of the year 9999, which clients write for `never`, are the last that there is here.
fn date_time(text: &str) -> Option<Timestamp> {
    let text = text.to_uppercase();
    text.parse().ok().or_else(|| text.starts_with("9999-12-3").then_some(Timestamp::MAX))
}

fn map(
    fields: &Map<String, Json>,
    value: impl Fn(&str, &Json) -> Option<Value>,
    name: impl Fn(&str) -> Option<String>,
) -> Value {
    let held = fields.iter().filter(|(_, held)| !held.is_null());
    let entries = held.filter_map(|(key, held)| Some((Key::String(name(key)?.into()), value(key, held)?)));
    Value::Map(Arc::new(entries.collect()))
}

/// A value of which nothing is declared.
fn plain(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Int(whole),
            #[expect(clippy::cast_possible_truncation, reason = "only what is whole and small is cast")]
            (None, Some(whole)) if whole.fract() == 0.0 && whole.abs() < 9e15 => Value::Int(whole as i64),
            (None, number) => Value::Double(number.unwrap_or_default()),
        },
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::List(Arc::new(items.iter().map(plain).collect())),
        Json::Object(fields) => map(fields, |_, held| Some(plain(held)), |name| Some(name.to_owned())),
    }
}
