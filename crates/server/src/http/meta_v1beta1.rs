//! Tables and metadata in `meta.k8s.io/v1beta1`, which has the fields of `v1`: only `apiVersion` of the response is
//! replaced.

use crate::http::content_negotiation;
use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body_util::BodyExt;
use response::{Body, JsonStream, ProxiedResponse};
use wire::{
    accept::{MediaRange, parse_accept},
    protobuf::MEDIA_TYPE as PROTOBUF,
};

const JSON: &str = "application/json";
const GROUP: &str = "meta.k8s.io";
const OLDER: &str = "v1beta1";

/// The `apiVersion` of handlers. Strings in JSON cannot contain it, since their quotation marks are escaped.
const WRITTEN: &str = r#""apiVersion":"meta.k8s.io/v1""#;
const RENAMED: &str = r#""apiVersion":"meta.k8s.io/v1beta1""#;

/// Whether the version of a choice's transformation is served; `v1beta1` is served as text only.
pub(crate) fn is_served(choice: &MediaRange<'_>) -> bool {
    let is_version = match choice.parameter("v") {
        Some("v1") => true,
        Some(OLDER) => choice.media != PROTOBUF,
        _ => false,
    };
    is_version && choice.parameter("g") == Some(GROUP)
}

/// Whether the client's first served choice is a transformation in `v1beta1`.
pub(crate) fn is_older(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    // Few clients accept `v1beta1`.
    if !accept.contains(OLDER) {
        return false;
    }
    parse_accept(accept)
        .iter()
        .find(|choice| is_known(choice))
        .is_some_and(|choice| choice.parameter("v") == Some(OLDER))
}

/// Whether a choice is the untransformed object, or a served transformation.
fn is_known(choice: &MediaRange<'_>) -> bool {
    let is_text = matches!(choice.media, JSON | content_negotiation::YAML | "application/*" | "*/*");
    match choice.requested_as() {
        None => is_text || choice.media == PROTOBUF,
        Some("Table") => is_text && is_served(choice),
        Some(_) => (is_text || choice.media == PROTOBUF) && is_served(choice),
    }
}

/// Converts a JSON response to `v1beta1`.
pub(crate) async fn answer(response: Response<Body>) -> Response<Body> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == JSON);
    if !is_json || response.extensions().get::<ProxiedResponse>().is_some() {
        return response;
    }
    if response.extensions().get::<JsonStream>().is_some() {
        let (head, body) = response.into_parts();
        let frames = body.map_frame(|frame| frame.map_data(|lines| Bytes::from(renamed(&lines))));
        return Response::from_parts(head, frames.boxed_unsync());
    }
    content_negotiation::reencode(response, JSON, |json| Some(renamed(json))).await
}

fn renamed(json: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(json).replace(WRITTEN, RENAMED).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: bool) {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a header"))]);
        assert_eq!(is_older(&headers), expected, "{accept}");
    }

    #[test]
    fn first_served_choice_determines_the_version() {
        let (new, old) =
            ("application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io");
        check("", false);
        check(new, false);
        check(old, true);
        check(&format!("{old},{new}"), true);
        check(&format!("{new},{old}"), false);
        check(&format!("application/json,{old}"), false);
        check(&format!("application/json;as=Table;v=v2;g=meta.k8s.io,{old}"), true);
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io,application/json",
            false,
        );
        check("application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io", false);
    }

    #[test]
    fn strings_in_json_are_not_replaced() {
        let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":["{\"apiVersion\":\"meta.k8s.io/v1\"}"]}"#;
        let expected =
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1beta1","rows":["{\"apiVersion\":\"meta.k8s.io/v1\"}"]}"#;
        assert_eq!(String::from_utf8(renamed(table.as_bytes())).expect("text"), expected);
    }
}
