//! OpenAPI v2: one document of all groups, in JSON and in protobuf.
//!
//! It is converted on request from the documents of version 3, one at a time, so that the two agree; only the compressed result
//! is cached.

mod convert;

use super::{
    compressed_document::CompressedDocument,
    gnostic,
    negotiate::{self, JSON, MediaType},
};
use errors::ApiError;
use http::{HeaderMap, Response};
use parking_lot::Mutex;
use response::Body;
use serde_json::{Map, Value, json};
use std::{
    collections::HashSet,
    io::{self, Write},
    sync::Arc,
};

const TITLE: &str = "Kubernetes";

/// Cache of the document in both media types.
#[derive(Default)]
pub(super) struct Swagger {
    json: Mutex<Option<CachedDocument>>,
    protobuf: Mutex<Option<CachedDocument>>,
}

/// The document, with the hashes of the documents from which it was converted.
type CachedDocument = (Vec<String>, Arc<CompressedDocument>);

/// Handles a request for version 2.
pub(super) fn respond(
    swagger: &Swagger,
    documents: &[Arc<CompressedDocument>],
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    match negotiate::negotiate(headers, &negotiate::V2)? {
        MediaType::Json => cached_or_converted(&swagger.json, documents, write_json)?.respond(headers, JSON),
        MediaType::Protobuf => {
            cached_or_converted(&swagger.protobuf, documents, write_protobuf)?.respond(headers, negotiate::V2.name)
        }
    }
}

/// Returns the cached document, or converts it.
fn cached_or_converted(
    cache: &Mutex<Option<CachedDocument>>,
    documents: &[Arc<CompressedDocument>],
    write: fn(&[Arc<CompressedDocument>], &mut dyn Write) -> io::Result<()>,
) -> Result<Arc<CompressedDocument>, ApiError> {
    let hashes: Vec<String> = documents.iter().map(|d| d.hash.clone()).collect();
    let mut cache = cache.lock();
    if let Some((_, document)) = cache.as_ref().filter(|(same, _)| *same == hashes) {
        return Ok(Arc::clone(document));
    }
    let document = CompressedDocument::new("v2".to_owned(), |out| write(documents, out));
    let document = document.map(Arc::new).map_err(ApiError::internal)?;
    *cache = Some((hashes, Arc::clone(&document)));
    Ok(document)
}

/// Converted part of a document of version 3: its paths, and the schemas that preceding ones do not contain.
struct Part {
    paths: Map<String, Value>,
    definitions: Vec<(String, Value)>,
}

impl Part {
    fn convert(document: &CompressedDocument, seen: &mut HashSet<String>) -> io::Result<Self> {
        let mut value = document.value()?;
        let mut take = |pointer: &str| match value.pointer_mut(pointer).map(Value::take) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let paths = take("/paths").iter().map(|(path, item)| (path.clone(), convert::path(item))).collect();
        let new = take("/components/schemas").into_iter().filter(|(name, _)| seen.insert(name.clone()));
        Ok(Self { paths, definitions: new.map(|(name, schema)| (name, convert::definition(&schema))).collect() })
    }
}

fn write_json(documents: &[Arc<CompressedDocument>], out: &mut dyn Write) -> io::Result<()> {
    let info = json!({"title": TITLE, "version": api::KUBERNETES_VERSION});
    write!(out, r#"{{"swagger":"2.0","info":{info},"paths":{{"#)?;
    let (mut seen, mut definitions, mut comma) = (HashSet::new(), Vec::new(), "");
    for document in documents {
        let part = Part::convert(document, &mut seen)?;
        for (path, item) in part.paths {
            write!(out, "{comma}{}:{item}", Value::from(path))?;
            comma = ",";
        }
        for (name, schema) in part.definitions {
            let comma = if definitions.is_empty() { "" } else { "," };
            write!(definitions, "{comma}{}:{schema}", Value::from(name))?;
        }
    }
    out.write_all(br#"},"definitions":{"#)?;
    out.write_all(&definitions)?;
    out.write_all(b"}}")
}

fn write_protobuf(documents: &[Arc<CompressedDocument>], out: &mut dyn Write) -> io::Result<()> {
    let info = json!({"title": TITLE, "version": api::KUBERNETES_VERSION});
    out.write_all(&gnostic::V2.encode_document(&json!({"swagger": "2.0", "info": info})))?;
    let mut seen = HashSet::new();
    for document in documents {
        let part = Part::convert(document, &mut seen)?;
        let definitions = Value::Object(part.definitions.into_iter().collect());
        let part = Value::from_iter([("paths", Value::Object(part.paths)), ("definitions", definitions)]);
        out.write_all(&gnostic::V2.encode_document(&part))?;
    }
    Ok(())
}
