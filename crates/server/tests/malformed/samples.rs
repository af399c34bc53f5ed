//! Valid objects to mutate, and values of requests.

use super::{defined, generate::NS};
use serde_json::{Value, json};

pub(crate) const SEGMENTS: [&str; 24] = [
    "api",
    "apis",
    "v1",
    "namespaces",
    "default",
    "pods",
    "p",
    "configmaps",
    "a",
    "status",
    "binding",
    "eviction",
    "..",
    ".",
    "%2e%2e",
    "%2f",
    "%00",
    "%zz",
    "%",
    "%ff%fe",
    "\u{fc}",
    "events.k8s.io",
    "nodes",
    "leases",
];
pub(crate) const KEYS: [&str; 18] = [
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "watch",
    "timeoutSeconds",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "dryRun",
    "fieldValidation",
    "gracePeriodSeconds",
    "propagationPolicy",
    "timeout",
    "includeObject",
    "fieldManager",
    "%00",
];
pub(crate) const VALUES: [&str; 40] = [
    "",
    "0",
    "1",
    "-1",
    "true",
    "x",
    "Exact",
    "NotOlderThan",
    "All",
    "Strict",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "-9223372036854775809",
    "1e9",
    "0x10",
    "NaN",
    "%00",
    "%",
    "%zz",
    "a%3Db",
    "a+in+(",
    "a+in+(b,,c)",
    "!",
    "!!a",
    "a%3D%3D%3Db",
    "(((((((",
    ",,,,",
    "a%5C",
    "metadata.name%3Da",
    "metadata.name%3D%2E%2E",
    "spec.nodeName%3D",
    "status.phase",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLyJ9",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5LCJzdGFydCI6ImEvYiJ9",
    "e30",
    "////",
    "1h",
    "99999999999999999999h",
    "\u{1f980}",
];
pub(crate) const CONTENT_TYPES: [&str; 16] = [
    "application/json",
    "application/yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/json; charset=utf-16",
    "text/plain",
    "application/cbor",
    "multipart/form-data; boundary=x",
    "",
    ";",
    "/",
    "application/",
    "application/json,application/yaml",
    "APPLICATION/JSON",
];
pub(crate) const ACCEPTS: [&str; 9] = [
    "*/*",
    "text/html",
    "application/json;as=Table",
    "application/json;as=",
    "application/json;q=x",
    ";;;,,,",
    "application/*",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "a/b,c/d;e=f",
];
pub(crate) const METHODS: [&str; 12] =
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "POST"];

/// Returns valid objects and their collection paths. Pods are created as dry runs, to keep the store small.
pub(crate) fn samples() -> Vec<(String, Value)> {
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    vec![
        (format!("{}?dryRun=All", defined::DEFINITIONS), defined::definition("gadgets")),
        ("/apis/fuzz.example.com/v1/namespaces/default/widgets?dryRun=All".to_owned(), defined::object()),
        (format!("{NS}/pods?dryRun=All"), full_pod()),
        (
            format!("{NS}/configmaps?dryRun=All"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x.io/y"], "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}, "data": {"k": "v"}, "binaryData": {"b": "eA=="}, "immutable": false}),
        ),
        (
            format!("{NS}/secrets?dryRun=All"),
            json!({"metadata": {"generateName": "x-"}, "type": "Opaque", "data": {"a": "eA=="}, "stringData": {"b": "y"}}),
        ),
        (
            format!("{NS}/events?dryRun=All"),
            json!({"metadata": {"name": "x"}, "involvedObject": about, "reason": "R", "message": "m", "type": "Normal", "count": 1, "firstTimestamp": "2026-01-01T00:00:00Z", "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}, "source": {"component": "c"}}),
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events?dryRun=All".to_owned(),
            json!({"metadata": {"name": "y"}, "regarding": about, "note": "n", "eventTime": "2026-01-01T00:00:00.000000Z", "deprecatedSource": {"component": "c"}}),
        ),
        (
            "/api/v1/nodes?dryRun=All".to_owned(),
            json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": true, "podCIDRs": ["10.0.0.0/8"]}, "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "Hostname", "address": "n"}]}}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All".to_owned(),
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "h", "leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        ),
        (
            "/api/v1/namespaces?dryRun=All".to_owned(),
            json!({"metadata": {"name": "ns"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}),
        ),
        (
            format!("{NS}/serviceaccounts?dryRun=All"),
            json!({"metadata": {"name": "robot"}, "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "t"}], "automountServiceAccountToken": false}),
        ),
        (
            format!("{NS}/pods/p/binding?dryRun=All"),
            json!({"kind": "Binding", "metadata": {"name": "p", "uid": "u"}, "target": {"kind": "Node", "name": "n"}}),
        ),
        (
            format!("{NS}/pods/p/eviction?dryRun=All"),
            json!({"kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 1, "preconditions": {"uid": "u"}, "dryRun": ["All"], "propagationPolicy": "Background"}}),
        ),
    ]
}

fn full_pod() -> Value {
    let probe = json!({"httpGet": {"path": "/", "port": "http", "httpHeaders": [{"name": "A", "value": "b"}]}, "periodSeconds": 5});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "full", "namespace": "default", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3, "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}]},
        "spec": {
            "containers": [{
                "name": "c", "image": "x", "command": ["a"], "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "envFrom": [{"prefix": "P", "configMapRef": {"name": "a"}}], "ports": [{"name": "http", "containerPort": 80, "hostPort": 80}], "livenessProbe": probe, "stdin": true,
                "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}, "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}], "securityContext": {"runAsUser": 1, "capabilities": {"add": ["X"]}}, "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            }],
            "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always"}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}}]}}],
            "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3, "effect": "NoExecute"}], "nodeSelector": {"a": "b"}, "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}], "securityContext": {"fsGroup": 1, "sysctls": [{"name": "a", "value": "b"}]},
            "dnsConfig": {"nameservers": ["1.1.1.1"], "options": [{"name": "a"}]}, "activeDeadlineSeconds": 9, "readinessGates": [{"conditionType": "a"}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "c", "restartCount": 1, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}], "podIPs": [{"ip": "1.1.1.1"}]},
    })
}
