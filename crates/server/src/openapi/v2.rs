//! OpenAPI v2: a document without schemas, for clients that cannot go on without one.
//!
//! kubectl checks a `kind: List` against v2, and asks for it in protobuf; what v2 does not know it lets pass, and each
//! item is then checked by the server (`fieldValidation`). The schemas are in v3.

use crate::reply::{self, Body};
use http::Response;
use serde_json::json;

const TITLE: &str = "Kubernetes";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2";

pub(super) fn respond(accept: &str) -> Response<Body> {
    if accept.contains(PROTOBUF) {
        return reply::full(200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", binary());
    }
    let info = json!({"title": TITLE, "version": api::KUBERNETES_VERSION});
    reply::json(200, &json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}))
}

/// `openapi.v2.Document{1: swagger, 2: Info{1: title, 2: version}}`.
fn binary() -> Vec<u8> {
    let info = [field(1, TITLE.as_bytes()), field(2, api::KUBERNETES_VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info)].concat()
}

/// A length-delimited field; all of these are shorter than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or_default();
    [&[number << 3 | 2, length], bytes].concat()
}
