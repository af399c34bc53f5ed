//! Security contexts and ephemeral containers.

use crate::{common::*, validation::check_spec};
use serde_json::{Value, json};

async fn check_context(context: Value, causes: &[(&str, &str, &str)]) {
    let causes: Vec<(String, &str, &str)> =
        causes.iter().map(|(f, r, m)| (format!("spec.containers[0].securityContext.{f}"), *r, *m)).collect();
    let causes: Vec<(&str, &str, &str)> = causes.iter().map(|(f, r, m)| (f.as_str(), *r, *m)).collect();
    check_spec(json!({"containers": [{"name": "c", "image": "i", "securityContext": context}]}), &causes).await;
}

#[tokio::test]
async fn pod_security_context_is_validated() {
    let regex = "Invalid value: \"a..b\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let context = json!({"runAsUser": -1, "supplementalGroups": [1, 4_294_967_296_i64], "fsGroupChangePolicy": "Never",
        "supplementalGroupsPolicy": "None", "seccompProfile": {"type": "Localhost"},
        "sysctls": [{"name": "a..b", "value": "1"}, {"name": "net.x", "value": "1"}, {"name": "net.x", "value": "2"}]});
    let range = |value: &str| format!("Invalid value: {value}: must be between 0 and 2147483647, inclusive");
    check_spec(
        json!({"securityContext": context}),
        &[
            ("spec.securityContext.runAsUser", "Invalid", &range("-1")),
            ("spec.securityContext.supplementalGroups[1]", "Invalid", &range("4294967296")),
            ("spec.securityContext.sysctls[0].name", "Invalid", regex),
            ("spec.securityContext.sysctls[2].name", "Duplicate", "Duplicate value: \"net.x\""),
            (
                "spec.securityContext.fsGroupChangePolicy",
                "NotSupported",
                "Unsupported value: \"Never\": supported values: \"Always\", \"OnRootMismatch\"",
            ),
            (
                "spec.securityContext.supplementalGroupsPolicy",
                "NotSupported",
                "Unsupported value: \"None\": supported values: \"Merge\", \"Strict\"",
            ),
            (
                "spec.securityContext.seccompProfile.localhostProfile",
                "Required",
                "Required value: must be set when seccomp type is Localhost",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn conflicting_host_namespaces_are_rejected() {
    let both = "Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled";
    let path = "spec.securityContext.shareProcessNamespace";
    check_spec(json!({"shareProcessNamespace": true, "hostPID": true}), &[(path, "Invalid", both)]).await;
    let users = "Forbidden: when `pod.Spec.HostUsers` is false";
    check_spec(
        json!({"hostUsers": false, "hostNetwork": true, "hostIPC": true}),
        &[("spec.hostNetwork", "Forbidden", users), ("spec.HostIPC", "Forbidden", users)],
    )
    .await;
}

#[tokio::test]
async fn container_security_context_is_validated() {
    check_context(
        json!({"procMount": "Unmasked"}),
        &[("procMount", "Invalid", "Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`")],
    )
    .await;
    check_context(
        json!({"procMount": "Hidden", "seccompProfile": {"type": "Mine"}}),
        &[
            ("procMount", "NotSupported", "Unsupported value: \"Hidden\": supported values: \"Default\", \"Unmasked\""),
            (
                "seccompProfile.type",
                "NotSupported",
                "Unsupported value: \"Mine\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
            ),
        ],
    )
    .await;
    let profile = json!({"type": "Localhost", "localhostProfile": "../x"});
    check_context(
        json!({"seccompProfile": profile}),
        &[("seccompProfile.localhostProfile", "Invalid", "Invalid value: \"../x\": must not contain '..'")],
    )
    .await;
}

#[tokio::test]
async fn recursive_read_only_mounts_are_validated() {
    let mount =
        json!({"name": "v", "mountPath": "/v", "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"});
    let path = "spec.containers[0].volumeMounts[0].recursiveReadOnly";
    check_spec(
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "c", "image": "i", "volumeMounts": [mount]}]}),
        &[
            (path, "Forbidden", "Forbidden: may only be specified when readOnly is true"),
            (path, "Forbidden", "Forbidden: may only be specified when mountPropagation is None or not specified"),
        ],
    )
    .await;
}

