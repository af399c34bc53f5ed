//! Fields of features that are off in 1.35 are dropped, unless the object had fields of the same feature before
//! (`dropDisabledFields` of `pkg/registry/resource`).

use serde_json::Value;

/// The fields of one feature, by their paths, in which `*` is whatever is in a list or a map.
type Feature = &'static [&'static str];

/// `DRAExtendedResource`.
pub(super) const OF_CLASSES: &[Feature] = &[&["spec.extendedResourceName"]];

/// `DRADeviceTaints`, `DRAConsumableCapacity` and `DRADeviceBindingConditions`.
pub(super) const OF_CLAIMS: &[Feature] = &[
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

/// `DRADeviceTaints`, `DRAPartitionableDevices`, `DRADeviceBindingConditions` and `DRAConsumableCapacity`.
pub(super) const OF_SLICES: &[Feature] = &[
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
        let is_used = |old: &Value| fields.iter().any(|path| holds(old, &parts(path)));
        if !old.is_some_and(is_used) {
            fields.iter().for_each(|path| remove(object, &parts(path)));
        }
    }
}

/// A template has in its spec what a claim is.
pub(super) fn drop_fields_of_template(object: &mut Value, old: Option<&Value>) {
    if let Some(claim) = object.get_mut("spec") {
        drop_fields(claim, old.map(|old| &old["spec"]), OF_CLAIMS);
    }
}

fn parts(path: &'static str) -> Vec<&'static str> {
    path.split('.').collect()
}

/// Whether something is there; what is empty is nothing.
fn holds(value: &Value, path: &[&str]) -> bool {
    match (path.split_first(), value) {
        (None, Value::Array(list)) => !list.is_empty(),
        (None, Value::Object(map)) => !map.is_empty(),
        (None, value) => !value.is_null(),
        (Some((&"*", rest)), Value::Array(list)) => list.iter().any(|item| holds(item, rest)),
        (Some((&"*", rest)), Value::Object(map)) => map.values().any(|item| holds(item, rest)),
        (Some((name, rest)), value) => value.get(name).is_some_and(|inner| holds(inner, rest)),
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match (path.split_first(), value) {
        (Some((&"*", rest)), Value::Array(list)) => list.iter_mut().for_each(|item| remove(item, rest)),
        (Some((&"*", rest)), Value::Object(map)) => map.values_mut().for_each(|item| remove(item, rest)),
        (Some((name, [])), Value::Object(map)) => drop(map.remove(*name)),
        (Some((name, rest)), Value::Object(map)) => map.get_mut(*name).into_iter().for_each(|v| remove(v, rest)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(features: &[Feature], old: Option<Value>, object: Value, expected: Value) {
        let mut made = object;
        drop_fields(&mut made, old.as_ref(), features);
        assert_eq!(made, expected);
    }

    #[test]
    fn what_is_off_is_dropped_unless_it_was_there_before() {
        let device = |name: &str| {
            json!({"name": name, "taints": [{"key": "k"}], "bindsToNode": true, "allNodes": true,
            "capacity": {"c": {"value": "1", "requestPolicy": {}}}})
        };
        let slice =
            |devices: Value| json!({"spec": {"driver": "d", "perDeviceNodeSelection": true, "devices": devices}});
        let bare = json!({"spec": {"driver": "d", "devices": [{"name": "a", "capacity": {"c": {"value": "1"}}}]}});
        check(OF_SLICES, None, slice(json!([device("a")])), bare);
        // One field of a feature keeps the others of it.
        let old = json!({"spec": {"devices": [{"nodeName": "n"}], "perDeviceNodeSelection": null}});
        let kept = json!({"name": "a", "allNodes": true, "capacity": {"c": {"value": "1"}}});
        check(OF_SLICES, Some(old), slice(json!([device("a")])), slice(json!([kept])));
        let old = json!({"spec": {"devices": [{"taints": []}]}});
        check(
            OF_SLICES,
            Some(old),
            json!({"spec": {"devices": [{"taints": [1]}]}}),
            json!({"spec": {"devices": [{}]}}),
        );
    }

    #[test]
    fn claims_and_classes_lose_what_is_off_too() {
        let request = || {
            json!({"name": "r", "exactly": {"tolerations": [{}], "capacity": {"requests": {"c": "1"}}},
            "firstAvailable": [{"name": "s", "tolerations": [{}], "capacity": {}}]})
        };
        let bare = || json!({"name": "r", "exactly": {}, "firstAvailable": [{"name": "s"}]});
        let claim = |request: Value| json!({"devices": {"requests": [request], "constraints": [{"requests": ["r"]}]}});
        let mut full = claim(request());
        full["devices"]["constraints"][0]["distinctAttribute"] = json!("a");
        check(OF_CLAIMS, None, json!({"spec": full}), json!({"spec": claim(bare())}));
        let mut template = json!({"spec": {"spec": full}});
        drop_fields_of_template(&mut template, None);
        assert_eq!(template, json!({"spec": {"spec": claim(bare())}}));
        let result = json!({"device": "d", "shareID": "s", "consumedCapacity": {"c": "1"}, "tolerations": [{}],
            "bindingConditions": ["b"], "bindingFailureConditions": ["f"]});
        let status = json!({"allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}},
            "devices": [{"device": "d", "shareID": "s"}]});
        let left = json!({"allocation": {"devices": {"results": [{"device": "d"}]}}, "devices": [{"device": "d"}]});
        check(OF_CLAIMS, Some(json!({})), json!({"status": status}), json!({"status": left}));
        let class = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
        check(OF_CLASSES, None, class.clone(), json!({"spec": {}}));
        check(OF_CLASSES, Some(class.clone()), class.clone(), class);
    }
}
