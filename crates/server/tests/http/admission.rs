//! Built-in admission: limit ranges, quotas and Pod Security Standards.

use crate::common::*;
use serde_json::{Value, json};

const DEFAULT: &str = "/api/v1/namespaces/default";

fn with_spec(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn create_limit_range(api: &TestApi, items: Value) {
    api.check(post(format!("{DEFAULT}/limitranges"), &with_spec("l", &json!({"limits": items}))), 201, json!({})).await;
}

async fn create_quota(api: &TestApi, spec: Value) {
    api.check(post(format!("{DEFAULT}/resourcequotas"), &with_spec("q", &spec)), 201, json!({})).await;
}

fn pod_with_resources(name: &str, resources: &Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources.clone();
    pod
}

/// Asserts that creation is forbidden with this message.
async fn check_forbidden(api: &TestApi, path: &str, object: &Value, message: &str) {
    let expected = json!({"reason": "Forbidden", "code": 403, "message": message});
    api.check(post(path, object), 403, expected).await;
}

#[tokio::test]
async fn limit_range_sets_defaults_and_enforces_maximum() {
    let api = TestApi::new().await;
    create_limit_range(&api, json!([{"type": "Container", "default": {"memory": "64Mi"}, "max": {"memory": "128Mi"}}]))
        .await;
    let resources = json!({"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}});
    let message = "LimitRanger plugin set: memory request for container c; memory limit for container c";
    let expected = json!({"metadata": {"annotations": {"kubernetes.io/limit-ranger": message}},
        "spec": {"containers": [{"resources": resources}]}, "status": {"qosClass": "Burstable"}});
    api.check(post(PODS, &pod("given")), 201, expected).await;
    let large = pod_with_resources("large", &json!({"limits": {"memory": "1Gi"}}));
    let message = "pods \"large\" is forbidden: maximum memory usage per Container is 128Mi, but limit is 1Gi";
    check_forbidden(&api, PODS, &large, message).await;
    // Existing Pods can be updated and deleted.
    api.check(merge_patch(format!("{PODS}/given"), &json!({"metadata": {"labels": {"a": "b"}}})), 200, json!({})).await;
    check_pvc_limits(&api).await;
}

async fn check_pvc_limits(api: &TestApi) {
    let path = format!("{DEFAULT}/limitranges/l");
    let items = json!([{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]);
    api.check(merge_patch(&path, &json!({"spec": {"limits": items}})), 200, json!({})).await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}});
    let message = "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi";
    check_forbidden(api, &format!("{DEFAULT}/persistentvolumeclaims"), &with_spec("c", &claim), message).await;
}

#[tokio::test]
async fn quota_is_enforced_as_soon_as_it_is_created() {
    let api = TestApi::new().await;
    api.check(post(PODS, &pod_with_resources("before", &json!({"requests": {"cpu": "600m"}}))), 201, json!({})).await;
    create_quota(&api, json!({"hard": {"requests.cpu": "1", "configmaps": "1", "services.nodeports": "1"}})).await;
    check_forbidden(
        &api,
        PODS,
        &pod_with_resources("p", &json!({"requests": {"cpu": "500m"}})),
        "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1",
    )
    .await;
    let message = "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c";
    check_forbidden(&api, PODS, &pod("p"), message).await;
    api.check(post(PODS, &pod_with_resources("p", &json!({"requests": {"cpu": "400m"}}))), 201, json!({})).await;
    // A dry run is checked and does not use the quota.
    let map = |name: &str| json!({"metadata": {"name": name}});
    api.check(post(format!("{CONFIG_MAPS}?dryRun=All"), &map("a")), 201, json!({})).await;
    api.check(post(CONFIG_MAPS, &map("a")), 201, json!({})).await;
    let message = "configmaps \"b\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1";
    check_forbidden(&api, &format!("{CONFIG_MAPS}?dryRun=All"), &map("b"), message).await;
    api.check(delete(format!("{CONFIG_MAPS}/a")), 200, json!({})).await;
    api.check(post(CONFIG_MAPS, &map("b")), 201, json!({})).await;
    // Another namespace has its own quota.
    api.check(post("/api/v1/namespaces/kube-system/configmaps", &map("c")), 201, json!({})).await;
    // An update of a Service may need more quota.
    let services = format!("{DEFAULT}/services");
    let spec = json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]});
    api.check(post(&services, &with_spec("s", &spec)), 201, json!({})).await;
    let message = "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1";
    let change = merge_patch(format!("{services}/s"), &json!({"spec": {"type": "NodePort"}}));
    api.check(change, 403, json!({"message": message})).await;
}

