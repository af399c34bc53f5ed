//! Messages of gnostic's `openapi.v3` for an independent decoder, and their conversion to JSON. Lists of named items are maps on
//! the wire.

use prost::{Message, Oneof};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Document {
    #[prost(string, tag = "1")]
    openapi: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
    #[prost(message, optional, tag = "4")]
    paths: Option<Paths>,
    #[prost(message, optional, tag = "5")]
    components: Option<Components>,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "6")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Components {
    #[prost(message, optional, tag = "1")]
    schemas: Option<Schemas>,
}

#[derive(Clone, PartialEq, Message)]
struct Paths {
    #[prost(btree_map = "string, message", tag = "1")]
    all: BTreeMap<String, PathItem>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "2")]
    yaml: String,
}

#[derive(Clone, PartialEq, Message)]
struct PathItem {
    #[prost(message, optional, tag = "4")]
    get: Option<Operation>,
    #[prost(message, optional, tag = "5")]
    put: Option<Operation>,
    #[prost(message, optional, tag = "6")]
    post: Option<Operation>,
    #[prost(message, optional, tag = "7")]
    delete: Option<Operation>,
    #[prost(message, optional, tag = "8")]
    options: Option<Operation>,
    #[prost(message, optional, tag = "9")]
    head: Option<Operation>,
    #[prost(message, optional, tag = "10")]
    patch: Option<Operation>,
    #[prost(message, repeated, tag = "13")]
    parameters: Vec<ParameterOrReference>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(string, repeated, tag = "1")]
    tags: Vec<String>,
    #[prost(string, tag = "3")]
    description: String,
    #[prost(string, tag = "5")]
    operation_id: String,
    #[prost(message, repeated, tag = "6")]
    parameters: Vec<ParameterOrReference>,
    #[prost(message, optional, tag = "7")]
    request_body: Option<BodyOrReference>,
    #[prost(message, optional, tag = "8")]
    responses: Option<Responses>,
    #[prost(btree_map = "string, message", tag = "13")]
    extensions: BTreeMap<String, Any>,
}

#[derive(Clone, PartialEq, Message)]
struct ParameterOrReference {
    #[prost(message, optional, tag = "1")]
    parameter: Option<Parameter>,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    location: String,
    #[prost(string, tag = "3")]
    description: String,
    #[prost(bool, tag = "4")]
    required: bool,
    #[prost(message, optional, tag = "10")]
    schema: Option<SchemaOrReference>,
}

