//! How Pods spread over a cluster (`validateTopologySpreadConstraints`).

use super::{items, qualified, text};
use crate::kinds::{FieldErrors, FieldPath, selector};
use serde_json::{Value, json};
use std::collections::HashMap;

pub(super) fn all(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let all: Vec<&Value> = items(spec, "topologySpreadConstraints").collect();
    // How often each pair comes still.
    let mut left: HashMap<(&str, &str), usize> = HashMap::new();
    for c in &all {
        *left.entry((text(c, "topologyKey"), text(c, "whenUnsatisfiable"))).or_default() += 1;
    }
    for (i, c) in all.iter().enumerate() {
        let path = path.index(i);
        let (key, action) = (text(c, "topologyKey"), text(c, "whenUnsatisfiable"));
        if c["maxSkew"].as_i64().unwrap_or(0) <= 0 {
            let given = json!(c["maxSkew"].as_i64().unwrap_or(0));
            errors.invalid(&path.child("maxSkew"), &given, "must be greater than zero");
        }
        if key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            let allowed = ["DoNotSchedule", "ScheduleAnyway"];
            errors.not_supported(&path.child("whenUnsatisfiable"), &json!(action), &allowed);
        }
        let left = left.entry((key, action)).or_default();
        *left = left.saturating_sub(1);
        if *left > 0 {
            let at = path.child("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(&at, &json!(format!("{{{key}, {action}}}")));
        }
        min_domains(c, action, &path.child("minDomains"), errors);
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if c.get(field).is_some_and(|policy| !matches!(policy.as_str(), Some("Honor" | "Ignore"))) {
                errors.not_supported(&path.child(field), &c[field], &["Honor", "Ignore"]);
            }
        }
        match_label_keys(c, &path.child("matchLabelKeys"), errors);
        selector::validate(&c["labelSelector"], &path.child("labelSelector"), errors);
    }
}

fn min_domains(c: &Value, action: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(domains) = c["minDomains"].as_i64() else { return };
    if domains <= 0 {
        errors.invalid(path, &json!(domains), "must be greater than zero");
    }
    if action != "DoNotSchedule" {
        let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path, &json!(domains), &why);
    }
}

fn match_label_keys(c: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if items(c, "matchLabelKeys").next().is_some() && c["labelSelector"].is_null() {
        errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (i, key) in items(c, "matchLabelKeys").enumerate() {
        qualified(key, &path.index(i), errors);
        if selector::names(&c["labelSelector"], key) {
            errors.invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}
