//! Validation of projected volumes (`validateProjectionSources`).

use super::{validate_downward_api, validate_file_path, validate_key_paths, validate_mode};
use crate::{FieldErrors, certificates::signer_name, field_cursor::FieldCursor, selector};
use serde_json::json;
use std::collections::BTreeSet;

/// Types of sources, in upstream's order.
const KINDS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

pub(super) fn validate_projected(volume: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_mode(&volume.at("defaultMode"), errors);
    let mut taken = BTreeSet::new();
    for projection in volume.at("sources").items() {
        let mut count = 0;
        for kind in KINDS {
            let source = projection.at(kind);
            if source.is_null() {
                continue;
            }
            count += 1;
            validate_source(kind, &source, volume, errors);
            for (file, shown) in file_paths(kind, &source) {
                if !taken.insert(file) {
                    errors.invalid(&volume.path(), &json!(shown), "conflicting duplicate paths");
                }
            }
        }
        if count > 1 {
            projection.forbidden("may not specify more than 1 volume type per source", errors);
        }
    }
}

/// Returns the paths of a source's files, each with the value that an error shows.
fn file_paths<'v>(kind: &str, source: &FieldCursor<'v, '_>) -> Vec<(&'v str, &'v str)> {
    let items = source.at("items");
    let paths = items.items().map(|item| item.at("path").text());
    let files: Vec<(&str, &str)> = match kind {
        "secret" | "configMap" => paths.map(|path| (path, source.at("name").text())).collect(),
        "downwardAPI" => paths.map(|path| (path, path)).collect(),
        "clusterTrustBundle" => vec![(source.at("path").text(), source.at("path").text())],
        // Upstream does not check the paths of tokens.
        _ => Vec::new(),
    };
    files.into_iter().filter(|(path, _)| !path.is_empty()).collect()
}

fn validate_source<'v>(
    kind: &str,
    source: &FieldCursor<'v, '_>,
    volume: &FieldCursor<'v, '_>,
    errors: &mut FieldErrors,
) {
    match kind {
        "secret" | "configMap" => {
            if source.at("name").text().is_empty() {
                source.at("name").required("", errors);
            }
            validate_key_paths(&source.at("items"), errors);
        }
        "downwardAPI" => validate_downward_api(source, errors),
        "serviceAccountToken" => validate_service_account_token(source, volume, errors),
        "clusterTrustBundle" => validate_cluster_trust_bundle(source, errors),
        _ => {}
    }
}

fn validate_service_account_token<'v>(
    source: &FieldCursor<'v, '_>,
    volume: &FieldCursor<'v, '_>,
    errors: &mut FieldErrors,
) {
    let expiration = source.at("expirationSeconds");
    let seconds = expiration.integer().unwrap_or(3600);
    if seconds < 600 {
        expiration.invalid("may not specify a duration less than 10 minutes", errors);
    }
    if seconds > MAX_TOKEN_SECONDS {
        expiration.invalid("may not specify a duration larger than 2^32 seconds", errors);
    }
    // Upstream reports the path of the volume.
    validate_file_path(&volume.with_value(source.value()).at("path"), errors);
}

fn validate_cluster_trust_bundle(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (name, signer, labels) = (source.at("name"), source.at("signerName"), source.at("labelSelector"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => source.invalid("only one of name and signerName may be used", errors),
        (true, false) => {
            if name.text().is_empty() {
                name.required("must be a valid object name", errors);
            }
            if labels.is_set() {
                labels.invalid("labelSelector must be unset if name is specified", errors);
            }
        }
        (false, true) => {
            if signer.text().is_empty() {
                signer.required("must be a valid signer name", errors);
            } else {
                signer_name::validate(&signer, errors);
            }
            selector::validate(&labels, errors);
        }
        (false, false) => source.required("either name or signerName must be specified", errors),
    }
    validate_file_path(&source.at("path"), errors);
}
