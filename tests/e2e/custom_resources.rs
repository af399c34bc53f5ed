//! Custom resources with kubectl and kube-rs.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        wait::{
            await_condition,
            conditions::{is_crd_established, is_deleted},
        },
        watcher,
    },
};
use serde_json::{Value, json};
use tests::{Cluster, e2e_test, eventually};

/// Returns a CustomResourceDefinition of CronTabs in the given group.
fn definition(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("crontabs.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "description": "What happens when.", "properties": {
                    "spec": {"type": "object", "properties": {
                        "cronSpec": {"type": "string", "description": "When it happens."},
                        "image": {"type": "string", "default": "busybox"},
                        "replicas": {"type": "integer", "minimum": 0, "maximum": 10},
                    }},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                }},
                "additionalPrinterColumns": [
                    {"name": "Schedule", "type": "string", "jsonPath": ".spec.cronSpec"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn crontab(group: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "CronTab", "metadata": {"name": name}, "spec": spec})
}

#[e2e_test("kubectl creates a CRD and uses its objects like built-in ones")]
fn kubectl_uses_custom_resources(cluster: &Cluster) {
    let (kubectl, group) = (cluster.kubectl(), "kubectl.example.com");
    let kind = format!("crontabs.{group}");
    kubectl.apply(&definition(group).to_string());
    kubectl.run(&format!("wait --for=condition=established --timeout=60s crd/{kind}")).ok();
    let explained = kubectl.run(&format!("explain {kind}.spec.cronSpec")).ok();
    assert!(explained.contains("When it happens.") && explained.contains("CronTab"), "{explained}");
    kubectl.apply(&crontab(group, "mine", &json!({"cronSpec": "* * * * *", "replicas": 1})).to_string());
    let shown = kubectl.run(&format!("get {kind}")).ok();
    let words: Vec<Vec<&str>> = shown.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["NAME", "SCHEDULE", "REPLICAS", "AGE"]);
    assert_eq!(words[1][..2], ["mine", "*"]);
    let object = format!("{kind}/mine");
    assert_eq!(kubectl.value(&object, "/spec/image"), "busybox");
    // A second apply is merged with the first.
    kubectl.apply(&crontab(group, "mine", &json!({"cronSpec": "* * * * 5", "replicas": 1})).to_string());
    assert_eq!(kubectl.value(&object, "/spec/cronSpec"), "* * * * 5");
    kubectl.run(&format!("scale {object} --replicas=3")).ok();
    kubectl.run(&format!("wait {object} --for=jsonpath={{.spec.replicas}}=3 --timeout=60s")).ok();
    kubectl.args(&["patch", &object, "--type=merge", "-p", r#"{"spec":{"replicas":4}}"#], "").ok();
    kubectl.run(&format!("label {object} a=b")).ok();
    kubectl
        .args(&["patch", &object, "--subresource=status", "--type=merge", "-p", r#"{"status":{"phase":"Done"}}"#], "")
        .ok();
    assert_eq!(kubectl.value(&object, "/status/phase"), "Done");
    let refused = kubectl.args(&["patch", &object, "--type=merge", "-p", r#"{"spec":{"replicas":11}}"#], "").failed();
    assert!(refused.contains("spec.replicas in body should be less than or equal to 10"), "{refused}");
    let unknown = crontab(group, "other", &json!({"cronSpecs": "x"})).to_string();
    let refused = kubectl.args(&["apply", "-f", "-"], &unknown).failed();
    assert!(refused.contains("unknown field \"spec.cronSpecs\""), "{refused}");
    kubectl
        .args(&["apply", "--server-side", "-f", "-"], &crontab(group, "served", &json!({"replicas": 2})).to_string())
        .ok();
    let described = kubectl.run(&format!("describe {object}")).ok();
    assert!(described.contains("Cron Spec:"), "{described}");
    kubectl.run(&format!("delete {kind} --all")).ok();
    kubectl.run(&format!("delete crd {kind}")).ok();
    let gone = kubectl.run(&format!("get {kind}")).failed();
    assert!(gone.contains("the server doesn't have a resource type") || gone.contains("could not find"), "{gone}");
}

#[e2e_test("custom resources own, are owned, and are deleted with their namespace")]
fn custom_resources_are_garbage_collected(cluster: &Cluster) {
    let (kubectl, group) = (cluster.kubectl(), "owners.example.com");
    let kind = format!("crontabs.{group}");
    kubectl.apply(&definition(group).to_string());
    kubectl.run(&format!("wait --for=condition=established --timeout=60s crd/{kind}")).ok();
    kubectl.apply(&crontab(group, "owner", &json!({})).to_string());
    let reference = |name: &str| {
        let uid = kubectl.value(&format!("{kind}/{name}"), "/metadata/uid");
        json!([{"apiVersion": format!("{group}/v1"), "kind": "CronTab", "name": name, "uid": uid}])
    };
    let mut owned = crontab(group, "owned", &json!({}));
    owned["metadata"]["ownerReferences"] = reference("owner");
    kubectl.apply(&owned.to_string());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "owned", "ownerReferences": reference("owned")}});
    kubectl.apply(&map.to_string());
    kubectl.run(&format!("delete {kind}/owner")).ok();
    eventually("the dependents to be deleted", || {
        kubectl.get(&format!("{kind}/owned")).is_none() && kubectl.get("configmap/owned").is_none()
    });
    let namespace = format!("{}-custom", kubectl.namespace());
    kubectl.run(&format!("create namespace {namespace}")).ok();
    let inside = cluster.kubectl_in(&namespace);
    inside.apply(&crontab(group, "inside", &json!({})).to_string());
    kubectl.run(&format!("delete namespace {namespace} --timeout=60s")).ok();
    assert_eq!(kubectl.run(&format!("get {kind} -A -o name")).ok(), "");
    kubectl.run(&format!("delete crd {kind}")).ok();
}

#[e2e_test("kube-rs installs a CRD and its operator runs")]
fn kube_rs_installs_crd_and_reconciles(cluster: &Cluster) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = cluster.client(&runtime);
    let namespace = cluster.kubectl().namespace().to_owned();
    runtime.block_on(operate(client, &namespace));
}

/// Runs the steps of an operator's test: install, wait, create, watch, write the status, apply, delete.
async fn operate(client: Client, namespace: &str) {
    let group = "operator.example.com";
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition: CustomResourceDefinition = serde_json::from_value(definition(group)).unwrap();
    let name = format!("crontabs.{group}");
    let applying = PatchParams::apply("operator").force();
    definitions.patch(&name, &applying, &Patch::Apply(&definition)).await.unwrap();
    let established = await_condition(definitions.clone(), &name, is_crd_established());
    tokio::time::timeout(std::time::Duration::from_secs(60), established).await.unwrap().unwrap();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", "CronTab"), "crontabs");
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let mut seen = watcher(api.clone(), watcher::Config::default()).applied_objects().boxed();
    let object: DynamicObject = serde_json::from_value(crontab(group, "a", &json!({"replicas": 2}))).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let first = seen.try_next().await.unwrap().unwrap();
    assert_eq!(first.data["spec"], json!({"replicas": 2, "image": "busybox"}));
    let status = json!({"status": {"phase": "Running"}});
    api.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let second = seen.try_next().await.unwrap().unwrap();
    assert_eq!((&second.data["status"]["phase"], second.metadata.generation), (&json!("Running"), Some(1)));
    let expected = crontab(group, "a", &json!({"replicas": 5}));
    let applied = api.patch("a", &applying, &Patch::Apply(expected)).await.unwrap();
    assert_eq!((&applied.data["spec"]["replicas"], applied.metadata.generation), (&json!(5), Some(2)));
    definitions.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    let uid = definition_uid(&definitions, &name).await;
    await_condition(definitions, &name, is_deleted(&uid)).await.unwrap();
}

async fn definition_uid(definitions: &Api<CustomResourceDefinition>, name: &str) -> String {
    definitions.get_opt(name).await.unwrap().and_then(|d| d.metadata.uid).unwrap_or_default()
}
