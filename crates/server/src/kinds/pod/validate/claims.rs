//! Claims to devices (`validatePodResourceClaims`, KEP-4381).

use super::{dns_label, items, subdomain, text};
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The claims of a Pod.
pub(super) fn of_pod(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, claim) in items(spec, "resourceClaims").enumerate() {
        let path = path.index(i);
        let at = path.child("name");
        if text(claim, "name").is_empty() {
            errors.required(&at, "");
        } else if seen.insert(text(claim, "name")) {
            dns_label(&claim["name"], &at, errors);
        } else {
            errors.duplicate(&at, &claim["name"]);
        }
        // Upstream shows its internal form, whose fields have Go's names.
        let (one, template) = (&claim["resourceClaimName"], &claim["resourceClaimTemplateName"]);
        let shown = || json!({"Name": claim["name"], "ResourceClaimName": one, "ResourceClaimTemplateName": template});
        match (one.is_null(), template.is_null()) {
            (false, false) => {
                let why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&path, &shown(), why);
            }
            (true, true) => {
                let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&path, &shown(), why);
            }
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if !claim[field].is_null() {
                subdomain(&claim[field], &path.child(field), errors);
            }
        }
    }
}

/// The names of a Pod's claims.
pub(super) type Names<'a> = BTreeSet<&'a str>;

pub(super) fn names(spec: &Value) -> Names<'_> {
    items(spec, "resourceClaims").map(|claim| text(claim, "name")).filter(|name| !name.is_empty()).collect()
}

/// What a container uses of its Pod's claims (`validateResourceClaimNames`).
pub(super) fn of_container(c: &Value, known: &Names<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, claim) in items(&c["resources"], "claims").enumerate() {
        let (path, name, request) = (path.index(i), text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        // A claim as a whole is all of its requests.
        if seen.contains(&(name, "")) || !seen.insert((name, request)) {
            errors.duplicate(&path, &claim["name"]);
        }
        if !known.contains(name) && !errors.is_full() {
            let names: Vec<&str> = known.iter().copied().collect();
            let list = if names.is_empty() { " which is empty".to_owned() } else { format!(": {}", names.join(", ")) };
            let why = format!("must be one of the names in pod.spec.resourceClaims{list}");
            errors.not_found_because(&path, &claim["name"], &why);
        }
    }
}