#[derive(Clone, PartialEq, Message)]
struct BodyOrReference {
    #[prost(message, optional, tag = "1")]
    body: Option<RequestBody>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestBody {
    #[prost(message, optional, tag = "2")]
    content: Option<MediaTypes>,
    #[prost(bool, tag = "3")]
    required: bool,
}

#[derive(Clone, PartialEq, Message)]
struct MediaTypes {
    #[prost(btree_map = "string, message", tag = "1")]
    all: BTreeMap<String, MediaType>,
}

#[derive(Clone, PartialEq, Message)]
struct MediaType {
    #[prost(message, optional, tag = "1")]
    schema: Option<SchemaOrReference>,
}

#[derive(Clone, PartialEq, Message)]
struct Responses {
    #[prost(btree_map = "string, message", tag = "2")]
    all: BTreeMap<String, ResponseOrReference>,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseOrReference {
    #[prost(message, optional, tag = "1")]
    response: Option<Response>,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    description: String,
    #[prost(message, optional, tag = "3")]
    content: Option<MediaTypes>,
}

/// Of all schemas, and of a schema's properties.
#[derive(Clone, PartialEq, Message)]
struct Schemas {
    #[prost(btree_map = "string, message", tag = "1")]
    all: BTreeMap<String, SchemaOrReference>,
}

#[derive(Clone, PartialEq, Message)]
struct SchemaOrReference {
    #[prost(message, optional, tag = "1")]
    schema: Option<Schema>,
    #[prost(message, optional, tag = "2")]
    reference: Option<Reference>,
}

#[derive(Clone, PartialEq, Message)]
struct Reference {
    #[prost(string, tag = "1")]
    target: String,
}

#[derive(Clone, PartialEq, Message)]
struct Schema {
    #[prost(bool, tag = "1")]
    nullable: bool,
    #[prost(double, tag = "11")]
    maximum: f64,
    #[prost(double, tag = "13")]
    minimum: f64,
    #[prost(int64, tag = "15")]
    max_length: i64,
    #[prost(int64, tag = "16")]
    min_length: i64,
    #[prost(string, tag = "17")]
    pattern: String,
    #[prost(int64, tag = "18")]
    max_items: i64,
    #[prost(bool, tag = "20")]
    unique_items: bool,
    #[prost(string, repeated, tag = "23")]
    required: Vec<String>,
    #[prost(message, repeated, tag = "24")]
    choices: Vec<Any>,
    #[prost(string, tag = "25")]
    kind: String,
    #[prost(message, repeated, tag = "26")]
    all_of: Vec<SchemaOrReference>,
    #[prost(message, repeated, tag = "27")]
    one_of: Vec<SchemaOrReference>,
    #[prost(message, repeated, tag = "28")]
    any_of: Vec<SchemaOrReference>,
    #[prost(message, optional, boxed, tag = "29")]
    not: Option<Box<Self>>,
    #[prost(message, optional, tag = "30")]
    items: Option<Items>,
    #[prost(message, optional, tag = "31")]
    properties: Option<Schemas>,
    #[prost(message, optional, boxed, tag = "32")]
    additional: Option<Box<Additional>>,
    #[prost(message, optional, tag = "33")]
    default: Option<Default>,
    #[prost(string, tag = "34")]
    description: String,
    #[prost(string, tag = "35")]
    format: String,
    #[prost(btree_map = "string, message", tag = "36")]
    extensions: BTreeMap<String, Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Items {
    #[prost(message, repeated, tag = "1")]
    all: Vec<SchemaOrReference>,
}

#[derive(Clone, PartialEq, Message)]
struct Additional {
    #[prost(message, optional, boxed, tag = "1")]
    schema: Option<Box<SchemaOrReference>>,
    #[prost(bool, optional, tag = "2")]
    allowed: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct Default {
    #[prost(oneof = "DefaultValue", tags = "1, 2, 3")]
    value: Option<DefaultValue>,
}

#[derive(Clone, PartialEq, Oneof)]
enum DefaultValue {
    #[prost(double, tag = "1")]
    Number(f64),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(string, tag = "3")]
    Text(String),
}

/// An object of those values that are there.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let is_there = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        number => number.as_f64() != Some(0.0),
    };
    fields.into_iter().filter(|(_, value)| is_there(value)).map(|(key, value)| (key.to_owned(), value)).collect()
}

fn map<T>(all: &BTreeMap<String, T>, to_json: impl Fn(&T) -> Value) -> Value {
    all.iter().map(|(name, value)| (name.clone(), to_json(value))).collect()
}

fn list<T>(all: &[T], to_json: impl Fn(&T) -> Value) -> Value {
    all.iter().map(to_json).collect()
}

fn number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "only whole numbers are cast")]
    if value.fract() == 0.0 { json!(value as i64) } else { json!(value) }
}

impl Any {
    fn json(&self) -> Value {
        serde_saphyr::from_str(&self.yaml).expect("YAML")
    }
}

fn with(mut value: Value, extensions: &BTreeMap<String, Any>) -> Value {
    let extension_map: Map<String, Value> = extensions.iter().map(|(key, any)| (key.clone(), any.json())).collect();
    value.as_object_mut().expect("an object").extend(extension_map);
    value
}

impl Document {
    pub(super) fn json(&self) -> Value {
        let info = self.info.clone().unwrap_or_default();
        let (paths, components) = (self.paths.clone().unwrap_or_default(), self.components.clone().unwrap_or_default());
        json!({
            "openapi": self.openapi,
            "info": {"title": info.title, "version": info.version},
            "paths": map(&paths.all, PathItem::json),
            "components": {"schemas": map(&components.schemas.unwrap_or_default().all, SchemaOrReference::json)},
        })
    }
}

