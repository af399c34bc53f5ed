//! The forms that an answer can have: every handler gives JSON, and what the client would rather have is made of that.

use crate::{
    accept::{Choice, choices},
    indent, protobuf,
    response::{Body, Frames, Passed},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header, request::Parts};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;

const JSON: &str = "application/json";
/// The media type of YAML.
pub(crate) const YAML: &str = "application/yaml";

/// In what shape clients can ask for objects.
const SHAPES: [&str; 4] = ["Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"];

/// How an answer is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Yaml,
    Protobuf,
}

/// The client's first choice of those that are served.
pub(crate) fn wanted(headers: &HeaderMap) -> Form {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    // As most clients say it.
    if matches!(accept, "" | JSON) {
        return Form::Json;
    }
    let form = |choice: &Choice<'_>| {
        let shape = choice.shape();
        // What nobody knows is passed over.
        if shape.is_some_and(|shape| !SHAPES.contains(&shape)) {
            return None;
        }
        match choice.media {
            // Tables have no binary form.
            protobuf::MEDIA_TYPE => (shape != Some("Table")).then_some(Form::Protobuf),
            YAML => Some(Form::Yaml),
            JSON | "application/*" | "*/*" => Some(Form::Json),
            _ => None,
        }
    };
    choices(accept).iter().find_map(form).unwrap_or(Form::Json)
}

/// The answer in this form, if it has one; else as it is, which clients know by its content type.
pub(crate) async fn answer(response: Response<Body>, form: Form) -> Response<Body> {
    match form {
        _ if response.extensions().get::<Passed>().is_some() => response,
        _ if response.headers().get(header::CONTENT_TYPE).is_none_or(|t| t != "application/json") => response,
        Form::Json => response,
        // Documents of YAML have no end that a stream of them would show.
        Form::Yaml if response.extensions().get::<Frames>().is_some() => response,
        Form::Yaml => rewritten(response, YAML, |json| yaml(&serde_json::from_slice(json).ok()?)).await,
        Form::Protobuf => protobuf::answer(response).await,
    }
}

/// Whether the client would rather read the answer itself (`isPrettyPrint`).
pub(crate) fn is_pretty(head: &Parts) -> bool {
    let query = head.uri.query().unwrap_or("");
    if let Some((_, asked)) = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "pretty") {
        return matches!(asked.as_ref(), "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = head.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| agent.starts_with(program))
}

/// The largest answer that is indented, in bytes: nobody reads more.
const MAX_PRETTY: u64 = 4 << 20;

/// A whole answer in JSON, indented for people.
pub(crate) async fn pretty(response: Response<Body>) -> Response<Body> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == JSON);
    let is_small = response.body().size_hint().exact().is_some_and(|size| size <= MAX_PRETTY);
    if !is_json || !is_small || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    rewritten(response, JSON, |json| Some(indent::indented(json))).await
}

/// A whole answer, encoded anew; what cannot be encoded stays as it is.
pub(crate) async fn rewritten(
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

/// As kubectl writes it: lists are not indented, and long lines stay lines.
fn yaml(object: &Value) -> Option<Vec<u8>> {
    let options = serde_saphyr::ser_options! { compact_list_indent: true, folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(object, options).ok().map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: Form) {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a header"))]);
        assert_eq!(wanted(&headers), expected, "{accept}");
    }

    #[test]
    fn the_first_choice_that_is_served_counts() {
        check("", Form::Json);
        check("*/*", Form::Json);
        check("application/yaml", Form::Yaml);
        check("text/html, application/yaml;q=0.9, application/json", Form::Json);
        check("*/*;q=0.1, application/yaml", Form::Yaml);
        check("application/json, application/yaml", Form::Json);
        check("application/vnd.kubernetes.protobuf;as=Chair, application/json", Form::Json);
        check("application/vnd.kubernetes.protobuf, application/json", Form::Protobuf);
        let tables = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1, application/json";
        check(tables, Form::Json);
    }

    #[test]
    fn what_looks_like_something_else_stays_text() {
        let object = serde_json::json!({"a": "true", "b": "1", "c": "null", "d": "x: y", "e": ["- z", ""], "f": "a\nb\n",
            "g": format!("{}  two blanks and a trailing one ", "word ".repeat(40)), "h": "yes", "i": " x\n\n", "j": {}});
        let text = String::from_utf8(yaml(&object).expect("YAML")).expect("text");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).expect("the same"), object, "{text}");
    }
}
