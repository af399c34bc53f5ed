//! From stored bytes to objects and back, and how a client wants to see them.

use crate::{
    accept::{Choice, choices},
    content_negotiation, encode, json_order,
    kinds::{Kind, KindInfo},
    meta_v1beta1, protobuf,
    request::Query,
    status::ApiError,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use store::{Key, Object, Template};

/// How a client wants objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Whole,
    Table,
    Metadata,
}

/// What the Accept header asks for, of one object.
pub(crate) fn view(accept: &str, info: &KindInfo) -> Result<View, ApiError> {
    match asked(accept, "")? {
        (_, METADATA_LIST) => {
            let what = format!("*{}.{}", info.version, info.kind);
            let message = format!("you requested {METADATA_LIST}, but the requested object is not a list ({what})");
            Err(ApiError::new(406, "NotAcceptable", message))
        }
        (view, _) => Ok(view),
    }
}

/// What the Accept header asks for, of a list.
pub(crate) fn list_view(accept: &str, info: &KindInfo) -> Result<View, ApiError> {
    match asked(accept, STREAMS)? {
        (_, METADATA) => {
            let what = format!("*{}.{}List", info.version, info.kind);
            let message = format!("you requested {METADATA}, but the requested object is a list ({what})");
            Err(ApiError::new(406, "NotAcceptable", message))
        }
        (view, _) => Ok(view),
    }
}

const METADATA: &str = "PartialObjectMetadata";
const METADATA_LIST: &str = "PartialObjectMetadataList";

const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// What there is beside of lists.
const STREAMS: &str = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// What the Accept header asks for, and the shape in its own words; `more` are the media types that there are beside.
fn asked<'a>(accept: &'a str, more: &str) -> Result<(View, &'a str), ApiError> {
    // As most clients say it.
    if matches!(accept, "" | "application/json") {
        return Ok((View::Whole, ""));
    }
    let mut is_routed = false;
    for choice in choices(accept) {
        let served = ["application/json", "application/*", "*/*", content_negotiation::YAML, protobuf::MEDIA_TYPE];
        if !served.contains(&choice.media) {
            continue;
        }
        is_routed = true;
        let Some(shape) = choice.shape() else { return Ok((View::Whole, "")) };
        if !meta_v1beta1::is_served(&choice) {
            continue;
        }
        match shape {
            // A Table has no binary form.
            "Table" if choice.media != protobuf::MEDIA_TYPE => return Ok((View::Table, shape)),
            METADATA | METADATA_LIST => return Ok((View::Metadata, shape)),
            _ => {}
        }
    }
    if is_routed {
        return Err(not_acceptable(MEDIA_TYPES));
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}{more}");
    Err(ApiError::refused_by_route(406, "NotAcceptable", message))
}

/// What is left of an Accept header where there are no tables: questions have none, as their storages upstream.
pub(crate) fn without_tables(accept: &str) -> Result<String, ApiError> {
    let others = accept.split(',').filter(|choice| Choice::parse(choice).shape() != Some("Table"));
    let others = others.collect::<Vec<_>>().join(",");
    if others.is_empty() && !accept.is_empty() {
        return Err(not_acceptable(MEDIA_TYPES));
    }
    Ok(others)
}

/// Kinds that clients define have no binary form: who reads nothing else cannot have them.
pub(crate) fn require_text(accept: &str) -> Result<(), ApiError> {
    let read = |choice: &str| {
        let media = choice.split(';').next().map_or("", str::trim);
        matches!(media, "application/json" | "application/*" | "*/*") || media == content_negotiation::YAML
    };
    if accept.is_empty() || accept.split(',').any(read) {
        return Ok(());
    }
    Err(not_acceptable(MEDIA_TYPES))
}

/// What the Accept header asks for of a watch: there are no streams of YAML, and none of tables that begin with what there
/// is already (`sendInitialEvents`).
pub(crate) fn stream_view(accept: &str, is_list: bool) -> Result<View, ApiError> {
    let is_stream = |choice: &&str| {
        let choice = Choice::parse(choice);
        choice.media != content_negotiation::YAML && !(is_list && choice.shape() == Some("Table"))
    };
    let streams: Vec<&str> = accept.split(',').filter(is_stream).collect();
    if streams.is_empty() {
        return Err(not_acceptable("application/json, application/vnd.kubernetes.protobuf"));
    }
    Ok(asked(&streams.join(","), STREAMS)?.0)
}

fn not_acceptable(served: &str) -> ApiError {
    ApiError::new(406, "NotAcceptable", format!("only the following media types are accepted: {served}"))
}

