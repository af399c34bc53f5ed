//! Table tests of strategic merge patches.

use super::*;
use serde_json::json;

/// Merges into a Pod, or into a PodSpec if the objects have none of the fields of a Pod.
#[track_caller]
fn check(original: &Value, patch: &Value, expected: &Value) {
    let fields = ["metadata", "spec", "status"];
    let is_pod = [original, patch].iter().any(|v| fields.iter().any(|field| v.get(field).is_some()));
    check_of(if is_pod { "core/v1.Pod" } else { "core/v1.PodSpec" }, original, patch, expected);
}

#[track_caller]
fn check_of(message: &str, original: &Value, patch: &Value, expected: &Value) {
    let got = merge(original, patch.as_object().unwrap(), type_of(message))
        .unwrap_or_else(|error| Value::String(error.to_string()));
    assert_eq!(got, *expected, "{patch}");
}

fn merge(object: &Value, patch: &Map<String, Value>, message_type: MessageType) -> Result<Value, StrategicMergeError> {
    merge_map(object.as_object().cloned().unwrap_or_default(), patch, message_type).map(Value::Object)
}

fn type_of(message: &str) -> MessageType {
    Some(TABLE.messages.iter().find(|m| m.name == message).unwrap())
}

fn list(names: &str) -> Value {
    names.split(' ').map(|n| json!({"name": n, "image": n})).collect()
}

