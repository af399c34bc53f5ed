//! Projected volumes (`validateProjectionSources`).

use super::{downward, file_path, key_paths, mode, non_reserved};
use crate::kinds::{
    FieldErrors, FieldPath,
    certificates::signer_name,
    checks::{items, text},
    selector,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Kinds of sources, in upstream's order.
const KINDS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
const LONGEST_TOKEN: i64 = 1 << 32;

pub(super) fn source(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    mode(source, "defaultMode", path, errors);
    let mut taken = BTreeSet::new();
    for (i, s) in items(source, "sources").enumerate() {
        let at = path.child("sources").index(i);
        let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| s.get(kind).is_some_and(|v| !v.is_null())).collect();
        for kind in &kinds {
            one(kind, &s[*kind], path, &at.child(kind), errors);
            for (file, shown) in files(kind, &s[*kind]) {
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

/// The files of a source, each with what an error shows for it.
fn files<'a>(kind: &str, source: &'a Value) -> Vec<(&'a str, &'a str)> {
    let items = items(source, "items").map(|item| text(item, "path"));
    let files: Vec<(&str, &str)> = match kind {
        "secret" | "configMap" => items.map(|path| (path, text(source, "name"))).collect(),
        "downwardAPI" => items.map(|path| (path, path)).collect(),
        "clusterTrustBundle" => vec![(text(source, "path"), text(source, "path"))],
        // Upstream does not look at those of tokens.
        _ => Vec::new(),
    };
    files.into_iter().filter(|(path, _)| !path.is_empty()).collect()
}

fn one(kind: &str, source: &Value, volume: &FieldPath, path: &FieldPath, errors: &mut FieldErrors) {
    match kind {
        "secret" | "configMap" => {
            if text(source, "name").is_empty() {
                errors.required(&path.child("name"), "");
            }
            key_paths(source, path, errors);
        }
        "downwardAPI" => downward(source, path, errors),
        "serviceAccountToken" => token(source, volume, path, errors),
        "clusterTrustBundle" => bundle(source, path, errors),
        _ => {}
    }
}

fn token(source: &Value, volume: &FieldPath, path: &FieldPath, errors: &mut FieldErrors) {
    let (seconds, at) = (source["expirationSeconds"].as_i64().unwrap_or(3600), path.child("expirationSeconds"));
    if seconds < 600 {
        errors.invalid(&at, &json!(seconds), "may not specify a duration less than 10 minutes");
    }
    if seconds > LONGEST_TOKEN {
        errors.invalid(&at, &json!(seconds), "may not specify a duration larger than 2^32 seconds");
    }
    // The path is upstream's: that of the volume.
    match text(source, "path") {
        "" => errors.required(&volume.child("path"), ""),
        _ => non_reserved(&source["path"], &volume.child("path"), errors),
    }
}

fn bundle(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match (source["name"].as_str(), source["signerName"].as_str()) {
        (Some(_), Some(_)) => errors.invalid(path, source, "only one of name and signerName may be used"),
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(&path.child("name"), "must be a valid object name");
            }
            if source.get("labelSelector").is_some() {
                let why = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), &source["labelSelector"], why);
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
    file_path(source, path, errors);
}
