//! Entry points of the targets in `fuzz/`: parsers of client input, without a server.

use crate::objects::patch as patches;
use apply::TypeRef;
use serde_json::Value;
use wire::protobuf;

/// Applies a patch of this media type; `None` when the patch is invalid.
#[must_use]
pub fn patch(media_type: &str, object: &Value, patch: &[u8]) -> Option<Value> {
    patches::apply(media_type, object.clone(), patch).ok().map(|patched| patched.value)
}

/// Decodes Kubernetes' protobuf to JSON; `None` when it is invalid.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Value> {
    protobuf::decode(bytes).ok()
}

/// Encodes an object as Kubernetes' protobuf.
#[must_use]
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    protobuf::encode(object)
}

/// Returns the schema of a kind for server-side apply.
#[must_use]
pub fn type_of(api_version: &str, kind: &str) -> Option<TypeRef<'static>> {
    kinds::apply_types::type_ref(api_version, kind)
}
