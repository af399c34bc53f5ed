//! Validation of probes and lifecycle handlers.

use super::{items, text, validate_nonnegative, validate_one_of, validate_port};
use crate::{FieldErrors, FieldPath};
use serde_json::{Value, json};

/// Handlers of probes and lifecycle hooks, in the order of upstream's validation.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Validates the lifecycle and probes of an app container or sidecar.
pub(super) fn validate_lifecycle_and_probes(c: &Value, grace: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(lifecycle) = c.get("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.get(hook) {
                self::validate_handler(handler, grace, &path.child("lifecycle").child(hook), errors);
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = c.get(name) else { continue };
        let path = path.child(name);
        self::validate_probe(probe, &path, errors);
        if name == "readinessProbe" {
            if let Some(seconds) = probe.get("terminationGracePeriodSeconds") {
                let at = path.child("terminationGracePeriodSeconds");
                errors.invalid(&at, seconds, "must not be set for readinessProbes");
            }
        } else if probe["successThreshold"].as_i64() != Some(1) {
            errors.invalid(&path.child("successThreshold"), &probe["successThreshold"], "must be 1");
        }
    }
}

fn validate_probe(probe: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_handler(probe, None, path, errors);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        validate_nonnegative(probe, field, path, errors);
    }
    if let Some(seconds) = probe["terminationGracePeriodSeconds"].as_i64().filter(|s| *s <= 0) {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), &json!(seconds), "must be greater than 0");
    }
}

fn validate_handler(handler: &Value, grace: Option<i64>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in HANDLERS {
        let Some(action) = handler.get(kind) else { continue };
        let path = path.child(kind);
        if std::mem::replace(&mut found, true) {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" if items(action, "command").next().is_none() => errors.required(&path.child("command"), ""),
            "httpGet" => validate_http_get(action, &path, errors),
            "tcpSocket" => validate_port_or_name(&action["port"], &path.child("port"), errors),
            "grpc" => validate_port(&json!(action["port"].as_i64().unwrap_or(0)), &path.child("port"), errors),
            "sleep" => {
                let seconds = action["seconds"].as_i64().unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let text = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&path, &json!(seconds), &text);
                }
            }
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn validate_http_get(action: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if text(action, "path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    validate_port_or_name(&action["port"], &path.child("port"), errors);
    validate_one_of(action, "scheme", &["HTTP", "HTTPS"], path, errors);
    for header in items(action, "httpHeaders") {
        let name = text(header, "name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let text = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&path.child("httpHeaders"), &json!(name), text);
        }
    }
}

fn validate_port_or_name(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match v.as_str() {
        Some(name) => api::names::port_name(name).iter().for_each(|e| errors.invalid(path, v, e)),
        None => validate_port(&json!(v.as_i64().unwrap_or(0)), path, errors),
    }
}
