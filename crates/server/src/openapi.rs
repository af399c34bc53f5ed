//! OpenAPI v3, and v2 made of it: what every kind is made of, for `kubectl explain`, for clients' own checks, and for generators.
//!
//! All groups' documents are made on the first request for any of them and kept compressed, a tenth of their size; in protobuf
//! only those that somebody asks for so.
//! Structure and descriptions come from k8s-openapi.

mod binary;
mod custom;
mod defaults;
mod document;
mod enums;
mod extensions;
mod general;
mod negotiate;
mod packed;
mod parameters;
mod paths;
mod required;
mod resource_metrics;
mod schemas;
#[cfg(test)]
mod tests;
mod types;
mod v2;

use crate::{
    aggregation::Aggregation,
    registry::{self, Registry, ServedKinds},
    response::{self, Body},
    status::ApiError,
};
use general::General;
use http::{HeaderMap, HeaderValue, Response, header};
use jiff::SignedDuration;
use negotiate::{Form, JSON, V3};
use packed::Document;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};
use store::Revision;

static BUILT_IN: LazyLock<Vec<Arc<Document>>> = LazyLock::new(|| {
    crate::protobuf::merge_strategies::parse_table();
    let make =
        |(group, version): (&str, &str)| made(paths::root(group, version), || document::built_in(group, version));
    registry::built_in_versions().filter_map(make).collect()
});

/// What is served beside resources, each with the group that it is about.
static GENERAL: LazyLock<Vec<(Option<&str>, Arc<Document>)>> = LazyLock::new(|| {
    let make = |general: General| {
        let General { path, group, value } = general;
        made(path, || value).map(|document| (group, document))
    };
    general::documents().into_iter().filter_map(make).collect()
});

/// The documents of what clients have defined, as they were last asked for, each with what it was made of.
#[derive(Default)]
pub(crate) struct Documents {
    custom: Mutex<HashMap<String, Made>>,
    /// Everything in the form of version 2.
    swagger: v2::Swagger,
}

type Made = (Vec<Revision>, Arc<Document>);

impl Documents {
    /// All documents of what is served.
    fn all(&self, served: &ServedKinds) -> Vec<Arc<Document>> {
        let is_served = |(group, version): (&str, &str)| served.has_version(group, version);
        let built_in = registry::built_in_versions().zip(BUILT_IN.iter()).filter(|(of, _)| is_served(*of));
        let mut all: Vec<Arc<Document>> = built_in.map(|(_, document)| Arc::clone(document)).collect();
        let has = |group: &str| served.groups().iter().any(|known| known.name == group);
        let general = GENERAL.iter().filter(|(group, _)| group.is_none_or(has));
        all.extend(general.map(|(_, document)| Arc::clone(document)));
        let mut known = self.custom.lock();
        let mut current = HashMap::new();
        for (group, version, definitions) in served.custom_versions() {
            let path = paths::root(group, version);
            let revisions: Vec<Revision> = definitions.iter().map(|d| d.revision).collect();
            let document = match known.remove(&path) {
                Some((same, document)) if same == revisions => Some(document),
                _ => made(path.clone(), || document::custom(served, group, version, definitions)),
            };
            if let Some(document) = document {
                all.push(Arc::clone(&document));
                current.insert(path, (revisions, document));
            }
        }
        *known = current;
        all
    }
}

/// The document at a path.
fn made(path: String, build: impl FnOnce() -> Value + Send) -> Option<Arc<Document>> {
    let made = Document::new(path.clone(), |out| out.write_all(build().to_string().as_bytes()));
    made.inspect_err(|error| tracing::error!(path, %error, "there will be no OpenAPI document")).ok().map(Arc::new)
}

/// The form of upstream's hashes.
fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02X}")).collect()
}

