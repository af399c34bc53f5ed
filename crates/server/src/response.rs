//! Answers: bytes that are there already, or a stream of them.

use crate::{indent, json_order, status::ApiError};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;

/// An error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// What a handler gives.
pub(crate) type Reply = Result<Response<Body>, ApiError>;

pub(crate) fn full(code: u16, content_type: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    sized(code, content_type, Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync())
}

/// An answer whose body knows its size.
pub(crate) fn sized(code: u16, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, NOT_KEPT);
    response
}

/// As upstream says of whatever an API server answers.
const NOT_KEPT: HeaderValue = HeaderValue::from_static("no-cache, private");

/// A document in upstream's order, which ends with a newline as those of all of upstream's encoders.
pub(crate) fn json(code: u16, value: &Value) -> Response<Body> {
    full(code, "application/json", json_order::document(value))
}

/// A document that is no object of the API: upstream indents it (`WriteRawJSON`).
pub(crate) fn raw_json(json: &[u8]) -> Response<Body> {
    full(200, "application/json", indent::indented(json))
}

pub(crate) fn bytes(code: u16, bytes: Bytes) -> Response<Body> {
    full(code, "application/json", bytes)
}

pub(crate) fn text(code: u16, text: &str) -> Response<Body> {
    full(code, "text/plain; charset=utf-8", text.to_owned())
}

pub(crate) fn error(error: &ApiError) -> Response<Body> {
    let status = error.to_json();
    let mut response = json(error.code, &status);
    // Clients read the header.
    if let Some(seconds) = status["details"]["retryAfterSeconds"].as_u64() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// The same answer, for a client that asked for its head. Over HTTP/2 nobody else leaves out the body.
pub(crate) fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    Response::from_parts(head, Full::default().map_err(|never| match never {}).boxed_unsync())
}

/// Marks an answer whose body goes on: each chunk is whole lines of JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frames;

/// Marks an answer that another server gave: it goes on as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passed;

/// Frames as they come.
pub(crate) fn stream(frames: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(frames.map(|b| Ok::<_, BoxError>(http_body::Frame::data(b)))).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, NOT_KEPT);
    response.extensions_mut().insert(Frames);
    response
}