/// The stored object in this kind's form.
pub(crate) fn decode(kind: &dyn Kind, object: &Object) -> Value {
    let mut value: Value = serde_json::from_slice(&object.data).unwrap_or(Value::Null);
    if let Some(map) = value.as_object_mut().filter(|_| !kind.is_stored_form(object.revision)) {
        kind.from_storage(map);
    }
    value
}

/// So deep an object may be: `serde_json` reads 128 levels, and clients read it within lists and tables, with who owns what
/// of it beside it, which is as deep as it is.
const DEEPEST: usize = 100;

/// Refuses what could be stored and not be read again.
pub(crate) fn check_depth(object: &Value) -> Result<(), ApiError> {
    fn is_deeper(value: &Value, than: usize) -> bool {
        match value {
            Value::Object(fields) => than == 0 || fields.values().any(|value| is_deeper(value, than - 1)),
            Value::Array(items) => than == 0 || items.iter().any(|value| is_deeper(value, than - 1)),
            _ => false,
        }
    }
    match is_deeper(object, DEEPEST) {
        true => Err(ApiError::bad_request(format!("the object is nested deeper than {DEEPEST} levels"))),
        false => Ok(()),
    }
}

/// The bytes of a whole object in this kind's form, with a newline at the end, as it is stored but for what an older Podium stored.
pub(crate) fn bytes(kind: &dyn Kind, object: &Object) -> Bytes {
    let is_whole = kind.is_stored_form(object.revision) && object.data.ends_with(b"\n");
    if is_whole { object.data.bytes() } else { json_order::document(&decode(kind, object)).into() }
}

/// A whole object for the store.
pub(crate) fn encode(kind: &dyn Kind, mut value: Value) -> Result<Template, ApiError> {
    if let Some(map) = value.as_object_mut() {
        kind.to_storage(map);
    }
    encode::encode(&value, None)
}

pub(crate) fn key(kind: &dyn Kind, namespace: &str, name: &str) -> Key {
    Key::new(kind.info().storage, namespace, name)
}

/// The metadata of an object as an object of its own.
pub(crate) fn metadata_only(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}

/// A list of the metadata of these objects.
pub(crate) fn metadata_list(values: &[Value], metadata: &Value) -> Value {
    let items: Vec<Value> = values.iter().map(metadata_only).collect();
    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
}

/// The metadata of a stored object as an object of its own. All else in it is passed over: the garbage collector watches
/// the metadata of everything.
pub(crate) fn metadata_bytes(kind: &dyn Kind, object: &Object) -> Bytes {
    #[derive(Deserialize)]
    struct Outline<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    match serde_json::from_slice::<Outline<'_>>(&object.data) {
        // That of custom kinds is stored in another order.
        Ok(Outline { metadata }) if kind.is_stored_form(object.revision) && !kind.is_custom() => {
            let head = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1""#;
            format!("{head},\"metadata\":{metadata}}}\n").into()
        }
        Ok(Outline { metadata }) if kind.is_stored_form(object.revision) => {
            let metadata: Value = serde_json::from_str(metadata.get()).unwrap_or_default();
            json_order::document(&metadata_only(&json!({"metadata": metadata}))).into()
        }
        _ => json_order::document(&metadata_only(&decode(kind, object))).into(),
    }
}

/// What a Table says of each object beside its cells (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        match query.get("includeObject") {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::Nothing),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// A Table of these objects.
pub(crate) fn table(kind: &dyn Kind, objects: &[Value], metadata: &Value, header: bool, include: Include) -> Value {
    let now = jiff::Timestamp::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|o| {
            let row = kind.row(o, now);
            let object = match include {
                Include::Nothing => Value::Null,
                Include::Metadata => metadata_only(o),
                Include::Object => o.clone(),
            };
            let mut row_value = json!({"cells": row.cells, "object": object});
            if !row.conditions.is_empty() {
                row_value["conditions"] = json!(row.conditions);
            }
            row_value
        })
        .collect();
    let columns = if header { json!(kind.column_definitions()) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::ALL;

    /// Bookmarks are shown so in watches of tables.
    #[test]
    fn an_object_with_a_revision_alone_has_a_row_of_every_kind() {
        for kind in ALL {
            let object = json!({"metadata": {"resourceVersion": "7"}});
            let table = table(*kind, &[object], &Value::Null, true, Include::Metadata);
            assert!(table["rows"][0]["cells"].is_array(), "{table}");
            assert_eq!(table["rows"][0]["object"]["metadata"]["resourceVersion"], "7");
        }
    }
}
