//! Core kinds without a controller.

use super::*;

#[tokio::test]
async fn replication_controllers() {
    KindCase {
        path: "/api/v1/namespaces/default/replicationcontrollers",
        discovery: json!({"singularName": "replicationcontroller", "shortNames": ["rc"], "categories": ["all"], "status": true}),
        manifest: json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"}, "spec": {"template": pod_template("old")}}),
        made: json!({"metadata": {"labels": {"app": "old"}}, "spec": {"replicas": 1, "selector": {"app": "old"}}, "status": {"replicas": 0}}),
        invalid: &[
            (
                r#"{"spec": {"selector": {"app": "new"}}}"#,
                "spec.template.metadata.labels: Invalid value: {\"app\":\"old\"}: `selector` does not match template `labels`",
            ),
            (r#"{"spec": {"selector": {"app": "old"}, "template": null}}"#, "spec.template: Required value"),
        ],
        columns: "Name|Desired|Current|Ready|Age|Containers|Images|Selector",
        cells: json!(["old", 1, 0, 0, null, "c", "busybox:1", "app=old"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn pod_templates() {
    KindCase {
        path: "/api/v1/namespaces/default/podtemplates",
        discovery: json!({"singularName": "podtemplate"}),
        manifest: json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": pod_template("t")}),
        made: json!({"metadata": {"generation": 1}, "template": {"spec": {"restartPolicy": "Always"}}}),
        invalid: &[(
            r#"{"template": {"spec": {"containers": [{"name": "C", "image": "i"}]}}}"#,
            "template.spec.containers[0].name: Invalid value: \"C\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        )],
        columns: "Name|Containers|Images|Pod Labels",
        cells: json!(["t", "c", "busybox:1", "app=t"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn endpoints() {
    KindCase {
        path: "/api/v1/namespaces/default/endpoints",
        discovery: json!({"singularName": "endpoints", "shortNames": ["ep"]}),
        manifest: json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "db"}, "subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]},
        ]}),
        made: json!({"subsets": [{"ports": [{"protocol": "TCP"}, {"protocol": "TCP"}]}]}),
        invalid: &[
            (r#"{"subsets": [{"ports": [{"port": 1}]}]}"#, "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
            (
                r#"{"subsets": [{"addresses": [{"ip": "here"}]}]}"#,
                "subsets[0].addresses[0].ip: Invalid value: \"here\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
        ],
        columns: "Name|Endpoints|Age",
        cells: json!(["db", "10.0.0.1:1,10.0.0.2:1,10.0.0.1:2 + 1 more...", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn limit_ranges() {
    KindCase {
        path: "/api/v1/namespaces/default/limitranges",
        discovery: json!({"singularName": "limitrange", "shortNames": ["limits"]}),
        manifest: json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
        made: json!({"spec": {"limits": [{"default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"}}]}}),
        invalid: &[
            (
                r#"{"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}}"#,
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            ),
            (
                r#"{"spec": {"limits": [{"type": "Pod", "default": {"cpu": "2"}}]}}"#,
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            ),
            (
                r#"{"spec": {"limits": [{"type": "House", "max": {"rooms": "2"}}]}}"#,
                "spec.limits[0].type: Invalid value: \"House\": must be a standard limit type or fully qualified",
            ),
            (
                r#"{"spec": {"limits": [{"type": "Pod", "max": {"rooms": "2"}}]}}"#,
                "spec.limits[0].max[rooms]: Invalid value: \"rooms\": must be a standard resource for containers",
            ),
            (
                r#"{"spec": {"limits": [{"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}]}}"#,
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            ),
            (
                r#"{"spec": {"limits": [{"type": "Pod", "min": {"cpu": "500m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "3"}}]}}"#,
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
            ),
        ],
        columns: "Name|Created At",
        cells: json!(["l", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn resource_quotas() {
    KindCase {
        path: "/api/v1/namespaces/default/resourcequotas",
        discovery: json!({"singularName": "resourcequota", "shortNames": ["quota"], "status": true}),
        manifest: json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "10", "limits.cpu": "4"}}}),
        made: json!({"spec": {"hard": {"pods": "10"}}, "status": {}}),
        invalid: &[
            (r#"{"spec": {"hard": {"pods": "-1"}}}"#, "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0"),
            (r#"{"spec": {"hard": {"pods": "1500m"}}}"#, "spec.hard[pods]: Invalid value: \"1500m\": must be an integer"),
            (r#"{"spec": {"hard": {"count/pods": "1500m"}}}"#, "spec.hard[count/pods]: Invalid value: \"1500m\": must be an integer"),
            (
                r#"{"spec": {"hard": {"wishes": "3"}}}"#,
                "[spec.hard[wishes]: Invalid value: \"wishes\": must be a standard resource type or fully qualified, spec.hard[wishes]: Invalid value: \"wishes\": must be a standard resource for quota]",
            ),
            (r#"{"spec": {"scopes": ["Sometimes"]}}"#, "spec.scopes: Invalid value: [\"Sometimes\"]: unsupported scope"),
            (
                r#"{"spec": {"scopes": ["BestEffort"], "hard": {"limits.cpu": "1"}}}"#,
                "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
            ),
            (
                r#"{"spec": {"scopes": ["Terminating", "NotTerminating"]}}"#,
                "spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes",
            ),
            (
                r#"{"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}}"#,
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            (
                r#"{"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Above"}]}}}"#,
                "spec.scopeSelector.matchExpressions.operator: Invalid value: \"Above\": not a valid selector operator",
            ),
            (
                r#"{"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "Terminating", "operator": "In", "values": ["a"]}]}}}"#,
                "spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            ),
        ],
        columns: "Name|Request|Limit|Age",
        cells: json!(["q", "", "", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn persistent_volumes() {
    KindCase {
        path: "/api/v1/persistentvolumes",
        discovery: json!({"singularName": "persistentvolume", "shortNames": ["pv"], "status": true}),
        manifest: json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "hostPath": {"path": "/v"}, "storageClassName": "slow"}}),
        made: json!({"spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}),
        invalid: &[
            (r#"{"spec": {"accessModes": null}}"#, "spec.accessModes: Required value"),
            (r#"{"spec": {"hostPath": null}}"#, "spec: Required value: must specify a volume type"),
            (r#"{"spec": {"hostPath": {"path": "/a/../b"}}}"#, "spec.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"),
            (
                r#"{"spec": {"hostPath": {"path": "/v", "type": "Pipe"}, "cephfs": {"monitors": []}}}"#,
                "[spec.cephFS: Forbidden: may not specify more than 1 volume type, spec.hostPath.type: Unsupported value: \"Pipe\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"]",
            ),
            (
                r#"{"spec": {"hostPath": null, "iscsi": {"targetPortal": "10.0.0.1", "iqn": "x", "lun": 0}}}"#,
                "spec.iscsi.iqn: Invalid value: \"x\": must be valid format",
            ),
            (
                r#"{"spec": {"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"}}"#,
                "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
            ),
            (
                r#"{"spec": {"hostPath": null, "local": {"path": "/v"}}}"#,
                "metadata.annotations: Required value: Local volume requires node affinity",
            ),
            (
                r#"{"spec": {"hostPath": null, "nfs": {"server": "", "path": "v"}}}"#,
                "[spec.nfs.server: Required value, spec.nfs.path: Invalid value: \"v\": must be an absolute path]",
            ),
            (r#"{"spec": {"nodeAffinity": {}}}"#, "spec.nodeAffinity.required: Required value: must specify required node constraints"),
            (
                r#"{"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}}"#,
                "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term",
            ),
            (
                r#"{"spec": {"volumeAttributesClassName": ""}}"#,
                "[spec.volumeAttributesClassName: Required value: an empty string is disallowed, spec.csi: Required value: has to be specified when using volumeAttributesClassName]",
            ),
            (
                r#"{"spec": {"hostPath": null, "csi": {"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": {"name": "s"}}}}"#,
                "spec.csi.nodePublishSecretRef.namespace: Required value",
            ),
            (r#"{"spec": {"capacity": {"storage": "0"}}}"#, "spec.capacity[storage]: Invalid value: \"0\": must be greater than zero"),
        ],
        columns: "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|VolumeMode",
        cells: json!(["v", "1Gi", "RWO,RWX", "Retain", "Pending", "", "slow", "<unset>", "", null, "Filesystem"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn persistent_volume_source_is_immutable() {
    let (api, path) = (TestApi::new().await, "/api/v1/persistentvolumes");
    let csi = json!({"driver": "d", "volumeHandle": "h"});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi, "volumeAttributesClassName": "c"}});
    api.check(post(path, &volume), 201, json!({})).await;
    let one = format!("{path}/v");
    let secret = |name: &str| json!({"spec": {"csi": {"controllerExpandSecretRef": {"name": name, "namespace": "n"}}}});
    api.check(merge_patch(&one, &secret("a")), 200, secret("a")).await;
    let rejected = |reason: &str| json!({"message": format!("PersistentVolume \"v\" is invalid: {reason}")});
    let stays = "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation";
    api.check(merge_patch(&one, &secret("b")), 422, rejected(stays)).await;
    let none = json!({"spec": {"volumeAttributesClassName": null}});
    let reason = "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden";
    api.check(merge_patch(&one, &none), 422, rejected(reason)).await;
    let block = json!({"spec": {"volumeMode": "Block"}});
    let reason = "volumeMode: Invalid value: \"Block\": field is immutable";
    api.check(merge_patch(&one, &block), 422, rejected(reason)).await;
}

#[tokio::test]
async fn persistent_volume_claims() {
    KindCase {
        path: "/api/v1/namespaces/default/persistentvolumeclaims",
        discovery: json!({"singularName": "persistentvolumeclaim", "shortNames": ["pvc"], "status": true}),
        manifest: json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        made: json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}, "spec": {"volumeMode": "Filesystem"},
            "status": {"phase": "Pending"}}),
        invalid: &[
            (r#"{"spec": {"accessModes": null}}"#, "spec.accessModes: Required value: at least 1 access mode is required"),
            (
                r#"{"spec": {"accessModes": ["Often"]}}"#,
                "spec.accessModes: Unsupported value: \"Often\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            ),
            (
                r#"{"spec": {"volumeAttributesClassName": "-x"}}"#,
                "spec.volumeAttributesClassName: Invalid value: \"-x\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (r#"{"spec": {"resources": null}}"#, "spec.resources[storage]: Required value"),
            (
                r#"{"spec": {"dataSourceRef": {"kind": "Snapshot", "name": "s"}}}"#,
                "[spec.dataSource: Invalid value: \"Snapshot\": must be 'PersistentVolumeClaim' when referencing the default apiGroup, spec.dataSourceRef: Invalid value: \"Snapshot\": must be 'PersistentVolumeClaim' when referencing the default apiGroup]",
            ),
            (
                r#"{"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}, "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}}}"#,
                "spec: Invalid value: \"spec.dataSource\": must match dataSourceRef",
            ),
        ],
        columns: "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode",
        cells: json!(["c", "Pending", "", "", "", "", "<unset>", null, "Filesystem"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn pvc_data_source_and_data_source_ref_are_synced() {
    let api = TestApi::new().await;
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let check = async |name: &str, field: &str, source: Value, expected: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}});
        spec[field] = source;
        api.check(post(path, &json!({"metadata": {"name": name}, "spec": spec})), 201, json!({"spec": expected})).await;
    };
    let other = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    let both = json!({"dataSource": other, "dataSourceRef": other});
    check("old", "dataSource", other.clone(), both.clone()).await;
    check("new", "dataSourceRef", other, both).await;
    // Data sources of other namespaces and kinds use `dataSourceRef` only.
    let own = json!({"apiGroup": "example.com", "kind": "Filler", "name": "f"});
    check("dropped", "dataSource", own.clone(), json!({"dataSource": null, "dataSourceRef": null})).await;
    check("own", "dataSourceRef", own.clone(), json!({"dataSource": own, "dataSourceRef": own})).await;
}

#[tokio::test]
async fn bound_pvc_may_grow_but_not_below_its_capacity() {
    let api = TestApi::new().await;
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let class = json!({"metadata": {"name": "growing"}, "provisioner": "p.io/x", "allowVolumeExpansion": true});
    api.check(post("/apis/storage.k8s.io/v1/storageclasses", &class), 201, json!({})).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "growing",
        "resources": {"requests": {"storage": "2Gi"}}});
    api.check(post(path, &json!({"metadata": {"name": "c"}, "spec": spec})), 201, json!({})).await;
    let one = format!("{path}/c");
    let request = |size: &str| merge_patch(&one, &json!({"spec": {"resources": {"requests": {"storage": size}}}}));
    let fixed = "PersistentVolumeClaim \"c\" is invalid: spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    api.check(request("3Gi"), 422, json!({"message": fixed})).await;
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}});
    api.check(merge_patch(format!("{one}/status"), &bound), 200, json!({})).await;
    api.check(request("5Gi"), 200, json!({})).await;
    api.check(request("4Gi"), 200, json!({})).await;
    let less = "PersistentVolumeClaim \"c\" is invalid: spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
    api.check(request("1Gi"), 422, json!({"message": less})).await;
}
