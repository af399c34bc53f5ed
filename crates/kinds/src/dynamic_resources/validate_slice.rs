//! Validation of ResourceSlices (`validateResourceSliceSpec`).

use super::{
    field_validation::{set_fields, validate_counters, validate_set, validate_unset_or_true},
    validate_device,
};
use crate::{
    FieldErrors, field_cursor::FieldCursor, field_validation::validate_csi_driver_name, pod::validate_node_selector,
};
use serde_json::{Value, json};

/// Maximum number of devices, and maximum if devices have taints or consume counters.
const MAX_DEVICES: usize = 128;
const MAX_DEVICES_WITH_TAINTS_OR_COUNTERS: usize = 64;
/// Maximum number of counter sets.
const MAX_COUNTER_SETS: usize = 8;
const MAX_POOL_NAME_LENGTH: usize = 253;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (devices, shared_counters) = (spec.at("devices"), spec.at("sharedCounters"));
    validate_csi_driver_name(&spec.at("driver"), errors);
    validate_pool(&spec.at("pool"), errors);
    validate_node_selection(&spec, errors);
    if shared_counters.is_set() && devices.is_set() {
        errors.invalid(&spec.path(), &json!(""), "only one of `sharedCounters` or `devices` is allowed");
    }
    let has_taints_or_counters =
        |device: FieldCursor<'_, '_>| device.at("taints").count() > 0 || device.at("consumesCounters").count() > 0;
    let max_devices =
        if devices.items().any(has_taints_or_counters) { MAX_DEVICES_WITH_TAINTS_OR_COUNTERS } else { MAX_DEVICES };
    let per_device_node_selection = spec.at("perDeviceNodeSelection").is_true();
    validate_set(
        &devices,
        max_devices,
        |device| device.at("name").value(),
        errors,
        |device, errors| {
            validate_device::validate_device(device, per_device_node_selection, errors);
        },
    );
    validate_set(
        &shared_counters,
        MAX_COUNTER_SETS,
        |set| set.at("name").value(),
        errors,
        |set, errors| {
            set.at("name").validate_required_text(api::names::dns1123_label, errors);
            validate_counters(&set.at("counters"), errors);
        },
    );
}

/// Validates a pool (`validateResourcePool`).
fn validate_pool(pool: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (name, count, generation) = (pool.at("name"), pool.at("resourceSliceCount"), pool.at("generation"));
    if name.text().is_empty() {
        name.required("", errors);
    } else {
        if name.text().len() > MAX_POOL_NAME_LENGTH {
            name.too_long(MAX_POOL_NAME_LENGTH, errors);
        }
        for part in name.text().split('/') {
            let wrong = api::names::dns1123_subdomain(part);
            wrong.iter().for_each(|detail| errors.invalid(&name.path(), &json!(part), detail));
        }
    }
    if count.integer().unwrap_or(0) <= 0 {
        count.invalid("must be greater than zero", errors);
    }
    if generation.integer().unwrap_or(0) < 0 {
        generation.invalid("must be greater than or equal to zero", errors);
    }
}

/// Validates that exactly one field selects the nodes of the slice.
fn validate_node_selection(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    const EXACTLY_ONE_REQUIRED: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let (node, selector) = (spec.at("nodeName"), spec.at("nodeSelector"));
    if node.value() == "" {
        node.invalid("must be either unset or set to a non-empty string", errors);
    } else if node.is_set() {
        node.validate_text(api::names::dns1123_subdomain, errors);
    }
    if selector.is_set() {
        validate_node_selector(&selector, errors);
        let terms = selector.at("nodeSelectorTerms");
        if terms.count() != 1 {
            terms.invalid("must have exactly one node selector term", errors);
        }
    }
    validate_unset_or_true(&spec.at("allNodes"), errors);
    validate_unset_or_true(&spec.at("perDeviceNodeSelection"), errors);
    let node_fields = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    match &set_fields(spec.value(), &node_fields)[..] {
        [] => spec.required(EXACTLY_ONE_REQUIRED, errors),
        [_] => {}
        several => {
            let detail = format!("{EXACTLY_ONE_REQUIRED}, but multiple fields are set");
            errors.invalid(&spec.path(), &json!(format!("{{{}}}", several.join(", "))), &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        let mut spec = json!({"driver": "d", "pool": pool, "allNodes": true});
        for (key, value) in fields.as_object().unwrap() {
            spec[key] = value.clone();
        }
        validate(&json!({"spec": spec}), &mut errors);
        let shown =
            |e: &crate::FieldError| e.to_string().split(": a lowercase RFC 1123").next().unwrap_or("").to_owned();
        assert_eq!(errors.0.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn pool_name_and_numbers_are_validated() {
        check(json!({}), &[]);
        let pool = |name: &str, generation: i64, count: i64| json!({"pool": {"name": name, "generation": generation, "resourceSliceCount": count}});
        check(pool("a/b.c", 0, 1), &[]);
        check(pool("A_", 1, 1), &["spec.pool.name: Invalid value: \"A_\""]);
        check(pool("", 1, 1), &["spec.pool.name: Required value"]);
        check(
            pool("p", -1, 0),
            &[
                "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
            ],
        );
        check(json!({"driver": "A_"}), &["spec.driver: Invalid value: \"A_\""]);
        check(json!({"driver": "Example.COM"}), &[]);
        let long = "d".repeat(64);
        check(json!({"driver": long}), &["spec.driver: Too long: may not be more than 63 bytes"]);
    }

    #[test]
    fn slice_has_exactly_one_node_field() {
        let node_fields = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
        check(json!({"allNodes": null, "nodeName": "A_"}), &["spec.nodeName: Invalid value: \"A_\""]);
        check(
            json!({"allNodes": false}),
            &[
                "spec.allNodes: Invalid value: false: must be either unset or set to true",
                &format!("spec: Required value: {node_fields}"),
            ],
        );
        check(
            json!({"allNodes": null, "nodeSelector": {"nodeSelectorTerms": []}}),
            &[
                "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
                "spec.nodeSelector.nodeSelectorTerms: Invalid value: []: must have exactly one node selector term",
            ],
        );
        check(
            json!({"nodeName": "n"}),
            &[&format!(
                "spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {node_fields}, but multiple fields are set"
            )],
        );
    }

    #[test]
    fn device_names_are_unique_and_limited() {
        check(json!({"devices": [{"name": "a"}, {"name": "b"}]}), &[]);
        check(json!({"devices": [{"name": "A_"}]}), &["spec.devices[0].name: Invalid value: \"A_\""]);
        check(json!({"devices": [{"name": "a"}, {"name": "a"}]}), &["spec.devices[1]: Duplicate value: \"a\""]);
        let many: Vec<Value> = (0..129).map(|i| json!({"name": format!("d{i}")})).collect();
        check(json!({"devices": many}), &["spec.devices: Too many: 129: must have at most 128 items"]);
        let mut many = many[..65].to_vec();
        many[0]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
        check(json!({"devices": many}), &["spec.devices: Too many: 65: must have at most 64 items"]);
    }

    #[test]
    fn shared_counters_exclude_devices() {
        let set = |name: &str| json!({"name": name, "counters": {"c": {"value": "1"}}});
        check(json!({"sharedCounters": [set("a")]}), &[]);
        check(
            json!({"sharedCounters": [set("a"), set("a"), {"name": "", "counters": {}}], "devices": [{"name": "d"}]}),
            &[
                "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
                "spec.sharedCounters[2].name: Required value",
                "spec.sharedCounters[2].counters: Required value",
                "spec.sharedCounters[1]: Duplicate value: \"a\"",
            ],
        );
    }
}
