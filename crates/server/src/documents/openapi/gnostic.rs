//! Encoding of OpenAPI documents in protobuf, as messages of gnostic, which upstream uses.
//!
//! `gnostic/v2.txt` and `gnostic/v3.txt` describe the messages, one a line: the name, then the fields by number, as
//! `source:number=type`. The source of a field is
//! - a key of the JSON object: `title`;
//! - all keys without a field of their own (`*`), or those with the prefix `x-` if there is such a field (`x-`): a map entry for
//!   each, of name and value;
//! - the value itself, if it matches (`?`): any value, `?bool`, `?number` or `?string`, an object with a key (`?$ref`), or with
//!   a string in a key (`?in=path`). These fields are alternatives (`oneof`): the first that matches is encoded.
//!
//! A type is `string`, `bool`, `int`, `double`, `any` (YAML, in a message) or a message; `[]` means repeated. Zero values are only
//! encoded for alternatives.

use serde_json::Value;
use std::sync::LazyLock;
use wire::protobuf::wire::{put_bytes, put_fixed, put_number};

/// Messages of OpenAPI v2.
pub(super) static V2: LazyLock<MessageTable> =
    LazyLock::new(|| MessageTable::parse(include_str!("gnostic/v2.txt")).unwrap_or_default());
/// Messages of OpenAPI v3.
pub(super) static V3: LazyLock<MessageTable> =
    LazyLock::new(|| MessageTable::parse(include_str!("gnostic/v3.txt")).unwrap_or_default());

/// Messages of a version; the first is the document.
#[derive(Debug, Default)]
pub(super) struct MessageTable {
    messages: Vec<Vec<Field>>,
}

#[derive(Debug)]
struct Field {
    source: Source,
    number: u32,
    is_repeated: bool,
    field_type: FieldType,
}

#[derive(Debug)]
enum Source {
    Key(&'static str),
    OtherKeys,
    Extensions,
    Value(Condition),
}

/// Condition of an alternative.
#[derive(Debug)]
enum Condition {
    Always,
    Bool,
    Number,
    String,
    HasKey(&'static str),
    KeyEquals(&'static str, &'static str),
}

impl Condition {
    fn parse(text: &'static str) -> Self {
        match text {
            "" => Self::Always,
            "bool" => Self::Bool,
            "number" => Self::Number,
            "string" => Self::String,
            other => other.split_once('=').map_or(Self::HasKey(other), |(key, text)| Self::KeyEquals(key, text)),
        }
    }

