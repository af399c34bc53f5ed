//! Version 2 in protobuf, which is the form that kubectl reads: the messages of gnostic's `openapi.v2`.

use crate::protobuf::wire::{put_bytes, put_fixed, put_number};
use serde_json::Value;

/// A message in the making; what is not there is not written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(mut self, number: u32, value: &Value) -> Self {
        if let Some(text) = value.as_str() {
            put_bytes(&mut self.0, number, text.as_bytes());
        }
        self
    }

    fn texts(self, number: u32, values: &Value) -> Self {
        values.as_array().into_iter().flatten().fold(self, |message, value| message.text(number, value))
    }

    fn flag(mut self, number: u32, value: &Value) -> Self {
        if *value == true {
            put_number(&mut self.0, number, 1);
        }
        self
    }

    fn whole(mut self, number: u32, value: &Value) -> Self {
        if let Some(whole) = value.as_i64() {
            put_number(&mut self.0, number, whole);
        }
        self
    }

    fn point(mut self, number: u32, value: &Value) -> Self {
        if let Some(point) = value.as_f64() {
            put_fixed(&mut self.0, number, point);
        }
        self
    }

    fn held(mut self, number: u32, message: &[u8]) -> Self {
        put_bytes(&mut self.0, number, message);
        self
    }

    /// A message for a value that is there.
    fn part(self, number: u32, value: &Value, write: impl Fn(&Value) -> Vec<u8>) -> Self {
        if value.is_null() { self } else { self.held(number, &write(value)) }
    }

    fn parts(self, number: u32, values: &Value, write: impl Fn(&Value) -> Vec<u8>) -> Self {
        values.as_array().into_iter().flatten().fold(self, |message, value| message.held(number, &write(value)))
    }

    /// A message with a name and a value for each entry of a map.
    fn named(self, number: u32, map: &Value, write: impl Fn(&Value) -> Vec<u8>) -> Self {
        let entries = map.as_object().into_iter().flatten();
        entries.fold(self, |message, (name, value)| {
            let entry = Self::default().text(1, &name.as_str().into()).held(2, &write(value));
            message.held(number, &entry.0)
        })
    }

    /// `x-kubernetes-...`
    fn extensions(self, number: u32, value: &Value) -> Self {
        let all = value.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("x-"));
        all.fold(self, |message, (name, value)| {
            let entry = Self::default().text(1, &name.as_str().into()).held(2, &any(value));
            message.held(number, &entry.0)
        })
    }
}

/// `Any`: JSON is YAML.
fn any(value: &Value) -> Vec<u8> {
    Message::default().text(2, &format!("{value}\n").into()).0
}

/// The beginning of a `Document`: its version and what it is about.
pub(super) fn head(title: &str, version: &str) -> Vec<u8> {
    let info = Message::default().text(1, &title.into()).text(2, &version.into());
    Message::default().text(1, &"2.0".into()).held(2, &info.0).0
}

/// Paths of a `Document`. They may come in many parts, as may definitions: parts of one field are one message.
pub(super) fn paths(all: &Value) -> Vec<u8> {
    let paths = Message::default().named(2, all, path);
    Message::default().held(8, &paths.0).0
}

/// A definition of a `Document`.
pub(super) fn definition(name: &str, value: &Value) -> Vec<u8> {
    let named = Message::default().text(1, &name.into()).held(2, &schema(value));
    let definitions = Message::default().held(1, &named.0);
    Message::default().held(9, &definitions.0).0
}

fn path(item: &Value) -> Vec<u8> {
    let methods = [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)];
    let all = methods
        .iter()
        .fold(Message::default(), |message, (name, number)| message.part(*number, &item[*name], operation));
    all.parts(9, &item["parameters"], parameter).0
}

fn operation(value: &Value) -> Vec<u8> {
    let responses = Message::default().named(1, &value["responses"], response);
    Message::default()
        .texts(1, &value["tags"])
        .text(3, &value["description"])
        .text(5, &value["operationId"])
        .texts(6, &value["produces"])
        .texts(7, &value["consumes"])
        .parts(8, &value["parameters"], parameter)
        .held(9, &responses.0)
        .texts(10, &value["schemes"])
        .extensions(13, value)
        .0
}

fn response(value: &Value) -> Vec<u8> {
    let item = |value: &Value| Message::default().held(1, &schema(value)).0;
    let response = Message::default().text(1, &value["description"]).part(2, &value["schema"], item);
    Message::default().held(1, &response.0).0
}

fn parameter(value: &Value) -> Vec<u8> {
    let parameter = if value["in"] == "body" {
        let body = Message::default().text(2, &value["name"]).text(3, &value["in"]).flag(4, &value["required"]);
        Message::default().held(1, &body.part(5, &value["schema"], schema).0)
    } else {
        let (kind, place, unique) = if value["in"] == "path" { (5, 4, 19) } else { (6, 3, 20) };
        let other = Message::default()
            .flag(1, &value["required"])
            .text(2, &value["in"])
            .text(3, &value["description"])
            .text(4, &value["name"])
            .text(kind, &value["type"])
            .flag(unique, &value["uniqueItems"]);
        let held = Message::default().held(place, &other.0);
        Message::default().held(2, &held.0)
    };
    Message::default().held(1, &parameter.0).0
}

fn schema(value: &Value) -> Vec<u8> {
    let additional = |value: &Value| match value {
        Value::Bool(_) => Message::default().flag(2, value).0,
        value => Message::default().held(1, &schema(value)).0,
    };
    let items = |value: &Value| Message::default().held(1, &schema(value)).0;
    let kind = |value: &Value| Message::default().text(1, value).0;
    let properties = |map: &Value| Message::default().named(1, map, schema).0;
    Message::default()
        .text(1, &value["$ref"])
        .text(2, &value["format"])
        .text(3, &value["title"])
        .text(4, &value["description"])
        .point(6, &value["multipleOf"])
        .point(7, &value["maximum"])
        .flag(8, &value["exclusiveMaximum"])
        .point(9, &value["minimum"])
        .flag(10, &value["exclusiveMinimum"])
        .whole(11, &value["maxLength"])
        .whole(12, &value["minLength"])
        .text(13, &value["pattern"])
        .whole(14, &value["maxItems"])
        .whole(15, &value["minItems"])
        .flag(16, &value["uniqueItems"])
        .whole(17, &value["maxProperties"])
        .whole(18, &value["minProperties"])
        .texts(19, &value["required"])
        .parts(20, &value["enum"], any)
        .part(21, &value["additionalProperties"], additional)
        .part(22, &value["type"], kind)
        .part(23, &value["items"], items)
        .part(25, &value["properties"], properties)
        .extensions(31, value)
        .0
}
