//! `apps/v1`.

use super::*;

fn workload(kind: &str, fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod_template("web")},
    });
    merge_into(&mut object, &fields);
    object
}

#[tokio::test]
async fn deployments() {
    KindCase {
        path: "/apis/apps/v1/namespaces/default/deployments",
        discovery: json!({"singularName": "deployment", "shortNames": ["deploy"], "categories": ["all"], "status": true}),
        manifest: workload("Deployment", json!({})),
        made: json!({
            "metadata": {"generation": 1},
            "spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": {"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
                    "enableServiceLinks": null, "tolerations": null, "serviceAccountName": null, "priority": null,
                    "containers": [{"imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File"}]}}},
            "status": {},
        }),
        invalid: &[
            (r#"{"spec": {"selector": null}}"#, "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`]"),
            (r#"{"spec": {"selector": {"matchLabels": null}}}"#, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
            (
                r#"{"spec": {"selector": {"matchLabels": {"app": "other"}}}}"#,
                "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
            ),
            (r#"{"spec": {"replicas": -1}}"#, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
            (r#"{"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}"#, "spec.template.spec.containers[0].image: Required value"),
            (
                r#"{"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}"#,
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
            (
                r#"{"spec": {"template": {"spec": {"activeDeadlineSeconds": 5}}}}"#,
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
            ),
            (
                r#"{"spec": {"strategy": {"type": "Sudden"}}}"#,
                "spec.strategy.type: Unsupported value: \"Sudden\": supported values: \"Recreate\", \"RollingUpdate\"",
            ),
            (
                r#"{"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}}"#,
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ),
            (
                r#"{"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}}"#,
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
            ),
            (
                r#"{"spec": {"minReadySeconds": 600}}"#,
                "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
            ),
        ],
        columns: "Name|Ready|Up-to-date|Available|Age|Containers|Images|Selector",
        cells: json!(["web", "0/1", 0, 0, null, "c", "busybox:1", "app=web"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn replica_sets() {
    KindCase {
        path: "/apis/apps/v1/namespaces/default/replicasets",
        discovery: json!({"singularName": "replicaset", "shortNames": ["rs"], "categories": ["all"], "status": true}),
        manifest: workload("ReplicaSet", json!({"spec": {"replicas": 3}})),
        made: json!({"metadata": {"generation": 1}, "spec": {"replicas": 3}, "status": {"replicas": 0}}),
        invalid: &[
            (r#"{"spec": {"selector": {"matchLabels": null}}}"#, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
            (
                r#"{"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}}}"#,
                "[spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"app\",\"operator\":\"In\"}],\"matchLabels\":{\"app\":\"web\"}}: invalid label selector]",
            ),
        ],
        columns: "Name|Desired|Current|Ready|Age|Containers|Images|Selector",
        cells: json!(["web", 3, 0, 0, null, "c", "busybox:1", "app=web"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn stateful_sets() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    KindCase {
        path: "/apis/apps/v1/namespaces/default/statefulsets",
        discovery: json!({"singularName": "statefulset", "shortNames": ["sts"], "categories": ["all"], "status": true}),
        manifest: workload("StatefulSet", json!({"spec": {"serviceName": "web", "volumeClaimTemplates": [claim], "revisionHistoryLimit": -1,
            "template": {"spec": {"containers": [{"name": "c", "image": "busybox:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}}}})),
        made: json!({
            "spec": {"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": -1,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "volumeClaimTemplates": [{"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}]},
            "status": {"replicas": 0, "availableReplicas": 0},
        }),
        invalid: &[
            (
                r#"{"spec": {"podManagementPolicy": "Random"}}"#,
                "spec.podManagementPolicy: Invalid value: \"Random\": must be 'OrderedReady' or 'Parallel'",
            ),
            (
                r#"{"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}}}"#,
                "spec.updateStrategy.rollingUpdate: Invalid value: {\"partition\":1}: only allowed for updateStrategy 'RollingUpdate'",
            ),
            (
                r#"{"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}"#,
                "spec.template.spec.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Always\"",
            ),
            (
                r#"{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:1", "volumeMounts": [{"name": "other", "mountPath": "/data"}]}]}}}}"#,
                "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"other\"",
            ),
            (
                r#"{"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}}"#,
                "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
            ),
            (
                r#"{"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}}"#,
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
            ),
            (
                r#"{"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}}"#,
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
        ],
        columns: "Name|Ready|Age|Containers|Images",
        cells: json!(["web", "0/1", null, "c", "busybox:1"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn daemon_sets() {
    KindCase {
        path: "/apis/apps/v1/namespaces/default/daemonsets",
        discovery: json!({"singularName": "daemonset", "shortNames": ["ds"], "categories": ["all"], "status": true}),
        manifest: workload("DaemonSet", json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}})),
        made: json!({
            "spec": {"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
            "status": {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0},
        }),
        invalid: &[
            (
                r#"{"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}}"#,
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
            ),
            (
                r#"{"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}}"#,
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
            ),
            (
                r#"{"spec": {"updateStrategy": {"type": "Never"}}}"#,
                "spec.updateStrategy.type: Unsupported value: \"Never\": supported values: \"RollingUpdate\", \"OnDelete\"",
            ),
        ],
        columns: "Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age|Containers|Images|Selector",
        cells: json!(["web", 0, 0, 0, 0, 0, "disk=ssd", null, "c", "busybox:1", "app=web"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn controller_revisions() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "u", "controller": true}]);
    KindCase {
        path: "/apis/apps/v1/namespaces/default/controllerrevisions",
        discovery: json!({"singularName": "controllerrevision"}),
        manifest: json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "web-1", "ownerReferences": owner},
            "data": {"any": "thing"}, "revision": 2}),
        made: json!({"revision": 2, "data": {"any": "thing"}}),
        invalid: &[
            (r#"{"data": null}"#, "data: Required value: data is mandatory"),
            (r#"{"revision": -1}"#, "revision: Invalid value: -1: must be greater than or equal to 0"),
        ],
        columns: "Name|Controller|Revision|Age",
        cells: json!(["web-1", "daemonset.apps/web", 2, null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn workload_selectors_are_immutable() {
    let api = TestApi::new().await;
    for (kind, plural) in [("Deployment", "deployments"), ("ReplicaSet", "replicasets"), ("DaemonSet", "daemonsets")] {
        let path = format!("/apis/apps/v1/namespaces/default/{plural}");
        api.check(post(&path, &workload(kind, json!({}))), 201, json!({})).await;
        let other = json!({"spec": {"selector": {"matchLabels": {"app": "other"}}, "template": {"metadata": {"labels": {"app": "other"}}}}});
        let message = format!(
            "{kind}.apps \"web\" is invalid: spec.selector: Invalid value: {{\"matchLabels\":{{\"app\":\"other\"}}}}: field is immutable"
        );
        api.check(merge_patch(format!("{path}/web"), &other), 422, json!({"message": message})).await;
        let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
        let request = patch("strategic-merge-patch", format!("{path}/web"), &image);
        api.check(request, 200, json!({"metadata": {"generation": 2}, "spec": {"template": {"spec": {"containers": [{"image": "busybox:2"}]}}}}))
            .await;
    }
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    api.check(post(path, &workload("StatefulSet", json!({}))), 201, json!({})).await;
    let message = "StatefulSet.apps \"web\" is invalid: spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    let other = merge_patch(format!("{path}/web"), &json!({"spec": {"serviceName": "other"}}));
    api.check(other, 422, json!({"message": message})).await;
    let scaled_up = merge_patch(format!("{path}/web"), &json!({"spec": {"replicas": 3}}));
    api.check(scaled_up, 200, json!({"spec": {"replicas": 3}, "metadata": {"generation": 2}})).await;
}
