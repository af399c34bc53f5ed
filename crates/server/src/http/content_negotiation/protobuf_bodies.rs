//! Conversion of request and response bodies between protobuf and JSON.

#[cfg(test)]
mod tests;

use crate::http::content_negotiation;
use bytes::{Bytes, BytesMut};
use errors::ApiError;
use http::{HeaderValue, Response, header};
use http_body_util::BodyExt;
use response::Body;
use serde_json::Value;
use wire::protobuf::{self, MEDIA_TYPE};

/// Decodes a request body to JSON.
pub(crate) fn decode_body(bytes: &[u8], kind: &str) -> Result<Bytes, ApiError> {
    if bytes.is_empty() {
        return Ok(Bytes::new());
    }
    let decoded = protobuf::decode(bytes).map_err(|e| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {e}"))
    })?;
    Ok(decoded.to_string().into())
}

/// Encodes a JSON response, if its kind has a message.
pub(crate) async fn encode_response(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if head.extensions.get::<response::JsonStream>().is_some() {
        head.headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch"));
        let frames = body.map_frame(|frame| frame.map_data(|lines| encode_events(&lines)));
        return Response::from_parts(head, frames.boxed_unsync());
    }
    let encode = |json: &[u8]| protobuf::encode(&serde_json::from_slice(json).ok()?);
    content_negotiation::reencode(Response::from_parts(head, body), MEDIA_TYPE, encode).await
}

/// Encodes a chunk of a watch, which consists of whole lines of JSON, each an event. An event that cannot be encoded becomes an
/// `ERROR` event, so that the client does not miss it.
fn encode_events(lines: &[u8]) -> Bytes {
    let mut all = BytesMut::new();
    for line in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let frame = serde_json::from_slice::<Value>(line).unwrap_or_default();
        let encoded = protobuf::encode_event(&frame).or_else(|| {
            let error = ApiError::internal("an event has no binary form");
            protobuf::encode_event(&serde_json::json!({"type": "ERROR", "object": error.to_json()}))
        });
        all.extend_from_slice(&encoded.unwrap_or_default());
    }
    all.freeze()
}
