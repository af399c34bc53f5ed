//! `storage.k8s.io/v1`.

use super::*;

const GROUP: &str = "storage.k8s.io/v1";

#[tokio::test]
async fn storage_classes() {
    KindCase {
        path: "/apis/storage.k8s.io/v1/storageclasses",
        discovery: json!({"singularName": "storageclass", "shortNames": ["sc"]}),
        manifest: json!({"apiVersion": GROUP, "kind": "StorageClass", "provisioner": "example.com/p",
            "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        made: json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        invalid: &[
            (r#"{"provisioner": null}"#, "provisioner: Required value"),
            (
                r#"{"reclaimPolicy": "Keep"}"#,
                "reclaimPolicy: Unsupported value: \"Keep\": supported values: \"Delete\", \"Retain\"",
            ),
            (r#"{"parameters": {"": "b"}}"#, "parameters: Invalid value: \"\": field can not be empty."),
            (
                r#"{"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": []}]}]}"#,
                "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
            ),
            (
                r#"{"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b", "b"]}, {"key": "a", "values": ["b"]}]}]}"#,
                "[allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"b\", allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: \"a\"]",
            ),
            (
                r#"{"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b", "c"]}]}, {"matchLabelExpressions": [{"key": "a", "values": ["c", "b"]}]}]}"#,
                "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
            ),
        ],
        columns: "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
        cells: json!(["fast (default)", "example.com/p", "Delete", "Immediate", false, null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/storage.k8s.io/v1/volumeattributesclasses",
        discovery: json!({"singularName": "volumeattributesclass", "shortNames": ["vac"]}),
        manifest: json!({"apiVersion": GROUP, "kind": "VolumeAttributesClass", "driverName": "example.com", "metadata": {"name": "gold"}, "parameters": {"iops": "9"}}),
        made: json!({}),
        invalid: &[
            (r#"{"driverName": null}"#, "driverName: Required value"),
            (r#"{"parameters": {"iops": null}}"#, "parameters: Required value: must contain at least one key/value pair"),
        ],
        columns: "Name|DriverName|Age",
        cells: json!(["gold", "example.com", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn csi_drivers_nodes_and_volume_attachments() {
    KindCase {
        path: "/apis/storage.k8s.io/v1/csidrivers",
        discovery: json!({"singularName": "csidriver"}),
        manifest: json!({"apiVersion": GROUP, "kind": "CSIDriver", "metadata": {"name": "example.com"}, "spec": {}}),
        made: json!({"spec": {"attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"]}}),
        invalid: &[
            (
                r#"{"spec": {"volumeLifecycleModes": ["Often"]}}"#,
                "spec.volumeLifecycleModes: Unsupported value: \"Often\": supported values: \"Ephemeral\", \"Persistent\"",
            ),
            (
                r#"{"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "a", "expirationSeconds": 5}, {"audience": "b", "expirationSeconds": 5}, {"audience": "", "expirationSeconds": 4294967297}]}}"#,
                "[spec.tokenRequests[1].audience: Duplicate value: \"a\", spec.tokenRequests[2].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes, spec.tokenRequests[3].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds]",
            ),
            (
                r#"{"spec": {"nodeAllocatableUpdatePeriodSeconds": 5}}"#,
                "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds",
            ),
        ],
        columns: "Name|AttachRequired|PodInfoOnMount|StorageCapacity|TokenRequests|RequiresRepublish|Modes|Age",
        cells: json!(["example.com", true, false, false, "<unset>", false, "Persistent", null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/storage.k8s.io/v1/csinodes",
        discovery: json!({"singularName": "csinode"}),
        manifest: json!({"apiVersion": GROUP, "kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": [{"name": "example.com", "nodeID": "1"}]}}),
        made: json!({}),
        invalid: &[
            (r#"{"spec": {"drivers": [{"name": "example.com"}]}}"#, "spec.drivers[0].nodeID: Required value"),
            (
                r#"{"spec": {"drivers": [{"name": "a", "nodeID": "x", "allocatable": {"count": -1}}, {"name": "a", "nodeID": "x"}]}}"#,
                "[spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0, spec.drivers[1].name: Duplicate value: \"a\"]",
            ),
            (
                r#"{"spec": {"drivers": [{"name": "a", "nodeID": "x", "topologyKeys": ["a", "a", ""]}]}}"#,
                "[spec.drivers[0]: Duplicate value: \"a\", spec.drivers[0]: Required value, spec.drivers[0]: Invalid value: \"\": name part must be non-empty, spec.drivers[0]: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]",
            ),
        ],
        columns: "Name|Drivers|Age",
        cells: json!(["n", 1, null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
        discovery: json!({"singularName": "csistoragecapacity"}),
        manifest: json!({"apiVersion": GROUP, "kind": "CSIStorageCapacity", "metadata": {"name": "c"}, "storageClassName": "fast", "capacity": "1Gi"}),
        made: json!({}),
        invalid: &[
            (r#"{"storageClassName": null}"#, r#"storageClassName: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#),
            (r#"{"capacity": "-1"}"#, "capacity: Invalid value: \"-1\": must be greater than or equal to 0"),
        ],
        columns: "Name|Created At",
        cells: json!(["c", null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/storage.k8s.io/v1/volumeattachments",
        discovery: json!({"singularName": "volumeattachment", "status": true}),
        manifest: json!({"apiVersion": GROUP, "kind": "VolumeAttachment", "metadata": {"name": "a"},
            "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
        made: json!({"status": {"attached": false}}),
        invalid: &[
            (r#"{"spec": {"nodeName": null}}"#, r#"spec.nodeName: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#),
            (
                r#"{"spec": {"source": {"persistentVolumeName": ""}}}"#,
                "spec.source.persistentVolumeName: Required value: must specify non empty persistentVolumeName",
            ),
            (
                r#"{"spec": {"source": {"inlineVolumeSpec": {"csi": {"driver": "d", "volumeHandle": "h"}, "accessModes": ["ReadWriteOnce"]}}}}"#,
                "spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ),
            (
                r#"{"spec": {"source": {"persistentVolumeName": null, "inlineVolumeSpec": {"csi": {"driver": "d", "volumeHandle": ""}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}}}}"#,
                "[spec.source.inlineVolumeSpec.csi.volumeHandle: Required value, spec.source.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes]",
            ),
            (
                r#"{"spec": {"source": {"persistentVolumeName": null, "inlineVolumeSpec": {"hostPath": {"path": "/d"}, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "slow"}}}}"#,
                "[spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes, spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes, spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes, spec.source.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline volumes]",
            ),
        ],
        columns: "Name|Attacher|PV|Node|Attached|Age",
        cells: json!(["a", "example.com", "v", "n", false, null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn csi_driver_fields_are_immutable() {
    let api = TestApi::new().await;
    let path = "/apis/storage.k8s.io/v1";
    let driver = json!({"metadata": {"name": "d"}, "spec": {}});
    api.check(post(format!("{path}/csidrivers"), &driver), 201, json!({})).await;
    let rejected = |kind: &str, name: &str, message: &str| json!({"message": format!("{kind}.storage.k8s.io {name:?} is invalid: {message}")});
    let change = merge_patch(format!("{path}/csidrivers/d"), &json!({"spec": {"attachRequired": false}}));
    let message = "spec.attachedRequired: Invalid value: false: field is immutable";
    api.check(change, 422, rejected("CSIDriver", "d", message)).await;
    let csi_node = |id: &str, count: u32| json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "d", "nodeID": id, "allocatable": {"count": count}}]}});
    api.check(post(format!("{path}/csinodes"), &csi_node("x", 1)), 201, json!({})).await;
    let one = format!("{path}/csinodes/n");
    api.check(merge_patch(&one, &csi_node("x", 2)), 200, json!({})).await;
    let message = "spec.drivers: Invalid value: {\"name\":\"d\",\"nodeID\":\"y\"}: field is immutable";
    api.check(merge_patch(&one, &csi_node("y", 2)), 422, rejected("CSINode", "n", message)).await;
}