#[tokio::test]
async fn concurrent_creates_do_not_exceed_the_quota() {
    let api = TestApi::new().await;
    create_quota(&api, json!({"hard": {"pods": "5"}})).await;
    let requests: Vec<TestRequest> = (0..20).map(|n| post(PODS, &pod(&format!("p{n}")))).collect();
    let responses = futures::future::join_all(requests.iter().map(|request| api.send(request))).await;
    assert_eq!(responses.iter().filter(|a| a.status == 201).count(), 5);
    assert!(responses.iter().all(|a| matches!(a.status, 201 | 403)));
}

#[tokio::test]
async fn resize_is_checked_against_limit_range_and_quota() {
    let api = TestApi::new().await;
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": "2"}});
    api.check(post(PODS, &pod_with_resources("p", &resources("1"))), 201, json!({})).await;
    create_quota(&api, json!({"hard": {"requests.cpu": "1"}})).await;
    let resize = |cpu: &str| {
        let containers = json!([{"name": "c", "resources": resources(cpu)}]);
        patch("strategic-merge-patch", format!("{PODS}/p/resize"), &json!({"spec": {"containers": containers}}))
    };
    let message = "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=1, limited: requests.cpu=1";
    api.check(resize("1500m"), 403, json!({"message": message})).await;
    api.check(resize("500m"), 200, json!({})).await;
    create_limit_range(&api, json!([{"type": "Container", "min": {"cpu": "500m"}}])).await;
    let message = "pods \"p\" is forbidden: minimum cpu usage per Container is 500m, but request is 250m";
    api.check(resize("250m"), 403, json!({"message": message})).await;
}

#[tokio::test]
async fn pod_update_that_enters_a_quota_scope_is_checked() {
    let api = TestApi::new().await;
    api.check(post(PODS, &pod("p")), 201, json!({})).await;
    create_quota(&api, json!({"hard": {"pods": "0"}, "scopes": ["Terminating"]})).await;
    let message = "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0";
    let deadline = merge_patch(format!("{PODS}/p"), &json!({"spec": {"activeDeadlineSeconds": 60}}));
    api.check(deadline.clone(), 403, json!({"reason": "Forbidden", "message": message})).await;
    // An update that leaves the Pod in its scope is allowed.
    api.check(merge_patch(format!("{PODS}/p"), &json!({"metadata": {"labels": {"a": "b"}}})), 200, json!({})).await;
    api.check(
        merge_patch(format!("{DEFAULT}/resourcequotas/q"), &json!({"spec": {"hard": {"pods": "1"}}})),
        200,
        json!({}),
    )
    .await;
    api.check(deadline, 200, json!({})).await;
}

fn namespace_with_pod_security(name: &str, labels: &[(&str, &str)]) -> Value {
    let key = |name: &str| format!("pod-security.kubernetes.io/{name}");
    let labels: serde_json::Map<String, Value> = labels.iter().map(|(k, v)| (key(k), json!(v))).collect();
    json!({"metadata": {"name": name, "labels": labels}})
}

#[tokio::test]
async fn pod_security_labels_enforce_and_warn() {
    let api = TestApi::new().await;
    api.check(
        post(
            "/api/v1/namespaces",
            &namespace_with_pod_security("safe", &[("enforce", "baseline"), ("warn", "restricted")]),
        ),
        201,
        json!({}),
    )
    .await;
    let pods = "/api/v1/namespaces/safe/pods";
    let mut host = pod("host");
    host["spec"]["hostPID"] = json!(true);
    let message =
        "pods \"host\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    check_forbidden(&api, pods, &host, message).await;
    api.check(post(PODS, &host), 201, json!({})).await;
    let response = api.check(post(pods, &pod("plain")), 201, json!({})).await;
    let message = response.warnings().concat();
    assert!(
        message.starts_with(
            "299 - \"would violate PodSecurity \\\"restricted:latest\\\": allowPrivilegeEscalation != false"
        ),
        "{message}"
    );
    // Workloads get a warning of the violations of their Pods.
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": host["spec"]});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let response =
        api.check(post("/apis/apps/v1/namespaces/safe/deployments", &with_spec("d", &spec)), 201, json!({})).await;
    assert!(response.warnings().concat().contains("host namespaces (hostPID=true)"), "{:?}", response.warnings());
    // A new container is checked again; a label change is not.
    api.check(merge_patch(format!("{pods}/plain"), &json!({"metadata": {"labels": {"a": "b"}}})), 200, json!({})).await;
    let debug = json!({"name": "debug", "image": "i", "securityContext": {"privileged": true}});
    let debug = json!({"spec": {"ephemeralContainers": [debug]}});
    let message = "pods \"plain\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"debug\" must not set securityContext.privileged=true)";
    let path = format!("{pods}/plain/ephemeralcontainers");
    api.check(patch("strategic-merge-patch", path, &debug), 403, json!({"message": message})).await;
}

