//! Validation of volumes and of other fields of a Pod spec.

use crate::{
    common::*,
    validation::{LABEL, check_spec},
};
use serde_json::{Value, json};

#[tokio::test]
async fn volumes_are_validated() {
    let mode = "Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive";
    check_spec(
        json!({"volumes": [{"name": "A", "emptyDir": {}}, {"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}, {"name": "v", "emptyDir": {}}, {"name": "v", "secret": {}}]}),
        &[
            ("spec.volumes[0].name", "Invalid", &format!("Invalid value: \"A\": {LABEL}")),
            ("spec.volumes[1].hostPath", "Forbidden", "Forbidden: may not specify more than 1 volume type"),
            ("spec.volumes[3].secret.secretName", "Required", "Required value"),
            ("spec.volumes[3].name", "Duplicate", "Duplicate value: \"v\""),
        ],
    )
    .await;
    check_spec(
        json!({"volumes": [{"name": "a", "hostPath": {"path": "/x/../y", "type": "Pipe"}}, {"name": "b", "configMap": {"name": "c", "defaultMode": 512, "items": [{"key": "k", "path": "/abs"}, {"key": "", "path": "..x"}]}},
            {"name": "c", "emptyDir": {"sizeLimit": "-1"}}]}),
        &[
            ("spec.volumes[0].hostPath.path", "Invalid", "Invalid value: \"/x/../y\": must not contain '..'"),
            ("spec.volumes[0].hostPath.type", "NotSupported", "Unsupported value: \"Pipe\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\""),
            ("spec.volumes[1].configMap.defaultMode", "Invalid", mode),
            ("spec.volumes[1].configMap.items[0].path", "Invalid", "Invalid value: \"/abs\": must be a relative path"),
            ("spec.volumes[1].configMap.items[1].key", "Required", "Required value"),
            ("spec.volumes[1].configMap.items[1].path", "Invalid", "Invalid value: \"..x\": must not start with '..'"),
            ("spec.volumes[2].emptyDir.sizeLimit", "Forbidden", "Forbidden: SizeLimit field must be a valid resource quantity"),
        ],
    )
    .await;
}

#[tokio::test]
async fn pod_spec_fields_are_validated() {
    for (spec, field, reason, message) in [
        (
            json!({"dnsPolicy": "Fast"}),
            "spec.dnsPolicy",
            "NotSupported",
            "Unsupported value: \"Fast\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
        ),
        (
            json!({"dnsPolicy": "None"}),
            "spec.dnsConfig",
            "Required",
            "Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            json!({"dnsConfig": {"nameservers": ["x"]}}),
            "spec.dnsConfig.nameservers[0]",
            "Invalid",
            "Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"activeDeadlineSeconds": 0}),
            "spec.activeDeadlineSeconds",
            "Invalid",
            "Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            json!({"os": {"name": "beos"}}),
            "spec.os.name",
            "NotSupported",
            "Unsupported value: \"beos\": supported values: \"linux\", \"windows\"",
        ),
        (
            json!({"hostAliases": [{"ip": "::g"}]}),
            "spec.hostAliases[0].ip",
            "Invalid",
            "Invalid value: \"::g\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
    ] {
        check_spec(spec, &[(field, reason, message)]).await;
    }
}

#[tokio::test]
async fn scheduling_fields_are_validated() {
    for (spec, field, reason, message) in [
        (
            json!({"tolerations": [{"key": "a", "operator": "Like"}]}),
            "spec.tolerations[0].operator",
            "NotSupported",
            "Unsupported value: \"Like\": supported values: \"Equal\", \"Exists\"",
        ),
        (
            json!({"tolerations": [{"operator": "Equal", "value": "x"}]}),
            "spec.tolerations[0].operator",
            "Invalid",
            "Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "Now"}]}),
            "spec.tolerations[0].effect",
            "NotSupported",
            "Unsupported value: \"Now\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (
            json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]}),
            "spec.schedulingGates[1]",
            "Duplicate",
            "Duplicate value: \"a\"",
        ),
        (
            json!({"schedulingGates": [{"name": "a"}], "nodeName": "n"}),
            "spec.nodeName",
            "Forbidden",
            "Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
            "Required",
            "Required value: must have at least one node selector term",
        ),
        (
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}}}}),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values",
            "Required",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "spec.topologySpreadConstraints[0].topologyKey",
            "Required",
            "Required value: can not be empty",
        ),
        (json!({"hostname": "a.b"}), "spec.hostname", "Invalid", "Invalid value: \"a.b\": must not contain dots"),
        (
            json!({"securityContext": {"fsGroup": -1}}),
            "spec.securityContext.fsGroup",
            "Invalid",
            "Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
    ] {
        check_spec(spec, &[(field, reason, message)]).await;
    }
}

#[tokio::test]
async fn gated_pod_node_selector_can_only_be_extended() {
    let api = TestApi::new().await;
    let mut gated = pod("g");
    gated["spec"]["schedulingGates"] = json!([{"name": "x.io/wait"}]);
    gated["spec"]["nodeSelector"] = json!({"a": "b"});
    api.check(post(PODS, &gated), 201, json!({})).await;
    let change = |selector: Value| merge_patch(format!("{PODS}/g"), &json!({"spec": {"nodeSelector": selector}}));
    api.check(change(json!({"c": "d"})), 200, json!({"spec": {"nodeSelector": {"a": "b", "c": "d"}}})).await;
    for invalid in [json!({"a": "x"}), json!({"a": null})] {
        let response = api.check(change(invalid.clone()), 422, json!({"reason": "Invalid"})).await;
        let message = response.body["details"]["causes"][0]["message"].as_str().unwrap();
        let reason = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        assert!(message.ends_with(reason), "{invalid}: {message}");
    }
}
