//! Validation errors: fields, messages and causes of upstream.

use crate::common::*;
use serde_json::{Value, json};

/// Asserts that the Pod is rejected with these causes: field, reason (without `FieldValue`), message.
pub(crate) async fn check(api: &TestApi, change: impl Fn(&mut Value), causes: &[(&str, &str, &str)]) {
    let mut object = pod("p");
    change(&mut object);
    let expected: Vec<Value> = causes
        .iter()
        .map(|(field, reason, message)| json!({"field": field, "reason": format!("FieldValue{reason}"), "message": message}))
        .collect();
    if expected.is_empty() {
        api.check(post(format!("{PODS}?dryRun=All"), &object), 201, json!({})).await;
    } else {
        api.check(
            post(PODS, &object),
            422,
            json!({"reason": "Invalid", "details": {"kind": "Pod", "causes": expected}}),
        )
        .await;
    }
}

pub(crate) async fn check_spec(spec: Value, causes: &[(&str, &str, &str)]) {
    check(&TestApi::new().await, |p| merge_into(&mut p["spec"], &spec), causes).await;
}

async fn check_container(container: Value, causes: &[(&str, &str, &str)]) {
    let causes: Vec<(String, &str, &str)> =
        causes.iter().map(|(f, r, m)| (format!("spec.containers[0].{f}"), *r, *m)).collect();
    let causes: Vec<(&str, &str, &str)> = causes.iter().map(|(f, r, m)| (f.as_str(), *r, *m)).collect();
    check(&TestApi::new().await, |p| merge_into(&mut p["spec"]["containers"][0], &container), &causes).await;
}

pub(crate) fn merge_into(to: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        to[key] = value.clone();
    }
}

pub(crate) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

#[tokio::test]
async fn invalid_pod_status_matches_upstream() {
    let api = TestApi::new().await;
    let object = json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Sometimes"}});
    let response = api.check(post(PODS, &object), 422, json!({})).await;
    assert_eq!(
        response.body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": "Pod \"p\" is invalid: [spec.containers: Required value, spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"]",
            "details": {"name": "p", "kind": "Pod", "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"},
                {"reason": "FieldValueNotSupported", "message": "Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"", "field": "spec.restartPolicy"},
            ]},
        })
    );
}

#[tokio::test]
async fn metadata_is_validated() {
    let api = TestApi::new().await;
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let big = "x".repeat(300 << 10);
    for (metadata, field, reason, message) in [
        (json!({}), "metadata.name", "Required", "Required value: name or generateName is required".to_owned()),
        (json!({"name": "A"}), "metadata.name", "Invalid", format!("Invalid value: \"A\": {subdomain}")),
        (
            json!({"name": "a".repeat(254)}),
            "metadata.name",
            "Invalid",
            format!("Invalid value: \"{}\": must be no more than 253 bytes", "a".repeat(254)),
        ),
        (
            json!({"name": "a", "labels": {"a b": "c"}}),
            "metadata.labels",
            "Invalid",
            format!("Invalid value: \"a b\": {name}"),
        ),
        (
            json!({"name": "a", "labels": {"a": "c d"}}),
            "metadata.labels",
            "Invalid",
            format!("Invalid value: \"c d\": {value}"),
        ),
        (
            json!({"name": "a", "annotations": {"a": big}}),
            "metadata.annotations",
            "TooLong",
            "Too long: may not be more than 262144 bytes".to_owned(),
        ),
        (
            json!({"name": "a", "finalizers": ["/"]}),
            "metadata.finalizers",
            "Invalid",
            "Invalid value: \"/\": prefix part must be non-empty".to_owned(),
        ),
        (
            json!({"name": "a", "finalizers": ["bare"]}),
            "metadata.finalizers[0]",
            "Invalid",
            "Invalid value: \"bare\": name is neither a standard finalizer name nor is it fully qualified".to_owned(),
        ),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}),
            "metadata.ownerReferences.uid",
            "Invalid",
            "Invalid value: \"\": must not be empty".to_owned(),
        ),
    ] {
        let response =
            api.check(post(CONFIG_MAPS, &json!({"metadata": metadata})), 422, json!({"reason": "Invalid"})).await.body;
        let cause = json!({"field": field, "reason": format!("FieldValue{reason}"), "message": message});
        assert!(response["details"]["causes"].as_array().unwrap().contains(&cause), "{cause:#}\n{response:#}");
    }
    let object = json!({"metadata": {"name": "a.b"}});
    api.check(post("/api/v1/namespaces", &object), 422, json!({"details": {"causes": [{"field": "metadata.name", "message": "Invalid value: \"a.b\": must not contain dots"}]}})).await;
    let twice = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let object = json!({"metadata": {"name": "a", "ownerReferences": [twice, twice]}});
    api.check(post(CONFIG_MAPS, &object), 201, json!({"metadata": {"ownerReferences": [twice]}})).await;
}

