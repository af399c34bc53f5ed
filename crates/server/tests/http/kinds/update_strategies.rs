//! Kinds with `AllowUnconditionalUpdate` and `AllowCreateOnUpdate` of upstream's strategies.

use super::merge_into;
use crate::common::*;
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq)]
enum UpdateStrategy {
    Unconditional,
    Versioned,
}

/// Asserts whether an update creates the object, and whether one without a version is accepted.
async fn check(path: &str, manifest: Value, update: UpdateStrategy, makes: bool) {
    let api = TestApi::new().await;
    let (kind, created) = (&manifest["kind"], if makes { 201 } else { 404 });
    let name = manifest["metadata"]["name"].as_str().unwrap();
    api.check(put(format!("{path}/{name}"), &manifest), created, json!({})).await;
    if !makes {
        api.check(post(path, &manifest), 201, json!({})).await;
    }
    let response = api.send(&put(format!("{path}/{name}"), &manifest)).await;
    let message = response.body["message"].as_str().unwrap_or("");
    if update == UpdateStrategy::Unconditional {
        assert_eq!(response.status, 200, "{kind}: {message}");
    } else {
        let expected_message = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        assert!(response.status == 422 && message.ends_with(expected_message), "{kind}: {message}");
    }
}

#[tokio::test]
async fn unconditional_update_and_create_on_update_by_kind() {
    let storage = |plural: &str| format!("/apis/storage.k8s.io/v1/{plural}");
    let object_of = |kind: &str, fields: Value| {
        let mut object = json!({"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}});
        merge_into(&mut object, &fields);
        object
    };
    check(&storage("csidrivers"), object_of("CSIDriver", json!({"spec": {}})), UpdateStrategy::Versioned, false).await;
    check(
        &storage("csinodes"),
        object_of("CSINode", json!({"spec": {"drivers": []}})),
        UpdateStrategy::Versioned,
        false,
    )
    .await;
    let attachment =
        json!({"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    check(&storage("volumeattachments"), object_of("VolumeAttachment", attachment), UpdateStrategy::Versioned, false)
        .await;
    check(
        &storage("namespaces/default/csistoragecapacities"),
        object_of("CSIStorageCapacity", json!({"storageClassName": "c"})),
        UpdateStrategy::Versioned,
        false,
    )
    .await;
    check(
        &storage("storageclasses"),
        object_of("StorageClass", json!({"provisioner": "p"})),
        UpdateStrategy::Unconditional,
        false,
    )
    .await;
    let class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "a"}, "handler": "h"});
    check("/apis/node.k8s.io/v1/runtimeclasses", class, UpdateStrategy::Versioned, true).await;
    let spec = json!({"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "service": {"namespace": "default", "name": "s"}, "insecureSkipTLSVerify": true});
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.g.example.com"}, "spec": spec});
    check("/apis/apiregistration.k8s.io/v1/apiservices", service, UpdateStrategy::Versioned, false).await;
    let flow = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let object_of = |kind: &str, spec: Value| json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let schema = object_of("FlowSchema", json!({"priorityLevelConfiguration": {"name": "exempt"}}));
    check(&format!("{flow}/flowschemas"), schema, UpdateStrategy::Unconditional, false).await;
    let level = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
    let level = object_of("PriorityLevelConfiguration", level);
    check(&format!("{flow}/prioritylevelconfigurations"), level, UpdateStrategy::Unconditional, false).await;
}
