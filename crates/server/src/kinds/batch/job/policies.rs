//! What a Job's policies may say of Pods that fail, of indexes that succeed, and of Pods that are replaced.

use super::indexes;
use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{invalid_whole, items, not_negative, qualified, text as text_of},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How many rules a policy may have, and how many conditions of Pods a rule.
const MOST_RULES: usize = 20;
/// How many exit codes a rule may have.
const MOST_CODES: usize = 255;
/// How long the indexes of a rule may be, in bytes.
const LONGEST_INDEXES: usize = 64 * 1024;

pub(super) fn validate(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !spec["podFailurePolicy"].is_null() {
        failure(spec, &path.child("podFailurePolicy").child("rules"), errors);
    }
    if !spec["successPolicy"].is_null() {
        let at = path.child("successPolicy");
        if text_of(spec, "completionMode") == "Indexed" {
            success(spec, &at.child("rules"), errors);
        } else {
            errors.invalid(&at, &spec["successPolicy"], "requires indexed completion mode");
        }
    }
    let (at, replacement) = (path.child("podReplacementPolicy"), &spec["podReplacementPolicy"]);
    let allowed: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    if !replacement.is_null() && !allowed.iter().any(|a| replacement == a) {
        errors.not_supported(&at, replacement, allowed);
    }
}

/// `validatePodFailurePolicy`.
fn failure(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (policy, pods) = (&spec["podFailurePolicy"], &spec["template"]["spec"]);
    at_most(items(policy, "rules").count(), MOST_RULES, path, errors);
    let containers: BTreeSet<&str> =
        ["containers", "initContainers"].iter().flat_map(|l| items(pods, l)).map(|c| text_of(c, "name")).collect();
    for (i, rule) in items(policy, "rules").enumerate() {
        let path = path.index(i);
        let (at, limited) = (path.child("action"), !spec["backoffLimitPerIndex"].is_null());
        if text_of(rule, "action") == "FailIndex" && !limited {
            errors.invalid(&at, &rule["action"], "requires the backoffLimitPerIndex to be set");
        }
        one_of(&rule["action"], &["Count", "FailIndex", "FailJob", "Ignore"], &at, errors);
        let (codes, conditions) = (&rule["onExitCodes"], items(rule, "onPodConditions").count());
        if !codes.is_null() {
            exit_codes(codes, &path.child("onExitCodes"), &containers, errors);
        }
        pod_conditions(rule, &path.child("onPodConditions"), errors);
        match (codes.is_null(), conditions == 0) {
            (false, false) => {
                invalid_whole(&path, "specifying both OnExitCodes and OnPodConditions is not supported", errors);
            }
            (true, true) => {
                invalid_whole(&path, "specifying one of OnExitCodes and OnPodConditions is required", errors);
            }
            _ => {}
        }
    }
}

fn exit_codes(rule: &Value, path: &FieldPath, containers: &BTreeSet<&str>, errors: &mut FieldErrors) {
    one_of(&rule["operator"], &["In", "NotIn"], &path.child("operator"), errors);
    if rule["containerName"].as_str().is_some_and(|name| !containers.contains(name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), &rule["containerName"], why);
    }
    let (path, values) = (path.child("values"), || items(rule, "values").filter_map(Value::as_i64));
    let codes: Vec<i64> = values().collect();
    if codes.is_empty() {
        errors.invalid(&path, &rule["values"], "at least one value is required");
    }
    at_most(codes.len(), MOST_CODES, &path, errors);
    let mut seen = BTreeSet::new();
    for (i, code) in codes.iter().enumerate() {
        if *code == 0 && rule["operator"] == "In" {
            errors.invalid(&path.index(i), &json!(code), "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(&path.index(i), &json!(code));
        }
    }
    if !codes.is_sorted() {
        errors.invalid(&path, &rule["values"], "must be ordered");
    }
}

fn pod_conditions(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    at_most(items(rule, "onPodConditions").count(), MOST_RULES, path, errors);
    for (i, pattern) in items(rule, "onPodConditions").enumerate() {
        let path = path.index(i);
        qualified(&pattern["type"], &path.child("type"), errors);
        one_of(&pattern["status"], &["False", "True", "Unknown"], &path.child("status"), errors);
    }
}

/// `validateSuccessPolicy`.
fn success(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let rules = || items(&spec["successPolicy"], "rules");
    if rules().next().is_none() {
        errors.required(path, "at least one rules must be specified when the successPolicy is specified");
    }
    at_most(rules().count(), MOST_RULES, path, errors);
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (i, rule) in rules().enumerate() {
        let path = path.index(i);
        let (text, count) = (rule["succeededIndexes"].as_str(), rule["succeededCount"].as_i64());
        if text.is_none() && count.is_none() {
            errors.required(&path, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut named = 0;
        if let Some(text) = text {
            let at = path.child("succeededIndexes");
            if text.len() > LONGEST_INDEXES {
                errors.too_long(&at, LONGEST_INDEXES);
            }
            match indexes::count(text, completions) {
                Ok(count) => named = count,
                Err(why) => errors.invalid(&at, &json!(text), &format!("error parsing succeededIndexes: {why}")),
            }
        }
        not_negative(rule, "succeededCount", &path, errors);
        let at = path.child("succeededCount");
        let bounds = [
            (Some(completions), "the number of specified completions"),
            (text.map(|_| named), "the number of indexes in the specified succeededIndexes field"),
        ];
        for (most, what) in bounds {
            if let (Some(count), Some(most)) = (count, most)
                && count > most
            {
                errors.invalid(&at, &json!(count), &format!("must be less than or equal to {most} ({what})"));
            }
        }
    }
}

fn at_most(count: usize, most: usize, path: &FieldPath, errors: &mut FieldErrors) {
    if count > most {
        errors.too_many(path, count, most);
    }
}

/// A value that must be there, in the words that only Jobs have for it.
fn one_of(value: &Value, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    match value.as_str().unwrap_or("") {
        "" => {
            let all: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
            errors.required(path, &format!("valid values: [{}]", all.join(" ")));
        }
        text if allowed.contains(&text) => {}
        _ => errors.not_supported(path, value, allowed),
    }
}
