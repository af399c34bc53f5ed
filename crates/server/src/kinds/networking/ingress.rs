//! Ingress and IngressClass.

use super::GROUP;
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{immutable, items, subdomain, text as text_of},
    fill, or_none,
    plain::Plain,
    text,
};
use serde_json::{Value, json};

pub(in crate::kinds) static INGRESS: Plain = Plain {
    columns: &[
        NAME,
        text("Class", Cell::OrNone("/spec/ingressClassName")),
        text("Hosts", Cell::Of(|i, _| json!(hosts(i)))),
        text("Address", Cell::Of(|i, _| json!(addresses(i)))),
        text("Ports", Cell::Of(|i, _| json!(if items(&i["spec"], "tls").next().is_some() { "80, 443" } else { "80" }))),
        AGE,
    ],
    validate: ingress,
    ..Plain::of(&KindInfo {
        short_names: &["ing"],
        status: true,
        generation: true,
        ..KindInfo::of(GROUP, "Ingress", "ingresses", "ingress")
    })
};
pub(in crate::kinds) static INGRESS_CLASS: Plain = Plain {
    columns: &[
        NAME,
        text("Controller", Cell::At("/spec/controller")),
        text("Parameters", Cell::Of(|c, _| or_none(&parameters(&c["spec"]["parameters"])))),
        AGE,
    ],
    default: |object| fill::at(object, "/spec/parameters", &[("scope", json!("Cluster"))]),
    validate: ingress_class,
    validate_change: |object, old, errors| {
        let path = FieldPath::new("spec").child("controller");
        immutable(&object["spec"]["controller"], &old["spec"]["controller"], &path, errors);
    },
    ..Plain::of(&KindInfo {
        generation: true,
        ..KindInfo::of_cluster(GROUP, "IngressClass", "ingressclasses", "ingressclass")
    })
};
/// `kind.group/name`
fn parameters(reference: &Value) -> String {
    let group = reference["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
    match text_of(reference, "name") {
        "" => String::new(),
        name => format!("{}{group}/{name}", text_of(reference, "kind")),
    }
}

fn hosts(ingress: &Value) -> String {
    const MOST: usize = 3;
    let all: Vec<&str> =
        items(&ingress["spec"], "rules").map(|r| text_of(r, "host")).filter(|h| !h.is_empty()).collect();
    match all.len() {
        0 => "*".to_owned(),
        count if count > MOST => format!("{} + {} more...", all[..MOST].join(","), count - MOST),
        _ => all.join(","),
    }
}

fn addresses(ingress: &Value) -> String {
    let one = |i: &Value| match text_of(i, "ip") {
        "" => text_of(i, "hostname").to_owned(),
        ip => ip.to_owned(),
    };
    items(&ingress["status"]["loadBalancer"], "ingress").map(one).collect::<Vec<_>>().join(",")
}

/// `ValidateIngressSpec`.
fn ingress(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    if items(spec, "rules").next().is_none() && spec["defaultBackend"].is_null() {
        errors.invalid(&path, &spec["rules"], "either `defaultBackend` or `rules` must be specified");
    }
    if !spec["defaultBackend"].is_null() {
        backend(&spec["defaultBackend"], &path.child("defaultBackend"), errors);
    }
    if !text_of(spec, "ingressClassName").is_empty() {
        subdomain(&spec["ingressClassName"], &path.child("ingressClassName"), errors);
    }
    for (i, tls) in items(spec, "tls").enumerate() {
        let path = path.child("tls").index(i);
        for (j, host) in items(tls, "hosts").enumerate() {
            let name = host.as_str().unwrap_or("");
            subdomain(&json!(name.strip_prefix("*.").unwrap_or(name)), &path.child("hosts").index(j), errors);
        }
        if !text_of(tls, "secretName").is_empty() {
            subdomain(&tls["secretName"], &path.child("secretName"), errors);
        }
    }
    for (i, rule) in items(spec, "rules").enumerate() {
        let path = path.child("rules").index(i);
        let host = text_of(rule, "host");
        if host.parse::<std::net::IpAddr>().is_ok() {
            errors.invalid(&path.child("host"), &rule["host"], "must be a DNS name, not an IP address");
        } else if !host.is_empty() {
            let name = json!(host.strip_prefix("*.").unwrap_or(host));
            subdomain(&name, &path.child("host"), errors);
        }
        let path = path.child("http").child("paths");
        if !rule["http"].is_null() && items(&rule["http"], "paths").next().is_none() {
            errors.required(&path, "");
        }
        for (j, p) in items(&rule["http"], "paths").enumerate() {
            http_path(p, &path.index(j), errors);
        }
    }
}

fn http_path(p: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let place = text_of(p, "path");
    match text_of(p, "pathType") {
        "" => errors.required(&path.child("pathType"), "pathType must be specified"),
        "Exact" | "Prefix" if !place.starts_with('/') => {
            errors.invalid(&path.child("path"), &json!(place), "must be an absolute path");
        }
        "ImplementationSpecific" if !place.is_empty() && !place.starts_with('/') => {
            errors.invalid(&path.child("path"), &json!(place), "must be an absolute path");
        }
        "Exact" | "Prefix" | "ImplementationSpecific" => {}
        _ => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), &p["pathType"], &supported);
        }
    }
    backend(&p["backend"], &path.child("backend"), errors);
}

fn backend(backend: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_null(), resource.is_null()) {
        (false, false) => errors.invalid(path, &json!(""), "cannot set both resource and service backends"),
        (true, true) => errors.required(path, "resource or service backend is required"),
        (true, false) => {}
        (false, true) => {
            let at = path.child("service");
            match text_of(service, "name") {
                "" => errors.required(&at.child("name"), ""),
                name => {
                    let wrong = api::names::dns1035_label(name);
                    wrong.iter().for_each(|e| errors.invalid(&at.child("name"), &service["name"], e));
                }
            }
            let (name, number) = (text_of(&service["port"], "name"), service["port"]["number"].as_i64().unwrap_or(0));
            match (name.is_empty(), number) {
                (true, 0) => errors.required(path, "port name or number is required"),
                (false, n) if n != 0 => errors.invalid(path, &json!(""), "cannot set both port name & port number"),
                (true, n) if !(1..=65_535).contains(&n) => {
                    let at = at.child("port").child("number");
                    errors.invalid(&at, &json!(n), "must be between 1 and 65535, inclusive");
                }
                _ => {}
            }
        }
    }
}

/// `ValidateIngressClassSpec`.
fn ingress_class(object: &Value, errors: &mut FieldErrors) {
    let (path, controller) = (FieldPath::new("spec").child("controller"), &object["spec"]["controller"]);
    let text = controller.as_str().unwrap_or("");
    if text.len() > 250 {
        errors.too_long(&path, 250);
    }
    if text.is_empty() {
        errors.required(&path, "");
    } else if !text.contains('/') {
        errors.invalid(&path, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    } else {
        let (domain, _) = text.split_once('/').unwrap_or_default();
        subdomain(&json!(domain), &path, errors);
    }
}
