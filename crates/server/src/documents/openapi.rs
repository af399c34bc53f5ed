//! OpenAPI v3, and v2, which is converted from v3: schemas and operations of all kinds, for `kubectl explain`, client-side
//! validation and code generators.
//!
//! The documents of all groups are built on the first request for one of them, and cached compressed, at a tenth of their size;
//! protobuf is encoded on request. Structure and descriptions come from k8s-openapi.

mod compressed_document;
mod custom_resources;
mod defaults;
mod document;
mod enums;
mod extensions;
mod gnostic;
mod negotiate;
mod non_resource;
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
    objects::kind_registry::{self, ServedKinds},
};
use compressed_document::CompressedDocument;
use data_encoding::HEXUPPER;
use errors::ApiError;
use http::{HeaderMap, HeaderValue, Response, header};
use jiff::SignedDuration;
use negotiate::{JSON, MediaType, V3};
use non_resource::NonResourceDocument;
use parking_lot::Mutex;
use response::Body;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};
use store::Revision;

static BUILT_IN: LazyLock<Vec<Arc<CompressedDocument>>> = LazyLock::new(|| {
    wire::protobuf::merge_strategies::parse_table();
    let build =
        |(group, version): (&str, &str)| compress(paths::root(group, version), || document::built_in(group, version));
    kind_registry::built_in_versions().filter_map(build).collect()
});

/// Documents of non-resource paths, each with its group, if it is about one.
static NON_RESOURCE: LazyLock<Vec<(Option<&str>, Arc<CompressedDocument>)>> = LazyLock::new(|| {
    let build = |document: NonResourceDocument| {
        let NonResourceDocument { path, group, value } = document;
        compress(path, || value).map(|document| (group, document))
    };
    non_resource::documents().into_iter().filter_map(build).collect()
});

/// Cache of the documents of custom resources, and of version 2.
#[derive(Default)]
pub(crate) struct DocumentCache {
    /// By path.
    custom: Mutex<HashMap<String, CachedDocument>>,
    swagger: v2::Swagger,
}

/// A document, with the revisions of the CustomResourceDefinitions from which it was built.
type CachedDocument = (Vec<Revision>, Arc<CompressedDocument>);

impl DocumentCache {
    /// Returns the documents of all served groups and versions, and of non-resource paths.
    fn all(&self, served: &ServedKinds) -> Vec<Arc<CompressedDocument>> {
        let is_served = |(group, version): (&str, &str)| served.has_version(group, version);
        let built_in = kind_registry::built_in_versions()
            .zip(BUILT_IN.iter())
            .filter(|(group_version, _)| is_served(*group_version));
        let mut all: Vec<Arc<CompressedDocument>> = built_in.map(|(_, document)| Arc::clone(document)).collect();
        let has = |group: &str| served.groups().iter().any(|served| served.name == group);
        let non_resource = NON_RESOURCE.iter().filter(|(group, _)| group.is_none_or(has));
        all.extend(non_resource.map(|(_, document)| Arc::clone(document)));
        let mut cached = self.custom.lock();
        let mut current = HashMap::new();
        for (group, version, definitions) in served.custom_versions() {
            let path = paths::root(group, version);
            let revisions: Vec<Revision> = definitions.iter().map(|d| d.revision).collect();
            let document = match cached.remove(&path) {
                Some((same, document)) if same == revisions => Some(document),
                _ => compress(path.clone(), || document::custom(served, group, version, definitions)),
            };
            if let Some(document) = document {
                all.push(Arc::clone(&document));
                current.insert(path, (revisions, document));
            }
        }
        *cached = current;
        all
    }
}

/// Builds and compresses the document of a path.
fn compress(path: String, build: impl FnOnce() -> Value + Send) -> Option<Arc<CompressedDocument>> {
    let document = CompressedDocument::new(path.clone(), |out| out.write_all(build().to_string().as_bytes()));
    document.inspect_err(|error| tracing::error!(path, %error, "failed to build OpenAPI document")).ok().map(Arc::new)
}

