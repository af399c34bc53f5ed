//! Values of upstream's published documents (`api/openapi-spec`).

use super::get;
use serde_json::{Value, json};

#[tokio::test]
async fn operations_have_upstreams_ids_and_tags() {
    let all = get("/openapi/v2", &[]).await.json();
    for (path, method, id, tag) in [
        ("/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod", "core_v1"),
        ("/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "core_v1"),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "get",
            "listRbacAuthorizationV1ClusterRole",
            "rbacAuthorization_v1",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "delete",
            "deleteRbacAuthorizationV1CollectionClusterRole",
            "rbacAuthorization_v1",
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            "post",
            "createFlowcontrolApiserverV1FlowSchema",
            "flowcontrolApiserver_v1",
        ),
        ("/apis/storage.k8s.io/v1/csidrivers/{name}", "patch", "patchStorageV1CSIDriver", "storage_v1"),
    ] {
        let operation = &all["paths"][path][method];
        assert_eq!(operation["operationId"], id);
        assert_eq!(operation["tags"], json!([tag]), "{id}");
    }
}

#[tokio::test]
async fn deletions_name_the_type_that_they_answer() {
    let all = get("/openapi/v2", &[]).await.json();
    for (path, name) in [
        ("/api/v1/namespaces/{namespace}/services/{name}", "io.k8s.api.core.v1.Service"),
        ("/apis/storage.k8s.io/v1/storageclasses/{name}", "io.k8s.api.storage.v1.StorageClass"),
        ("/api/v1/namespaces/{name}", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
        ("/api/v1/namespaces/{namespace}/secrets/{name}", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
    ] {
        let schema = &all["paths"][path]["delete"]["responses"]["200"]["schema"];
        assert_eq!(schema["$ref"], format!("#/definitions/{name}"), "{path}");
    }
}

#[tokio::test]
async fn schemas_require_what_upstream_requires() {
    let all = get("/openapi/v2", &[]).await.json();
    for (name, required) in [
        ("core.v1.LocalObjectReference", Value::Null),
        ("core.v1.ConfigMapVolumeSource", Value::Null),
        ("core.v1.ConfigMapKeySelector", json!(["key"])),
        ("core.v1.SecretKeySelector", json!(["key"])),
        ("core.v1.SecretProjection", Value::Null),
        ("core.v1.Container", json!(["name"])),
        ("core.v1.EphemeralContainer", json!(["name"])),
        ("networking.v1.IPAddressSpec", json!(["parentRef"])),
    ] {
        assert_eq!(all["definitions"][format!("io.k8s.api.{name}")]["required"], required, "{name}");
    }
}

#[tokio::test]
async fn schemas_of_any_type_have_none() {
    let all = get("/openapi/v2", &[]).await.json();
    for name in ["JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"] {
        let schema = &all["definitions"][format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}")];
        let keys: Vec<&String> = schema.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["description"], "{name}");
    }
}

#[tokio::test]
async fn types_say_their_defaults() {
    let core = get("/openapi/v3/api/v1", &[]).await.json();
    let scale = get("/openapi/v3/apis/apps/v1", &[]).await.json();
    for (document, name, field, default) in [
        (&scale, "autoscaling.v1.ScaleSpec", "replicas", json!(0)),
        (&core, "core.v1.GRPCAction", "service", json!("")),
        (&core, "core.v1.ReplicationControllerSpec", "replicas", json!(1)),
        (&core, "core.v1.ReplicationControllerSpec", "minReadySeconds", json!(0)),
        (&core, "core.v1.ISCSIPersistentVolumeSource", "iscsiInterface", json!("default")),
        (&core, "core.v1.RBDPersistentVolumeSource", "pool", json!("rbd")),
        (&core, "core.v1.AzureDiskVolumeSource", "readOnly", json!(false)),
    ] {
        let property = &document["components"]["schemas"][format!("io.k8s.api.{name}")]["properties"][field];
        assert_eq!(property["default"], default, "{name}.{field}");
    }
}
