//! GET and LIST: from memory, from bytes that were encoded when they were written.

use crate::{
    object::{self, View},
    reply::{self, Reply},
    request::Resource,
    select::Selection,
    service::{ApiServer, Call},
    status::ApiError,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};
use store::{Listing, Object, Revision, Scope};

pub(crate) fn get(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = resource.kind;
    let name = resource.name.as_deref().unwrap_or("");
    let object = server
        .store
        .get(&object::key(kind, &resource.namespace, name))
        .ok_or_else(|| ApiError::not_found(kind.info(), name))?;
    Ok(match object::view(&call.accept)? {
        View::Whole => reply::bytes(200, object::bytes(kind, &object)),
        View::Metadata => reply::json(200, &object::metadata_only(&object::decode(kind, &object))),
        View::Table => {
            let value = object::decode(kind, &object);
            let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
            reply::json(200, &object::table(kind, &[value], &metadata, true))
        }
    })
}

pub(crate) fn scope(resource: &Resource) -> Scope {
    let scope = Scope::resource(resource.kind.info().storage);
    if resource.namespace.is_empty() { scope } else { scope.in_namespace(resource.namespace.as_str()) }
}

/// Where a list goes on: the revision that it shows, and the last key that it gave.
struct Token {
    revision: Revision,
    namespace: String,
    name: String,
}

impl Token {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!({"rv": self.revision, "ns": self.namespace, "name": self.name}).to_string())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let error = || ApiError::bad_request("continue key is not valid");
        let value: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).map_err(|_| error())?).map_err(|_| error())?;
        let text = |k: &str| value[k].as_str().map(str::to_owned).ok_or_else(error);
        Ok(Self { revision: value["rv"].as_u64().ok_or_else(error)?, namespace: text("ns")?, name: text("name")? })
    }
}

pub(crate) fn list(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let kind = resource.kind;
    let view = object::view(&call.accept)?;
    let selection = Selection::parse(kind, &call.query)?;
    let limit: Option<usize> = call.query.number("limit")?.filter(|l| *l > 0);
    let (scope, listing) =
        (scope(resource), take(server, resource, call, if selection.is_all() { limit } else { None })?);
    drop(scope);
    let revision = listing.revision;
    let mut objects = listing.objects;
    let mut remaining = listing.remaining;
    if !selection.is_all() {
        objects.retain(|o| selection.matches(&object::decode(kind, o)));
        if let Some(limit) = limit.filter(|l| *l < objects.len()) {
            remaining = objects.len() - limit;
            objects.truncate(limit);
        }
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some(last) = objects.last().filter(|_| remaining > 0) {
        let token = Token { revision, namespace: last.key.namespace.to_string(), name: last.key.name.to_string() };
        metadata["continue"] = json!(token.encode());
        if selection.is_all() {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(match view {
        View::Whole => reply::bytes(200, encode(kind, &objects, &metadata)),
        View::Table | View::Metadata => {
            let values: Vec<Value> = objects.iter().map(|o| object::decode(kind, o)).collect();
            reply::json(
                200,
                &if view == View::Table {
                    object::table(kind, &values, &metadata, true)
                } else {
                    let items: Vec<Value> = values.iter().map(object::metadata_only).collect();
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
                },
            )
        }
    })
}

fn take(server: &ApiServer, resource: &Resource, call: &Call, limit: Option<usize>) -> Result<Listing, ApiError> {
    let mut scope = scope(resource);
    if let Some(name) = &resource.name {
        scope = scope.named(name.as_str());
    }
    let expired = |_| {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        )
    };
    if let Some(token) = call.query.get("continue") {
        let token = Token::decode(token)?;
        let after = object::key(resource.kind, &token.namespace, &token.name);
        return server.store.list_at(&scope, token.revision, Some(&after), limit).map_err(expired);
    }
    let revision: Option<Revision> = call.query.number("resourceVersion")?;
    match (call.query.get("resourceVersionMatch"), revision) {
        (Some("Exact"), Some(revision)) => server.store.list_at(&scope, revision, None, limit).map_err(|e| {
            ApiError::expired(format!(
                "The resourceVersion for the provided list is too old: {} ({})",
                e.requested, e.oldest
            ))
        }),
        (Some("NotOlderThan" | "Exact"), None) => {
            let text =
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
            Err(ApiError::bad_request(text))
        }
        (Some(other), _) if other != "NotOlderThan" => Err(ApiError::bad_request(format!(
            "resourceVersionMatch: Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\""
        ))),
        (_, Some(revision)) if revision > server.store.revision() => Err(ApiError::new(
            504,
            "Timeout",
            format!("Too large resource version: {revision}, current: {}", server.store.revision()),
        )),
        _ => Ok(server.store.list(&scope, None, limit)),
    }
}

/// The list's frame around bytes that are there already.
fn encode(kind: &dyn crate::kinds::Kind, objects: &[Object], metadata: &Value) -> bytes::Bytes {
    let info = kind.info();
    let head = format!(
        r#"{{"kind":"{}List","apiVersion":"{}","metadata":{metadata},"items":["#,
        info.kind,
        info.api_version()
    );
    let size = objects.iter().map(|o| o.data.len() + 1).sum::<usize>();
    let mut all = BytesMut::with_capacity(head.len() + size + 2);
    all.put_slice(head.as_bytes());
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            all.put_u8(b',');
        }
        all.put_slice(&object::bytes(kind, object));
    }
    all.put_slice(b"]}");
    all.freeze()
}
