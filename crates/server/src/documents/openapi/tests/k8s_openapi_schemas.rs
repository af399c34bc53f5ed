//! Comparison of the message table with the schemas of k8s-openapi.

use crate::{
    documents::openapi::types::TYPES,
    objects::{
        decode::DecodedBody,
        strict::{self, Validation},
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kinds::ALL;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use wire::protobuf::{
    decode, encode,
    message_table::{Cardinality, Field, Message, TABLE, ValueType},
    sample::Sample,
};

/// Types without a message in the table: their JSON is special.
const SPECIAL: [(&str, &str); 11] = [
    ("Quantity", "quantity"),
    ("IntOrString", "intorstring"),
    ("RawExtension", "raw"),
    ("FieldsV1", "json"),
    ("Time", "time"),
    ("MicroTime", "microtime"),
    ("Duration", "duration"),
    ("JSON", "json"),
    ("JSONSchemaPropsOrArray", "schema or another"),
    ("JSONSchemaPropsOrBool", "schema or another"),
    ("JSONSchemaPropsOrStringArray", "schema or another"),
];

/// Returns the schemas of all kinds, and of the types of other requests and responses.
fn definitions() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    for kind in TYPES {
        (kind.add)(&mut generator);
    }
    let _ = generator.subschema_for::<meta::DeleteOptions>();
    let _ = generator.subschema_for::<meta::Status>();
    let _ = generator.subschema_for::<meta::APIGroupList>();
    let _ = generator.subschema_for::<meta::APIResourceList>();
    let _ = generator.subschema_for::<meta::APIVersions>();
    generator.take_definitions(true)
}

/// Returns the JSON fields of a message, including those of inlined messages.
fn fields(message: &'static Message) -> Vec<&'static Field> {
    let mut all = Vec::new();
    for field in &message.fields {
        match (field.cardinality, field.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => all.extend(fields(&TABLE.messages[index])),
            _ => all.push(field),
        }
    }
    all
}

/// Returns the type of a field in a schema, in the notation of [`type_of_field`].
fn schema_type(schema: &Value) -> String {
    let reference = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str());
    if let Some(reference) = reference {
        let name = reference.rsplit('.').next().unwrap_or_default();
        return SPECIAL.iter().find(|(special, _)| *special == name).map_or(name, |(_, kind)| kind).to_owned();
    }
    match (schema["type"].as_str().unwrap_or(""), schema["format"].as_str().unwrap_or("")) {
        ("array", _) => format!("[]{}", schema_type(&schema["items"])),
        ("object", _) if schema.get("additionalProperties").is_some() => {
            format!("{{}}{}", schema_type(&schema["additionalProperties"]))
        }
        ("string", "byte") => "bytes".to_owned(),
        ("integer", format) => format.to_owned(),
        (kind, _) => kind.to_owned(),
    }
}

fn type_of_field(field: &Field) -> String {
    let kind = match field.value_type {
        ValueType::String => "string",
        ValueType::Bool => "boolean",
        ValueType::Int32 => "int32",
        ValueType::Int64 => "int64",
        ValueType::Bytes => "bytes",
        ValueType::Time => "time",
        ValueType::MicroTime => "microtime",
        ValueType::Duration => "duration",
        ValueType::Quantity => "quantity",
        ValueType::IntOrString => "intorstring",
        ValueType::Raw => "raw",
        ValueType::Json => "json",
        ValueType::Strings => "[]string",
        ValueType::Double => "number",
        // Published as any type.
        ValueType::BoolOr(_) | ValueType::ListOr(_) => "schema or another",
        ValueType::Message(index) => TABLE.messages[index].name.rsplit('.').next().unwrap_or_default(),
    };
    match field.cardinality {
        Cardinality::List => format!("[]{kind}"),
        Cardinality::Map => format!("{{}}{kind}"),
        _ => kind.to_owned(),
    }
}

#[test]
fn table_has_the_fields_of_the_k8s_openapi_schemas() {
    let mut seen = 0;
    for (name, schema) in definitions() {
        // `io.k8s.api.core.v1.Pod` and `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`.
        let parts: Vec<&str> = name.split('.').collect();
        let [.., package, version, message] = parts.as_slice() else { panic!("{name}") };
        let full = format!("{package}/{version}.{message}");
        let Some(message) = TABLE.messages.iter().find(|m| m.name == full) else {
            assert!(SPECIAL.iter().any(|(special, _)| special == message), "{full} is not in the table");
            continue;
        };
        seen += 1;
        let table_fields = fields(message);
        let names: BTreeSet<&str> = table_fields.iter().map(|f| f.name).collect();
        let expected: BTreeSet<(String, String)> = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            // The envelope contains the kind.
            .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind") || names.contains(name.as_str()))
            .map(|(name, schema)| (name.clone(), schema_type(schema)))
            .collect();
        let got: BTreeSet<(String, String)> =
            table_fields.iter().map(|f| (f.name.to_owned(), type_of_field(f))).collect();
        assert_eq!(got, expected, "{full}");
    }
    assert!(seen > 470, "only {seen} messages were compared");
}

#[test]
fn filled_object_of_every_served_kind_is_decoded_unchanged() {
    for kind in ALL {
        let info = kind.info();
        let message = TABLE.kind(&info.api_version(), info.kind).unwrap();
        let mut object = Sample::full().message(message, 0);
        object.insert("apiVersion".to_owned(), json!(info.api_version()));
        object.insert("kind".to_owned(), json!(info.kind));
        let object = Value::Object(object);
        let decoded = decode(&encode(&object).unwrap()).unwrap();
        assert_eq!(decoded, object);
        let parsed = DecodedBody { value: decoded, duplicates: Vec::new() };
        let (clean, warnings) = strict::check(*kind, parsed, Validation::Strict).unwrap();
        assert_eq!((clean, warnings), (object, Vec::new()), "{}", info.kind);
    }
}

#[test]
fn table_contains_all_served_kinds_and_lists() {
    assert!(TABLE.messages.len() > 550);
    for message in &TABLE.messages {
        assert!(message.fields.windows(2).all(|w| w[0].number < w[1].number), "{}", message.name);
        for field in &message.fields {
            assert_eq!(message.field(field.number).map(|f| f.name), Some(field.name), "{}", message.name);
        }
    }
    for kind in ALL.iter().filter(|kind| !kind.info().create_only) {
        let list = format!("{}List", kind.info().kind);
        assert!(TABLE.kind(&kind.info().api_version(), &list).is_some(), "{list}");
    }
}
