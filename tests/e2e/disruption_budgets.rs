//! PodDisruptionBudgets and evictions.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Outcome, PodBuilder, e2e_test, eventually};

fn budget(kubectl: &Kubectl, spec: &Value) {
    let mut all = json!({"selector": {"matchLabels": {"app": "web"}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    let object =
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": all});
    kubectl.apply(&object.to_string());
}

fn evict(kubectl: &Kubectl, pod: &str) -> Outcome {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", kubectl.namespace());
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    kubectl.args(&["create", "--raw", &path, "-f", "-"], &body.to_string())
}

/// Returns expectedPods, desiredHealthy, currentHealthy and disruptionsAllowed.
fn counts(kubectl: &Kubectl) -> [i64; 4] {
    let status = kubectl.value("pdb/web", "/status");
    ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"].map(|f| status[f].as_i64().unwrap_or(-1))
}

#[e2e_test("a PodDisruptionBudget refuses an eviction that would violate it")]
fn disruption_budget_refuses_violating_eviction(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let labels = json!({"app": "web"});
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}});
    kubectl.apply(&object.to_string());
    budget(&kubectl, &json!({"minAvailable": 2}));
    eventually("two healthy Pods and no allowed disruption", || counts(&kubectl) == [2, 2, 2, 0]);
    let first = kubectl.pod_names("app=web")[0].clone();
    let refused = evict(&kubectl, &first).failed();
    assert!(refused.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{refused}");
    budget(&kubectl, &json!({"minAvailable": null, "maxUnavailable": "50%"}));
    eventually("one allowed disruption", || counts(&kubectl) == [2, 1, 2, 1]);
    let table = kubectl.run("get pdb web --no-headers").ok();
    assert_eq!(table.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "N/A", "50%", "1"]);
    evict(&kubectl, &first).ok();
    eventually("another Pod", || !kubectl.pod_names("app=web").contains(&first) && counts(&kubectl) == [2, 1, 2, 1]);
    let condition = kubectl.value("pdb/web", "/status/conditions/0");
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("DisruptionAllowed"), &json!("SufficientPods")));
    kubectl.run("create pdb zzz --selector=app=web --min-available=1").ok();
    let (one, output) =
        (kubectl.pod_names("app=web")[0].clone(), "matches multiple PodDisruptionBudgets.  Chose \"web\" arbitrarily.");
    eventually("the Event about several budgets", || {
        kubectl
            .events(&one)
            .iter()
            .any(|(reason, message)| reason == "MultiplePodDisruptionBudgets" && message.ends_with(output))
    });
    assert!(evict(&kubectl, &one).failed().contains("more than one PodDisruptionBudget"));
    kubectl.run("delete pdb zzz").ok();
    kubectl.run("delete deployment web").ok();
    eventually("no Pods in the status", || counts(&kubectl)[2..] == [0, 0]);
    eventually("the NoPods Event", || kubectl.events("web").iter().any(|(reason, _)| reason == "NoPods"));
}

#[e2e_test("a PodDisruptionBudget that cannot be counted reports the reason")]
fn uncountable_disruption_budget_reports_reason(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]});
    let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]});
    let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}});
    kubectl.apply(&object.to_string());
    budget(&kubectl, &json!({"maxUnavailable": 1}));
    eventually("the condition", || {
        let condition = kubectl.value("pdb/web", "/status/conditions/0");
        condition["reason"] == "SyncFailed"
            && condition["message"] == "jobs.batch does not implement the scale subresource"
    });
    kubectl.run("delete job work").ok();
}

#[e2e_test("a PodDisruptionBudget counts Pods of a custom resource by its scale")]
fn disruption_budget_uses_custom_scale(cluster: &Cluster) {
    let (kubectl, group) = (cluster.kubectl(), "scales.example.com");
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any},
        "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("foos.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [version]}});
    kubectl.apply(&definition.to_string());
    kubectl.run(&format!("wait --for=condition=Established --timeout=90s crd/foos.{group}")).ok();
    let owner =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Foo", "metadata": {"name": "f"}, "spec": {"replicas": 4}});
    kubectl.apply(&owner.to_string());
    let uid = kubectl.value(&format!("foos.{group}/f"), "/metadata/uid");
    let owner =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Foo", "name": "f", "uid": uid, "controller": true});
    let pod = PodBuilder::new("p")
        .label("app", "web")
        .metadata(&json!({"ownerReferences": [owner]}))
        .grace_period(0)
        .command(&["sleep", "100000"]);
    kubectl.apply(&pod.to_string());
    budget(&kubectl, &json!({"maxUnavailable": "75%"}));
    eventually("four expected Pods", || counts(&kubectl)[..2] == [4, 1]);
    kubectl.run(&format!("delete crd foos.{group}")).ok();
}
