//! Validation of topology spread constraints (`validateTopologySpreadConstraints`).

use super::{items, text, validate_qualified_name};
use crate::{FieldErrors, FieldPath, enums, selector};
use serde_json::{Value, json};
use std::collections::HashMap;

pub(super) fn validate_topology_spread_constraints(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let constraints: Vec<&Value> = items(spec, "topologySpreadConstraints").collect();
    // Remaining occurrences of each pair: all but the last are duplicates.
    let mut remaining: HashMap<(&str, &str), usize> = HashMap::new();
    for c in &constraints {
        *remaining.entry((text(c, "topologyKey"), text(c, "whenUnsatisfiable"))).or_default() += 1;
    }
    for (i, c) in constraints.iter().enumerate() {
        let path = path.index(i);
        let (key, action) = (text(c, "topologyKey"), text(c, "whenUnsatisfiable"));
        if c["maxSkew"].as_i64().unwrap_or(0) <= 0 {
            let given = json!(c["maxSkew"].as_i64().unwrap_or(0));
            errors.invalid(&path.child("maxSkew"), &given, "must be greater than zero");
        }
        if key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        if !enums::UNSATISFIABLE_CONSTRAINT_ACTIONS.contains(&action) {
            let allowed = enums::UNSATISFIABLE_CONSTRAINT_ACTIONS;
            errors.not_supported(&path.child("whenUnsatisfiable"), &json!(action), allowed);
        }
        let remaining = remaining.entry((key, action)).or_default();
        *remaining = remaining.saturating_sub(1);
        if *remaining > 0 {
            let at = path.child("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(&at, &json!(format!("{{{key}, {action}}}")));
        }
        validate_min_domains(c, action, &path.child("minDomains"), errors);
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let is_known = |policy: &Value| enums::NODE_INCLUSION_POLICIES.iter().any(|known| policy == known);
            if c.get(field).is_some_and(|policy| !is_known(policy)) {
                errors.not_supported(&path.child(field), &c[field], enums::NODE_INCLUSION_POLICIES);
            }
        }
        validate_match_label_keys(c, &path.child("matchLabelKeys"), errors);
        selector::validate(&c["labelSelector"], &path.child("labelSelector"), errors);
    }
}

fn validate_min_domains(c: &Value, action: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(domains) = c["minDomains"].as_i64() else { return };
    if domains <= 0 {
        errors.invalid(path, &json!(domains), "must be greater than zero");
    }
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path, &json!(domains), &detail);
    }
}

fn validate_match_label_keys(c: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if items(c, "matchLabelKeys").next().is_some() && c["labelSelector"].is_null() {
        errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (i, key) in items(c, "matchLabelKeys").enumerate() {
        validate_qualified_name(key, &path.index(i), errors);
        if selector::has_key(&c["labelSelector"], key) {
            errors.invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}
