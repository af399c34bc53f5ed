//! OpenID Connect discovery and JSON Web Key Set, for verifiers of service account tokens
//! (`pkg/serviceaccount/openidmetadata.go`).

use auth::tokens::{ISSUER, SigningKey, signing_key::ALGORITHM};
use errors::ApiError;
use http::{HeaderValue, Method, header};
use response::HandlerResult;
use serde_json::json;

const CONFIGURATION: &str = "/.well-known/openid-configuration";
const JWKS: &str = "/openid/v1/jwks";
/// Address of the API server without a configured one.
const DEFAULT_ADDRESS: &str = "kubernetes.default.svc.cluster.local";

/// Whether a path is that of a document.
pub(crate) fn has_document(path: &str) -> bool {
    matches!(path.strip_suffix('/').unwrap_or(path), CONFIGURATION | JWKS)
}

/// Serves the discovery document or the key set. Without a key, no tokens are issued.
pub(crate) fn serve_document(
    key: Option<&SigningKey>,
    address: Option<&str>,
    method: &Method,
    path: &str,
) -> HandlerResult {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let Some(key) = key else { return Err(ApiError::no_such_path()) };
    let (media, document) = if path.starts_with(JWKS) {
        ("application/jwk-set+json", json!({"keys": [key.public()]}))
    } else {
        let address = address.unwrap_or(DEFAULT_ADDRESS);
        let document = json!({
            "issuer": ISSUER, "jwks_uri": format!("https://{address}{JWKS}"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": [ALGORITHM],
        });
        ("application/json", document)
    };
    let mut response = response::full(200, media, document.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}