impl PathItem {
    fn json(&self) -> Value {
        let operation = |o: &Option<Operation>| o.as_ref().map_or(Value::Null, Operation::json);
        object([
            ("get", operation(&self.get)),
            ("put", operation(&self.put)),
            ("post", operation(&self.post)),
            ("delete", operation(&self.delete)),
            ("options", operation(&self.options)),
            ("head", operation(&self.head)),
            ("patch", operation(&self.patch)),
            ("parameters", list(&self.parameters, ParameterOrReference::json)),
        ])
    }
}

impl Operation {
    fn json(&self) -> Value {
        let body = self.request_body.as_ref().and_then(|b| b.body.as_ref());
        let body =
            body.map_or(Value::Null, |b| object([("content", content(&b.content)), ("required", json!(b.required))]));
        let value = object([
            ("tags", json!(self.tags)),
            ("description", json!(self.description)),
            ("operationId", json!(self.operation_id)),
            ("parameters", list(&self.parameters, ParameterOrReference::json)),
            ("requestBody", body),
            ("responses", map(&self.responses.clone().unwrap_or_default().all, ResponseOrReference::json)),
        ]);
        with(value, &self.extensions)
    }
}

fn content(types: &Option<MediaTypes>) -> Value {
    let schema = |t: &MediaType| json!({"schema": t.schema.as_ref().map(SchemaOrReference::json)});
    types.as_ref().map_or(Value::Null, |types| map(&types.all, schema))
}

impl ParameterOrReference {
    fn json(&self) -> Value {
        let parameter = self.parameter.as_ref().expect("a parameter");
        object([
            ("name", json!(parameter.name)),
            ("in", json!(parameter.location)),
            ("description", json!(parameter.description)),
            ("required", json!(parameter.required)),
            ("schema", json!(parameter.schema.as_ref().map(SchemaOrReference::json))),
        ])
    }
}

impl ResponseOrReference {
    fn json(&self) -> Value {
        let response = self.response.as_ref().expect("a response");
        object([("description", json!(response.description)), ("content", content(&response.content))])
    }
}

impl SchemaOrReference {
    fn json(&self) -> Value {
        match (&self.schema, &self.reference) {
            (Some(schema), None) => schema.json(),
            (None, Some(reference)) => json!({"$ref": reference.target}),
            both => panic!("not one of two: {both:?}"),
        }
    }
}

impl Schema {
    fn json(&self) -> Value {
        let items = self.items.as_ref().map(|i| i.all.first().expect("one schema").json());
        let additional = self.additional.as_ref().map(|a| a.schema.as_ref().map_or(json!(a.allowed), |s| s.json()));
        let default = self.default.as_ref().map(|d| match &d.value {
            Some(DefaultValue::Number(value)) => number(*value),
            Some(DefaultValue::Flag(flag)) => json!(flag),
            Some(DefaultValue::Text(text)) => json!(text),
            None => json!({}),
        });
        let mut value = object([
            ("nullable", json!(self.nullable)),
            ("maximum", number(self.maximum)),
            ("minimum", number(self.minimum)),
            ("maxLength", json!(self.max_length)),
            ("minLength", json!(self.min_length)),
            ("pattern", json!(self.pattern)),
            ("maxItems", json!(self.max_items)),
            ("uniqueItems", json!(self.unique_items)),
            ("required", json!(self.required)),
            ("enum", list(&self.choices, Any::json)),
            ("type", json!(self.kind)),
            ("allOf", list(&self.all_of, SchemaOrReference::json)),
            ("oneOf", list(&self.one_of, SchemaOrReference::json)),
            ("anyOf", list(&self.any_of, SchemaOrReference::json)),
            ("not", json!(self.not.as_ref().map(|n| n.json()))),
            ("items", json!(items)),
            ("properties", json!(self.properties.as_ref().map(|p| map(&p.all, SchemaOrReference::json)))),
            ("description", json!(self.description)),
            ("format", json!(self.format)),
        ]);
        // Even a zero is meant here.
        for (key, schema) in [("additionalProperties", additional), ("default", default)] {
            if let Some(schema) = schema {
                value[key] = schema;
            }
        }
        with(value, &self.extensions)
    }
}
