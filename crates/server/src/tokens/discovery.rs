//! How others verify the tokens of service accounts: OpenID Connect discovery, and the keys (`pkg/serviceaccount/openidmetadata.go`).

use super::ISSUER;
use crate::{
    ApiServer,
    response::{self, HandlerResult},
    status::ApiError,
};
use http::{HeaderValue, Method, header};
use serde_json::json;

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";
/// Where the API is found that was told no address of its own.
const DEFAULT_ADDRESS: &str = "kubernetes.default.svc.cluster.local";

/// The answer to a request for one of both documents; `None` when it is for something else.
pub(crate) fn answer(server: &ApiServer, method: &Method, path: &str) -> Option<HandlerResult> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if !matches!(path, CONFIGURATION | KEYS) {
        return None;
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Some(Err(ApiError::method_not_allowed()));
    }
    // Who issues no tokens has nothing to say of them.
    let Some(key) = &server.signing_key else { return Some(Err(ApiError::no_such_path())) };
    let (media, document) = if path == KEYS {
        ("application/jwk-set+json", json!({"keys": [key.public()]}))
    } else {
        // Pods ask for it: what the Service leads to is reached from them and from without.
        let reached = server.system_objects.endpoint().map(|address| address.to_string());
        let address = reached.as_deref().or(server.external_address.as_deref()).unwrap_or(DEFAULT_ADDRESS);
        let document = json!({
            "issuer": ISSUER, "jwks_uri": format!("https://{address}{KEYS}"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": [super::key::ALGORITHM],
        });
        ("application/json", document)
    };
    let mut response = response::full(200, media, document.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Some(Ok(response))
}
