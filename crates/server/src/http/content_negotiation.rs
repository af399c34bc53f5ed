//! Content negotiation: handlers return JSON, which is re-encoded as the client's Accept header prefers.

pub(crate) mod protobuf_bodies;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header, request::Parts};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, StreamBody};
use response::{Body, JsonStream, ProxiedResponse};
use serde_json::Value;
use wire::{
    accept::{MediaRange, parse_accept},
    indent, protobuf,
};

const JSON: &str = "application/json";
/// The media type of YAML.
pub(crate) const YAML: &str = "application/yaml";

/// Values of the `as` parameter of an Accept header that are served.
const SERVED_AS: [&str; 4] = ["Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"];

/// Encoding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Yaml,
    Protobuf,
}

/// Returns the served media type that the client prefers.
pub(crate) fn negotiate(headers: &HeaderMap) -> MediaType {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    // Fast path: what most clients send.
    if matches!(accept, "" | JSON) {
        return MediaType::Json;
    }
    let media_type = |range: &MediaRange<'_>| {
        let requested_as = range.requested_as();
        // Unknown representations are skipped.
        if requested_as.is_some_and(|requested_as| !SERVED_AS.contains(&requested_as)) {
            return None;
        }
        match range.media {
            // Tables have no protobuf encoding.
            protobuf::MEDIA_TYPE => (requested_as != Some("Table")).then_some(MediaType::Protobuf),
            YAML => Some(MediaType::Yaml),
            JSON | "application/*" | "*/*" => Some(MediaType::Json),
            _ => None,
        }
    };
    parse_accept(accept).iter().find_map(media_type).unwrap_or(MediaType::Json)
}

/// Encodes a response as this media type; one that has no such encoding stays JSON, as its content type tells.
pub(crate) async fn encode_response(response: Response<Body>, media_type: MediaType) -> Response<Body> {
    match media_type {
        _ if response.extensions().get::<ProxiedResponse>().is_some() => response,
        _ if response.headers().get(header::CONTENT_TYPE).is_none_or(|t| t != "application/json") => response,
        MediaType::Json => response,
        // A stream of YAML documents has no delimiter that clients expect.
        MediaType::Yaml if response.extensions().get::<JsonStream>().is_some() => response,
        MediaType::Yaml => reencode(response, YAML, |json| to_yaml(&serde_json::from_slice(json).ok()?)).await,
        MediaType::Protobuf => protobuf_bodies::encode_response(response).await,
    }
}

/// Whether the client wants indented JSON (`isPrettyPrint`).
pub(crate) fn is_pretty(head: &Parts) -> bool {
    let query = head.uri.query().unwrap_or("");
    if let Some((_, value)) = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "pretty") {
        return matches!(value.as_ref(), "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = head.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| agent.starts_with(program))
}

/// Maximal size of a response that is indented, in bytes: a person does not read more.
const MAX_PRETTY: u64 = 4 << 20;

/// Indents a JSON response that is not streamed.
pub(crate) async fn indent_response(response: Response<Body>) -> Response<Body> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == JSON);
    let is_small = response.body().size_hint().exact().is_some_and(|size| size <= MAX_PRETTY);
    if !is_json || !is_small || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    reencode(response, JSON, |json| Some(indent::indent(json))).await
}

/// Re-encodes the whole body of a response; a body for which `encode` returns `None` is unchanged.
pub(crate) async fn reencode(
    response: Response<Body>,
    media_type: &'static str,
    encode: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(all) => all.to_bytes(),
        Err(error) => {
            let body = StreamBody::new(futures::stream::iter([Err(error)]));
            return Response::from_parts(head, body.boxed_unsync());
        }
    };
    let bytes = match encode(&bytes) {
        Some(encoded) => {
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
            head.headers.remove(header::CONTENT_LENGTH);
            Bytes::from(encoded)
        }
        None => bytes,
    };
    Response::from_parts(head, Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
}

/// Encodes YAML in kubectl's style: lists are not indented, and long lines are not folded.
fn to_yaml(object: &Value) -> Option<Vec<u8>> {
    let options = serde_saphyr::ser_options! { compact_list_indent: true, folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(object, options).ok().map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: MediaType) {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a header"))]);
        assert_eq!(negotiate(&headers), expected, "{accept}");
    }

    #[test]
    fn media_type_is_first_served_choice() {
        check("", MediaType::Json);
        check("*/*", MediaType::Json);
        check("application/yaml", MediaType::Yaml);
        check("text/html, application/yaml;q=0.9, application/json", MediaType::Json);
        check("*/*;q=0.1, application/yaml", MediaType::Yaml);
        check("application/json, application/yaml", MediaType::Json);
        check("application/vnd.kubernetes.protobuf;as=Chair, application/json", MediaType::Json);
        check("application/vnd.kubernetes.protobuf, application/json", MediaType::Protobuf);
        let tables = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1, application/json";
        check(tables, MediaType::Json);
    }

    #[test]
    fn yaml_strings_like_other_scalars_stay_strings() {
        let object = serde_json::json!({"a": "true", "b": "1", "c": "null", "d": "x: y", "e": ["- z", ""], "f": "a\nb\n",
            "g": format!("{}  two blanks and a trailing one ", "word ".repeat(40)), "h": "yes", "i": " x\n\n", "j": {}});
        let text = String::from_utf8(to_yaml(&object).expect("YAML")).expect("text");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).expect("the same"), object, "{text}");
    }
}
