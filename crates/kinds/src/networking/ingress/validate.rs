//! Validation of Ingresses (`ValidateIngressCreate`).

use super::ingress_class;
use crate::{FieldErrors, FieldPath, enums, field_cursor::FieldCursor};
use serde_json::{Value, json};

/// Deprecated annotation of the class.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Sequences that are forbidden in a path, and at its end (`invalidPathSequences`, `invalidPathSuffixes`).
const INVALID_PATH_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const INVALID_PATH_SUFFIXES: [&str; 2] = ["/..", "/."];

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (backend, rules, class) = (spec.at("defaultBackend"), spec.at("rules"), spec.at("ingressClassName"));
    if rules.count() == 0 && backend.is_null() {
        errors.invalid(&spec.path(), rules.value(), "either `defaultBackend` or `rules` must be specified");
    }
    if !backend.is_null() {
        validate_backend(&backend, errors);
    }
    for rule in rules.items() {
        validate_rule(&rule, errors);
    }
    for tls in spec.at("tls").items() {
        for host in tls.at("hosts").items() {
            validate_host(&host, errors);
        }
        let secret = tls.at("secretName");
        if !secret.text().is_empty() {
            secret.validate_text(api::names::dns1123_subdomain, errors);
        }
    }
    if !class.is_null() {
        class.validate_text(api::names::dns1123_subdomain, errors);
    }
}

/// Validates that annotation and field of a new Ingress have the same class.
pub(super) fn validate_new(object: &Value, errors: &mut FieldErrors) {
    let (annotation, class) =
        (&object["metadata"]["annotations"][CLASS_ANNOTATION], &object["spec"]["ingressClassName"]);
    if !annotation.is_null() && !class.is_null() && annotation != class {
        let path = FieldPath::new("annotations").child(CLASS_ANNOTATION);
        errors.invalid(&path, annotation, "must match `ingressClassName` when both are specified");
    }
}

/// Validates a host name or wildcard host name.
fn validate_host(host: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if host.text().contains('*') {
        host.validate_text(api::names::wildcard_dns1123_subdomain, errors);
    } else {
        host.validate_text(api::names::dns1123_subdomain, errors);
    }
}

fn validate_rule(rule: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (host, http) = (rule.at("host"), rule.at("http"));
    if host.text().parse::<std::net::IpAddr>().is_ok() {
        host.invalid("must be a DNS name, not an IP address", errors);
    }
    if !host.text().is_empty() {
        validate_host(&host, errors);
    }
    let paths = http.at("paths");
    if !http.is_null() && paths.count() == 0 {
        paths.required("", errors);
    }
    for path in paths.items() {
        validate_http_path(&path, errors);
    }
}

/// Validates an HTTP path (`validateHTTPIngressPath`).
fn validate_http_path(http_path: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (path, kind) = (http_path.at("path"), http_path.at("pathType"));
    let text = path.text();
    let mut wrong = |detail: &str| errors.invalid(&path.path(), &json!(text), detail);
    match kind.text() {
        "" => return kind.required("pathType must be specified", errors),
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                wrong("must be an absolute path");
            }
            let sequences = INVALID_PATH_SEQUENCES.iter().filter(|s| text.contains(**s));
            sequences.for_each(|s| wrong(&format!("must not contain '{s}'")));
            let ends = INVALID_PATH_SUFFIXES.iter().filter(|s| text.ends_with(**s));
            ends.for_each(|s| wrong(&format!("cannot end with '{s}'")));
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                wrong("must be an absolute path");
            }
        }
        _ => kind.supported(enums::PATH_TYPES, errors),
    }
    validate_backend(&http_path.at("backend"), errors);
}

/// Validates a backend (`validateIngressBackend`).
fn validate_backend(backend: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (service, resource) = (backend.at("service"), backend.at("resource"));
    let mut wrong = |detail: &str| errors.invalid(&backend.path(), &json!(""), detail);
    match (service.is_null(), resource.is_null()) {
        (false, false) => wrong("cannot set both resource and service backends"),
        (true, true) => wrong("resource or service backend is required"),
        (true, false) => ingress_class::validate_typed_reference(&resource, errors),
        (false, true) => validate_service(&service, backend, errors),
    }
}

/// Validates the service of a backend. Errors of the port as a whole have the path of the backend.
fn validate_service(service: &FieldCursor<'_, '_>, backend: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    service.at("name").validate_required_text(api::names::dns1035_label, errors);
    let port = service.at("port");
    let (name, number) = (port.at("name"), port.at("number"));
    match (name.text(), number.integer().unwrap_or(0)) {
        ("", 0) => backend.required("port name or number is required", errors),
        ("", _) => number.validate_port(errors),
        (_, 0) => name.validate_text(api::names::port_name, errors),
        _ => errors.invalid(&backend.path(), &json!(""), "cannot set both port name & port number"),
    }
}