    fn matches(&self, value: &Value) -> bool {
        match self {
            Self::Always => true,
            Self::Bool => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::HasKey(key) => value.get(key).is_some(),
            Self::KeyEquals(key, text) => value[key] == *text,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum FieldType {
    String,
    Bool,
    Int,
    Double,
    Any,
    /// By index in the table.
    Message(usize),
}

impl MessageTable {
    /// Parses a description; `None` if it is invalid, which a test excludes.
    fn parse(text: &'static str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        let split = |line: &'static str| line.split_once(' ');
        let names: Vec<&str> = lines.iter().filter_map(|l| split(l).map(|(name, _)| name)).collect();
        let fields = |line: &&'static str| split(line)?.1.split(' ').map(|token| Field::parse(token, &names)).collect();
        Some(Self { messages: lines.iter().map(fields).collect::<Option<_>>()? })
    }

    /// Encodes a document or a part of one: parsers merge the parts.
    pub(super) fn encode_document(&self, value: &Value) -> Vec<u8> {
        self.message(0, value)
    }

    fn message(&self, index: usize, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        let fields = self.messages.get(index).map_or(&[][..], Vec::as_slice);
        for field in fields {
            match &field.source {
                Source::Key(key) => match &value[key] {
                    Value::Null => {}
                    Value::Array(all) if field.is_repeated => all.iter().for_each(|v| self.put(&mut out, field, v)),
                    zero if field.omits(zero) => {}
                    value => self.put(&mut out, field, value),
                },
                Source::OtherKeys | Source::Extensions => {
                    let all = value.as_object().into_iter().flatten();
                    for (name, value) in all.filter(|(name, _)| field.has_key(name, fields)) {
                        let mut entry = Vec::new();
                        put_bytes(&mut entry, 1, name.as_bytes());
                        put_bytes(&mut entry, 2, &self.content(field.field_type, value));
                        put_bytes(&mut out, field.number, &entry);
                    }
                }
                Source::Value(condition) if condition.matches(value) => {
                    self.put(&mut out, field, value);
                    break;
                }
                Source::Value(_) => {}
            }
        }
        out
    }

    /// Encodes a field; a value of another type is skipped.
    fn put(&self, out: &mut Vec<u8>, field: &Field, value: &Value) {
        match (field.field_type, value) {
            (FieldType::Bool, Value::Bool(flag)) => put_number(out, field.number, i64::from(*flag)),
            (FieldType::Int, Value::Number(number)) => put_number(out, field.number, number.as_i64().unwrap_or(0)),
            (FieldType::Double, Value::Number(number)) => put_fixed(out, field.number, number.as_f64().unwrap_or(0.0)),
            (FieldType::String, Value::String(text)) => put_bytes(out, field.number, text.as_bytes()),
            (FieldType::Any | FieldType::Message(_), _) => {
                put_bytes(out, field.number, &self.content(field.field_type, value));
            }
            _ => {}
        }
    }

    /// Encodes a message without its length.
    fn content(&self, field_type: FieldType, value: &Value) -> Vec<u8> {
        match field_type {
            FieldType::Message(index) => self.message(index, value),
            // JSON is YAML.
            _ => {
                let mut out = Vec::new();
                put_bytes(&mut out, 2, format!("{value}\n").as_bytes());
                out
            }
        }
    }
}

impl Field {
    fn parse(token: &'static str, names: &[&str]) -> Option<Self> {
        let (source, rest) = token.split_once(':')?;
        let (number, kind) = rest.split_once('=')?;
        let source = match source.strip_prefix('?') {
            Some(condition) => Source::Value(Condition::parse(condition)),
            None if source == "*" => Source::OtherKeys,
            None if source == "x-" => Source::Extensions,
            None => Source::Key(source),
        };
        let (is_repeated, kind) = kind.strip_prefix("[]").map_or((false, kind), |kind| (true, kind));
        let field_type = match kind {
            "string" => FieldType::String,
            "bool" => FieldType::Bool,
            "int" => FieldType::Int,
            "double" => FieldType::Double,
            "any" => FieldType::Any,
            message => FieldType::Message(names.iter().position(|name| *name == message)?),
        };
        Some(Self { source, number: number.parse().ok()?, is_repeated, field_type })
    }

    /// Whether a field of many keys includes a key.
    fn has_key(&self, key: &str, all: &[Self]) -> bool {
        let is_extension = key.starts_with("x-") && all.iter().any(|f| matches!(f.source, Source::Extensions));
        match self.source {
            Source::Extensions => is_extension,
            _ => !is_extension && !all.iter().any(|f| matches!(f.source, Source::Key(named) if named == key)),
        }
    }

    fn omits(&self, value: &Value) -> bool {
        match self.field_type {
            FieldType::Bool => *value == false,
            FieldType::Int | FieldType::Double => value.as_f64() == Some(0.0),
            FieldType::String => *value == "",
            FieldType::Any | FieldType::Message(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MessageTable;
    use serde_json::json;

    #[test]
    fn message_descriptions_are_valid() {
        for text in [include_str!("gnostic/v2.txt"), include_str!("gnostic/v3.txt")] {
            let table = MessageTable::parse(text).expect("a table");
            for fields in &table.messages {
                let alternatives = fields.iter().filter(|f| matches!(f.source, super::Source::Value(_))).count();
                assert!(alternatives == 0 || alternatives == fields.len(), "{fields:?}");
                assert!(alternatives > 0 || fields.is_sorted_by(|a, b| a.number < b.number), "{fields:?}");
            }
        }
        assert!(MessageTable::parse("A a:1=Unknown").is_none());
        assert!(MessageTable::parse("A a=string").is_none());
    }

    #[test]
    fn sources_of_fields_are_encoded() {
        let table = MessageTable::parse(
            "A t:1=string n:2=int b:3=bool l:4=[]string x-:5=any *:6=B\nB ?bool:1=bool ?$ref:2=C ?:3=C\nC $ref:1=string d:2=double",
        )
        .expect("a table");
        for (given, expected) in [
            (json!({}), &b""[..]),
            (json!({"t": "", "n": 0, "b": false, "l": [""]}), b"\x22\x00"),
            (json!({"t": "a", "n": 300, "b": true}), b"\x0a\x01a\x10\xac\x02\x18\x01"),
            (json!({"t": 1, "n": "a", "b": null}), b""),
            (json!({"x-a": [1]}), b"\x2a\x0d\x0a\x03x-a\x12\x06\x12\x04[1]\n"),
            // The zero value of an alternative is encoded.
            (json!({"k": false}), b"\x32\x07\x0a\x01k\x12\x02\x08\x00"),
            (json!({"k": {"$ref": "r"}}), b"\x32\x0a\x0a\x01k\x12\x05\x12\x03\x0a\x01r"),
            (json!({"k": {"d": 1.0}}), b"\x32\x10\x0a\x01k\x12\x0b\x1a\x09\x11\x00\x00\x00\x00\x00\x00\xf0\x3f"),
        ] {
            assert_eq!(table.encode_document(&given), expected, "{given}");
        }
    }
}