const EPHEMERAL_CONTAINERS: &str = "/api/v1/namespaces/default/pods/p/ephemeralcontainers";

fn ephemeral_container(fields: &Value) -> Value {
    let mut container = json!({"name": "d", "image": "busybox:1"});
    fields.as_object().unwrap().iter().for_each(|(k, v)| container[k] = v.clone());
    json!({"spec": {"ephemeralContainers": [container]}})
}

#[tokio::test]
async fn ephemeral_containers_are_added_by_subresource_only() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let mut with_target = ephemeral_container(&json!({"targetContainerName": "c", "stdin": true}));
    // kubectl debug sends a list order; metadata is ignored.
    with_target["spec"]["$setElementOrder/ephemeralContainers"] = json!([{"name": "d"}]);
    with_target["metadata"] = json!({"labels": {"x": "y"}});
    let added = json!({"metadata": {"generation": 2, "labels": null}, "spec": {"ephemeralContainers": [
        {"name": "d", "targetContainerName": "c", "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File"}]}});
    api.check(patch("strategic-merge-patch", EPHEMERAL_CONTAINERS, &with_target), 200, added.clone()).await;
    api.check(get(EPHEMERAL_CONTAINERS), 200, added).await;
    let mut second = ephemeral_container(&json!({"name": "e"}));
    second["spec"]["$setElementOrder/ephemeralContainers"] = json!([{"name": "d"}, {"name": "e"}]);
    api.check(
        patch("strategic-merge-patch", EPHEMERAL_CONTAINERS, &second),
        200,
        json!({"metadata": {"generation": 3}}),
    )
    .await;
    let message = |field: &str| {
        format!(
            "Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be {field}\n"
        )
    };
    let changed = ephemeral_container(&json!({"image": "other:1"}));
    api.check(
        patch("strategic-merge-patch", EPHEMERAL_CONTAINERS, &changed),
        422,
        json!({"message": message("changed")}),
    )
    .await;
    let without = merge_patch(
        EPHEMERAL_CONTAINERS,
        &json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "busybox:1"}]}}),
    );
    api.check(without, 422, json!({"message": message("removed")})).await;
    api.check(post(EPHEMERAL_CONTAINERS, &json!({})), 405, json!({"reason": "MethodNotAllowed"})).await;
}

#[tokio::test]
async fn ephemeral_container_disallowed_fields_are_rejected() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let never = "cannot be set for an Ephemeral Container";
    let spec = |field: &str| format!("Pod \"p\" is invalid: spec.ephemeralContainers[0].{field}");
    for (fields, expected) in [
        (json!({"ports": [{"containerPort": 80}]}), format!("{}: Forbidden: {never}", spec("ports"))),
        (json!({"lifecycle": {}}), format!("{}: Forbidden: {never}", spec("lifecycle"))),
        (json!({"resources": {"limits": {"cpu": "1"}}}), format!("{}: Forbidden: {never}", spec("resources"))),
        (json!({"name": "c"}), format!("{}: Duplicate value: \"c\"", spec("name"))),
        (json!({"targetContainerName": "x"}), format!("{}: Not found: \"x\"", spec("targetContainerName"))),
        (json!({"image": ""}), format!("{}: Required value", spec("image"))),
    ] {
        let response =
            api.check(merge_patch(EPHEMERAL_CONTAINERS, &ephemeral_container(&fields)), 422, json!({})).await;
        assert!(
            response.body["message"].as_str().unwrap().contains(expected.trim_start_matches("Pod \"p\" is invalid: ")),
            "{fields}: {}",
            response.body
        );
    }
}
