//! Validation of probes and lifecycle handlers.

use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use serde_json::json;

/// Handlers of probes and lifecycle hooks, in the order of upstream's validation.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Validates the lifecycle and probes of an app container or sidecar.
pub(super) fn validate_lifecycle_and_probes(
    container: &FieldCursor<'_, '_>,
    grace: Option<i64>,
    errors: &mut FieldErrors,
) {
    let lifecycle = container.at("lifecycle");
    for hook in [lifecycle.at("postStart"), lifecycle.at("preStop")].iter().filter(|hook| hook.is_set()) {
        validate_handler(hook, grace, errors);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        if probe.is_null() {
            continue;
        }
        validate_probe(&probe, errors);
        let (seconds, threshold) = (probe.at("terminationGracePeriodSeconds"), probe.at("successThreshold"));
        if name == "readinessProbe" {
            if seconds.is_set() {
                seconds.invalid("must not be set for readinessProbes", errors);
            }
        } else if threshold.integer() != Some(1) {
            threshold.invalid("must be 1", errors);
        }
    }
}

fn validate_probe(probe: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_handler(probe, None, errors);
    for name in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        probe.at(name).nonnegative(errors);
    }
    let seconds = probe.at("terminationGracePeriodSeconds");
    if seconds.integer().is_some_and(|s| s <= 0) {
        seconds.invalid("must be greater than 0", errors);
    }
}

fn validate_handler(handler: &FieldCursor<'_, '_>, grace: Option<i64>, errors: &mut FieldErrors) {
    let mut found = false;
    for name in HANDLERS {
        let action = handler.at(name);
        if action.is_null() {
            continue;
        }
        if std::mem::replace(&mut found, true) {
            action.forbidden("may not specify more than 1 handler type", errors);
            continue;
        }
        match name {
            "exec" if action.at("command").count() == 0 => action.at("command").required("", errors),
            "httpGet" => validate_http_get(&action, errors),
            "tcpSocket" => validate_port_or_name(&action.at("port"), errors),
            "grpc" => validate_port_number(&action.at("port"), errors),
            "sleep" => {
                let seconds = action.at("seconds").integer().unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let text = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&action.path(), &json!(seconds), &text);
                }
            }
            _ => {}
        }
    }
    if !found {
        handler.required("must specify a handler type", errors);
    }
}

fn validate_http_get(action: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if action.at("path").text().is_empty() {
        action.at("path").required("", errors);
    }
    validate_port_or_name(&action.at("port"), errors);
    action.at("scheme").one_of(enums::URI_SCHEMES, errors);
    let headers = action.at("httpHeaders");
    for header in headers.items() {
        let name = header.at("name").text();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let text = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&headers.path(), &json!(name), text);
        }
    }
}

fn validate_port_or_name(port: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if port.value().is_string() {
        port.validate_text(api::names::port_name, errors);
    } else {
        validate_port_number(port, errors);
    }
}

/// Validates a port; an absent one is 0.
fn validate_port_number(port: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    port.with_value(&json!(port.integer().unwrap_or(0))).validate_port(errors);
}
