//! Validation of webhook client configs (`apiserver/pkg/util/webhook/validation.go`).

use super::{FieldErrors, field_cursor::FieldCursor};
use api::names::dns1123_subdomain;
use serde_json::json;
use std::collections::HashSet;

const DESIRED_FORMAT: &str = "; desired format: https://host[/path]";

/// Validates a required `clientConfig`.
pub(super) fn validate_client_config(config: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (url, service) = (config.at("url"), config.at("service"));
    if url.is_null() == service.is_null() {
        config.required("exactly one of url or service is required", errors);
    } else if url.is_set() {
        validate_url(&url, errors);
    } else {
        validate_service(&service, errors);
    }
}

/// Validates the URL of a webhook (`ValidateWebhookURL`).
fn validate_url(url: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut invalid = |shown: &str, detail: &str| errors.invalid(&url.path(), &json!(shown), detail);
    let (scheme, rest) = url.text().split_once("://").unwrap_or(("", url.text()));
    if scheme != "https" {
        invalid(scheme, &format!("'https' is the only allowed URL scheme{DESIRED_FORMAT}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or("") };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        invalid(host, &format!("host must be provided{DESIRED_FORMAT}"));
    }
    for (part, message) in [(user, "user information is"), (fragment, "fragments are"), (query, "query parameters are")]
    {
        if !part.is_empty() {
            invalid(part, &format!("{message} not permitted in the URL"));
        }
    }
}

/// Validates the Service of a webhook (`ValidateWebhookService`).
fn validate_service(service: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for name in ["name", "namespace"] {
        let field = service.at(name);
        if field.text().is_empty() {
            field.required(&format!("service {name} is required"), errors);
        }
    }
    let (port, path) = (service.at("port"), service.at("path"));
    if !port.integer().is_some_and(|n| (1..=65_535).contains(&n)) {
        port.invalid("port is not valid: must be between 1 and 65535, inclusive", errors);
    }
    let http_path = path.text();
    let mut push_error = |detail: String| path.invalid(&detail, errors);
    match http_path {
        "" | "/" => return,
        "//" => return push_error("segment[0] may not be empty".to_owned()),
        _ if !http_path.starts_with('/') => push_error("must start with a '/'".to_owned()),
        _ => {}
    }
    // Like upstream, which skips the first character even if it is not a slash.
    let rest = http_path.char_indices().nth(1).map_or("", |(at, _)| &http_path[at..]);
    for (i, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            push_error(format!("segment[{i}] may not be empty"));
        } else {
            dns1123_subdomain(segment).iter().for_each(|e| push_error(format!("segment[{i}]: {e}")));
        }
    }
}

/// Validates review versions, of which the server must support one. `none` is the error for an empty list.
pub(super) fn validate_review_versions(versions: &FieldCursor<'_, '_>, none: &str, errors: &mut FieldErrors) {
    if versions.count() == 0 {
        return versions.required(none, errors);
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if seen.insert(version.text()) {
            version.validate_text(api::names::dns1035_label, errors);
        } else {
            version.invalid("duplicate version", errors);
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        versions.invalid("must include at least one of v1, v1beta1", errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldPath;
    use serde_json::Value;

    #[track_caller]
    fn check_errors(config: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        validate_client_config(&FieldCursor::new(&config, &FieldPath::new("c")), &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{config}");
    }

    #[test]
    fn webhook_client_config_is_validated() {
        let service = |path: &str| json!({"service": {"name": "s", "namespace": "n", "port": 443, "path": path}});
        for right in [json!({"url": "https://host:1/path"}), service(""), service("/"), service("/a/b.c/")] {
            check_errors(right, &[]);
        }
        check_errors(json!({}), &["c: Required value: exactly one of url or service is required"]);
        let scheme = "c.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]";
        check_errors(json!({"url": "http://host"}), &[scheme]);
        let host = "c.url: Invalid value: \"\": host must be provided; desired format: https://host[/path]";
        check_errors(json!({"url": "https:///path"}), &[host]);
        check_errors(
            json!({"url": "https://u:p@host?a=b#c"}),
            &[
                "c.url: Invalid value: \"u:p\": user information is not permitted in the URL",
                "c.url: Invalid value: \"c\": fragments are not permitted in the URL",
                "c.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
            ],
        );
        check_errors(
            json!({"service": {"port": 70000}}),
            &[
                "c.service.name: Required value: service name is required",
                "c.service.namespace: Required value: service namespace is required",
                "c.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
            ],
        );
        check_errors(service("//"), &["c.service.path: Invalid value: \"//\": segment[0] may not be empty"]);
        check_errors(service("/a//b"), &["c.service.path: Invalid value: \"/a//b\": segment[1] may not be empty"]);
        check_errors(
            service("x"),
            &[
                "c.service.path: Invalid value: \"x\": must start with a '/'",
                "c.service.path: Invalid value: \"x\": segment[0] may not be empty",
            ],
        );
    }
}
