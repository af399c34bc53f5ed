//! Validation of devices in ResourceSlices (`validateDevice`).

use super::field_validation::{
    set_fields, validate_counters, validate_label, validate_label_key, validate_list, validate_qualified_name,
    validate_set, validate_taint, validate_unset_or_true,
};
use crate::{
    FieldErrors, FieldPath,
    field_validation::{items, text as text_of, validate_dns_subdomain},
    pod::validate_node_selector,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashSet};

/// Maximum number of attributes and capacities together, and maximum length of an attribute's value.
const MAX_ATTRIBUTES_AND_CAPACITIES: usize = 32;
const MAX_ATTRIBUTE_LENGTH: usize = 64;
const MAX_TAINTS: usize = 16;
/// Maximum number of counter sets that a device consumes.
const MAX_COUNTER_SETS: usize = 2;
const MAX_BINDING_CONDITIONS: usize = 4;

pub(super) fn validate_device(
    device: &Value,
    per_device_node_selection: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    validate_label(&device["name"], &path.child("name"), errors);
    let none = Map::new();
    let entries = |field: &str| device[field].as_object().unwrap_or(&none);
    let count = entries("attributes").len() + entries("capacity").len();
    if count > MAX_ATTRIBUTES_AND_CAPACITIES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}");
        errors.invalid(path, &json!(count), &detail);
    }
    for (name, value) in entries("attributes") {
        let at = path.child("attributes").key(name);
        validate_qualified_name(name, &at, errors);
        validate_attribute(value, &at, errors);
    }
    for (name, value) in entries("capacity") {
        let at = path.child("capacity").key(name);
        validate_qualified_name(name, &at, errors);
        if device["allowMultipleAllocations"] != true && !value["requestPolicy"].is_null() {
            errors.forbidden(&at.child("requestPolicy"), "allowMultipleAllocations must be true");
        }
    }
    validate_list(device, "taints", MAX_TAINTS, path, errors, validate_taint);
    validate_set(
        device,
        ("consumesCounters", MAX_COUNTER_SETS),
        |consumption| &consumption["counterSet"],
        path,
        errors,
        |consumption, path, errors| {
            match text_of(consumption, "counterSet") {
                "" => errors.required(&path.child("counterSet"), ""),
                _ => validate_label(&consumption["counterSet"], &path.child("counterSet"), errors),
            }
            validate_counters(consumption, path, errors);
        },
    );
    validate_node_selection(device, per_device_node_selection, path, errors);
    validate_binding_conditions(device, path, errors);
}

/// Validates an attribute, which has exactly one value (`validateDeviceAttribute`).
fn validate_attribute(attribute: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let has = |field: &&&str| !attribute[**field].is_null();
    for field in ["string", "version"].iter().filter(has) {
        let (text, at) = (text_of(attribute, field), path.child(field));
        if *field == "version" && !is_semantic_version(text) {
            errors.invalid(&at, &json!(text), "must be a string compatible with semver.org spec 2.0.0");
        }
        if text.len() > MAX_ATTRIBUTE_LENGTH {
            errors.too_long(&at, MAX_ATTRIBUTE_LENGTH);
        }
    }
    match ["bool", "int", "string", "version"].iter().filter(has).count() {
        0 => errors.invalid(path, &json!(""), "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(path, attribute, "exactly one value must be specified"),
    }
}

/// Whether a string is a semantic version such as `1.2.3-alpha.1+build.5`.
fn is_semantic_version(text: &str) -> bool {
    let word = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let number = |s: &str| is_digits(s) && (s == "0" || !s.starts_with('0'));
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, before) = text.split_once('-').map_or((text, None), |(core, before)| (core, Some(before)));
    let core: Vec<&str> = core.split('.').collect();
    core.len() == 3
        && core.into_iter().all(number)
        && before.is_none_or(|parts| parts.split('.').all(|s| word(s) && (!is_digits(s) || number(s))))
        && build.is_none_or(|parts| parts.split('.').all(word))
}

/// Validates the nodes of a device, which only slices with `perDeviceNodeSelection` allow.
fn validate_node_selection(
    device: &Value,
    per_device_node_selection: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    const EXACTLY_ONE_REQUIRED: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let node_fields = ["nodeName", "nodeSelector", "allNodes"];
    if !per_device_node_selection {
        if node_fields.iter().any(|field| !device[field].is_null()) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(path, &json!(null), detail);
        }
        return;
    }
    let node = &device["nodeName"];
    if node == "" {
        errors.invalid(&path.child("nodeName"), node, "must not be empty");
    } else if !node.is_null() {
        validate_dns_subdomain(node, &path.child("nodeName"), errors);
    }
    if !device["nodeSelector"].is_null() {
        validate_node_selector(&device["nodeSelector"], &path.child("nodeSelector"), errors);
    }
    validate_unset_or_true(&device["allNodes"], &path.child("allNodes"), errors);
    match &set_fields(device, &node_fields)[..] {
        [] => errors.required(path, EXACTLY_ONE_REQUIRED),
        [_] => {}
        several => errors.invalid(path, &json!(format!("{{{}}}", several.join(", "))), EXACTLY_ONE_REQUIRED),
    }
}

