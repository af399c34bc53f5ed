//! Doors for the targets in `fuzz/`: what a client's bytes meet first, without a server around it.

use crate::{managed_fields, patch as patches, protobuf};
use apply::TypeRef;
use serde_json::Value;

/// The object with a patch of this media type applied; `None` when the patch is refused.
#[must_use]
pub fn patch(media_type: &str, object: &Value, patch: &[u8]) -> Option<Value> {
    patches::apply(media_type, object.clone(), patch).ok().map(|patched| patched.value)
}

/// An object in Kubernetes' protobuf, as JSON; `None` when it is none.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Value> {
    protobuf::decode(bytes).ok()
}

/// The way back.
#[must_use]
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    protobuf::encode(object)
}

/// How a kind's fields are merged by server-side apply.
#[must_use]
pub fn type_of(api_version: &str, kind: &str) -> Option<TypeRef<'static>> {
    managed_fields::types::of(api_version, kind)
}
