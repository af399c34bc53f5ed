//! Content negotiation of documents: JSON, or protobuf messages of gnostic.

use errors::ApiError;
use http::{HeaderMap, header};
use wire::accept::{MediaRange, parse_accept};

pub(super) const JSON: &str = "application/json";

/// Names of the protobuf media type of a version.
pub(super) struct ProtobufMediaType {
    pub(super) name: &'static str,
    /// Deprecated name with an `@`, which media types must not contain; only accepted in requests.
    deprecated: &'static str,
}

pub(super) const V2: ProtobufMediaType = ProtobufMediaType {
    name: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    deprecated: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
};
pub(super) const V3: ProtobufMediaType = ProtobufMediaType {
    name: "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    deprecated: "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaType {
    Json,
    Protobuf,
}

/// Returns the media type that the client prefers.
///
/// # Errors
/// 406, if the client accepts neither.
pub(super) fn negotiate(headers: &HeaderMap, protobuf: &ProtobufMediaType) -> Result<MediaType, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    if accept.is_empty() {
        return Ok(MediaType::Json);
    }
    let supported = |choice: &MediaRange<'_>| match choice.media {
        JSON | "application/*" | "*/*" => Some(MediaType::Json),
        media => (media == protobuf.name || media == protobuf.deprecated).then_some(MediaType::Protobuf),
    };
    parse_accept(accept).iter().find_map(supported).ok_or_else(|| {
        let ProtobufMediaType { name, deprecated } = protobuf;
        let message = format!("only the following media types are accepted: {JSON}, {deprecated}, {name}");
        ApiError::new(406, "NotAcceptable", message)
    })
}

#[cfg(test)]
mod tests {
    use super::{MediaType, V3, negotiate};
    use http::{HeaderMap, header};

    #[test]
    fn preferred_media_type_is_negotiated() {
        let (new, old) = (V3.name, V3.deprecated);
        for (accept, expected) in [
            (String::new(), Some(MediaType::Json)),
            ("*/*".to_owned(), Some(MediaType::Json)),
            ("application/*".to_owned(), Some(MediaType::Json)),
            ("application/test, */*".to_owned(), Some(MediaType::Json)),
            (new.to_owned(), Some(MediaType::Protobuf)),
            (old.to_owned(), Some(MediaType::Protobuf)),
            (format!("{new}, application/json"), Some(MediaType::Protobuf)),
            (format!("application/json, {new}"), Some(MediaType::Json)),
            (format!("{new}; q=0.5, application/json"), Some(MediaType::Json)),
            (format!("application/json;q=0.4,{old};q=0.5"), Some(MediaType::Protobuf)),
            ("test/test".to_owned(), None),
            (new.replace("v3", "v2"), None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a header"))]);
            assert_eq!(negotiate(&headers, &V3).ok(), expected, "{accept}");
        }
        assert_eq!(negotiate(&HeaderMap::new(), &V3).ok(), Some(MediaType::Json));
        let headers = HeaderMap::from_iter([(header::ACCEPT, "text/html".parse().expect("a header"))]);
        assert_eq!(negotiate(&headers, &V3).expect_err("none").code, 406);
    }
}