/// Validates binding conditions and binding failure conditions (`validateDeviceBindingParameters`).
fn validate_binding_conditions(device: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let lists = ["bindingConditions", "bindingFailureConditions"];
    for field in lists {
        validate_list(device, field, MAX_BINDING_CONDITIONS, path, errors, validate_label_key);
    }
    let [binding, failure] = lists.map(|field| items(device, field).collect::<Vec<_>>());
    let known: HashSet<&Value> = binding.iter().copied().collect();
    for (field, all) in lists.into_iter().zip([&binding, &failure]) {
        let mut seen = BTreeSet::new();
        for (i, condition) in all.iter().enumerate() {
            let at = path.child(field).index(i);
            if !seen.insert(condition.as_str()) {
                errors.duplicate(&at, condition);
            }
            if field == lists[1] && known.contains(condition) {
                errors.invalid(&at, condition, "bindingFailureConditions must not overlap with bindingConditions");
            }
        }
    }
    for (field, other, is_missing) in [
        (lists[0], lists[1], binding.is_empty() && !failure.is_empty()),
        (lists[1], lists[0], failure.is_empty() && !binding.is_empty()),
    ] {
        if is_missing {
            errors.invalid(&path.child(field), &device[field], &format!("{field} are required to use {other}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_in(per_device_node_selection: bool, fields: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        let mut device = json!({"name": "d"});
        for (key, value) in fields.as_object().unwrap() {
            device[key] = value.clone();
        }
        validate_device(&device, per_device_node_selection, &FieldPath::new("d"), &mut errors);
        let shown =
            |e: &crate::FieldError| e.to_string().split(": a lowercase RFC 1123").next().unwrap_or("").to_owned();
        assert_eq!(errors.0.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[track_caller]
    fn check(fields: Value, expected: &[&str]) {
        check_in(false, fields, expected);
    }

    #[test]
    fn attribute_has_qualified_name_and_one_value() {
        let with_attribute = |name: &str, value: Value| json!({"attributes": {name: value}});
        check(with_attribute("x", json!({"int": 0})), &[]);
        check(with_attribute("example.com/x", json!({"bool": false})), &[]);
        let one = "exactly one value must be specified";
        check(with_attribute("x", json!({})), &[&format!("d.attributes[x]: Invalid value: \"\": {one}")]);
        check(
            with_attribute("x", json!({"int": 1, "string": "b"})),
            &[&format!("d.attributes[x]: Invalid value: {{\"int\":1,\"string\":\"b\"}}: {one}")],
        );
        let identifier = &api::names::c_identifier("1-x")[0];
        check(
            with_attribute("1-x", json!({"int": 1})),
            &[&format!("d.attributes[1-x]: Invalid value: \"1-x\": {identifier}")],
        );
        check(
            with_attribute("/", json!({"int": 1})),
            &[
                "d.attributes[/]: Invalid value: \"\": the domain must not be empty",
                "d.attributes[/]: Invalid value: \"\": the name must not be empty",
            ],
        );
        let long = "x".repeat(65);
        check(
            with_attribute("x", json!({"string": long})),
            &["d.attributes[x].string: Too long: may not be more than 64 bytes"],
        );
    }

    #[test]
    fn version_attribute_is_semantic_version() {
        for binding in ["1.2.3", "0.0.0", "1.2.3-alpha.1", "1.2.3-0a.-", "1.2.3+001.b-5", "1.2.3-a+b"] {
            assert!(is_semantic_version(binding), "{binding}");
        }
        for failure in ["", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3+a+b", "1.2.x", "v1.2.3"] {
            assert!(!is_semantic_version(failure), "{failure}");
        }
        check(
            json!({"attributes": {"x": {"version": "nope"}}}),
            &[
                "d.attributes[x].version: Invalid value: \"nope\": must be a string compatible with semver.org spec 2.0.0",
            ],
        );
    }

    #[test]
    fn attributes_and_capacities_are_limited() {
        let attributes: Map<String, Value> = (0..32).map(|i| (format!("a{i}"), json!({"int": i}))).collect();
        check(json!({"attributes": attributes}), &[]);
        check(
            json!({"attributes": attributes, "capacity": {"c": {"value": "1", "requestPolicy": {}}}}),
            &[
                "d: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
                "d.capacity[c].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            ],
        );
    }

    #[test]
    fn taints_counters_and_conditions_are_validated() {
        check(
            json!({"taints": [{"key": "k"}, {"key": "k", "effect": "Never"}]}),
            &[
                "d.taints[0].effect: Required value",
                "d.taints[1].effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
            ],
        );
        check(
            json!({"consumesCounters": [{"counterSet": "", "counters": {}}]}),
            &["d.consumesCounters[0].counterSet: Required value", "d.consumesCounters[0].counters: Required value"],
        );
        check(json!({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]}), &[]);
        check(
            json!({"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a"]}),
            &[
                "d.bindingConditions[1]: Duplicate value: \"a\"",
                "d.bindingFailureConditions[0]: Invalid value: \"a\": bindingFailureConditions must not overlap with bindingConditions",
            ],
        );
        check(
            json!({"bindingConditions": ["a"]}),
            &[
                "d.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
            ],
        );
    }

    #[test]
    fn per_device_node_selection_requires_one_node_field() {
        let required = "is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        let one = format!("exactly one of `nodeName`, `nodeSelector`, or `allNodes` {required}");
        check_in(true, json!({"nodeName": "n"}), &[]);
        check_in(true, json!({}), &[&format!("d: Required value: {one}")]);
        check_in(
            true,
            json!({"nodeName": "n", "allNodes": true}),
            &[&format!("d: Invalid value: \"{{`nodeName`, `allNodes`}}\": {one}")],
        );
        let only = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        check(json!({"nodeName": "n"}), &[&format!("d: Invalid value: null: {only}")]);
    }
}
