//! Defaults, compared with upstream's `pkg/apis/core/v1/defaults.go` and its admission.

use crate::common::*;
use serde_json::{Value, json};

#[tokio::test]
async fn pod_gets_upstream_defaults() {
    let api = TestApi::new().await;
    let created = api.create_pod("p").await;
    let toleration = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    assert_eq!(
        created["spec"],
        json!({
            "containers": [{
                "name": "c", "image": "busybox:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
            "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
            "tolerations": [toleration("not-ready"), toleration("unreachable")],
        })
    );
    assert_eq!(created["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

/// Asserts the defaults of a part of a spec.
async fn check(path: &str, given: Value, expected: Value) {
    let api = TestApi::new().await;
    let account = json!({"metadata": {"name": "robot"}});
    api.check(post("/api/v1/namespaces/default/serviceaccounts", &account), 201, json!({})).await;
    let mut object = pod("p");
    let mut wrapped = given;
    let mut result = expected;
    for part in path.rsplit('/').filter(|p| !p.is_empty()) {
        wrapped = if part == "0" { json!([wrapped]) } else { json!({part: wrapped}) };
        result = if part == "0" { json!([result]) } else { json!({part: result}) };
    }
    json_merge(&mut object["spec"], &wrapped);
    api.check(post(PODS, &object), 201, json!({"spec": result})).await;
}

/// Merges objects, and the first items of lists.
fn json_merge(to: &mut Value, from: &Value) {
    match (to, from) {
        (Value::Object(to), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(to.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(to), Value::Array(from)) if !to.is_empty() && from.len() == 1 => json_merge(&mut to[0], &from[0]),
        (to, from) => *to = from.clone(),
    }
}

#[tokio::test]
async fn image_pull_policy_defaults_by_tag() {
    for (image, policy) in [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("host:5000/a/b", "Always"),
        ("host:5000/a/b:1", "IfNotPresent"),
        ("busybox@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
    ] {
        check("containers/0", json!({"image": image}), json!({"imagePullPolicy": policy})).await;
    }
}

#[tokio::test]
async fn container_parts_get_upstream_defaults() {
    let probe = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
    for (path, given, expected) in [
        ("containers/0/livenessProbe", json!({"exec": {"command": ["x"]}, "timeoutSeconds": 0}), probe.clone()),
        (
            "containers/0/readinessProbe",
            json!({"httpGet": {"port": 80}}),
            json!({"httpGet": {"path": "/", "scheme": "HTTP"}, "periodSeconds": 10}),
        ),
        (
            "containers/0/startupProbe",
            json!({"grpc": {"port": 80}}),
            json!({"grpc": {"service": ""}, "failureThreshold": 3}),
        ),
        (
            "containers/0/lifecycle/preStop",
            json!({"httpGet": {"port": "http"}}),
            json!({"httpGet": {"path": "/", "scheme": "HTTP"}}),
        ),
        (
            "containers/0/ports/0",
            json!({"containerPort": 80, "hostPort": 0}),
            json!({"protocol": "TCP", "hostPort": null}),
        ),
        (
            "",
            json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]}),
            json!({"containers": [{"ports": [{"hostPort": 80}]}]}),
        ),
        (
            "containers/0/env/0",
            json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
            json!({"valueFrom": {"fieldRef": {"apiVersion": "v1"}}}),
        ),
        (
            "containers/0/env/0",
            json!({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}),
            json!({"valueFrom": {"resourceFieldRef": {"divisor": "0"}}}),
        ),
        (
            "containers/0/resources",
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}),
            json!({"requests": {"cpu": "1", "memory": "1Gi"}}),
        ),
    ] {
        check(path, given, expected).await;
    }
}

#[tokio::test]
async fn volumes_and_pod_fields_get_upstream_defaults() {
    for (path, given, expected) in [
        ("volumes/0", json!({"name": "v"}), json!({"emptyDir": {}})),
        ("volumes/0", json!({"name": "v", "configMap": {"name": "c"}}), json!({"configMap": {"defaultMode": 420}})),
        ("volumes/0", json!({"name": "v", "secret": {"secretName": "c"}}), json!({"secret": {"defaultMode": 420}})),
        (
            "volumes/0",
            json!({"name": "v", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
            json!({"downwardAPI": {"defaultMode": 420, "items": [{"fieldRef": {"apiVersion": "v1"}}]}}),
        ),
        (
            "volumes/0",
            json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            json!({"projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3600}}]}}),
        ),
        ("volumes/0", json!({"name": "v", "hostPath": {"path": "/x"}}), json!({"hostPath": {"type": ""}})),
        ("serviceAccount", json!("robot"), json!("robot")),
        ("", json!({"serviceAccount": "robot"}), json!({"serviceAccountName": "robot"})),
        (
            "",
            json!({"restartPolicy": "", "schedulerName": "", "hostNetwork": false}),
            json!({"restartPolicy": "Always", "schedulerName": "default-scheduler", "hostNetwork": null}),
        ),
        ("terminationGracePeriodSeconds", json!(0), json!(0)),
        ("enableServiceLinks", json!(false), json!(false)),
        (
            "",
            json!({"priorityClassName": "system-node-critical"}),
            json!({"priority": 2_000_001_000, "preemptionPolicy": "PreemptLowerPriority"}),
        ),
        ("tolerations", json!([{"operator": "Exists"}]), json!([{"operator": "Exists"}])),
        (
            "initContainers/0",
            json!({"name": "i", "image": "x"}),
            json!({"imagePullPolicy": "Always", "terminationMessagePolicy": "File"}),
        ),
    ] {
        check(path, given, expected).await;
    }
}

#[tokio::test]
async fn pod_priority_is_resolved_from_its_class() {
    let api = TestApi::new().await;
    let with = |field: &str, value: Value| {
        let mut object = pod("p");
        object["spec"][field] = value;
        post(PODS, &object)
    };
    for (request, reason) in [
        (with("priorityClassName", json!("high")), "no PriorityClass with name high was found"),
        (
            with("priority", json!(5)),
            "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
        ),
        (
            with("preemptionPolicy", json!("Never")),
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
        ),
    ] {
        api.check(
            request,
            403,
            json!({"reason": "Forbidden", "message": format!("pods \"p\" is forbidden: {reason}")}),
        )
        .await;
    }
}

#[tokio::test]
async fn service_account_is_required_and_adds_pull_secrets() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["spec"]["serviceAccountName"] = json!("robot");
    let reason =
        "pods \"p\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found";
    api.check(post(PODS, &object), 403, json!({"reason": "Forbidden", "message": reason})).await;
    let account = json!({"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "s"}]});
    api.check(post("/api/v1/namespaces/default/serviceaccounts", &account), 201, json!({})).await;
    api.check(post(PODS, &object), 201, json!({"spec": {"imagePullSecrets": [{"name": "s"}]}})).await;
    object["metadata"]["name"] = json!("q");
    object["spec"]["imagePullSecrets"] = json!([{"name": "own"}]);
    api.check(post(PODS, &object), 201, json!({"spec": {"imagePullSecrets": [{"name": "own"}]}})).await;
}

#[tokio::test]
async fn qos_class_is_set_and_immutable() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    api.check(post(PODS, &object), 201, json!({"status": {"qosClass": "Guaranteed"}})).await;
    let status = format!("{PODS}/p/status");
    api.check(
        put(&status, &json!({"metadata": {"name": "p"}, "status": {"phase": "Running"}})),
        200,
        json!({"status": {"qosClass": "Guaranteed", "phase": "Running"}}),
    )
    .await;
    api.check(
        merge_patch(&status, &json!({"status": {"qosClass": "Burstable"}})),
        422,
        json!({"message": "Pod \"p\" is invalid: status.qosClass: Invalid value: \"Burstable\": field is immutable"}),
    )
    .await;
}

#[tokio::test]
async fn other_kinds_get_defaults_and_validation() {
    let api = TestApi::new().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "x"}, "data": {"b": "eQ=="}});
    api.check(
        post(secrets, &secret),
        201,
        json!({"type": "Opaque", "data": {"a": "eA==", "b": "eQ=="}, "stringData": null}),
    )
    .await;
    api.check(
        post(secrets, &json!({"metadata": {"name": "t"}, "type": "kubernetes.io/tls"})),
        422,
        json!({"message": "Secret \"t\" is invalid: [data[tls.crt]: Required value, data[tls.key]: Required value]"}),
    )
    .await;
    api.check(
        merge_patch(format!("{secrets}/s"), &json!({"type": "x.io/y"})),
        422,
        json!({"message": "Secret \"s\" is invalid: type: Invalid value: \"x.io/y\": field is immutable"}),
    )
    .await;
    api.check(
        post(secrets, &json!({"metadata": {"name": "u"}, "data": {"a": "not base64!"}})),
        400,
        json!({"reason": "BadRequest"}),
    )
    .await;
    let both = json!({"metadata": {"name": "c"}, "data": {"a": "x"}, "binaryData": {"a": "eA=="}});
    api.check(post(CONFIG_MAPS, &both), 422, json!({"details": {"causes": [{"field": "data[a]", "message": "Invalid value: \"a\": duplicate of key present in binaryData"}, {"field": "binaryData[a]"}]}})).await;
    let large = json!({"metadata": {"name": "c"}, "data": {"a": "x".repeat((1 << 20) + 1)}});
    api.check(post(CONFIG_MAPS, &large), 422, json!({"details": {"causes": [{"reason": "FieldValueTooLong", "message": "Too long: may not be more than 1048576 bytes"}]}})).await;
    let fixed = json!({"metadata": {"name": "c"}, "immutable": true, "data": {"a": "x"}});
    api.check(post(CONFIG_MAPS, &fixed), 201, json!({})).await;
    api.check(
        merge_patch(format!("{CONFIG_MAPS}/c"), &json!({"data": {"a": "y"}})),
        422,
        json!({"message": "ConfigMap \"c\" is invalid: data: Forbidden: field is immutable when `immutable` is set"}),
    )
    .await;
    let lease = json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}});
    api.check(
        post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease),
        422,
        json!({"message": "Lease.coordination.k8s.io \"l\" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"}),
    )
    .await;
    let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "Never"}]}, "status": {"capacity": {"cpu": 2}}});
    api.check(
        post("/api/v1/nodes", &node),
        422,
        json!({"message": "Node \"n\" is invalid: spec.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""}),
    )
    .await;
    let node = json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": 2}}});
    api.check(post("/api/v1/nodes", &node), 201, json!({"status": {"allocatable": {"cpu": "2"}}})).await;
}

#[tokio::test]
async fn remote_volumes_get_upstream_defaults() {
    let api = TestApi::new().await;
    let iscsi = json!({"targetPortal": "192.0.2.1", "iqn": "iqn.2001-04.com.example:x", "lun": 0});
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "iscsi": iscsi}});
    let path = "/api/v1/persistentvolumes";
    let created =
        api.check(post(path, &volume), 201, json!({"spec": {"iscsi": {"iscsiInterface": "default"}}})).await.body;
    let since = created["status"]["lastPhaseTransitionTime"].as_str().unwrap();
    assert!(since.ends_with('Z'), "{since}");
    let long_ago = json!({"status": {"lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}});
    api.check(merge_patch(format!("{path}/v/status"), &long_ago), 200, long_ago.clone()).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    api.check(merge_patch(format!("{path}/v/status"), &label), 200, long_ago).await;
    let available = api
        .check(merge_patch(format!("{path}/v/status"), &json!({"status": {"phase": "Available"}})), 200, json!({}))
        .await;
    assert_ne!(available.body["status"]["lastPhaseTransitionTime"], "2020-01-01T00:00:00Z");
    let sources = json!([{"name": "a", "rbd": {"monitors": ["m"], "image": "i"}},
        {"name": "b", "azureDisk": {"diskName": "d", "diskURI": "https://example.com/d"}},
        {"name": "c", "scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "x"}, "volumeName": "v"}}]);
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"volumes": sources, "containers": [{"name": "c", "image": "i"}]}});
    let expected = json!([{"rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}},
        {"azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": false}},
        {"scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"}}]);
    let created = api.check(post(PODS, &pod), 201, json!({})).await.body;
    for (created, expected) in created["spec"]["volumes"].as_array().unwrap().iter().zip(expected.as_array().unwrap()) {
        let mut mismatches = Vec::new();
        compare(expected, created, "", &mut mismatches);
        assert!(mismatches.is_empty(), "{expected}: {mismatches:?}");
    }
}

#[tokio::test]
async fn volume_claim_templates_get_type_meta() {
    let api = TestApi::new().await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
        "template": template, "volumeClaimTemplates": [claim]}});
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    let expected = json!({"spec": {"volumeClaimTemplates": [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}}]}});
    api.check(post(path, &set), 201, expected.clone()).await;
    api.check(put(format!("{path}/s"), &set), 200, expected).await;
}
