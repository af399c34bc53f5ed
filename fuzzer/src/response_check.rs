//! Checks responses for faults of the server.

use crate::client::{ApiRequest, ApiResponse};
use serde_json::Value;

/// Returns the fault of a response, if any.
pub(crate) fn fault(api_request: &ApiRequest, response: &ApiResponse) -> Option<String> {
    let code = response.status;
    if code >= 500 && !is_documented(api_request, response) {
        return Some(format!("the answer is {code}: {}", excerpt(&response.body)));
    }
    if code >= 400 {
        return (!is_status(response))
            .then(|| format!("the answer with {code} is no Status: {}", excerpt(&response.body)));
    }
    let json = media(response).starts_with("application/json") && !response.body.is_empty() && !api_request.watches;
    let unreadable = json && serde_json::from_slice::<Value>(&response.body).is_err();
    unreadable.then(|| format!("the answer with {code} is no JSON: {}", excerpt(&response.body)))
}

/// Returns whether upstream documents a status of 500 or more for this request.
fn is_documented(api_request: &ApiRequest, response: &ApiResponse) -> bool {
    let contains = |words: &str| String::from_utf8_lossy(&response.body).contains(words);
    match response.status {
        // A list at a future resourceVersion times out ("Too large resource version").
        504 => api_request.path.contains("resourceVersion="),
        // pkg/registry/core/pod/storage/eviction.go: "This pod has more than one PodDisruptionBudget".
        500 if api_request.path.contains("/eviction") => contains("more than one PodDisruptionBudget"),
        // apiextensions-apiserver/pkg/registry/customresource/etcd.go: a custom object without the fields of its scale.
        500 if api_request.path.contains("/scale") => contains("the spec replicas field"),
        // pkg/registry/core/service/storage/alloc.go: no ServiceCIDR is ready (the fuzzer has deleted them all), or has an address.
        500 if api_request.path.contains("/services") => contains("failed to allocate a serviceIP: range is full"),
        // apiserver/pkg/storage/errors.go: `ErrResourceVersionSetOnCreate`, which is not translated to a 4xx.
        500 if api_request.method == "POST" => contains("resourceVersion should not be set on objects to be created"),
        _ => false,
    }
}

/// Returns whether the body is a `Status` in its media type.
fn is_status(response: &ApiResponse) -> bool {
    let body = &response.body;
    match media(response) {
        "application/json" => serde_json::from_slice::<Value>(body).is_ok_and(|v| {
            v["kind"] == "Status" && v["apiVersion"] == "v1" && v["code"] == response.status && v["message"].is_string()
        }),
        "application/yaml" => String::from_utf8_lossy(body).lines().any(|line| line == "kind: Status"),
        // The second field of `runtime.Unknown`'s type has the kind.
        "application/vnd.kubernetes.protobuf" => body.starts_with(b"k8s\0") && body.windows(6).any(|w| w == b"Status"),
        _ => false,
    }
}

fn media(response: &ApiResponse) -> &str {
    let text = response.headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::fault;
    use crate::client::{ApiRequest, ApiResponse};
    use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

    fn response(status: u16, media: &'static str, body: &'static str) -> ApiResponse {
        let headers: HeaderMap = [(CONTENT_TYPE, HeaderValue::from_static(media))].into_iter().collect();
        ApiResponse { status, headers, body: body.into() }
    }

    #[test]
    fn errors_must_be_statuses_and_5xx_documented() {
        let at = |path: &str| ApiRequest { method: "GET", path: path.to_owned(), ..ApiRequest::default() };
        let status = r#"{"kind":"Status","apiVersion":"v1","message":"m","code":404}"#;
        let json = "application/json; charset=utf-8";
        for (path, given, right) in [
            ("/api", response(200, json, "{}"), true),
            ("/api", response(200, json, "{"), false),
            ("/api", response(404, json, status), true),
            ("/api", response(409, json, status), false),
            ("/api", response(404, "text/plain", "404 page not found"), false),
            ("/api", response(404, "application/yaml", "apiVersion: v1\nkind: Status\n"), true),
            ("/api", response(500, json, r#"{"kind":"Status","apiVersion":"v1","message":"m","code":500}"#), false),
            (
                "/api?resourceVersion=9",
                response(504, json, r#"{"kind":"Status","apiVersion":"v1","message":"m","code":504}"#),
                true,
            ),
            ("/api", response(504, json, r#"{"kind":"Status","apiVersion":"v1","message":"m","code":504}"#), false),
        ] {
            assert_eq!(fault(&at(path), &given).is_none(), right, "{path} {given:?}");
        }
    }
}
