//! Patches: JSON patch, merge patch, strategic merge patch.

pub(crate) mod json_patch;
mod shown;
mod strategic;

use crate::{
    decode::{self, Parsed},
    kinds::Kind,
    status::ApiError,
};
use serde_json::Value;

/// The media type of JSON patches.
pub(crate) const JSON: &str = "application/json-patch+json";
/// The media type of patches that merge lists by keys.
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// The media type of configurations that are applied; it may hold JSON, too.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

/// Refuses a content type that is no patch's. Apply is also one in CBOR, which upstream has behind a gate that is off.
pub(crate) fn check_type(kind: &dyn Kind, content_type: &str) -> Result<(), ApiError> {
    let taken = |accepted: &&str| kind.supports_strategic_merge() || !accepted.contains("strategic");
    let accepted: Vec<&str> = ACCEPTED.split(", ").filter(taken).collect();
    if accepted.contains(&content_type) {
        return Ok(());
    }
    if !kind.is_custom() {
        // The routes of built-in kinds name what they take, so that the handler is not asked.
        return Err(ApiError::rejected_by_router(415, "UnsupportedMediaType", "415: Unsupported Media Type".to_owned()));
    }
    let why = "the body of the request was in an unknown format";
    Err(ApiError::unsupported_media_type(why, &accepted.join(", ")))
}

/// Applies a patch of this content type, and refuses what is costly to validate; gives the object, not yet checked, and the fields that stand twice in the patch.
pub(crate) fn apply(content_type: &str, object: Value, patch: &[u8]) -> Result<Parsed, ApiError> {
    let patched = applied(content_type, object, patch)?;
    // A JSON patch can put long names into each other.
    decode::check_paths(&patched.value).map_err(ApiError::bad_request)?;
    Ok(patched)
}

fn applied(content_type: &str, mut object: Value, patch: &[u8]) -> Result<Parsed, ApiError> {
    let bad = |e: &dyn std::fmt::Display| ApiError::bad_request(format!("error decoding patch: {e}"));
    match content_type {
        JSON => Ok(json_patch::apply(object, patch)?),
        "application/merge-patch+json" => {
            let Parsed { value: patch, duplicates } = decode::json(patch).map_err(|e| bad(&e))?;
            ::json_patch::merge(&mut object, &patch);
            Ok(Parsed { value: object, duplicates })
        }
        STRATEGIC => {
            let Parsed { value: patch, duplicates } = decode::json(patch).map_err(|e| bad(&e))?;
            let Value::Object(patch) = patch else { return Err(bad(&"a patch must be an object")) };
            let value = strategic::apply(object, &patch).map_err(ApiError::bad_request)?;
            Ok(Parsed { value, duplicates })
        }
        _ => Err(ApiError::unsupported_media_type("the body of the request was in an unknown format", ACCEPTED)),
    }
}

/// What a message shows of a patch that made no object of its kind: upstream shows a strategic merge patch itself, and of
/// the others what they made.
pub(crate) fn shown(content_type: &str, patch: &[u8], made: impl Fn() -> Result<Parsed, ApiError>) -> String {
    let shown = match content_type {
        STRATEGIC => decode::json(patch).ok().map(|parsed| shown::as_go(&parsed.value)),
        _ => made().ok().map(|made| made.value.to_string()),
    };
    shown.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn no_patch_panics(text in "[\\[\\]{}\":,a-c$0-9nul/patchdele]{0,64}") {
            for kind in ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"] {
                let _ = apply(kind, json!({"a": [{"name": "x"}]}), text.as_bytes());
            }
        }
    }
}