#[tokio::test]
async fn containers_are_validated() {
    check_container(json!({"name": ""}), &[("name", "Required", "Required value")]).await;
    check_container(json!({"name": "A"}), &[("name", "Invalid", &format!("Invalid value: \"A\": {LABEL}"))]).await;
    check_container(json!({"image": ""}), &[("image", "Required", "Required value")]).await;
    check_container(
        json!({"image": " a"}),
        &[("image", "Invalid", "Invalid value: \" a\": must not have leading or trailing whitespace")],
    )
    .await;
    check_container(
        json!({"imagePullPolicy": "Maybe"}),
        &[(
            "imagePullPolicy",
            "NotSupported",
            "Unsupported value: \"Maybe\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        )],
    )
    .await;
    check_container(
        json!({"terminationMessagePolicy": "X"}),
        &[(
            "terminationMessagePolicy",
            "NotSupported",
            "Unsupported value: \"X\": supported values: \"File\", \"FallbackToLogsOnError\"",
        )],
    )
    .await;
}

#[tokio::test]
async fn ports_are_validated() {
    let port = "Invalid value: 70000: must be between 1 and 65535, inclusive";
    check_container(
        json!({"ports": [{"containerPort": 70000}, {"name": "http", "containerPort": 80}, {"name": "http", "containerPort": 81, "protocol": "ICMP"}, {"name": "UPPER", "containerPort": 0}]}),
        &[
            ("ports[0].containerPort", "Invalid", port),
            ("ports[2].name", "Duplicate", "Duplicate value: \"http\""),
            ("ports[2].protocol", "NotSupported", "Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\""),
            ("ports[3].name", "Invalid", "Invalid value: \"UPPER\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
            ("ports[3].name", "Invalid", "Invalid value: \"UPPER\": must contain at least one letter (a-z)"),
            ("ports[3].containerPort", "Required", "Required value"),
        ],
    )
    .await;
    check_container(
        json!({"ports": [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80}]}),
        &[("ports[1].hostPort", "Duplicate", "Duplicate value: \"TCP//80\"")],
    )
    .await;
}

#[tokio::test]
async fn environment_variables_are_validated() {
    check_container(
        json!({"env": [{"name": ""}, {"name": "A=B"}, {"name": "C", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "D", "valueFrom": {}},
            {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.color"}}}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}},
            {"name": "G", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}, {"name": "H", "valueFrom": {"resourceFieldRef": {"resource": "limits.gold"}}}]}),
        &[
            ("env[0].name", "Required", "Required value"),
            ("env[1].name", "Invalid", "Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='"),
            ("env[2].valueFrom", "Invalid", "Invalid value: \"\": may not be specified when `value` is not empty"),
            ("env[3].valueFrom", "Invalid", "Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"),
            ("env[4].valueFrom.fieldRef.fieldPath", "Invalid", "Invalid value: \"spec.color\": error converting fieldPath: field label not supported: spec.color"),
            ("env[5].valueFrom.fieldRef.fieldPath", "NotSupported", "Unsupported value: \"metadata.labels\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\""),
            ("env[7].valueFrom.resourceFieldRef.resource", "NotSupported", "Unsupported value: \"limits.gold\": supported values: \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.memory\""),
        ],
    )
    .await;
    check_container(
        json!({"envFrom": [{"configMapRef": {"name": ""}}, {}]}),
        &[
            ("envFrom[0].configMapRef.name", "Required", "Required value"),
            ("envFrom", "Invalid", "Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"),
        ],
    )
    .await;
}

#[tokio::test]
async fn volume_mounts_and_resources_are_validated() {
    check_container(
        json!({"volumeMounts": [{"name": "none", "mountPath": "/a"}, {"name": "none", "mountPath": "/a", "subPath": "../x"}, {"name": "none", "mountPath": ""}]}),
        &[
            ("volumeMounts[0].name", "NotFound", "Not found: \"none\""),
            ("volumeMounts[1].name", "NotFound", "Not found: \"none\""),
            ("volumeMounts[1].mountPath", "Invalid", "Invalid value: \"/a\": must be unique"),
            ("volumeMounts.subPath", "Invalid", "Invalid value: \"../x\": must not contain '..'"),
            ("volumeMounts[2].name", "NotFound", "Not found: \"none\""),
            ("volumeMounts[2].mountPath", "Required", "Required value"),
        ],
    )
    .await;
    check_container(
        json!({"resources": {"limits": {"cpu": "1", "memory": "-1", "gold": "1"}, "requests": {"cpu": "2"}}}),
        &[
            (
                "resources.limits[gold]",
                "Invalid",
                "Invalid value: \"gold\": must be a standard resource for containers",
            ),
            ("resources.limits[memory]", "Invalid", "Invalid value: \"-1\": must be greater than or equal to 0"),
            (
                "resources.requests[gold]",
                "Invalid",
                "Invalid value: \"gold\": must be a standard resource for containers",
            ),
            ("resources.requests[memory]", "Invalid", "Invalid value: \"-1\": must be greater than or equal to 0"),
            ("resources.requests", "Invalid", "Invalid value: \"2\": must be less than or equal to cpu limit of 1"),
        ],
    )
    .await;
    check_container(
        json!({"resources": {"limits": {"x.io/gpu": "1500m"}}}),
        &[
            ("resources.limits[x.io/gpu]", "Invalid", "Invalid value: \"1500m\": must be an integer"),
            ("resources.requests[x.io/gpu]", "Invalid", "Invalid value: \"1500m\": must be an integer"),
        ],
    )
    .await;
    check_container(
        json!({"securityContext": {"runAsUser": -1}}),
        &[("securityContext.runAsUser", "Invalid", "Invalid value: -1: must be between 0 and 2147483647, inclusive")],
    )
    .await;
}

#[tokio::test]
async fn probes_and_lifecycle_hooks_are_validated() {
    check_container(
        json!({"livenessProbe": {}}),
        &[("livenessProbe", "Required", "Required value: must specify a handler type")],
    )
    .await;
    check_container(
        json!({"livenessProbe": {"exec": {}, "tcpSocket": {"port": 1}, "successThreshold": 2, "periodSeconds": -1}}),
        &[
            ("livenessProbe.exec.command", "Required", "Required value"),
            ("livenessProbe.tcpSocket", "Forbidden", "Forbidden: may not specify more than 1 handler type"),
            ("livenessProbe.periodSeconds", "Invalid", "Invalid value: -1: must be greater than or equal to 0"),
            ("livenessProbe.successThreshold", "Invalid", "Invalid value: 2: must be 1"),
        ],
    )
    .await;
    check_container(
        json!({"readinessProbe": {"httpGet": {"port": "", "scheme": "FTP"}, "terminationGracePeriodSeconds": 5}}),
        &[
            ("readinessProbe.httpGet.port", "Invalid", "Invalid value: \"\": must contain at least one letter (a-z)"),
            (
                "readinessProbe.httpGet.scheme",
                "NotSupported",
                "Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
            ),
            (
                "readinessProbe.terminationGracePeriodSeconds",
                "Invalid",
                "Invalid value: 5: must not be set for readinessProbes",
            ),
        ],
    )
    .await;
    check_container(
        json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}, "postStart": {}}}),
        &[
            ("lifecycle.postStart", "Required", "Required value: must specify a handler type"),
            (
                "lifecycle.preStop.sleep",
                "Invalid",
                "Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn init_and_ephemeral_containers_are_validated() {
    let init = |extra: Value| {
        let mut c = json!({"name": "i", "image": "x"});
        merge_into(&mut c, &extra);
        json!({"initContainers": [c]})
    };
    let probe = json!({"exec": {"command": ["x"]}});
    let forbidden = "Forbidden: may not be set for init containers without restartPolicy=Always";
    check_spec(
        init(json!({"livenessProbe": probe, "lifecycle": {}})),
        &[
            ("spec.initContainers[0].lifecycle", "Forbidden", forbidden),
            ("spec.initContainers[0].livenessProbe", "Forbidden", forbidden),
        ],
    )
    .await;
    check_spec(init(json!({"livenessProbe": probe, "restartPolicy": "Always"})), &[]).await;
    check_spec(init(json!({"name": "c"})), &[("spec.initContainers[0].name", "Duplicate", "Duplicate value: \"c\"")])
        .await;
    check_spec(
        init(json!({"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]})),
        &[(
            "spec.initContainers[0].restartPolicy",
            "Required",
            "Required value: must specify restartPolicy when restart rules are used",
        )],
    )
    .await;
    check_spec(
        json!({"ephemeralContainers": [{"name": "e", "image": "x"}]}),
        &[("spec.ephemeralContainers", "Forbidden", "Forbidden: cannot be set on create")],
    )
    .await;
    check_spec(
        json!({"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "y"}]}),
        &[("spec.containers[1].name", "Duplicate", "Duplicate value: \"c\"")],
    )
    .await;
}

#[tokio::test]
async fn immutable_pod_fields_cannot_be_updated() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    api.check(post(PODS, &object), 201, json!({})).await;
    let path = format!("{PODS}/p");
    let start = "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";
    for spec in [
        json!({"nodeName": "n"}),
        json!({"restartPolicy": "Never"}),
        json!({"hostNetwork": true}),
        json!({"terminationGracePeriodSeconds": 1}),
        json!({"nodeSelector": {"a": "b"}}),
    ] {
        let response = api
            .check(
                merge_patch(&path, &json!({"spec": spec})),
                422,
                json!({"details": {"causes": [{"field": "spec", "reason": "FieldValueForbidden"}]}}),
            )
            .await;
        let message = response.body["message"].as_str().unwrap();
        assert!(message.starts_with(start), "{spec}: {message}");
    }
    api.check(
        merge_patch(&path, &json!({"spec": {"tolerations": []}})),
        422,
        json!({"message": "Pod \"p\" is invalid: spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"}),
    )
    .await;
    for (spec, status) in [
        (json!({"containers": [{"name": "c", "image": "busybox:2"}]}), 200),
        (json!({"activeDeadlineSeconds": 100}), 200),
        (json!({"activeDeadlineSeconds": 101}), 422),
        (json!({"activeDeadlineSeconds": null}), 422),
        (json!({"activeDeadlineSeconds": 99}), 200),
        // Empty fields that upstream's types omit are not changes.
        (json!({"hostNetwork": false, "volumes": [], "nodeName": ""}), 200),
    ] {
        let kind = if spec["containers"].is_array() { "strategic-merge-patch" } else { "merge-patch" };
        api.check(patch(kind, &path, &json!({"spec": spec})), status, json!({})).await;
    }
}
