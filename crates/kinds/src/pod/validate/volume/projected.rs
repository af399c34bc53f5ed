//! Validation of projected volumes (`validateProjectionSources`).

use super::{validate_downward_api, validate_file_path, validate_key_paths, validate_mode, validate_non_reserved_path};
use crate::{
    FieldErrors, FieldPath,
    certificates::signer_name,
    field_validation::{items, text},
    selector,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Types of sources, in upstream's order.
const KINDS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

pub(super) fn validate_projected(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_mode(source, "defaultMode", path, errors);
    let mut taken = BTreeSet::new();
    for (i, s) in items(source, "sources").enumerate() {
        let at = path.child("sources").index(i);
        let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| s.get(kind).is_some_and(|v| !v.is_null())).collect();
        for kind in &kinds {
            validate_source(kind, &s[*kind], path, &at.child(kind), errors);
            for (file, shown) in file_paths(kind, &s[*kind]) {
                if !taken.insert(file) {
                    errors.invalid(path, &json!(shown), "conflicting duplicate paths");
                }
            }
        }
        if kinds.len() > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

/// Returns the paths of a source's files, each with the value that an error shows.
fn file_paths<'a>(kind: &str, source: &'a Value) -> Vec<(&'a str, &'a str)> {
    let items = items(source, "items").map(|item| text(item, "path"));
    let files: Vec<(&str, &str)> = match kind {
        "secret" | "configMap" => items.map(|path| (path, text(source, "name"))).collect(),
        "downwardAPI" => items.map(|path| (path, path)).collect(),
        "clusterTrustBundle" => vec![(text(source, "path"), text(source, "path"))],
        // Upstream does not check the paths of tokens.
        _ => Vec::new(),
    };
    files.into_iter().filter(|(path, _)| !path.is_empty()).collect()
}

fn validate_source(kind: &str, source: &Value, volume: &FieldPath, path: &FieldPath, errors: &mut FieldErrors) {
    match kind {
        "secret" | "configMap" => {
            if text(source, "name").is_empty() {
                errors.required(&path.child("name"), "");
            }
            validate_key_paths(source, path, errors);
        }
        "downwardAPI" => validate_downward_api(source, path, errors),
        "serviceAccountToken" => validate_service_account_token(source, volume, path, errors),
        "clusterTrustBundle" => validate_cluster_trust_bundle(source, path, errors),
        _ => {}
    }
}

fn validate_service_account_token(source: &Value, volume: &FieldPath, path: &FieldPath, errors: &mut FieldErrors) {
    let (seconds, at) = (source["expirationSeconds"].as_i64().unwrap_or(3600), path.child("expirationSeconds"));
    if seconds < 600 {
        errors.invalid(&at, &json!(seconds), "may not specify a duration less than 10 minutes");
    }
    if seconds > MAX_TOKEN_SECONDS {
        errors.invalid(&at, &json!(seconds), "may not specify a duration larger than 2^32 seconds");
    }
    // Upstream reports the path of the volume.
    match text(source, "path") {
        "" => errors.required(&volume.child("path"), ""),
        _ => validate_non_reserved_path(&source["path"], &volume.child("path"), errors),
    }
}

fn validate_cluster_trust_bundle(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match (source["name"].as_str(), source["signerName"].as_str()) {
        (Some(_), Some(_)) => errors.invalid(path, source, "only one of name and signerName may be used"),
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(&path.child("name"), "must be a valid object name");
            }
            if source.get("labelSelector").is_some() {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), &source["labelSelector"], detail);
            }
        }
        (None, Some(signer)) => {
            let at = path.child("signerName");
            match signer {
                "" => errors.required(&at, "must be a valid signer name"),
                _ => signer_name::validate(&source["signerName"], &at, errors),
            }
            selector::validate(&source["labelSelector"], &path.child("labelSelector"), errors);
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    validate_file_path(source, path, errors);
}
