//! Validation of devices in ResourceSlices (`validateDevice`).

use super::field_validation::{
    set_fields, validate_counters, validate_list, validate_qualified_name, validate_set, validate_taint,
    validate_unset_or_true,
};
use crate::{FieldErrors, field_cursor::FieldCursor, pod::validate_node_selector};
use serde_json::json;
use std::collections::{BTreeSet, HashSet};

/// Maximum number of attributes and capacities together, and maximum length of an attribute's value.
const MAX_ATTRIBUTES_AND_CAPACITIES: usize = 32;
const MAX_ATTRIBUTE_LENGTH: usize = 64;
const MAX_TAINTS: usize = 16;
/// Maximum number of counter sets that a device consumes.
const MAX_COUNTER_SETS: usize = 2;
const MAX_BINDING_CONDITIONS: usize = 4;

pub(super) fn validate_device(device: &FieldCursor<'_, '_>, per_device_node_selection: bool, errors: &mut FieldErrors) {
    device.at("name").validate_text(api::names::dns1123_label, errors);
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    let count = attributes.entries().chain(capacity.entries()).count();
    if count > MAX_ATTRIBUTES_AND_CAPACITIES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}");
        errors.invalid(&device.path(), &json!(count), &detail);
    }
    for (name, attribute) in attributes.entries() {
        validate_qualified_name(name, &attribute, errors);
        validate_attribute(&attribute, errors);
    }
    for (name, capacity) in capacity.entries() {
        validate_qualified_name(name, &capacity, errors);
        let policy = capacity.at("requestPolicy");
        if !device.at("allowMultipleAllocations").is_true() && policy.is_set() {
            policy.forbidden("allowMultipleAllocations must be true", errors);
        }
    }
    validate_list(&device.at("taints"), MAX_TAINTS, errors, validate_taint);
    let counter_set = |consumption: &FieldCursor<'_, '_>, errors: &mut FieldErrors| {
        consumption.at("counterSet").validate_required_text(api::names::dns1123_label, errors);
        validate_counters(&consumption.at("counters"), errors);
    };
    validate_set(
        &device.at("consumesCounters"),
        MAX_COUNTER_SETS,
        |consumption| consumption.at("counterSet").value(),
        errors,
        counter_set,
    );
    validate_node_selection(device, per_device_node_selection, errors);
    validate_binding_conditions(device, errors);
}

/// Validates an attribute, which has exactly one value (`validateDeviceAttribute`).
fn validate_attribute(attribute: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (text, version) = (attribute.at("string"), attribute.at("version"));
    if text.text().len() > MAX_ATTRIBUTE_LENGTH {
        text.too_long(MAX_ATTRIBUTE_LENGTH, errors);
    }
    if version.is_set() && !is_semantic_version(version.text()) {
        version.invalid("must be a string compatible with semver.org spec 2.0.0", errors);
    }
    if version.text().len() > MAX_ATTRIBUTE_LENGTH {
        version.too_long(MAX_ATTRIBUTE_LENGTH, errors);
    }
    let values = [attribute.at("bool"), attribute.at("int"), text, version];
    match values.iter().filter(|value| value.is_set()).count() {
        0 => errors.invalid(&attribute.path(), &json!(""), "exactly one value must be specified"),
        1 => {}
        _ => attribute.invalid("exactly one value must be specified", errors),
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
fn validate_node_selection(device: &FieldCursor<'_, '_>, per_device_node_selection: bool, errors: &mut FieldErrors) {
    const EXACTLY_ONE_REQUIRED: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (node, selector, all) = (device.at("nodeName"), device.at("nodeSelector"), device.at("allNodes"));
    if !per_device_node_selection {
        if [node, selector, all].iter().any(FieldCursor::is_set) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(&device.path(), &json!(null), detail);
        }
        return;
    }
    if node.value() == "" {
        node.invalid("must not be empty", errors);
    } else if node.is_set() {
        node.validate_text(api::names::dns1123_subdomain, errors);
    }
    if selector.is_set() {
        validate_node_selector(&selector, errors);
    }
    validate_unset_or_true(&all, errors);
    match &set_fields(device.value(), &["nodeName", "nodeSelector", "allNodes"])[..] {
        [] => device.required(EXACTLY_ONE_REQUIRED, errors),
        [_] => {}
        several => {
            let shown = json!(format!("{{{}}}", several.join(", ")));
            errors.invalid(&device.path(), &shown, EXACTLY_ONE_REQUIRED);
        }
    }
}

/// Validates binding conditions and binding failure conditions (`validateDeviceBindingParameters`).
fn validate_binding_conditions(device: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (binding, failure) = (device.at("bindingConditions"), device.at("bindingFailureConditions"));
    for list in [binding, failure] {
        validate_list(&list, MAX_BINDING_CONDITIONS, errors, |condition, errors| {
            condition.validate_text(api::names::qualified_name, errors);
        });
    }
    binding.duplicates().for_each(|condition| condition.duplicate(errors));
    let known: HashSet<&str> = binding.items().map(|condition| condition.text()).collect();
    let mut seen = BTreeSet::new();
    for condition in failure.items() {
        if !seen.insert(condition.text()) {
            condition.duplicate(errors);
        }
        if known.contains(condition.text()) {
            condition.invalid("bindingFailureConditions must not overlap with bindingConditions", errors);
        }
    }
    if binding.count() == 0 && failure.count() > 0 {
        binding.invalid("bindingConditions are required to use bindingFailureConditions", errors);
    }
    if failure.count() == 0 && binding.count() > 0 {
        failure.invalid("bindingFailureConditions are required to use bindingConditions", errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldPath;
    use serde_json::{Map, Value};

    #[track_caller]
    fn check_in(per_device_node_selection: bool, fields: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        let mut device = json!({"name": "d"});
        for (key, value) in fields.as_object().unwrap() {
            device[key] = value.clone();
        }
        let path = FieldPath::new("d");
        validate_device(&FieldCursor::new(&device, &path), per_device_node_selection, &mut errors);
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
