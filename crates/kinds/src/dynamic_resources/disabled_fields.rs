//! Drops fields of features that are disabled in 1.35, unless the old object uses the feature (`dropDisabledFields` of
//! `pkg/registry/resource`).

use serde_json::Value;

/// Paths of a feature's fields. `*` matches each item of a list or map.
type Feature = &'static [&'static str];

/// Features of DeviceClasses: `DRAExtendedResource`.
pub(super) const DEVICE_CLASS_FEATURES: &[Feature] = &[&["spec.extendedResourceName"]];

/// Features of ResourceClaims: `DRADeviceTaints`, `DRAConsumableCapacity` and `DRADeviceBindingConditions`.
pub(super) const RESOURCE_CLAIM_FEATURES: &[Feature] = &[
    &[
        "spec.devices.requests.*.exactly.tolerations",
        "spec.devices.requests.*.firstAvailable.*.tolerations",
        "status.allocation.devices.results.*.tolerations",
    ],
    &[
        "spec.devices.constraints.*.distinctAttribute",
        "spec.devices.requests.*.exactly.capacity",
        "spec.devices.requests.*.firstAvailable.*.capacity",
        "status.allocation.devices.results.*.shareID",
        "status.allocation.devices.results.*.consumedCapacity",
        "status.devices.*.shareID",
    ],
    &[
        "status.allocation.allocationTimestamp",
        "status.allocation.devices.results.*.bindingConditions",
        "status.allocation.devices.results.*.bindingFailureConditions",
    ],
];

/// Features of ResourceSlices: `DRADeviceTaints`, `DRAPartitionableDevices`, `DRADeviceBindingConditions` and
/// `DRAConsumableCapacity`.
pub(super) const RESOURCE_SLICE_FEATURES: &[Feature] = &[
    &["spec.devices.*.taints"],
    &[
        "spec.sharedCounters",
        "spec.perDeviceNodeSelection",
        "spec.devices.*.consumesCounters",
        "spec.devices.*.nodeName",
        "spec.devices.*.nodeSelector",
        "spec.devices.*.allNodes",
    ],
    &["spec.devices.*.bindingConditions", "spec.devices.*.bindingFailureConditions", "spec.devices.*.bindsToNode"],
    &["spec.devices.*.allowMultipleAllocations", "spec.devices.*.capacity.*.requestPolicy"],
];

pub(super) fn drop_fields(object: &mut Value, old: Option<&Value>, features: &[Feature]) {
    for fields in features {
        let is_used = |old: &Value| fields.iter().any(|path| is_used(old, &path_segments(path)));
        if !old.is_some_and(is_used) {
            fields.iter().for_each(|path| remove_field(object, &path_segments(path)));
        }
    }
}

/// Drops disabled fields of a ResourceClaimTemplate, whose spec contains a claim.
pub(super) fn drop_template_fields(object: &mut Value, old: Option<&Value>) {
    if let Some(claim) = object.get_mut("spec") {
        drop_fields(claim, old.map(|old| &old["spec"]), RESOURCE_CLAIM_FEATURES);
    }
}

fn path_segments(path: &'static str) -> Vec<&'static str> {
    path.split('.').collect()
}

/// Whether a field is set and not empty.
fn is_used(value: &Value, path: &[&str]) -> bool {
    match (path.split_first(), value) {
        (None, Value::Array(list)) => !list.is_empty(),
        (None, Value::Object(map)) => !map.is_empty(),
        (None, value) => !value.is_null(),
        (Some((&"*", rest)), Value::Array(list)) => list.iter().any(|item| is_used(item, rest)),
        (Some((&"*", rest)), Value::Object(map)) => map.values().any(|item| is_used(item, rest)),
        (Some((name, rest)), value) => value.get(name).is_some_and(|inner| is_used(inner, rest)),
    }
}

fn remove_field(value: &mut Value, path: &[&str]) {
    match (path.split_first(), value) {
        (Some((&"*", rest)), Value::Array(list)) => list.iter_mut().for_each(|item| remove_field(item, rest)),
        (Some((&"*", rest)), Value::Object(map)) => map.values_mut().for_each(|item| remove_field(item, rest)),
        (Some((name, [])), Value::Object(map)) => drop(map.remove(*name)),
        (Some((name, rest)), Value::Object(map)) => map.get_mut(*name).into_iter().for_each(|v| remove_field(v, rest)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(features: &[Feature], old: Option<Value>, object: Value, expected: Value) {
        let mut object = object;
        drop_fields(&mut object, old.as_ref(), features);
        assert_eq!(object, expected);
    }

    #[test]
    fn disabled_fields_are_dropped_unless_feature_was_used() {
        let device = |name: &str| {
            json!({"name": name, "taints": [{"key": "k"}], "bindsToNode": true, "allNodes": true,
            "capacity": {"c": {"value": "1", "requestPolicy": {}}}})
        };
        let slice =
            |devices: Value| json!({"spec": {"driver": "d", "perDeviceNodeSelection": true, "devices": devices}});
        let bare = json!({"spec": {"driver": "d", "devices": [{"name": "a", "capacity": {"c": {"value": "1"}}}]}});
        check(RESOURCE_SLICE_FEATURES, None, slice(json!([device("a")])), bare);
        // One used field of a feature keeps all its fields.
        let old = json!({"spec": {"devices": [{"nodeName": "n"}], "perDeviceNodeSelection": null}});
        let request = json!({"name": "a", "allNodes": true, "capacity": {"c": {"value": "1"}}});
        check(RESOURCE_SLICE_FEATURES, Some(old), slice(json!([device("a")])), slice(json!([request])));
        let old = json!({"spec": {"devices": [{"taints": []}]}});
        check(
            RESOURCE_SLICE_FEATURES,
            Some(old),
            json!({"spec": {"devices": [{"taints": [1]}]}}),
            json!({"spec": {"devices": [{}]}}),
        );
    }

    #[test]
    fn disabled_fields_of_claims_and_classes_are_dropped() {
        let request = || {
            json!({"name": "r", "exactly": {"tolerations": [{}], "capacity": {"requests": {"c": "1"}}},
            "firstAvailable": [{"name": "s", "tolerations": [{}], "capacity": {}}]})
        };
        let bare = || json!({"name": "r", "exactly": {}, "firstAvailable": [{"name": "s"}]});
        let claim = |request: Value| json!({"devices": {"requests": [request], "constraints": [{"requests": ["r"]}]}});
        let mut full = claim(request());
        full["devices"]["constraints"][0]["distinctAttribute"] = json!("a");
        check(RESOURCE_CLAIM_FEATURES, None, json!({"spec": full}), json!({"spec": claim(bare())}));
        let mut template = json!({"spec": {"spec": full}});
        drop_template_fields(&mut template, None);
        assert_eq!(template, json!({"spec": {"spec": claim(bare())}}));
        let result = json!({"device": "d", "shareID": "s", "consumedCapacity": {"c": "1"}, "tolerations": [{}],
            "bindingConditions": ["b"], "bindingFailureConditions": ["f"]});
        let status = json!({"allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}},
            "devices": [{"device": "d", "shareID": "s"}]});
        let left = json!({"allocation": {"devices": {"results": [{"device": "d"}]}}, "devices": [{"device": "d"}]});
        check(RESOURCE_CLAIM_FEATURES, Some(json!({})), json!({"status": status}), json!({"status": left}));
        let class = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
        check(DEVICE_CLASS_FEATURES, None, class.clone(), json!({"spec": {}}));
        check(DEVICE_CLASS_FEATURES, Some(class.clone()), class.clone(), class);
    }
}
