//! Validation of ResourceClaims of Pods and containers (KEP-4381).

use super::{items, text, validate_dns_label, validate_dns_subdomain};
use crate::{FieldErrors, FieldPath};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Validates the claims of a Pod (`validatePodResourceClaims`).
pub(super) fn validate_pod_claims(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, claim) in items(spec, "resourceClaims").enumerate() {
        let path = path.index(i);
        let at = path.child("name");
        if text(claim, "name").is_empty() {
            errors.required(&at, "");
        } else if seen.insert(text(claim, "name")) {
            validate_dns_label(&claim["name"], &at, errors);
        } else {
            errors.duplicate(&at, &claim["name"]);
        }
        // Upstream shows its internal type, with Go's field names.
        let (one, template) = (&claim["resourceClaimName"], &claim["resourceClaimTemplateName"]);
        let shown = || json!({"Name": claim["name"], "ResourceClaimName": one, "ResourceClaimTemplateName": template});
        match (one.is_null(), template.is_null()) {
            (false, false) => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&path, &shown(), detail);
            }
            (true, true) => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&path, &shown(), detail);
            }
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if !claim[field].is_null() {
                validate_dns_subdomain(&claim[field], &path.child(field), errors);
            }
        }
    }
}

/// Names of a Pod's claims.
pub(super) type ClaimNames<'a> = BTreeSet<&'a str>;

pub(super) fn claim_names(spec: &Value) -> ClaimNames<'_> {
    items(spec, "resourceClaims").map(|claim| text(claim, "name")).filter(|name| !name.is_empty()).collect()
}

/// Validates the claims that a container uses (`validateResourceClaimNames`).
pub(super) fn validate_container_claims(c: &Value, known: &ClaimNames<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, claim) in items(&c["resources"], "claims").enumerate() {
        let (path, name, request) = (path.index(i), text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        // An entry without a request includes all requests of the claim.
        if seen.contains(&(name, "")) || !seen.insert((name, request)) {
            errors.duplicate(&path, &claim["name"]);
        }
        if !known.contains(name) && !errors.is_full() {
            let names: Vec<&str> = known.iter().copied().collect();
            let list = if names.is_empty() { " which is empty".to_owned() } else { format!(": {}", names.join(", ")) };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{list}");
            errors.not_found_because(&path, &claim["name"], &detail);
        }
    }
}
