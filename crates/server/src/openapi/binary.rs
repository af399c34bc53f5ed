//! Documents in protobuf, as the messages of gnostic that upstream makes of them.
//!
//! What a message holds is data (`binary/v2.txt`, `binary/v3.txt`), a line each: its name, then its fields in the order of
//! their numbers, `of:number=kind`. A field is of
//! - a key of the JSON object: `title`;
//! - all keys that are not named (`*`), or that begin with `x-` where there is such a field (`x-`): for each an entry with its
//!   name and its value;
//! - the value itself, if it fits (`?`): anything, a `?bool`, `?number` or `?string`, what has a key (`?$ref`) or in it a text
//!   (`?in=path`). Of these fields the first that fits is written.
//!
//! A kind is `string`, `bool`, `int`, `double`, `any` (YAML, in a message of its own) or a message; `[]` says that it repeats.
//! What is zero is not written but where it is one of several that could be there.

use crate::protobuf::wire::{put_bytes, put_fixed, put_number};
use serde_json::Value;
use std::sync::LazyLock;

/// The messages of version 2.
pub(super) static V2: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("binary/v2.txt")).unwrap_or_default());
/// The messages of version 3.
pub(super) static V3: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("binary/v3.txt")).unwrap_or_default());

/// The messages of one version; the first is the document.
#[derive(Debug, Default)]
pub(super) struct Table {
    messages: Vec<Vec<Field>>,
}

