//! Validation of ResourceClaims of Pods and containers (KEP-4381).

use crate::{FieldErrors, field_cursor::FieldCursor};
use serde_json::json;
use std::collections::BTreeSet;

/// Validates the claims of a Pod (`validatePodResourceClaims`).
pub(super) fn validate_pod_claims(claims: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.at("name");
        if name.text().is_empty() {
            name.required("", errors);
        } else if seen.insert(name.text()) {
            name.validate_text(api::names::dns1123_label, errors);
        } else {
            name.duplicate(errors);
        }
        let (one, template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        if one.is_null() == template.is_null() {
            let detail = if one.is_null() {
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            } else {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            };
            // Upstream shows its internal type, with Go's field names.
            let shown = json!({
                "Name": name.value(), "ResourceClaimName": one.value(), "ResourceClaimTemplateName": template.value(),
            });
            errors.invalid(&claim.path(), &shown, detail);
        }
        for reference in [one, template].iter().filter(|reference| reference.is_set()) {
            reference.validate_text(api::names::dns1123_subdomain, errors);
        }
    }
}

/// Names of a Pod's claims.
pub(super) type ClaimNames<'a> = BTreeSet<&'a str>;

pub(super) fn claim_names<'v>(spec: &FieldCursor<'v, '_>) -> ClaimNames<'v> {
    let claims = spec.at("resourceClaims");
    claims.items().map(|claim| claim.at("name").text()).filter(|name| !name.is_empty()).collect()
}

/// Validates the claims that a container uses (`validateResourceClaimNames`).
pub(super) fn validate_container_claims(
    claims: &FieldCursor<'_, '_>,
    known: &ClaimNames<'_>,
    errors: &mut FieldErrors,
) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let (name, request) = (claim.at("name"), claim.at("request").text());
        if name.text().is_empty() {
            claim.required("", errors);
            continue;
        }
        // Upstream's path lacks the field.
        let claim = claim.with_value(name.value());
        // An entry without a request includes all requests of the claim.
        if seen.contains(&(name.text(), "")) || !seen.insert((name.text(), request)) {
            claim.duplicate(errors);
        }
        if !known.contains(name.text()) && !errors.is_full() {
            let names: Vec<&str> = known.iter().copied().collect();
            let list = if names.is_empty() { " which is empty".to_owned() } else { format!(": {}", names.join(", ")) };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{list}");
            errors.not_found_because(&claim.path(), claim.value(), &detail);
        }
    }
}
