//! What an Ingress may say (`ValidateIngressCreate`).

use super::class;
use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{self, items, subdomain, text as text_of},
};
use serde_json::{Value, json};

/// What stood for the class before there was a field for it.
const CLASS: &str = "kubernetes.io/ingress.class";

/// What nobody can say for sure where it leads: within a path, and at its end.
const AMBIGUOUS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const AMBIGUOUS_ENDS: [&str; 2] = ["/..", "/."];

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    if items(spec, "rules").next().is_none() && spec["defaultBackend"].is_null() {
        errors.invalid(&path, &spec["rules"], "either `defaultBackend` or `rules` must be specified");
    }
    if !spec["defaultBackend"].is_null() {
        backend(&spec["defaultBackend"], &path.child("defaultBackend"), errors);
    }
    for (i, rule) in items(spec, "rules").enumerate() {
        self::rule(rule, &path.child("rules").index(i), errors);
    }
    for (i, tls) in items(spec, "tls").enumerate() {
        let path = path.child("tls").index(i);
        for (j, name) in items(tls, "hosts").enumerate() {
            host(name, &path.child("hosts").index(j), errors);
        }
        if !text_of(tls, "secretName").is_empty() {
            subdomain(&tls["secretName"], &path.child("secretName"), errors);
        }
    }
    if !spec["ingressClassName"].is_null() {
        subdomain(&spec["ingressClassName"], &path.child("ingressClassName"), errors);
    }
}

/// A new one does not name two classes.
pub(super) fn validate_new(object: &Value, errors: &mut FieldErrors) {
    let (note, class) = (&object["metadata"]["annotations"][CLASS], &object["spec"]["ingressClassName"]);
    if !note.is_null() && !class.is_null() && note != class {
        let path = FieldPath::new("annotations").child(CLASS);
        errors.invalid(&path, note, "must match `ingressClassName` when both are specified");
    }
}

/// A name, or `*` and what all names end with.
fn host(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = name.as_str().unwrap_or("");
    if text.contains('*') {
        api::names::wildcard_dns1123_subdomain(text).iter().for_each(|e| errors.invalid(path, name, e));
    } else {
        subdomain(name, path, errors);
    }
}

fn rule(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, at) = (text_of(rule, "host"), path.child("host"));
    if name.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(&at, &rule["host"], "must be a DNS name, not an IP address");
    }
    if !name.is_empty() {
        host(&rule["host"], &at, errors);
    }
    let at = path.child("http").child("paths");
    if !rule["http"].is_null() && items(&rule["http"], "paths").next().is_none() {
        errors.required(&at, "");
    }
    for (i, p) in items(&rule["http"], "paths").enumerate() {
        http_path(p, &at.index(i), errors);
    }
}

/// `validateHTTPIngressPath`.
fn http_path(p: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (place, at) = (text_of(p, "path"), path.child("path"));
    let mut wrong = |why: &str| errors.invalid(&at, &json!(place), why);
    let kind = text_of(p, "pathType");
    match kind {
        "" => return errors.required(&path.child("pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !place.starts_with('/') {
                wrong("must be an absolute path");
            }
            AMBIGUOUS.iter().filter(|s| place.contains(**s)).for_each(|s| wrong(&format!("must not contain '{s}'")));
            let ends = AMBIGUOUS_ENDS.iter().filter(|s| place.ends_with(**s));
            ends.for_each(|s| wrong(&format!("cannot end with '{s}'")));
        }
        "ImplementationSpecific" => {
            if !place.is_empty() && !place.starts_with('/') {
                wrong("must be an absolute path");
            }
        }
        _ => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), &p["pathType"], &supported);
        }
    }
    backend(&p["backend"], &path.child("backend"), errors);
}

/// `validateIngressBackend`.
fn backend(backend: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_null(), resource.is_null()) {
        (false, false) => errors.invalid(path, &json!(""), "cannot set both resource and service backends"),
        (true, true) => errors.invalid(path, &json!(""), "resource or service backend is required"),
        (true, false) => class::reference(resource, &path.child("resource"), errors),
        (false, true) => self::service(service, path, errors),
    }
}

fn service(service: &Value, path: &FieldPath, errors: &mut FieldErrors) {
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
        ("", _) => checks::port(&port["number"], &at.child("number"), errors),
        (name, 0) => {
            let wrong = api::names::port_name(name);
            wrong.iter().for_each(|e| errors.invalid(&at.child("name"), &port["name"], e));
        }
        _ => errors.invalid(path, &json!(""), "cannot set both port name & port number"),
    }
}
