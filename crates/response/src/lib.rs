//! HTTP responses with bytes or a stream of them.
#![forbid(unsafe_code)]

use bytes::Bytes;
use errors::ApiError;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;
use wire::{indent, json_order};

/// Error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// Result of a request handler.
pub type HandlerResult = Result<Response<Body>, ApiError>;

/// Returns a response with a media type.
pub fn full(code: u16, content_type: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    sized(code, content_type, Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync())
}

/// Returns a response whose body knows its size.
pub fn sized(code: u16, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, NO_CACHE);
    response
}

/// `Cache-Control` of all responses, as upstream.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

/// Returns a JSON document in upstream's field order. It ends with a newline, as those of upstream's encoders.
pub fn json(code: u16, value: &Value) -> Response<Body> {
    full(code, "application/json", json_order::encode_document(value))
}

/// Returns a JSON document that is not an API object: upstream indents it (`WriteRawJSON`).
pub fn raw_json(json: &[u8]) -> Response<Body> {
    full(200, "application/json", indent::indent(json))
}

/// Returns an encoded JSON document.
pub fn bytes(code: u16, bytes: Bytes) -> Response<Body> {
    full(code, "application/json", bytes)
}

/// Returns a plain text.
pub fn text(code: u16, text: &str) -> Response<Body> {
    full(code, "text/plain; charset=utf-8", text.to_owned())
}

/// Returns an error as a `Status`, with its code.
pub fn error(error: &ApiError) -> Response<Body> {
    let status = error.to_json();
    let mut response = json(error.code, &status);
    // client-go reads the header, not the details.
    if let Some(seconds) = status["details"]["retryAfterSeconds"].as_u64() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Removes the body of a response to a HEAD request. hyper does not do this over HTTP/2.
pub fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    Response::from_parts(head, Full::default().map_err(|never| match never {}).boxed_unsync())
}

/// Marks a streamed response: each chunk is whole lines of JSON.
#[derive(Debug, Clone, Copy)]
pub struct JsonStream;

/// Marks a response of another server, which is forwarded unchanged.
#[derive(Debug, Clone, Copy)]
pub struct ProxiedResponse;

/// Returns a response that streams frames of JSON lines.
pub fn stream(frames: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(frames.map(|b| Ok::<_, BoxError>(http_body::Frame::data(b)))).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, NO_CACHE);
    response.extensions_mut().insert(JsonStream);
    response
}