/// Handles a request below `/openapi`; returns `None` for other paths.
pub(crate) async fn handle(
    documents: &Arc<DocumentCache>,
    served: &Arc<ServedKinds>,
    aggregation: &Aggregation,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let is_v2 = path == "/openapi/v2";
    let rest = if is_v2 { "" } else { path.strip_prefix("/openapi/v3")?.trim_end_matches('/') };
    let rest = if rest.is_empty() { "" } else { rest.strip_prefix('/')? };
    let (rest, query, headers) = (rest.to_owned(), query.to_owned(), headers.clone());
    // The first request builds the documents, which would block other tasks for too long.
    let (cache, served) = (Arc::clone(documents), Arc::clone(served));
    let (aggregated_paths, aggregated_urls) = (aggregation.paths(), aggregation.openapi_urls());
    let work = tokio::task::spawn_blocking(move || {
        let mut documents = cache.all(&served);
        if is_v2 {
            return v2::respond(&cache.swagger, &documents, &headers);
        }
        documents.retain(|document| !aggregated_paths.contains(&document.path));
        respond(&documents, aggregated_urls, &rest, &query, &headers)
    });
    let failed = |_| ApiError::internal("the documents could not be made");
    Some(work.await.map_err(failed).and_then(|r| r).unwrap_or_else(|e| response::error(&e)))
}

fn respond(
    documents: &[Arc<CompressedDocument>],
    aggregated_urls: Vec<(String, String)>,
    path: &str,
    query: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    if path.is_empty() {
        // Always in JSON, as upstream.
        let index = index(documents, aggregated_urls).to_string();
        let hash = etag_hash(&index);
        return Ok(with_etag(
            if matches_etag(headers, &hash) { response::full(304, JSON, "") } else { response::full(200, JSON, index) },
            &hash,
        ));
    }
    let document = documents.iter().find(|d| d.path == path).ok_or_else(ApiError::no_such_path)?;
    let media_type = negotiate::negotiate(headers, &V3)?;
    let requested_hash = query.split('&').find_map(|p| p.strip_prefix("hash=")).filter(|h| !h.is_empty());
    if requested_hash.is_some_and(|hash| hash != document.hash) {
        let mut response = response::text(301, "");
        if let Ok(url) = HeaderValue::from_str(&document.url()) {
            response.headers_mut().insert(header::LOCATION, url);
        }
        return Ok(response);
    }
    let mut response = match media_type {
        MediaType::Json => document.respond(headers, JSON),
        MediaType::Protobuf => document.respond_protobuf(headers, V3.name, |value| gnostic::V3.encode_document(value)),
    }?;
    // The document of a URL with a hash never changes.
    let cache = if requested_hash.is_some() { "public, immutable, max-age=31536000" } else { "no-cache, private" };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    if requested_hash.is_some() {
        response.headers_mut().insert(header::EXPIRES, expires_in_a_year());
    }
    Ok(response)
}

/// Whether `If-None-Match` contains a hash.
pub(crate) fn matches_etag(headers: &HeaderMap, hash: &str) -> bool {
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()).unwrap_or("");
    tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == format!("\"{hash}\""))
}

fn expires_in_a_year() -> HeaderValue {
    let then = jiff::Timestamp::now() + SignedDuration::from_hours(365 * 24);
    let text = then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    text.parse().unwrap_or(HeaderValue::from_static("0"))
}

/// Returns the hash of a document for its `ETag`, as upstream.
pub(crate) fn etag_hash(text: impl AsRef<[u8]>) -> String {
    HEXUPPER.encode(&Sha512::digest(text))
}

/// Adds the `ETag` to a response.
pub(crate) fn with_etag(mut response: Response<Body>, hash: &str) -> Response<Body> {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    response
}

/// Returns the index of the URLs of all documents by path; `aggregated_urls` are those of aggregated API servers.
fn index(documents: &[Arc<CompressedDocument>], aggregated_urls: Vec<(String, String)>) -> Value {
    let served = documents.iter().map(|d| (d.path.clone(), d.url()));
    let all = served.chain(aggregated_urls).map(|(path, url)| (path, json!({"serverRelativeURL": url})));
    json!({"paths": all.collect::<Map<String, Value>>()})
}

/// Returns the name in the message table of a schema such as `io.k8s.api.core.v1.Pod`: `core/v1.Pod`.
fn message_name(schema: &str) -> Option<String> {
    let mut parts = schema.rsplit('.');
    let (message, version, package) = (parts.next()?, parts.next()?, parts.next()?);
    Some(format!("{package}/{version}.{message}"))
}

/// Returns the published schemas of all kinds, for tests of other modules.
#[cfg(test)]
pub(crate) fn schemas_of_all_kinds() -> Map<String, Value> {
    schemas::of_kinds(kinds::ALL)
}
