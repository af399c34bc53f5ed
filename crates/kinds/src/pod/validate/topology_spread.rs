//! Validation of topology spread constraints (`validateTopologySpreadConstraints`).

use crate::{FieldErrors, enums, field_cursor::FieldCursor, selector};
use serde_json::json;
use std::collections::HashMap;

pub(super) fn validate_topology_spread_constraints(constraints: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    // Remaining occurrences of each pair: all but the last are duplicates.
    let mut remaining: HashMap<(&str, &str), usize> = HashMap::new();
    for constraint in constraints.items() {
        let pair = (constraint.at("topologyKey").text(), constraint.at("whenUnsatisfiable").text());
        *remaining.entry(pair).or_default() += 1;
    }
    for constraint in constraints.items() {
        let (skew, key, action) =
            (constraint.at("maxSkew"), constraint.at("topologyKey"), constraint.at("whenUnsatisfiable"));
        if skew.integer().unwrap_or(0) <= 0 {
            skew.invalid("must be greater than zero", errors);
        }
        if key.text().is_empty() {
            key.required("can not be empty", errors);
        }
        action.supported(enums::UNSATISFIABLE_CONSTRAINT_ACTIONS, errors);
        let remaining = remaining.entry((key.text(), action.text())).or_default();
        *remaining = remaining.saturating_sub(1);
        if *remaining > 0 {
            let path = constraint.path().child("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(&path, &json!(format!("{{{}, {}}}", key.text(), action.text())));
        }
        validate_min_domains(&constraint.at("minDomains"), action.text(), errors);
        for policy in [constraint.at("nodeAffinityPolicy"), constraint.at("nodeTaintsPolicy")] {
            if policy.is_set() {
                policy.supported(enums::NODE_INCLUSION_POLICIES, errors);
            }
        }
        let labels = constraint.at("labelSelector");
        validate_match_label_keys(&constraint.at("matchLabelKeys"), &labels, errors);
        selector::validate(&labels, errors);
    }
}

fn validate_min_domains(domains: &FieldCursor<'_, '_>, action: &str, errors: &mut FieldErrors) {
    let Some(number) = domains.integer() else { return };
    if number <= 0 {
        domains.invalid("must be greater than zero", errors);
    }
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        domains.invalid(&detail, errors);
    }
}

fn validate_match_label_keys(keys: &FieldCursor<'_, '_>, labels: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if keys.count() > 0 && labels.is_null() {
        keys.forbidden("must not be specified when labelSelector is not set", errors);
    }
    for key in keys.items() {
        key.validate_text(api::names::qualified_name, errors);
        if selector::has_key(labels.value(), key.value()) {
            key.invalid("exists in both matchLabelKeys and labelSelector", errors);
        }
    }
}
