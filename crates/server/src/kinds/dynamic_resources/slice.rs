//! What a ResourceSlice may say (`validateResourceSliceSpec`).

use super::{
    device,
    parts::{counters, label, only_true, said, set},
};
use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{csi_driver_name, items, subdomain, text as text_of},
    pod::node_selector,
};
use serde_json::{Value, json};

/// How many devices a slice may have, and how many when these are tainted or share something.
const MOST_DEVICES: usize = 128;
const MOST_INVOLVED_DEVICES: usize = 64;
/// How many sets of counters there may be.
const MOST_SETS: usize = 8;
const LONGEST_POOL: usize = 253;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    csi_driver_name(&spec["driver"], &path.child("driver"), errors);
    pool(&spec["pool"], &path.child("pool"), errors);
    place(spec, &path, errors);
    if !spec["sharedCounters"].is_null() && !spec["devices"].is_null() {
        errors.invalid(&path, &json!(""), "only one of `sharedCounters` or `devices` is allowed");
    }
    let is_involved = |device: &Value| ["taints", "consumesCounters"].iter().any(|f| items(device, f).next().is_some());
    let most = if items(spec, "devices").any(is_involved) { MOST_INVOLVED_DEVICES } else { MOST_DEVICES };
    let has_own_place = spec["perDeviceNodeSelection"] == true;
    set(
        spec,
        ("devices", most),
        |device| &device["name"],
        &path,
        errors,
        |device, path, errors| {
            device::validate(device, has_own_place, path, errors);
        },
    );
    set(
        spec,
        ("sharedCounters", MOST_SETS),
        |counters| &counters["name"],
        &path,
        errors,
        |set, path, errors| {
            match text_of(set, "name") {
                "" => errors.required(&path.child("name"), ""),
                _ => label(&set["name"], &path.child("name"), errors),
            }
            counters(set, path, errors);
        },
    );
}

/// `validateResourcePool`.
fn pool(pool: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, at) = (text_of(pool, "name"), path.child("name"));
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        if name.len() > LONGEST_POOL {
            errors.too_long(&at, LONGEST_POOL);
        }
        name.split('/').for_each(|part| subdomain(&json!(part), &at, errors));
    }
    let number = |field: &str| pool[field].as_i64().unwrap_or(0);
    if number("resourceSliceCount") <= 0 {
        let (path, count) = (path.child("resourceSliceCount"), json!(number("resourceSliceCount")));
        errors.invalid(&path, &count, "must be greater than zero");
    }
    if number("generation") < 0 {
        errors.invalid(&path.child("generation"), &pool["generation"], "must be greater than or equal to zero");
    }
}

/// The nodes that have the devices are named in one way.
fn place(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const WHY: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let (node, selector) = (&spec["nodeName"], &spec["nodeSelector"]);
    if node == "" {
        errors.invalid(&path.child("nodeName"), node, "must be either unset or set to a non-empty string");
    } else if !node.is_null() {
        subdomain(node, &path.child("nodeName"), errors);
    }
    if !selector.is_null() {
        let at = path.child("nodeSelector");
        node_selector(selector, &at, errors);
        if items(selector, "nodeSelectorTerms").count() != 1 {
            let at = at.child("nodeSelectorTerms");
            errors.invalid(&at, &selector["nodeSelectorTerms"], "must have exactly one node selector term");
        }
    }
    for field in ["allNodes", "perDeviceNodeSelection"] {
        only_true(&spec[field], &path.child(field), errors);
    }
    let places = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    match &said(spec, &places)[..] {
        [] => errors.required(path, WHY),
        [_] => {}
        several => {
            let why = format!("{WHY}, but multiple fields are set");
            errors.invalid(path, &json!(format!("{{{}}}", several.join(", "))), &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(more: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        let mut spec = json!({"driver": "d", "pool": pool, "allNodes": true});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        validate(&json!({"spec": spec}), &mut errors);
        let shown = |e: &crate::kinds::FieldError| {
            e.to_string().split(": a lowercase RFC 1123").next().unwrap_or("").to_owned()
        };
        assert_eq!(errors.0.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_pool_has_a_name_and_numbers() {
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
    fn a_slice_is_of_some_nodes() {
        let places = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
        check(json!({"allNodes": null, "nodeName": "A_"}), &["spec.nodeName: Invalid value: \"A_\""]);
        check(
            json!({"allNodes": false}),
            &[
                "spec.allNodes: Invalid value: false: must be either unset or set to true",
                &format!("spec: Required value: {places}"),
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
            &[&format!("spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {places}, but multiple fields are set")],
        );
    }

    #[test]
    fn devices_have_names_of_their_own() {
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
    fn counters_stand_apart_from_devices() {
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