/// Invalid labels can be set through the `status` subresource, as upstream.
#[tokio::test]
async fn invalid_pod_security_labels_enforce_restricted() {
    let api = TestApi::new().await;
    let change = namespace_with_pod_security("default", &[("enforce", "permissive")]);
    api.check(merge_patch(DEFAULT, &change), 422, json!({"reason": "Invalid"})).await;
    api.check(post(PODS, &pod("before")), 201, json!({})).await;
    api.check(merge_patch(format!("{DEFAULT}/status"), &change), 200, json!({})).await;
    let response = api.check(post(PODS, &pod("after")), 403, json!({})).await;
    let message = response.body["message"].as_str().unwrap();
    assert!(message.contains("violates PodSecurity \"restricted:latest\""), "{message}");
    // An ephemeral container of an existing Pod is checked, too.
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "i"}]}});
    let path = format!("{PODS}/before/ephemeralcontainers");
    api.check(patch("strategic-merge-patch", path, &debug), 403, json!({"reason": "Forbidden"})).await;
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    api.check(patch("strategic-merge-patch", format!("{PODS}/before"), &image), 403, json!({})).await;
    api.check(merge_patch(format!("{PODS}/before"), &json!({"metadata": {"labels": {"a": "b"}}})), 200, json!({}))
        .await;
}

#[tokio::test]
async fn stricter_pod_security_level_warns_of_violating_pods() {
    let api = TestApi::new().await;
    for name in ["a", "b", "c"] {
        let mut host = pod(name);
        host["spec"]["hostNetwork"] = json!(name != "c");
        host["spec"]["hostIPC"] = json!(name == "c");
        api.check(post(PODS, &host), 201, json!({})).await;
    }
    let request = |labels: &[(&str, &str)]| merge_patch(DEFAULT, &namespace_with_pod_security("default", labels));
    let response = api.check(request(&[("enforce", "baseline")]), 200, json!({})).await;
    let expected = [
        "299 - \"existing pods in namespace \\\"default\\\" violate the new PodSecurity enforce level \\\"baseline:latest\\\"\"",
        "299 - \"a (and 2 other pods): host namespaces\"",
    ];
    assert_eq!(response.warnings(), expected);
    let invalid = |label: &str, value: &str, reason: &str| {
        let field = format!("metadata.labels[pod-security.kubernetes.io/{label}]");
        format!("Namespace \"default\" is invalid: {field}: Invalid value: \"{value}\": {reason}")
    };
    let message = invalid("enforce", "none", "must be one of privileged, baseline, restricted");
    api.check(request(&[("enforce", "none")]), 422, json!({"message": message})).await;
    let message = invalid("warn-version", "1.30", "must be \"latest\" or \"v1.x\"");
    api.check(request(&[("warn-version", "1.30")]), 422, json!({"message": message})).await;
}

/// An object without a class gets the newest default class; an object with a class, even an empty one, keeps it.
async fn check_default_class(api: &TestApi, classes: &str, mark: &str, path: &str, object: Value, field: &str) {
    let class = |name: &str, marked: bool, spec: &Value| {
        let mut class = spec.clone();
        class["metadata"] = json!({"name": name, "annotations": {mark: marked.to_string()}});
        class
    };
    let spec = if classes.contains("storage") {
        json!({"provisioner": "p"})
    } else {
        json!({"spec": {"controller": "example.com/c"}})
    };
    let object_with_class = |name: &str, class: Value| {
        let mut object = object.clone();
        object["metadata"] = json!({"name": name});
        if !class.is_null() {
            object["spec"][field] = class;
        }
        object
    };
    let none = api.check(post(path, &object_with_class("none", Value::Null)), 201, json!({})).await.body;
    assert_eq!(none["spec"][field], Value::Null);
    for (name, marked) in [("b", true), ("a", true), ("c", false)] {
        api.check(post(classes, &class(name, marked, &spec)), 201, json!({})).await;
    }
    api.check(post(path, &object_with_class("given", Value::Null)), 201, json!({"spec": {field: "a"}})).await;
    api.check(post(path, &object_with_class("own", json!("c"))), 201, json!({"spec": {field: "c"}})).await;
}

#[tokio::test]
async fn pvcs_and_ingresses_get_the_default_class() {
    let api = TestApi::new().await;
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let (classes, mark) = ("/apis/storage.k8s.io/v1/storageclasses", "storageclass.kubernetes.io/is-default-class");
    let claims = format!("{DEFAULT}/persistentvolumeclaims");
    check_default_class(&api, classes, mark, &claims, claim.clone(), "storageClassName").await;
    let mut without = claim;
    without["metadata"] = json!({"name": "without"});
    without["spec"]["storageClassName"] = json!("");
    api.check(post(&claims, &without), 201, json!({"spec": {"storageClassName": ""}})).await;
    let ingress = json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let (classes, mark) = ("/apis/networking.k8s.io/v1/ingressclasses", "ingressclass.kubernetes.io/is-default-class");
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    check_default_class(&api, classes, mark, ingresses, ingress, "ingressClassName").await;
}

