//! What a ResourceSlice may say of one device (`validateDevice`).

use super::parts::{counters, label, label_key, list, only_true, qualified_name, said, set, taint};
use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{items, subdomain, text as text_of},
    pod::node_selector,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashSet};

/// How many attributes and capacities there may be together, and how long the value of one.
const MOST_FACTS: usize = 32;
const LONGEST_VALUE: usize = 64;
const MOST_TAINTS: usize = 16;
/// Of how many sets of counters a device may take something.
const MOST_SETS: usize = 2;
const MOST_CONDITIONS: usize = 4;

pub(super) fn validate(device: &Value, has_own_place: bool, path: &FieldPath, errors: &mut FieldErrors) {
    label(&device["name"], &path.child("name"), errors);
    let none = Map::new();
    let facts = |field: &str| device[field].as_object().unwrap_or(&none);
    let count = facts("attributes").len() + facts("capacity").len();
    if count > MOST_FACTS {
        let why = format!("the total number of attributes and capacities must not exceed {MOST_FACTS}");
        errors.invalid(path, &json!(count), &why);
    }
    for (name, value) in facts("attributes") {
        let at = path.child("attributes").key(name);
        qualified_name(name, &at, errors);
        attribute(value, &at, errors);
    }
    for (name, value) in facts("capacity") {
        let at = path.child("capacity").key(name);
        qualified_name(name, &at, errors);
        if device["allowMultipleAllocations"] != true && !value["requestPolicy"].is_null() {
            errors.forbidden(&at.child("requestPolicy"), "allowMultipleAllocations must be true");
        }
    }
    list(device, "taints", MOST_TAINTS, path, errors, taint);
    set(
        device,
        ("consumesCounters", MOST_SETS),
        |of| &of["counterSet"],
        path,
        errors,
        |of, path, errors| {
            match text_of(of, "counterSet") {
                "" => errors.required(&path.child("counterSet"), ""),
                _ => label(&of["counterSet"], &path.child("counterSet"), errors),
            }
            counters(of, path, errors);
        },
    );
    place(device, has_own_place, path, errors);
    conditions(device, path, errors);
}

/// An attribute has one value (`validateDeviceAttribute`).
fn attribute(attribute: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let has = |field: &&&str| !attribute[**field].is_null();
    for field in ["string", "version"].iter().filter(has) {
        let (text, at) = (text_of(attribute, field), path.child(field));
        if *field == "version" && !is_version(text) {
            errors.invalid(&at, &json!(text), "must be a string compatible with semver.org spec 2.0.0");
        }
        if text.len() > LONGEST_VALUE {
            errors.too_long(&at, LONGEST_VALUE);
        }
    }
    match ["bool", "int", "string", "version"].iter().filter(has).count() {
        0 => errors.invalid(path, &json!(""), "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(path, attribute, "exactly one value must be specified"),
    }
}

/// `1.2.3-alpha.1+build.5`
fn is_version(text: &str) -> bool {
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

/// The nodes that have the device, where the slice leaves that to its devices.
fn place(device: &Value, is_own: bool, path: &FieldPath, errors: &mut FieldErrors) {
    const WHY: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let places = ["nodeName", "nodeSelector", "allNodes"];
    if !is_own {
        if places.iter().any(|field| !device[field].is_null()) {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(path, &json!(null), why);
        }
        return;
    }
    let node = &device["nodeName"];
    if node == "" {
        errors.invalid(&path.child("nodeName"), node, "must not be empty");
    } else if !node.is_null() {
        subdomain(node, &path.child("nodeName"), errors);
    }
    if !device["nodeSelector"].is_null() {
        node_selector(&device["nodeSelector"], &path.child("nodeSelector"), errors);
    }
    only_true(&device["allNodes"], &path.child("allNodes"), errors);
    match &said(device, &places)[..] {
        [] => errors.required(path, WHY),
        [_] => {}
        several => errors.invalid(path, &json!(format!("{{{}}}", several.join(", "))), WHY),
    }
}

/// What the device waits for, and what says that it waits in vain (`validateDeviceBindingParameters`).
fn conditions(device: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let lists = ["bindingConditions", "bindingFailureConditions"];
    for field in lists {
        list(device, field, MOST_CONDITIONS, path, errors, label_key);
    }
    let [good, bad] = lists.map(|field| items(device, field).collect::<Vec<_>>());
    let known: HashSet<&Value> = good.iter().copied().collect();
    for (field, all) in lists.into_iter().zip([&good, &bad]) {
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
        (lists[0], lists[1], good.is_empty() && !bad.is_empty()),
        (lists[1], lists[0], bad.is_empty() && !good.is_empty()),
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
    fn check_in(has_own_place: bool, more: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        let mut device = json!({"name": "d"});
        for (key, value) in more.as_object().unwrap() {
            device[key] = value.clone();
        }
        validate(&device, has_own_place, &FieldPath::new("d"), &mut errors);
        let shown = |e: &crate::kinds::FieldError| {
            e.to_string().split(": a lowercase RFC 1123").next().unwrap_or("").to_owned()
        };
        assert_eq!(errors.0.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[track_caller]
    fn check(more: Value, expected: &[&str]) {
        check_in(false, more, expected);
    }

    #[test]
    fn an_attribute_has_a_name_and_one_value() {
        let of = |name: &str, value: Value| json!({"attributes": {name: value}});
        check(of("x", json!({"int": 0})), &[]);
        check(of("example.com/x", json!({"bool": false})), &[]);
        let one = "exactly one value must be specified";
        check(of("x", json!({})), &[&format!("d.attributes[x]: Invalid value: \"\": {one}")]);
        check(
            of("x", json!({"int": 1, "string": "b"})),
            &[&format!("d.attributes[x]: Invalid value: {{\"int\":1,\"string\":\"b\"}}: {one}")],
        );
        let identifier = &api::names::c_identifier("1-x")[0];
        check(of("1-x", json!({"int": 1})), &[&format!("d.attributes[1-x]: Invalid value: \"1-x\": {identifier}")]);
        check(
            of("/", json!({"int": 1})),
            &[
                "d.attributes[/]: Invalid value: \"\": the domain must not be empty",
                "d.attributes[/]: Invalid value: \"\": the name must not be empty",
            ],
        );
        let long = "x".repeat(65);
        check(of("x", json!({"string": long})), &["d.attributes[x].string: Too long: may not be more than 64 bytes"]);
    }

    #[test]
    fn versions_are_semantic() {
        for good in ["1.2.3", "0.0.0", "1.2.3-alpha.1", "1.2.3-0a.-", "1.2.3+001.b-5", "1.2.3-a+b"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3+a+b", "1.2.x", "v1.2.3"] {
            assert!(!is_version(bad), "{bad}");
        }
        check(
            json!({"attributes": {"x": {"version": "nope"}}}),
            &[
                "d.attributes[x].version: Invalid value: \"nope\": must be a string compatible with semver.org spec 2.0.0",
            ],
        );
    }

    #[test]
    fn there_are_not_too_many_facts() {
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
    fn taints_counters_and_conditions() {
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
    fn a_device_has_a_place_of_its_own_where_the_slice_says_so() {
        let own = "is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        let one = format!("exactly one of `nodeName`, `nodeSelector`, or `allNodes` {own}");
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
