//! `storage.k8s.io/v1`.

use super::*;

const GROUP: &str = "storage.k8s.io/v1";

#[tokio::test]
async fn classes() {
    Of {
        path: "/apis/storage.k8s.io/v1/storageclasses",
        discovery: json!({"singularName": "storageclass", "shortNames": ["sc"]}),
        manifest: json!({"apiVersion": GROUP, "kind": "StorageClass", "provisioner": "example.com/p",
            "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        made: json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        wrong: &[
            (r#"{"provisioner": null}"#, "provisioner: Required value"),
            (
                r#"{"reclaimPolicy": "Keep"}"#,
                "reclaimPolicy: Unsupported value: \"Keep\": supported values: \"Delete\", \"Retain\"",
            ),
        ],
        columns: "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
        cells: json!(["fast (default)", "example.com/p", "Delete", "Immediate", false, null]),
    }
    .check()
    .await;
    Of {
        path: "/apis/storage.k8s.io/v1/volumeattributesclasses",
        discovery: json!({"singularName": "volumeattributesclass", "shortNames": ["vac"]}),
        manifest: json!({"apiVersion": GROUP, "kind": "VolumeAttributesClass", "driverName": "example.com", "metadata": {"name": "gold"}}),
        made: json!({}),
        wrong: &[(r#"{"driverName": null}"#, "driverName: Required value")],
        columns: "Name|DriverName|Age",
        cells: json!(["gold", "example.com", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn drivers_and_what_they_attach() {
    Of {
        path: "/apis/storage.k8s.io/v1/csidrivers",
        discovery: json!({"singularName": "csidriver"}),
        manifest: json!({"apiVersion": GROUP, "kind": "CSIDriver", "metadata": {"name": "example.com"}, "spec": {}}),
        made: json!({"spec": {"attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"]}}),
        wrong: &[(
            r#"{"spec": {"volumeLifecycleModes": ["Often"]}}"#,
            "spec.volumeLifecycleModes: Unsupported value: \"Often\": supported values: \"Ephemeral\", \"Persistent\"",
        )],
        columns: "Name|AttachRequired|PodInfoOnMount|StorageCapacity|TokenRequests|RequiresRepublish|Modes|Age",
        cells: json!(["example.com", true, false, false, "<unset>", false, "Persistent", null]),
    }
    .check()
    .await;
    Of {
        path: "/apis/storage.k8s.io/v1/csinodes",
        discovery: json!({"singularName": "csinode"}),
        manifest: json!({"apiVersion": GROUP, "kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": [{"name": "example.com", "nodeID": "1"}]}}),
        made: json!({}),
        wrong: &[(r#"{"spec": {"drivers": [{"name": "example.com"}]}}"#, "spec.drivers[0].nodeID: Required value")],
        columns: "Name|Drivers|Age",
        cells: json!(["n", 1, null]),
    }
    .check()
    .await;
    Of {
        path: "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
        discovery: json!({"singularName": "csistoragecapacity"}),
        manifest: json!({"apiVersion": GROUP, "kind": "CSIStorageCapacity", "metadata": {"name": "c"}, "storageClassName": "fast", "capacity": "1Gi"}),
        made: json!({}),
        wrong: &[(r#"{"storageClassName": null}"#, "storageClassName: Required value")],
        columns: "Name|StorageClassName|Capacity",
        cells: json!(["c", "fast", "1Gi"]),
    }
    .check()
    .await;
    Of {
        path: "/apis/storage.k8s.io/v1/volumeattachments",
        discovery: json!({"singularName": "volumeattachment", "status": true}),
        manifest: json!({"apiVersion": GROUP, "kind": "VolumeAttachment", "metadata": {"name": "a"},
            "spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
        made: json!({"status": {"attached": false}}),
        wrong: &[(r#"{"spec": {"nodeName": null}}"#, "spec.nodeName: Required value")],
        columns: "Name|Attacher|PV|Node|Attached|Age",
        cells: json!(["a", "example.com", "v", "n", false, null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn how_a_driver_is_attached_stays() {
    let api = Api::new().await;
    let path = "/apis/storage.k8s.io/v1/csidrivers";
    let driver = json!({"apiVersion": GROUP, "kind": "CSIDriver", "metadata": {"name": "example.com"}, "spec": {}});
    api.check(post(path, &driver), 201, json!({"metadata": {"generation": 1}})).await;
    let one = format!("{path}/example.com");
    let spec = json!({"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]});
    let message = "CSIDriver.storage.k8s.io \"example.com\" is invalid: [spec.attachedRequired: Invalid value: false: field is immutable, spec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable]";
    api.check(merge(&one, &json!({"spec": spec})), 422, json!({"message": message})).await;
    api.check(merge(&one, &json!({"spec": {"podInfoOnMount": true}})), 200, json!({"metadata": {"generation": 2}}))
        .await;
}
