//! In which form a client has documents: JSON, or the messages of gnostic.

use crate::{
    accept::{MediaRange, parse_accept},
    status::ApiError,
};
use http::{HeaderMap, header};

pub(super) const JSON: &str = "application/json";

/// How the binary form of a version is called.
pub(super) struct Names {
    pub(super) binary: &'static str,
    /// An `@` is not allowed in media types, but was there first; answers never have it.
    old: &'static str,
}

pub(super) const V2: Names = Names {
    binary: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    old: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
};
pub(super) const V3: Names = Names {
    binary: "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    old: "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Binary,
}

/// The form that a client would rather have.
///
/// # Errors
/// When it takes none that there is: 406.
pub(super) fn form(headers: &HeaderMap, names: &Names) -> Result<Form, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    if accept.is_empty() {
        return Ok(Form::Json);
    }
    let known = |choice: &MediaRange<'_>| match choice.media {
        JSON | "application/*" | "*/*" => Some(Form::Json),
        media => (media == names.binary || media == names.old).then_some(Form::Binary),
    };
    parse_accept(accept).iter().find_map(known).ok_or_else(|| {
        let message = format!("only the following media types are accepted: {JSON}, {}, {}", names.old, names.binary);
        ApiError::new(406, "NotAcceptable", message)
    })
}

#[cfg(test)]
mod tests {
    use super::{Form, V3, form};
    use http::{HeaderMap, header};

    #[test]
    fn the_form_that_is_wanted_most_is_had() {
        let (new, old) = (V3.binary, V3.old);
        for (accept, expected) in [
            (String::new(), Some(Form::Json)),
            ("*/*".to_owned(), Some(Form::Json)),
            ("application/*".to_owned(), Some(Form::Json)),
            ("application/test, */*".to_owned(), Some(Form::Json)),
            (new.to_owned(), Some(Form::Binary)),
            (old.to_owned(), Some(Form::Binary)),
            (format!("{new}, application/json"), Some(Form::Binary)),
            (format!("application/json, {new}"), Some(Form::Json)),
            (format!("{new}; q=0.5, application/json"), Some(Form::Json)),
            (format!("application/json;q=0.4,{old};q=0.5"), Some(Form::Binary)),
            ("test/test".to_owned(), None),
            (new.replace("v3", "v2"), None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a header"))]);
            assert_eq!(form(&headers, &V3).ok(), expected, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new(), &V3).ok(), Some(Form::Json));
        let headers = HeaderMap::from_iter([(header::ACCEPT, "text/html".parse().expect("a header"))]);
        assert_eq!(form(&headers, &V3).expect_err("none").code, 406);
    }
}
