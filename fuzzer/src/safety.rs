//! Excludes requests that could harm the machine or the rest of the run.
//!
//! The node admits no Pods (`cargo xtask fuzz` sets `maxPods: 0`), and no request is proxied to another server.

use crate::document::Operation;

/// Subresources that reach a node or its containers.
const NODE_SUBRESOURCES: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "proxy/{path}"];
/// Kinds whose objects make the server call other servers or refuse everything. They are never stored.
const DRY_RUN_KINDS: [&str; 4] = [
    "apiservices",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];
/// Collections with objects that the run needs.
const NEEDED: [&str; 4] = ["nodes", "customresourcedefinitions", "apiservices", "resourcequotas"];

/// Returns whether an operation is allowed.
pub(crate) fn may(operation: &Operation) -> bool {
    let elsewhere = operation.subresource().is_some_and(|sub| NODE_SUBRESOURCES.contains(&sub));
    let sweeping =
        operation.method == "DELETE" && !operation.path.ends_with("{name}") && NEEDED.contains(&operation.plural());
    !elsewhere && !sweeping && !operation.path.contains("/watch/")
}

/// Returns whether an operation must be a dry run.
pub(crate) fn is_dry(operation: &Operation, body: &[u8]) -> bool {
    // A definition with a conversion webhook. An escape sequence could hide the word.
    let has = |word: &[u8]| body.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word));
    let converts = operation.plural() == "customresourcedefinitions" && (has(b"webhook") || has(b"\\"));
    converts || DRY_RUN_KINDS.contains(&operation.plural())
}

#[cfg(test)]
mod tests {
    use super::{is_dry, may};
    use crate::document::Operation;

    fn operation(method: &'static str, path: &str) -> Operation {
        Operation { method, path: path.to_owned(), ..Operation::default() }
    }

    #[test]
    fn node_access_is_excluded_and_webhooks_are_dry_runs() {
        let pods = "/api/v1/namespaces/{namespace}/pods/{name}";
        for sub in ["exec", "log", "proxy", "proxy/{path}"] {
            assert!(!may(&operation("GET", &format!("{pods}/{sub}"))), "{sub}");
        }
        assert!(may(&operation("GET", &format!("{pods}/status"))));
        assert!(!may(&operation("DELETE", "/api/v1/nodes")));
        assert!(may(&operation("DELETE", "/api/v1/nodes/{name}")));
        let definitions = operation("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        assert!(is_dry(&definitions, br#"{"strategy": "Webhook"}"#));
        assert!(is_dry(&definitions, br#"{"strategy": "\u0057ebhook"}"#));
        assert!(!is_dry(&definitions, b"{}"));
        assert!(is_dry(&operation("PATCH", "/apis/apiregistration.k8s.io/v1/apiservices/{name}"), b"{}"));
    }
}
