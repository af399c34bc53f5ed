//! Comparison with values of upstream's published documents (`api/openapi-spec`).

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
async fn deletions_have_the_response_type_of_upstream() {
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
        ("core.v1.Event", json!(["metadata", "involvedObject"])),
        ("events.v1.Event", json!(["eventTime"])),
    ] {
        let mut got = all["definitions"][format!("io.k8s.api.{name}")]["required"].clone();
        let mut required = required;
        for list in [&mut got, &mut required].into_iter().filter_map(Value::as_array_mut) {
            list.sort_by_key(Value::to_string);
        }
        assert_eq!(got, required, "{name}");
    }
}

#[tokio::test]
async fn schemas_of_several_types_have_no_type() {
    let all = get("/openapi/v2", &[]).await.json();
    for name in ["JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"] {
        let schema = &all["definitions"][format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}")];
        let keys: Vec<&String> = schema.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["description"], "{name}");
    }
}

#[tokio::test]
async fn declared_defaults_are_published() {
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

#[tokio::test]
async fn schemas_have_upstreams_extensions() {
    let all = get("/openapi/v2", &[]).await.json();
    let definition = |name: &str| &all["definitions"][format!("io.k8s.{name}")];
    assert_eq!(
        definition("api.flowcontrol.v1.Subject")["x-kubernetes-unions"],
        json!([{"discriminator": "kind",
            "fields-to-discriminateBy": {"group": "Group", "serviceAccount": "ServiceAccount", "user": "User"}}])
    );
    let claim = &definition("api.core.v1.PersistentVolumeSpec")["properties"]["claimRef"];
    assert_eq!(claim["x-kubernetes-map-type"], "granular");
    let service = definition("kube-aggregator.pkg.apis.apiregistration.v1.APIServiceSpec");
    assert_eq!(service["properties"]["caBundle"]["x-kubernetes-list-type"], "atomic");
    let rule = definition("apiextensions-apiserver.pkg.apis.apiextensions.v1.ValidationRule");
    let reasons = json!(["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"]);
    assert_eq!(rule["properties"]["reason"]["enum"], reasons);
}

#[tokio::test]
async fn shared_types_have_the_kinds_of_all_groups() {
    let apps = get("/openapi/v3/apis/apps/v1", &[]).await.json();
    let schema = |name: &str| &apps["components"]["schemas"][format!("io.k8s.{name}")];
    const KINDS: &str = "x-kubernetes-group-version-kind";
    for name in ["DeleteOptions", "WatchEvent"] {
        let kinds = schema(&format!("apimachinery.pkg.apis.meta.v1.{name}"))[KINDS].as_array().unwrap();
        assert_eq!(kinds.len(), 62);
        assert_eq!(kinds[0], json!({"group": "", "kind": name, "version": "v1"}));
        assert!(kinds.contains(&json!({"group": "apps", "kind": name, "version": "v1beta2"})));
    }
    let status = schema("apimachinery.pkg.apis.meta.v1.Status");
    assert_eq!(status[KINDS], json!([{"group": "", "kind": "Status", "version": "v1"}]));
    assert_eq!(status.get("required"), None);
    let claim = schema("api.core.v1.PersistentVolumeClaim");
    assert_eq!(claim[KINDS], json!([{"group": "", "kind": "PersistentVolumeClaim", "version": "v1"}]));
    let event = schema("apimachinery.pkg.apis.meta.v1.WatchEvent");
    assert_eq!(event["required"], json!(["type", "object"]));
}

#[tokio::test]
async fn documents_contain_only_referenced_schemas() {
    let authentication = get("/openapi/v3/apis/authentication.k8s.io/v1", &[]).await.json();
    let schemas = authentication["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("io.k8s.api.authentication.v1.TokenReview"));
    assert!(schemas.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList"));
    assert!(!schemas.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"));
}

#[tokio::test]
async fn non_resource_paths_have_documents() {
    let index = get("/openapi/v3", &[]).await.json();
    for (document, path, id, tag) in [
        ("api", "/api/", "getCoreAPIVersions", "core"),
        ("apis", "/apis/", "getAPIVersions", "apis"),
        ("apis/apps", "/apis/apps/", "getAppsAPIGroup", "apps"),
        (
            "apis/flowcontrol.apiserver.k8s.io",
            "/apis/flowcontrol.apiserver.k8s.io/",
            "getFlowcontrolApiserverAPIGroup",
            "flowcontrolApiserver",
        ),
        ("apis/apps/v1", "/apis/apps/v1/", "getAppsV1APIResources", "apps_v1"),
        ("version", "/version/", "getCodeVersion", "version"),
        ("openid/v1/jwks", "/openid/v1/jwks/", "getServiceAccountIssuerOpenIDKeyset", "openid"),
        (
            ".well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
        ),
    ] {
        let url = index["paths"][document]["serverRelativeURL"].as_str().unwrap_or(document);
        let got = get(url, &[]).await.json();
        let operation = &got["paths"][path]["get"];
        assert_eq!((&operation["operationId"], &operation["tags"]), (&json!(id), &json!([tag])), "{document}");
        // OpenID discovery is only served with a signing key.
        let code = if path.contains("openid") { 404 } else { 200 };
        assert_eq!(get(path, &[]).await.code, code, "{path}");
    }
    let version = get("/openapi/v3/version", &[]).await.json();
    let info = &version["components"]["schemas"]["io.k8s.apimachinery.pkg.version.Info"];
    assert_eq!(info["properties"]["gitVersion"]["default"], "");
    let all = get("/openapi/v2", &[]).await.json();
    let got = &all["paths"]["/version/"]["get"];
    assert_eq!((&got["consumes"], &got["produces"]), (&json!(["application/json"]), &json!(["application/json"])));
}

/// Returns the names of the parameters; path parameters have the prefix `@`.
fn parameters(operation: &Value) -> Vec<String> {
    let name = |p: &Value| format!("{}{}", if p["in"] == "path" { "@" } else { "" }, p["name"].as_str().unwrap());
    operation["parameters"].as_array().into_iter().flatten().map(name).collect()
}

#[tokio::test]
async fn shared_parameters_are_moved_to_the_path() {
    let core = get("/openapi/v3/api/v1", &[]).await.json();
    const LIST: &str = "allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion \
        resourceVersionMatch sendInitialEvents timeoutSeconds watch";
    for (path, shared) in [
        ("/api/v1/pods", LIST),
        ("/api/v1/watch/pods", LIST),
        ("/api/v1/namespaces/{namespace}/pods", "@namespace pretty"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/status", "@name @namespace pretty"),
        ("/api/v1/namespaces/{namespace}/bindings", "dryRun fieldManager fieldValidation @namespace pretty"),
        ("/api/v1/namespaces/{name}/finalize", "dryRun fieldManager fieldValidation @name pretty"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}", "@name @namespace @path path"),
        ("/api/v1/nodes/{name}/proxy", "@name path"),
        (
            "/api/v1/namespaces/{namespace}/pods/{name}/log",
            "container follow insecureSkipTLSVerifyBackend limitBytes @name @namespace pretty previous sinceSeconds \
             stream tailLines timestamps",
        ),
    ] {
        let got = parameters(&core["paths"][path]).join(" ");
        assert_eq!(got, shared, "{path}");
    }
    let pod = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"];
    assert_eq!(parameters(&pod["get"]), Vec::<String>::new());
    assert_eq!(parameters(&pod["put"]), ["dryRun", "fieldManager", "fieldValidation"]);
    let attach = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/attach"];
    assert_eq!(attach["parameters"][1]["description"], "name of the PodAttachOptions");
}

#[tokio::test]
async fn operations_have_upstreams_descriptions() {
    let all = get("/openapi/v2", &[]).await.json();
    const POD: &str = "/api/v1/namespaces/{namespace}/pods/{name}";
    for (path, method, action, text) in [
        (POD.to_owned(), "delete", "delete", "delete a Pod"),
        (POD.to_owned(), "patch", "patch", "partially update the specified Pod"),
        (format!("{POD}/status"), "get", "get", "read status of the specified Pod"),
        (format!("{POD}/eviction"), "post", "post", "create eviction of a Pod"),
        (format!("{POD}/proxy"), "options", "connect", "connect OPTIONS requests to proxy of Pod"),
        ("/api/v1/namespaces/{namespace}/endpoints".to_owned(), "post", "post", "create Endpoints"),
        ("/apis/networking.k8s.io/v1/ingressclasses".to_owned(), "post", "post", "create an IngressClass"),
        ("/api/v1/componentstatuses".to_owned(), "get", "list", "list objects of kind ComponentStatus"),
        ("/api/v1/pods".to_owned(), "get", "list", "list or watch objects of kind Pod"),
        (
            "/api/v1/watch/namespaces/{namespace}/pods".to_owned(),
            "get",
            "watchlist",
            "watch individual changes to a list of Pod. deprecated: use the 'watch' parameter with a list operation instead.",
        ),
        (
            "/api/v1/watch/nodes/{name}".to_owned(),
            "get",
            "watch",
            "watch changes to an object of kind Node. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter.",
        ),
    ] {
        let operation = &all["paths"][&path][method];
        assert_eq!(
            (&operation["description"], &operation["x-kubernetes-action"]),
            (&json!(text), &json!(action)),
            "{path}"
        );
    }
    for (path, id) in [
        ("/api/v1/watch/pods", "watchCoreV1PodListForAllNamespaces"),
        ("/api/v1/watch/namespaces/{namespace}/pods", "watchCoreV1NamespacedPodList"),
        ("/api/v1/watch/namespaces/{namespace}/pods/{name}", "watchCoreV1NamespacedPod"),
        ("/api/v1/watch/nodes", "watchCoreV1NodeList"),
        ("/apis/apps/v1/watch/deployments", "watchAppsV1DeploymentListForAllNamespaces"),
    ] {
        assert_eq!(all["paths"][path]["get"]["operationId"], id);
    }
}
