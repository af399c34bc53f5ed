//! Patches: JSON patch, merge patch, strategic merge patch.

mod go_format;
pub(crate) mod json_patch;
mod strategic;

use crate::objects::decode::{self, DecodedBody};
use errors::ApiError;
use kinds::Kind;
use serde_json::Value;

/// Media type of JSON patches.
pub(crate) const JSON: &str = "application/json-patch+json";
/// Media type of strategic merge patches.
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Media type of server-side apply; its body may be JSON, too.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

/// Rejects a content type that is not a patch type. Upstream also accepts CBOR, behind a feature gate that is off.
pub(crate) fn check_type(kind: &dyn Kind, content_type: &str) -> Result<(), ApiError> {
    let is_supported = |accepted: &&str| kind.supports_strategic_merge() || !accepted.contains("strategic");
    let accepted: Vec<&str> = ACCEPTED.split(", ").filter(is_supported).collect();
    if accepted.contains(&content_type) {
        return Ok(());
    }
    if !kind.is_custom() {
        // Upstream's router rejects the media type for built-in kinds, before the handler.
        return Err(ApiError::rejected_by_router(
            415,
            "UnsupportedMediaType",
            "415: Unsupported Media Type".to_owned(),
        ));
    }
    let message = "the body of the request was in an unknown format";
    Err(ApiError::unsupported_media_type(message, &accepted.join(", ")))
}

/// Applies a patch, and rejects an object that is costly to validate. Returns the object, which is not validated yet, and
/// the duplicate fields of the patch.
pub(crate) fn apply(content_type: &str, object: Value, patch: &[u8]) -> Result<DecodedBody, ApiError> {
    let patched = apply_by_type(content_type, object, patch)?;
    // A JSON patch can nest long names.
    decode::check_paths(&patched.value).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(patched)
}

fn apply_by_type(content_type: &str, mut object: Value, patch: &[u8]) -> Result<DecodedBody, ApiError> {
    let bad = |e: &dyn std::fmt::Display| ApiError::bad_request(format!("error decoding patch: {e}"));
    match content_type {
        JSON => Ok(json_patch::apply(object, patch)?),
        "application/merge-patch+json" => {
            let DecodedBody { value: patch, duplicates } = decode::json(patch).map_err(|e| bad(&e))?;
            ::json_patch::merge(&mut object, &patch);
            Ok(DecodedBody { value: object, duplicates })
        }
        STRATEGIC => {
            let DecodedBody { value: patch, duplicates } = decode::json(patch).map_err(|e| bad(&e))?;
            let Value::Object(patch) = patch else { return Err(bad(&"a patch must be an object")) };
            let value = strategic::apply(object, &patch).map_err(|error| ApiError::bad_request(error.to_string()))?;
            Ok(DecodedBody { value, duplicates })
        }
        _ => Err(ApiError::unsupported_media_type("the body of the request was in an unknown format", ACCEPTED)),
    }
}

/// Returns the text of an invalid patch for an error: upstream prints a strategic merge patch itself, and the patched
/// object for the other types.
pub(crate) fn format_invalid(
    content_type: &str,
    patch: &[u8],
    patched: impl Fn() -> Result<DecodedBody, ApiError>,
) -> String {
    let text = match content_type {
        STRATEGIC => decode::json(patch).ok().map(|parsed| go_format::go_format(&parsed.value)),
        _ => patched().ok().map(|patched| patched.value.to_string()),
    };
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn arbitrary_patches_do_not_panic(text in "[\\[\\]{}\":,a-c$0-9nul/patchdele]{0,64}") {
            for kind in ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"] {
                let _ = apply(kind, json!({"a": [{"name": "x"}]}), text.as_bytes());
            }
        }
    }
}
