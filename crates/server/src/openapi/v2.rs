//! OpenAPI v2: everything in one document, for clients that ask for no other, in JSON and in protobuf.
//!
//! It is made of the documents of version 3, so that the two cannot differ, when somebody asks for it; one path or schema is
//! unpacked at a time, and only the compressed whole stays.

mod convert;

use super::{
    binary,
    negotiate::{self, Form, JSON},
    packed::Document,
};
use crate::{response::Body, status::ApiError};
use http::{HeaderMap, Response};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::{
    collections::HashSet,
    io::{self, Write},
    sync::Arc,
};

const TITLE: &str = "Kubernetes";

/// The two forms, each with the hashes of what it was made of.
#[derive(Default)]
pub(super) struct Swagger {
    json: Mutex<Option<Made>>,
    binary: Mutex<Option<Made>>,
}

type Made = (Vec<String>, Arc<Document>);

/// The answer to a request for version 2.
pub(super) fn respond(
    swagger: &Swagger,
    of: &[Arc<Document>],
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    match negotiate::form(headers, &negotiate::V2)? {
        Form::Json => current(&swagger.json, of, write_json)?.answer(headers, JSON),
        Form::Binary => current(&swagger.binary, of, write_binary)?.answer(headers, negotiate::V2.binary),
    }
}

/// What was made of these documents, or is now.
fn current(
    known: &Mutex<Option<Made>>,
    of: &[Arc<Document>],
    write: fn(&[Arc<Document>], &mut dyn Write) -> io::Result<()>,
) -> Result<Arc<Document>, ApiError> {
    let hashes: Vec<String> = of.iter().map(|d| d.hash.clone()).collect();
    let mut known = known.lock();
    if let Some((_, document)) = known.as_ref().filter(|(same, _)| *same == hashes) {
        return Ok(Arc::clone(document));
    }
    let made = Document::new("v2".to_owned(), |out| write(of, out)).map(Arc::new).map_err(ApiError::internal)?;
    *known = Some((hashes, Arc::clone(&made)));
    Ok(made)
}

/// What a document of version 3 adds: its paths, and the schemas that no other had before.
struct Part {
    paths: Map<String, Value>,
    definitions: Vec<(String, Value)>,
}

impl Part {
    fn of(document: &Document, seen: &mut HashSet<String>) -> io::Result<Self> {
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

fn write_json(of: &[Arc<Document>], out: &mut dyn Write) -> io::Result<()> {
    let info = json!({"title": TITLE, "version": api::KUBERNETES_VERSION});
    write!(out, r#"{{"swagger":"2.0","info":{info},"paths":{{"#)?;
    let (mut seen, mut definitions, mut comma) = (HashSet::new(), Vec::new(), "");
    for document in of {
        let part = Part::of(document, &mut seen)?;
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

fn write_binary(of: &[Arc<Document>], out: &mut dyn Write) -> io::Result<()> {
    let info = json!({"title": TITLE, "version": api::KUBERNETES_VERSION});
    out.write_all(&binary::V2.document(&json!({"swagger": "2.0", "info": info})))?;
    let mut seen = HashSet::new();
    for document in of {
        let part = Part::of(document, &mut seen)?;
        let definitions = Value::Object(part.definitions.into_iter().collect());
        let part = Value::from_iter([("paths", Value::Object(part.paths)), ("definitions", definitions)]);
        out.write_all(&binary::V2.document(&part))?;
    }
    Ok(())
}