#[test]
fn maps_are_merged_and_obey_directives() {
    check(&json!({"a": {"b": 1, "c": 2}}), &json!({"a": {"b": null, "d": 3}}), &json!({"a": {"c": 2, "d": 3}}));
    check(&json!({"a": {"b": 1}}), &json!({"a": {"$patch": "replace", "c": 2}}), &json!({"a": {"c": 2}}));
    check(&json!({"a": {"b": 1}}), &json!({"a": {"$patch": "delete"}}), &json!({"a": {}}));
    check(&json!({}), &json!({"a": {"$patch": "delete"}, "b": {"c": null, "d": 1}}), &json!({"b": {"d": 1}}));
    check(
        &json!({"a": {"b": 1, "c": 2}}),
        &json!({"a": {"$retainKeys": ["c", "d"], "d": 3}}),
        &json!({"a": {"c": 2, "d": 3}}),
    );
    check(&json!({"a": 1}), &json!({"a": {"$retainKeys": ["c"], "c": 3}}), &json!({"a": {"c": 3}}));
    check(
        &json!({"a": {"b": 1}}),
        &json!({"a": {"$retainKeys": ["c"], "d": 3}}),
        &json!("invalid patch format of retainKeys"),
    );
    check(
        &json!({"a": {}}),
        &json!({"a": {"$patch": "leap"}}),
        &json!(r#"unknown patch type: "leap" in map: {"$patch":"leap"}"#),
    );
}

#[test]
fn lists_of_objects_are_merged_by_their_key() {
    let both = json!({"containers": list("a b")});
    check(
        &both,
        &json!({"containers": [{"name": "b", "image": "3"}]}),
        &json!({"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "3"}]}),
    );
    // New elements come first.
    check(&both, &json!({"containers": list("c")}), &json!({"containers": list("c a b")}));
    check(&both, &json!({"containers": [{"name": "a", "$patch": "delete"}]}), &json!({"containers": list("b")}));
    check(
        &both,
        &json!({"containers": [{"$patch": "replace"}, {"name": "c", "image": "c"}]}),
        &json!({"containers": list("c")}),
    );
    check(&both, &json!({"containers": [{"$patch": "replace"}]}), &json!({"containers": []}));
    check(&both, &json!({"containers": null}), &json!({}));
    check(
        &both,
        &json!({"containers": [{"image": "x"}]}),
        &json!(r#"map: {"image":"x"} does not contain declared merge key: name"#),
    );
}

#[test]
fn lists_of_a_pod_have_their_merge_keys() {
    for (path, key, values) in [
        ("spec/containers", "name", ["a", "b"]),
        ("spec/initContainers", "name", ["a", "b"]),
        ("spec/ephemeralContainers", "name", ["a", "b"]),
        ("spec/volumes", "name", ["a", "b"]),
        ("spec/imagePullSecrets", "name", ["a", "b"]),
        ("spec/hostAliases", "ip", ["1.1.1.1", "2.2.2.2"]),
        ("spec/schedulingGates", "name", ["a", "b"]),
        ("spec/resourceClaims", "name", ["a", "b"]),
        ("spec/topologySpreadConstraints", "topologyKey", ["a", "b"]),
        ("spec/containers/0/env", "name", ["A", "B"]),
        ("spec/containers/0/ports", "containerPort", ["1", "2"]),
        ("spec/containers/0/volumeMounts", "mountPath", ["/a", "/b"]),
        ("spec/containers/0/volumeDevices", "devicePath", ["/a", "/b"]),
        ("status/conditions", "type", ["a", "b"]),
        ("status/podIPs", "ip", ["a", "b"]),
        ("status/hostIPs", "ip", ["a", "b"]),
        ("metadata/ownerReferences", "uid", ["a", "b"]),
    ] {
        let wrap = |list: Value| {
            path.rsplit('/').fold(list, |inner, part| match part {
                "0" => json!([inner]),
                "containers" if inner.is_array() && path.contains("/0/") => {
                    let mut items = inner;
                    items[0]["name"] = json!("c");
                    json!({"containers": items})
                }
                part => json!({part: inner}),
            })
        };
        let (old, new) = (json!({key: values[0], "x": 1}), json!({key: values[1], "x": 2}));
        check(
            &wrap(json!([old, new])),
            &wrap(json!([{key: values[1], "x": 3}])),
            &wrap(json!([old, {key: values[1], "x": 3}])),
        );
    }
    for field in ["args", "command", "tolerations", "envFrom", "readinessGates", "claims"] {
        check(
            &json!({"spec": {field: [{"name": "a"}]}}),
            &json!({"spec": {field: [{"name": "b"}]}}),
            &json!({"spec": {field: [{"name": "b"}]}}),
        );
    }
    // Lists with the same names in other types are replaced.
    check_of(
        "core/v1.ServiceAccount",
        &json!({"imagePullSecrets": list("a")}),
        &json!({"imagePullSecrets": list("b")}),
        &json!({"imagePullSecrets": list("b")}),
    );
    check_of(
        "core/v1.Namespace",
        &json!({"spec": {"finalizers": ["a"]}}),
        &json!({"spec": {"finalizers": ["b"]}}),
        &json!({"spec": {"finalizers": ["b"]}}),
    );
    // Lists with the same name have the strategy of their type.
    let ports = |key: &str, names: &[&str]| names.iter().map(|n| json!({key: n})).collect::<Value>();
    for (message, key, merged) in [
        ("core/v1.ServiceSpec", "port", vec!["b", "a"]),
        ("core/v1.Container", "containerPort", vec!["b", "a"]),
        ("networking/v1.NetworkPolicyIngressRule", "port", vec!["b"]),
        ("discovery/v1.EndpointSlice", "port", vec!["b"]),
    ] {
        check_of(
            message,
            &json!({"ports": ports(key, &["a"])}),
            &json!({"ports": ports(key, &["b"])}),
            &json!({"ports": ports(key, &merged)}),
        );
    }
}

#[test]
fn lists_of_primitives_are_merged_as_sets() {
    let two = json!({"metadata": {"finalizers": ["x", "y"]}});
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    check(&two, &finalizers(json!(["y"])), &two);
    check(&two, &finalizers(json!(["z"])), &finalizers(json!(["z", "x", "y"])));
    check(&two, &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x", "q"]}}), &finalizers(json!(["y"])));
    check(
        &two,
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}),
        &json!("invalid patch format of primitive list"),
    );
    check(&two, &json!({"metadata": {"$setElementOrder/finalizers": ["y", "x"]}}), &finalizers(json!(["y", "x"])));
    check(
        &two,
        &json!({"metadata": {"$setElementOrder/finalizers": ["z", "x"], "finalizers": ["z"], "$deleteFromPrimitiveList/finalizers": ["y"]}}),
        &finalizers(json!(["z", "x"])),
    );
    check(&two, &finalizers(json!([{}])), &json!("invalid patch format of primitive list"));
}

#[test]
fn set_element_order_sorts_elements() {
    let three = json!({"containers": list("a b c")});
    let order = |names: &str| names.split(' ').map(|n| json!({"name": n})).collect::<Value>();
    check(&three, &json!({"$setElementOrder/containers": order("c b a")}), &json!({"containers": list("c b a")}));
    // Other elements stay before those that they preceded.
    check(&three, &json!({"$setElementOrder/containers": order("c b")}), &json!({"containers": list("a c b")}));
    check(
        &three,
        &json!({"$setElementOrder/containers": order("d c a"), "containers": list("d")}),
        &json!({"containers": list("d b c a")}),
    );
    check(
        &three,
        &json!({"$setElementOrder/containers": order("b c"), "containers": [{"name": "a", "$patch": "delete"}]}),
        &json!({"containers": list("b c")}),
    );
    check(
        &json!({}),
        &json!({"$setElementOrder/containers": order("b a"), "containers": list("b a")}),
        &json!({"containers": list("b a")}),
    );
    check(&three, &json!({"$setElementOrder/containers": "x"}), &json!("invalid patch format of setElementOrder list"));
    let patch = json!({"$setElementOrder/containers": order("a"), "containers": list("b")});
    let got = merge(&three, patch.as_object().unwrap(), type_of("core/v1.PodSpec"));
    assert!(got.unwrap_err().to_string().starts_with("The order in patch list"));
}
