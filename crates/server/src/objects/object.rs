//! Encoding and decoding of stored objects, and their representations: whole objects, Tables and PartialObjectMetadata.

use crate::{
    http::{content_negotiation, meta_v1beta1},
    objects::encode,
};
use bytes::Bytes;
use errors::ApiError;
use kinds::{Kind, KindInfo};
use request::Query;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use store::{Key, Object, Template};
use wire::{
    accept::{MediaRange, parse_accept},
    json_order, protobuf,
};

/// Representation of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Object,
    Table,
    Metadata,
}

/// Negotiates the representation of a single object by the Accept header.
pub(crate) fn negotiate_object(accept: &str, info: &KindInfo) -> Result<Representation, ApiError> {
    match negotiate(accept, "")? {
        (_, METADATA_LIST) => {
            let type_name = format!("*{}.{}", info.version, info.kind);
            let message =
                format!("you requested {METADATA_LIST}, but the requested object is not a list ({type_name})");
            Err(ApiError::new(406, "NotAcceptable", message))
        }
        (representation, _) => Ok(representation),
    }
}

/// Negotiates the representation of a list by the Accept header.
pub(crate) fn negotiate_list(accept: &str, info: &KindInfo) -> Result<Representation, ApiError> {
    match negotiate(accept, STREAMS)? {
        (_, METADATA) => {
            let type_name = format!("*{}.{}List", info.version, info.kind);
            let message = format!("you requested {METADATA}, but the requested object is a list ({type_name})");
            Err(ApiError::new(406, "NotAcceptable", message))
        }
        (representation, _) => Ok(representation),
    }
}

const METADATA: &str = "PartialObjectMetadata";
const METADATA_LIST: &str = "PartialObjectMetadataList";

const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// Additional media types of lists.
const STREAMS: &str = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// Negotiates the representation, and returns the header's `as` parameter with it; `parameters` are additional media types.
fn negotiate<'a>(accept: &'a str, parameters: &str) -> Result<(Representation, &'a str), ApiError> {
    // The header of most clients.
    if matches!(accept, "" | "application/json") {
        return Ok((Representation::Object, ""));
    }
    let mut is_routed = false;
    for choice in parse_accept(accept) {
        let served = ["application/json", "application/*", "*/*", content_negotiation::YAML, protobuf::MEDIA_TYPE];
        if !served.contains(&choice.media) {
            continue;
        }
        is_routed = true;
        let Some(shape) = choice.requested_as() else { return Ok((Representation::Object, "")) };
        if !meta_v1beta1::is_served(&choice) {
            continue;
        }
        match shape {
            // A Table has no binary form.
            "Table" if choice.media != protobuf::MEDIA_TYPE => return Ok((Representation::Table, shape)),
            METADATA | METADATA_LIST => return Ok((Representation::Metadata, shape)),
            _ => {}
        }
    }
    if is_routed {
        return Err(not_acceptable(MEDIA_TYPES));
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}{parameters}");
    Err(ApiError::rejected_by_router(406, "NotAcceptable", message))
}

/// Removes tables from an Accept header: virtual kinds, such as SubjectAccessReview, have none, as upstream.
pub(crate) fn exclude_tables(accept: &str) -> Result<String, ApiError> {
    let others = accept.split(',').filter(|choice| MediaRange::parse(choice).requested_as() != Some("Table"));
    let others = others.collect::<Vec<_>>().join(",");
    if others.is_empty() && !accept.is_empty() {
        return Err(not_acceptable(MEDIA_TYPES));
    }
    Ok(others)
}

/// Requires an Accept header that allows JSON or YAML: custom resources have no protobuf encoding.
pub(crate) fn require_text_media_type(accept: &str) -> Result<(), ApiError> {
    let read = |choice: &str| {
        let media = choice.split(';').next().map_or("", str::trim);
        matches!(media, "application/json" | "application/*" | "*/*") || media == content_negotiation::YAML
    };
    if accept.is_empty() || accept.split(',').any(read) {
        return Ok(());
    }
    Err(not_acceptable(MEDIA_TYPES))
}

/// Negotiates the representation of a watch by the Accept header. There are no streams of YAML, and no tables in a watch
/// with `sendInitialEvents`.
pub(crate) fn negotiate_watch(accept: &str, is_list: bool) -> Result<Representation, ApiError> {
    let is_stream = |choice: &&str| {
        let choice = MediaRange::parse(choice);
        choice.media != content_negotiation::YAML && !(is_list && choice.requested_as() == Some("Table"))
    };
    let streams: Vec<&str> = accept.split(',').filter(is_stream).collect();
    if streams.is_empty() {
        return Err(not_acceptable("application/json, application/vnd.kubernetes.protobuf"));
    }
    Ok(negotiate(&streams.join(","), STREAMS)?.0)
}