/// The answer to a request below `/openapi`; `None` when it is for something else.
pub(crate) async fn answer(
    registry: &Arc<Registry>,
    others: &Aggregation,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let is_v2 = path == "/openapi/v2";
    let rest = if is_v2 { "" } else { path.strip_prefix("/openapi/v3")?.trim_end_matches('/') };
    let rest = if rest.is_empty() { "" } else { rest.strip_prefix('/')? };
    let (rest, query, headers) = (rest.to_owned(), query.to_owned(), headers.clone());
    // The documents are made by the first who asks, which takes longer than other tasks should wait for.
    let (registry, elsewhere, others) = (Arc::clone(registry), others.paths(), others.openapi_urls());
    let work = tokio::task::spawn_blocking(move || {
        let mut documents = registry.documents.all(&registry.served());
        if is_v2 {
            return v2::respond(&registry.documents.swagger, &documents, &headers);
        }
        documents.retain(|document| !elsewhere.contains(&document.path));
        respond(&documents, others, &rest, &query, &headers)
    });
    let failed = |_| ApiError::internal("the documents could not be made");
    Some(work.await.map_err(failed).and_then(|r| r).unwrap_or_else(|e| response::error(&e)))
}

fn respond(
    documents: &[Arc<Document>],
    others: Vec<(String, String)>,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    if path.is_empty() {
        // Always in JSON, as upstream.
        let index = index(documents, others).to_string();
        let hash = hash_of(&index);
        return Ok(tagged(
            if has_seen(headers, &hash) { response::full(304, JSON, "") } else { response::full(200, JSON, index) },
            &hash,
        ));
    }
    let document = documents.iter().find(|d| d.path == path).ok_or_else(ApiError::no_such_path)?;
    let form = negotiate::form(headers, &V3)?;
    let asked = query.split('&').find_map(|p| p.strip_prefix("hash=")).filter(|h| !h.is_empty());
    if asked.is_some_and(|asked| asked != document.hash) {
        let mut response = response::text(301, "");
        if let Ok(url) = HeaderValue::from_str(&document.url()) {
            response.headers_mut().insert(header::LOCATION, url);
        }
        return Ok(response);
    }
    let mut response = match form {
        Form::Json => document.answer(headers, JSON),
        Form::Binary => document.answer_in_binary(headers, V3.binary, |value| binary::V3.document(value)),
    }?;
    // A URL with a hash never means anything else.
    let cache = if asked.is_some() { "public, immutable, max-age=31536000" } else { "no-cache, private" };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    if asked.is_some() {
        response.headers_mut().insert(header::EXPIRES, in_a_year());
    }
    Ok(response)
}

/// Whether a client says that it has what has this hash.
pub(crate) fn has_seen(headers: &HeaderMap, hash: &str) -> bool {
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()).unwrap_or("");
    tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == format!("\"{hash}\""))
}

fn in_a_year() -> HeaderValue {
    let then = jiff::Timestamp::now() + SignedDuration::from_hours(365 * 24);
    let text = then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    text.parse().unwrap_or(HeaderValue::from_static("0"))
}

/// The hash of a document, in the form of upstream's.
pub(crate) fn hash_of(text: impl AsRef<[u8]>) -> String {
    hex(&Sha512::digest(text))
}

/// The answer with the hash of what it holds, or would hold.
pub(crate) fn tagged(mut response: Response<Body>, hash: &str) -> Response<Body> {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    response
}

/// Where each document is, by its path; `others` are those of other servers.
fn index(documents: &[Arc<Document>], others: Vec<(String, String)>) -> Value {
    let own = documents.iter().map(|d| (d.path.clone(), d.url()));
    let all = own.chain(others).map(|(path, url)| (path, json!({"serverRelativeURL": url})));
    json!({"paths": all.collect::<Map<String, Value>>()})
}

/// What is published of all kinds, for tests of what must agree with it.
#[cfg(test)]
pub(crate) fn schemas_of_all_kinds() -> Map<String, Value> {
    schemas::of(crate::kinds::ALL)
}
