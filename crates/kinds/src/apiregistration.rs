//! APIService (`apiregistration.k8s.io/v1`). `aggregation` serves them.

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext, defaulting,
    field_validation::{items, text as text_of},
    generic_kind::{GenericKind, validate_path_segment_name},
    kind_info::METADATA_RESET_FOR_STATUS,
    text,
};
use crate::conditions::set_condition;
use serde_json::{Value, json};

pub(super) static API_SERVICE: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Service", Cell::Computed(|s, _| json!(service_cell(s)))),
        text("Available", Cell::Computed(|s, _| json!(available_cell(s)))),
        AGE,
    ],
    default: |object| defaulting::set_defaults_at(object, "/spec/service", &[("port", json!(443))]),
    prepare,
    name: validate_path_segment_name,
    validate,
    ..GenericKind::new(&KindInfo {
        categories: &["api-extensions"],
        requires_resource_version: true,
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        ..KindInfo::cluster_scoped("apiregistration.k8s.io", "APIService", "apiservices", "apiservice")
    })
};

fn service_cell(object: &Value) -> String {
    let service = &object["spec"]["service"];
    if service.is_null() {
        return "Local".to_owned();
    }
    format!("{}/{}", text_of(service, "namespace"), text_of(service, "name"))
}

fn available_cell(object: &Value) -> String {
    let found = items(&object["status"], "conditions").find(|c| c["type"] == "Available");
    let (status, reason) = found.map_or(("Unknown", ""), |c| (text_of(c, "status"), text_of(c, "reason")));
    if status == "True" || reason.is_empty() { status.to_owned() } else { format!("{status} ({reason})") }
}

/// Sets the condition `Available` of local APIServices.
fn prepare(object: &mut Value, old: Option<&Value>, ctx: &WriteContext) {
    let is_local = |object: &Value| object["spec"]["service"].is_null();
    if is_local(object) && old.is_none_or(|old| !is_local(old)) {
        set_condition(
            &mut object["status"],
            "Available",
            "True",
            "Local",
            "Local APIServices are always available",
            ctx.now,
        );
    }
}

/// Validates an APIService (`ValidateAPIService`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (group, version) = (text_of(spec, "group"), text_of(spec, "version"));
    let name = format!("{version}.{group}");
    if object["metadata"]["name"] != name {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {name:?}");
        errors.invalid(&FieldPath::new("metadata").child("name"), &object["metadata"]["name"], &detail);
    }
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.required(&path.child("group"), detail);
    }
    for detail in api::names::dns1123_subdomain(group).iter().filter(|_| !group.is_empty()) {
        errors.invalid(&path.child("group"), &json!(group), detail);
    }
    for detail in api::names::dns1035_label(version) {
        errors.invalid(&path.child("version"), &json!(version), &detail);
    }
    for (field, maximum) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = spec[field].as_i64().unwrap_or(0);
        if priority <= 0 || priority > maximum {
            errors.invalid(&path.child(field), &json!(priority), &format!("must be positive and less than {maximum}"));
        }
    }
    let ca_bundle = text_of(spec, "caBundle");
    let insecure = (path.child("insecureSkipTLSVerify"), spec["insecureSkipTLSVerify"] == true);
    let service = &spec["service"];
    if service.is_null() {
        if !ca_bundle.is_empty() {
            let shown = format!("{} bytes", ca_bundle.len() / 4 * 3);
            errors.invalid(&path.child("caBundle"), &json!(shown), "local APIServices may not have a caBundle");
        }
        if insecure.1 {
            errors.invalid(&insecure.0, &json!(true), "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    let at = path.child("service");
    for field in ["namespace", "name"].into_iter().filter(|field| text_of(service, field).is_empty()) {
        errors.required(&at.child(field), "");
    }
    let port = service["port"].as_i64().unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        let detail = "port is not valid:must be between 1 and 65535, inclusive";
        errors.invalid(&at.child("port"), &json!(port), detail);
    }
    if insecure.1 && !ca_bundle.is_empty() {
        errors.invalid(&insecure.0, &json!(true), "may not be true if caBundle is present");
    }
}