#[tokio::test]
async fn enforce_mountable_secrets_limits_pods_to_listed_secrets() {
    let api = TestApi::new().await;
    let account = |limits: &str| {
        json!({"metadata": {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": limits}},
            "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}]})
    };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.check(post(accounts, &account("true")), 201, json!({})).await;
    let with = |name: &str, spec: Value| {
        let mut object = pod(name);
        object["spec"]["serviceAccountName"] = json!("strict");
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        post(PODS, &object)
    };
    let container = |field: &str, value: Value| json!({"containers": [{"name": "c", "image": "i", field: value}]});
    let reference = |secret: &str| json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
    let volume = |secret: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]});
    let because = "is not allowed because service account strict does not reference that";
    for (spec, expected) in [
        (volume("other"), format!("volume with secret.secretName=\"other\" {because} secret")),
        (
            container("env", reference("other")),
            format!("container c with envVar A referencing secret.secretName=\"other\" {because} secret"),
        ),
        (
            container("envFrom", json!([{"secretRef": {"name": "other"}}])),
            format!("container c with envFrom referencing secret.secretName=\"other\" {because} secret"),
        ),
        (
            json!({"imagePullSecrets": [{"name": "other"}]}),
            format!("imagePullSecrets[0].name=\"other\" {because} imagePullSecret"),
        ),
    ] {
        let message = format!("pods \"p\" is forbidden: {expected}");
        api.check(with("p", spec), 403, json!({"reason": "Forbidden", "message": message})).await;
    }
    api.check(with("own", volume("own")), 201, json!({"spec": {"imagePullSecrets": [{"name": "pull"}]}})).await;
    api.check(with("env", container("env", reference("own"))), 201, json!({})).await;
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "env": reference("other")}]}});
    let strategic = patch("strategic-merge-patch", format!("{PODS}/own/ephemeralcontainers"), &debug);
    let message = format!(
        "pods \"own\" is forbidden: ephemeral container e with envVar A referencing secret.secretName=\"other\" {because} secret"
    );
    api.check(strategic, 403, json!({"message": message})).await;
    api.check(put(format!("{accounts}/strict"), &account("false")), 200, json!({})).await;
    api.check(with("free", volume("other")), 201, json!({})).await;
}

#[tokio::test]
async fn pvc_expansion_requires_allow_volume_expansion() {
    let api = TestApi::new().await;
    let claims = format!("{DEFAULT}/persistentvolumeclaims");
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    for (class, grows) in [("fixed", false), ("growing", true)] {
        let object = json!({"metadata": {"name": class}, "provisioner": "p.io/x", "allowVolumeExpansion": grows});
        api.check(post(classes, &object), 201, json!({})).await;
    }
    let forbidden = |name: &str, reason: &str| json!({"message": format!("persistentvolumeclaims {name:?} is forbidden: {reason}")});
    let unfit = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    for (name, class, bound, expected) in
        [("a", "fixed", true, Some(unfit)), ("b", "growing", true, None), ("d", "none", true, Some(unfit))]
    {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}}});
        api.check(post(&claims, &json!({"metadata": {"name": name}, "spec": spec})), 201, json!({})).await;
        let path = format!("{claims}/{name}");
        if bound {
            let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
            api.check(merge_patch(format!("{path}/status"), &status), 200, json!({})).await;
        }
        let grown = merge_patch(&path, &json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
        match expected {
            Some(reason) => api.check(grown, 403, forbidden(name, reason)).await,
            None => api.check(grown, 200, json!({})).await,
        };
    }
}

#[tokio::test]
async fn system_priority_classes_cannot_be_deleted() {
    let api = TestApi::new().await;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    let reason = "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted";
    api.check(delete(path), 403, json!({"message": reason})).await;
    api.check(get(path), 200, json!({})).await;
}

#[tokio::test]
async fn always_pull_images_applies_only_if_enabled() {
    let (default, enabled) = (TestApi::new().await, TestApi::new().await.with_plugin("AlwaysPullImages"));
    for (api, expected) in [(default, "IfNotPresent"), (enabled, "Always")] {
        let mut pod = pod("p");
        pod["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        api.check(post(PODS, &pod), 201, json!({"spec": {"containers": [{"imagePullPolicy": expected}]}})).await;
    }
}