fn not_acceptable(served: &str) -> ApiError {
    ApiError::new(406, "NotAcceptable", format!("only the following media types are accepted: {served}"))
}

/// Decodes a stored object into the kind's version.
pub(crate) fn decode(kind: &dyn Kind, object: &Object) -> Value {
    let mut value: Value = serde_json::from_slice(&object.data).unwrap_or(Value::Null);
    if let Some(map) = value.as_object_mut().filter(|_| !kind.is_stored_form(object.revision)) {
        kind.from_storage(map);
    }
    value
}

/// Maximum nesting of an object. `serde_json` parses 128 levels, lists and tables add some, and `managedFields` are as
/// deep as the object.
const MAX_DEPTH: usize = 100;

/// Rejects an object that is nested too deep to be parsed again.
pub(crate) fn check_depth(object: &Value) -> Result<(), ApiError> {
    fn is_deeper(value: &Value, than: usize) -> bool {
        match value {
            Value::Object(fields) => than == 0 || fields.values().any(|value| is_deeper(value, than - 1)),
            Value::Array(items) => than == 0 || items.iter().any(|value| is_deeper(value, than - 1)),
            _ => false,
        }
    }
    match is_deeper(object, MAX_DEPTH) {
        true => Err(ApiError::bad_request(format!("the object is nested deeper than {MAX_DEPTH} levels"))),
        false => Ok(()),
    }
}

/// Returns a whole object in the kind's version as JSON with a final newline: the stored bytes, unless the stored form
/// differs or an older Podium stored it.
pub(crate) fn encoded(kind: &dyn Kind, object: &Object) -> Bytes {
    let is_whole = kind.is_stored_form(object.revision) && object.data.ends_with(b"\n");
    if is_whole { object.data.bytes() } else { json_order::encode_document(&decode(kind, object)).into() }
}

/// Encodes a whole object for the store.
pub(crate) fn encode(kind: &dyn Kind, mut value: Value) -> Result<Template, ApiError> {
    if let Some(map) = value.as_object_mut() {
        kind.to_storage(map);
    }
    encode::encode(&value, None)
}

pub(crate) fn key(kind: &dyn Kind, namespace: &str, name: &str) -> Key {
    Key::new(kind.info().storage, namespace, name)
}

/// Returns the PartialObjectMetadata of an object.
pub(crate) fn metadata_only(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}

/// Returns the PartialObjectMetadataList of objects.
pub(crate) fn metadata_list(values: &[Value], metadata: &Value) -> Value {
    let items: Vec<Value> = values.iter().map(metadata_only).collect();
    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
}

/// Returns the PartialObjectMetadata of a stored object without parsing the rest of it: the garbage collector watches the
/// metadata of all objects.
pub(crate) fn metadata_bytes(kind: &dyn Kind, object: &Object) -> Bytes {
    #[derive(Deserialize)]
    struct Outline<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    match serde_json::from_slice::<Outline<'_>>(&object.data) {
        // Custom resources are stored with sorted keys.
        Ok(Outline { metadata }) if kind.is_stored_form(object.revision) && !kind.is_custom() => {
            let head = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1""#;
            format!("{head},\"metadata\":{metadata}}}\n").into()
        }
        Ok(Outline { metadata }) if kind.is_stored_form(object.revision) => {
            let metadata: Value = serde_json::from_str(metadata.get()).unwrap_or_default();
            json_order::encode_document(&metadata_only(&json!({"metadata": metadata}))).into()
        }
        _ => json_order::encode_document(&metadata_only(&decode(kind, object))).into(),
    }
}

/// What the rows of a Table contain of their objects (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObjectPolicy {
    None,
    Metadata,
    Object,
}

impl IncludeObjectPolicy {
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        match query.get("includeObject") {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Returns a Table of objects.
pub(crate) fn table(
    kind: &dyn Kind,
    objects: &[Value],
    metadata: &Value,
    header: bool,
    include: IncludeObjectPolicy,
) -> Value {
    let now = jiff::Timestamp::now();
    let rows: Vec<Value> = objects
        .iter()
        .map(|o| {
            let row = kind.row(o, now);
            let object = match include {
                IncludeObjectPolicy::None => Value::Null,
                IncludeObjectPolicy::Metadata => metadata_only(o),
                IncludeObjectPolicy::Object => o.clone(),
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
    use kinds::ALL;

    /// A watch of Tables converts its bookmarks to rows, too.
    #[test]
    fn bookmark_has_a_table_row_for_every_kind() {
        for kind in ALL {
            let object = json!({"metadata": {"resourceVersion": "7"}});
            let table = table(*kind, &[object], &Value::Null, true, IncludeObjectPolicy::Metadata);
            assert!(table["rows"][0]["cells"].is_array(), "{table}");
            assert_eq!(table["rows"][0]["object"]["metadata"]["resourceVersion"], "7");
        }
    }
}
