//! What must not be done, so that no request harms the machine or everything that comes after it.
//!
//! Podium's node takes no Pods at all (`cargo xtask fuzz` boots it with `maxPods: 0`), and no request goes on to another server.

use crate::document::Operation;

/// Subresources that lead to a node, or to what runs there.
const ELSEWHERE: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "proxy/{path}"];
/// Kinds whose objects have the server ask others, or refuse everything: they are never stored.
const FAR_REACHING: [&str; 4] = [
    "apiservices",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];
/// Collections that hold what the run itself needs.
const NEEDED: [&str; 4] = ["nodes", "customresourcedefinitions", "apiservices", "resourcequotas"];

/// Whether this operation is one to try.
pub(crate) fn may(operation: &Operation) -> bool {
    let elsewhere = operation.subresource().is_some_and(|sub| ELSEWHERE.contains(&sub));
    let sweeping =
        operation.method == "DELETE" && !operation.path.ends_with("{name}") && NEEDED.contains(&operation.plural());
    !elsewhere && !sweeping && !operation.path.contains("/watch/")
}

/// Whether nothing that this operation writes may be stored.
pub(crate) fn is_dry(operation: &Operation, body: &[u8]) -> bool {
    // A definition that has a webhook convert its objects; an escape could hide the word.
    let has = |word: &[u8]| body.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word));
    let converts = operation.plural() == "customresourcedefinitions" && (has(b"webhook") || has(b"\\"));
    converts || FAR_REACHING.contains(&operation.plural())
}

#[cfg(test)]
mod tests {
    use super::{is_dry, may};
    use crate::document::Operation;

    fn operation(method: &'static str, path: &str) -> Operation {
        Operation { method, path: path.to_owned(), ..Operation::default() }
    }

    #[test]
    fn nothing_reaches_a_node_and_what_asks_others_is_not_stored() {
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
