//! Validation of CustomResourceDefinitions (`validateCustomResourceDefinitionSpec`).

use super::{
    approval::{APPROVED_ANNOTATION, Approval},
    names, versions,
};
use crate::{
    FieldErrors, FieldPath,
    field_cursor::FieldCursor,
    field_validation::text,
    webhook_client::{self, validate_review_versions},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Validates creates and updates of a definition.
pub(super) fn validate_definition(object: &Value, errors: &mut FieldErrors) {
    let (spec, path) = (&object["spec"], FieldPath::new("spec"));
    let (name, group) = (text(&object["metadata"], "name"), text(spec, "group"));
    if !name.is_empty() && name != format!("{}.{group}", text(&spec["names"], "plural")) {
        let at = FieldPath::new("metadata").child("name");
        errors.invalid(&at, &json!(name), "must be spec.names.plural+\".\"+spec.group");
    }
    validate_group(spec, &path.child("group"), errors);
    match text(spec, "scope") {
        "" => errors.required(&path.child("scope"), ""),
        "Cluster" | "Namespaced" => {}
        _ => errors.not_supported(&path.child("scope"), &spec["scope"], &["Cluster", "Namespaced"]),
    }
    let all = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    versions::validate_versions(all, &path, errors);
    let mut seen = HashSet::new();
    if !all.iter().all(|v| seen.insert(text(v, "name"))) {
        errors.invalid(&path.child("versions"), &spec["versions"], "must contain unique version names");
    }
    if all.iter().filter(|v| v["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.invalid(&path.child("versions"), &spec["versions"], detail);
    }
    names::validate_names(&spec["names"], &path.child("names"), errors);
    validate_conversion(&spec["conversion"], &path.child("conversion"), errors);
    if spec["preserveUnknownFields"] == true {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&path.child("preserveUnknownFields"), &json!(true), detail);
    }
    validate_api_approval(object, errors);
    validate_stored_versions(object, all, errors);
}

/// Additional validation of updates (`ValidateCustomResourceDefinitionUpdate`).
pub(super) fn validate_definition_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let is_established = old["status"]["conditions"]
        .as_array()
        .is_some_and(|c| c.iter().any(|c| c["type"] == "Established" && c["status"] == "True"));
    let path = FieldPath::new("spec");
    let mut validate_same = |pointer: &str, path: &FieldPath| {
        let (new, old) = (object.pointer(pointer), old.pointer(pointer));
        if new != old {
            errors.invalid(path, new.unwrap_or(&Value::Null), "field is immutable");
        }
    };
    if is_established {
        validate_same("/spec/scope", &path.child("scope"));
        validate_same("/spec/names/kind", &path.child("names").child("kind"));
    }
    validate_same("/spec/group", &path.child("group"));
    validate_same("/spec/names/plural", &path.child("names").child("plural"));
    // An already invalid bundle does not block other changes.
    if has_ca_bundle(old) && !has_ca_bundle(object) {
        let at = path.child("conversion").child("webhookClientConfig").child("caBundle");
        let detail = "unable to load root certificates: data does not contain any valid RSA or ECDSA certificates";
        errors.invalid(&at, ca_bundle(object), detail);
    }
}

fn ca_bundle(definition: &Value) -> &Value {
    &definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
}

/// Whether the CA bundle of the conversion webhook is unset or valid (`ValidateCABundle`).
pub fn has_ca_bundle(definition: &Value) -> bool {
    let text = ca_bundle(definition).as_str().filter(|text| !text.is_empty());
    text.is_none_or(|text| {
        let pem = STANDARD.decode(text).unwrap_or_default();
        CertificateDer::pem_slice_iter(&pem).next().is_some_and(|first| first.is_ok())
    })
}

fn validate_group(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let group = text(spec, "group");
    let wrong = api::names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(path, "");
    } else if !wrong.is_empty() {
        errors.invalid(path, &json!(group), &wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid(path, &json!(group), "should be a domain with at least one dot");
    }
}

/// Validates the approval annotation (`validateAPIApproval`).
fn validate_api_approval(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata").child("annotations").key(APPROVED_ANNOTATION);
    match Approval::from_definition(object) {
        Some(missing @ Approval::Missing) => errors.required(&path, &missing.message()),
        Some(invalid @ Approval::Invalid) => {
            errors.invalid(&path, &object["metadata"]["annotations"][APPROVED_ANNOTATION], &invalid.message());
        }
        _ => {}
    }
}

/// Validates that stored versions remain in the spec.
fn validate_stored_versions(object: &Value, versions: &[Value], errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child("storedVersions");
    for (i, stored) in object["status"]["storedVersions"].as_array().into_iter().flatten().enumerate() {
        if !versions.iter().any(|v| v["name"] == *stored) {
            let name = stored.as_str().unwrap_or("");
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&path.index(i), stored, &detail);
        }
    }
}

fn validate_conversion(conversion: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let webhook = &conversion["webhook"];
    match text(conversion, "strategy") {
        "" => errors.required(&path.child("strategy"), ""),
        "None" => {
            if !webhook.is_null() {
                let detail = "should not be set when strategy is not set to Webhook";
                errors.forbidden(&path.child("webhookClientConfig"), detail);
            }
        }
        "Webhook" => {
            // Upstream's paths, which are those of an older version.
            let webhook = FieldCursor::new(webhook, path);
            let config = webhook.at("clientConfig").shown_as("webhookClientConfig");
            if config.is_null() {
                config.required("required when strategy is set to Webhook", errors);
            } else {
                webhook_client::validate_client_config(&config, errors);
            }
            validate_review_versions(&webhook.at("conversionReviewVersions"), "", errors);
        }
        _ => errors.not_supported(&path.child("strategy"), &conversion["strategy"], &["None", "Webhook"]),
    }
}
