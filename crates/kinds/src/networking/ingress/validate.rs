//! Validation of Ingresses (`ValidateIngressCreate`).

use super::ingress_class;
use crate::{
    FieldErrors, FieldPath,
    field_validation::{self, items, text as text_of, validate_dns_subdomain},
};
use serde_json::{Value, json};

/// Deprecated annotation of the class.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Sequences that are forbidden in a path, and at its end (`invalidPathSequences`, `invalidPathSuffixes`).
const INVALID_PATH_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const INVALID_PATH_SUFFIXES: [&str; 2] = ["/..", "/."];

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    if items(spec, "rules").next().is_none() && spec["defaultBackend"].is_null() {
        errors.invalid(&path, &spec["rules"], "either `defaultBackend` or `rules` must be specified");
    }
    if !spec["defaultBackend"].is_null() {
        validate_backend(&spec["defaultBackend"], &path.child("defaultBackend"), errors);
    }
    for (i, rule) in items(spec, "rules").enumerate() {
        self::validate_rule(rule, &path.child("rules").index(i), errors);
    }
    for (i, tls) in items(spec, "tls").enumerate() {
        let path = path.child("tls").index(i);
        for (j, name) in items(tls, "hosts").enumerate() {
            validate_host(name, &path.child("hosts").index(j), errors);
        }
        if !text_of(tls, "secretName").is_empty() {
            validate_dns_subdomain(&tls["secretName"], &path.child("secretName"), errors);
        }
    }
    if !spec["ingressClassName"].is_null() {
        validate_dns_subdomain(&spec["ingressClassName"], &path.child("ingressClassName"), errors);
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
fn validate_host(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = name.as_str().unwrap_or("");
    if text.contains('*') {
        api::names::wildcard_dns1123_subdomain(text).iter().for_each(|e| errors.invalid(path, name, e));
    } else {
        validate_dns_subdomain(name, path, errors);
    }
}

fn validate_rule(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, at) = (text_of(rule, "host"), path.child("host"));
    if name.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(&at, &rule["host"], "must be a DNS name, not an IP address");
    }
    if !name.is_empty() {
        validate_host(&rule["host"], &at, errors);
    }
    let at = path.child("http").child("paths");
    if !rule["http"].is_null() && items(&rule["http"], "paths").next().is_none() {
        errors.required(&at, "");
    }
    for (i, p) in items(&rule["http"], "paths").enumerate() {
        validate_http_path(p, &at.index(i), errors);
    }
}

/// Validates an HTTP path (`validateHTTPIngressPath`).
fn validate_http_path(p: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (http_path, at) = (text_of(p, "path"), path.child("path"));
    let mut wrong = |detail: &str| errors.invalid(&at, &json!(http_path), detail);
    let kind = text_of(p, "pathType");
    match kind {
        "" => return errors.required(&path.child("pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !http_path.starts_with('/') {
                wrong("must be an absolute path");
            }
            INVALID_PATH_SEQUENCES
                .iter()
                .filter(|s| http_path.contains(**s))
                .for_each(|s| wrong(&format!("must not contain '{s}'")));
            let ends = INVALID_PATH_SUFFIXES.iter().filter(|s| http_path.ends_with(**s));
            ends.for_each(|s| wrong(&format!("cannot end with '{s}'")));
        }
        "ImplementationSpecific" => {
            if !http_path.is_empty() && !http_path.starts_with('/') {
                wrong("must be an absolute path");
            }
        }
        _ => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), &p["pathType"], &supported);
        }
    }
    validate_backend(&p["backend"], &path.child("backend"), errors);
}

/// Validates a backend (`validateIngressBackend`).
fn validate_backend(backend: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_null(), resource.is_null()) {
        (false, false) => errors.invalid(path, &json!(""), "cannot set both resource and service backends"),
        (true, true) => errors.invalid(path, &json!(""), "resource or service backend is required"),
        (true, false) => ingress_class::validate_typed_reference(resource, &path.child("resource"), errors),
        (false, true) => self::validate_service(service, path, errors),
    }
}

fn validate_service(service: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("service");
    match text_of(service, "name") {
        "" => errors.required(&at.child("name"), ""),
        name => {
            let wrong = api::names::dns1035_label(name);
            wrong.iter().for_each(|e| errors.invalid(&at.child("name"), &service["name"], e));
        }
    }
    let (port, at) = (&service["port"], at.child("port"));
    match (text_of(port, "name"), port["number"].as_i64().unwrap_or(0)) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", _) => field_validation::validate_port(&port["number"], &at.child("number"), errors),
        (name, 0) => {
            let wrong = api::names::port_name(name);
            wrong.iter().for_each(|e| errors.invalid(&at.child("name"), &port["name"], e));
        }
        _ => errors.invalid(path, &json!(""), "cannot set both port name & port number"),
    }
}