#[derive(Debug)]
struct Field {
    of: Of,
    number: u32,
    repeats: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Of {
    Key(&'static str),
    Others,
    Extensions,
    Itself(Test),
}

/// What a value must be.
#[derive(Debug)]
enum Test {
    Anything,
    Bool,
    Number,
    Text,
    Has(&'static str),
    Says(&'static str, &'static str),
}

impl Test {
    fn parse(text: &'static str) -> Self {
        match text {
            "" => Self::Anything,
            "bool" => Self::Bool,
            "number" => Self::Number,
            "string" => Self::Text,
            other => other.split_once('=').map_or(Self::Has(other), |(key, text)| Self::Says(key, text)),
        }
    }

    fn fits(&self, value: &Value) -> bool {
        match self {
            Self::Anything => true,
            Self::Bool => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::Text => value.is_string(),
            Self::Has(key) => value.get(key).is_some(),
            Self::Says(key, text) => value[key] == *text,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Int,
    Double,
    Any,
    /// By its place in the table.
    Message(usize),
}

impl Table {
    /// `None` when the text is not in the form that the head of this file describes; a test reads it.
    fn parse(text: &'static str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        let split = |line: &'static str| line.split_once(' ');
        let names: Vec<&str> = lines.iter().filter_map(|l| split(l).map(|(name, _)| name)).collect();
        let fields = |line: &&'static str| split(line)?.1.split(' ').map(|token| Field::parse(token, &names)).collect();
        Some(Self { messages: lines.iter().map(fields).collect::<Option<_>>()? })
    }

    /// A document, or a part of one: parts of one field are one message for who reads them.
    pub(super) fn document(&self, value: &Value) -> Vec<u8> {
        self.message(0, value)
    }

    fn message(&self, place: usize, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        let fields = self.messages.get(place).map_or(&[][..], Vec::as_slice);
        for field in fields {
            match &field.of {
                Of::Key(key) => match &value[key] {
                    Value::Null => {}
                    Value::Array(all) if field.repeats => all.iter().for_each(|v| self.put(&mut out, field, v)),
                    zero if field.omits(zero) => {}
                    held => self.put(&mut out, field, held),
                },
                Of::Others | Of::Extensions => {
                    let all = value.as_object().into_iter().flatten();
                    for (name, held) in all.filter(|(name, _)| field.takes(name, fields)) {
                        let mut entry = Vec::new();
                        put_bytes(&mut entry, 1, name.as_bytes());
                        put_bytes(&mut entry, 2, &self.content(field.kind, held));
                        put_bytes(&mut out, field.number, &entry);
                    }
                }
                Of::Itself(test) if test.fits(value) => {
                    self.put(&mut out, field, value);
                    break;
                }
                Of::Itself(_) => {}
            }
        }
        out
    }

    /// A field with its value; one of another kind is left out.
    fn put(&self, out: &mut Vec<u8>, field: &Field, value: &Value) {
        match (field.kind, value) {
            (Kind::Bool, Value::Bool(flag)) => put_number(out, field.number, i64::from(*flag)),
            (Kind::Int, Value::Number(number)) => put_number(out, field.number, number.as_i64().unwrap_or(0)),
            (Kind::Double, Value::Number(number)) => put_fixed(out, field.number, number.as_f64().unwrap_or(0.0)),
            (Kind::Text, Value::String(text)) => put_bytes(out, field.number, text.as_bytes()),
            (Kind::Any | Kind::Message(_), _) => put_bytes(out, field.number, &self.content(field.kind, value)),
            _ => {}
        }
    }

    /// What a message holds.
    fn content(&self, kind: Kind, value: &Value) -> Vec<u8> {
        match kind {
            Kind::Message(place) => self.message(place, value),
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
        let (of, rest) = token.split_once(':')?;
        let (number, kind) = rest.split_once('=')?;
        let of = match of.strip_prefix('?') {
            Some(test) => Of::Itself(Test::parse(test)),
            None if of == "*" => Of::Others,
            None if of == "x-" => Of::Extensions,
            None => Of::Key(of),
        };
        let (repeats, kind) = kind.strip_prefix("[]").map_or((false, kind), |kind| (true, kind));
        let kind = match kind {
            "string" => Kind::Text,
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "double" => Kind::Double,
            "any" => Kind::Any,
            message => Kind::Message(names.iter().position(|name| *name == message)?),
        };
        Some(Self { of, number: number.parse().ok()?, repeats, kind })
    }

    /// Whether a field of many keys is about this one.
    fn takes(&self, key: &str, all: &[Self]) -> bool {
        let is_extension = key.starts_with("x-") && all.iter().any(|f| matches!(f.of, Of::Extensions));
        match self.of {
            Of::Extensions => is_extension,
            _ => !is_extension && !all.iter().any(|f| matches!(f.of, Of::Key(named) if named == key)),
        }
    }

    fn omits(&self, value: &Value) -> bool {
        match self.kind {
            Kind::Bool => *value == false,
            Kind::Int | Kind::Double => value.as_f64() == Some(0.0),
            Kind::Text => *value == "",
            Kind::Any | Kind::Message(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use serde_json::json;

    #[test]
    fn what_messages_hold_is_in_the_form_that_is_described() {
        for text in [include_str!("binary/v2.txt"), include_str!("binary/v3.txt")] {
            let table = Table::parse(text).expect("a table");
            for fields in &table.messages {
                let alternatives = fields.iter().filter(|f| matches!(f.of, super::Of::Itself(_))).count();
                assert!(alternatives == 0 || alternatives == fields.len(), "{fields:?}");
                assert!(alternatives > 0 || fields.is_sorted_by(|a, b| a.number < b.number), "{fields:?}");
            }
        }
        assert!(Table::parse("A a:1=Unknown").is_none());
        assert!(Table::parse("A a=string").is_none());
    }

    #[test]
    fn a_field_is_of_a_key_of_the_others_or_of_the_value_itself() {
        let table = Table::parse(
            "A t:1=string n:2=int b:3=bool l:4=[]string x-:5=any *:6=B\nB ?bool:1=bool ?$ref:2=C ?:3=C\nC $ref:1=string d:2=double",
        )
        .expect("a table");
        for (given, expected) in [
            (json!({}), &b""[..]),
            (json!({"t": "", "n": 0, "b": false, "l": [""]}), b"\x22\x00"),
            (json!({"t": "a", "n": 300, "b": true}), b"\x0a\x01a\x10\xac\x02\x18\x01"),
            (json!({"t": 1, "n": "a", "b": null}), b""),
            (json!({"x-a": [1]}), b"\x2a\x0d\x0a\x03x-a\x12\x06\x12\x04[1]\n"),
            // One of several is written though it is zero.
            (json!({"k": false}), b"\x32\x07\x0a\x01k\x12\x02\x08\x00"),
            (json!({"k": {"$ref": "r"}}), b"\x32\x0a\x0a\x01k\x12\x05\x12\x03\x0a\x01r"),
            (json!({"k": {"d": 1.0}}), b"\x32\x10\x0a\x01k\x12\x0b\x1a\x09\x11\x00\x00\x00\x00\x00\x00\xf0\x3f"),
        ] {
            assert_eq!(table.document(&given), expected, "{given}");
        }
    }
}
