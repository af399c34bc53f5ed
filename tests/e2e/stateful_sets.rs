//! StatefulSets.

use crate::workload;
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

fn stateful_set(kubectl: &Kubectl, spec: &Value, container: &Value) {
    workload::apply(kubectl, "StatefulSet", "web", &[&json!({"replicas": 2, "serviceName": "web"}), spec], container);
}

fn list(kubectl: &Kubectl, resource: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(&kubectl.run(&format!("get {resource} -o json")).ok()).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}

/// Returns the Pods in order with the value of their variable: `web-0=one web-1=two`.
fn pods(kubectl: &Kubectl) -> String {
    let all = list(kubectl, "pods -l app=web");
    let show = |pod: &Value| {
        format!("{}={}", text(&pod["metadata"]["name"]), text(&pod["spec"]["containers"][0]["env"][0]["value"]))
    };
    all.iter().map(show).collect::<Vec<_>>().join(" ")
}

fn names(kubectl: &Kubectl, resource: &str) -> Vec<String> {
    list(kubectl, resource).iter().map(|object| text(&object["metadata"]["name"])).collect()
}

/// Returns total, ready, available, current and updated replicas.
fn counts(kubectl: &Kubectl) -> [i64; 5] {
    let status = kubectl.value("statefulset/web", "/status");
    ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"]
        .map(|field| status[field].as_i64().unwrap_or(0))
}

fn env(value: &str) -> Value {
    json!({"env": [{"name": "A", "value": value}]})
}

fn wait_for_rollout(kubectl: &Kubectl) {
    // The message differs with and without a partition.
    kubectl.run("rollout status statefulset/web --timeout=120s").ok();
}

fn delete_and_wait(kubectl: &Kubectl) {
    kubectl.run("delete statefulset web").ok();
    eventually("its Pods and ControllerRevisions to be deleted", || {
        names(kubectl, "pods -l app=web").is_empty() && names(kubectl, "controllerrevisions").is_empty()
    });
}

/// Returns the creation times of the Pods, in order.
fn creation_times(kubectl: &Kubectl) -> Vec<String> {
    list(kubectl, "pods -l app=web").iter().map(|pod| text(&pod["metadata"]["uid"])).collect()
}

#[e2e_test("a StatefulSet creates Pods in order and deletes them in reverse")]
fn stateful_set_scales_in_order(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // The second Pod is created when the first is ready, which needs its probe.
    let probe = json!({"readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}});
    stateful_set(&kubectl, &json!({"ordinals": {"start": 3}}), &probe);
    kubectl.wait_value("pod/web-3", "/status/phase", &json!("Running"));
    eventually("the status", || counts(&kubectl) == [1, 0, 0, 1, 1]);
    assert_eq!(names(&kubectl, "pods"), ["web-3"]);
    kubectl.run("exec web-3 -- touch /tmp/ready").ok();
    kubectl.wait_value("pod/web-4", "/status/phase", &json!("Running"));
    kubectl.run("exec web-4 -- touch /tmp/ready").ok();
    eventually("two ready Pods", || counts(&kubectl) == [2, 2, 2, 2, 2]);

    let labels = kubectl.value("pod/web-4", "/metadata/labels");
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-4");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "4");
    let revision = kubectl.value("statefulset/web", "/status/updateRevision");
    assert_eq!(labels["controller-revision-hash"], revision);
    assert_eq!(kubectl.value("pod/web-4", "/spec/subdomain"), "web");
    assert_eq!(kubectl.run("exec web-4 -- hostname").ok().trim(), "web-4");
    let table = kubectl.run("get statefulset web --no-headers").ok();
    assert!(table.contains("2/2"), "{table}");

    kubectl.run("scale statefulset web --replicas=1").ok();
    eventually("the last Pod to terminate", || names(&kubectl, "pods") == ["web-3"]);
    for (reason, message) in [
        ("SuccessfulCreate", "create Pod web-3 in StatefulSet web successful"),
        ("SuccessfulDelete", "delete Pod web-4 in StatefulSet web successful"),
    ] {
        kubectl.wait_for_event("web", reason, message);
    }
    delete_and_wait(&kubectl);
}

#[e2e_test("a StatefulSet rolls out from the last Pod to the first, and back")]
fn stateful_set_rolls_out_in_reverse_and_back(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    stateful_set(&kubectl, &json!({}), &env("one"));
    wait_for_rollout(&kubectl);
    assert_eq!(pods(&kubectl), "web-0=one web-1=one");
    let first = kubectl.value("statefulset/web", "/status/currentRevision");

    // A Pod that never becomes ready blocks the rollout.
    let broken = json!({"env": [{"name": "A", "value": "two"}], "readinessProbe": {"exec": {"command": ["false"]}}});
    stateful_set(&kubectl, &json!({}), &broken);
    eventually("the last Pod to be updated", || pods(&kubectl) == "web-0=one web-1=two");
    eventually("the status", || counts(&kubectl) == [2, 1, 1, 1, 1]);
    assert_eq!(kubectl.value("statefulset/web", "/status/currentRevision"), first);
    assert_ne!(kubectl.value("statefulset/web", "/status/updateRevision"), first);

    // The template is rolled back, and the broken Pod is deleted by hand, as upstream documents.
    kubectl.run("rollout undo statefulset/web").ok();
    kubectl.wait_value("statefulset/web", "/status/updateRevision", &first);
    kubectl.run("delete pod web-1").ok();
    eventually("all Pods of the first template", || {
        pods(&kubectl) == "web-0=one web-1=one" && counts(&kubectl) == [2; 5]
    });
    let history = kubectl.run("rollout history statefulset/web").ok();
    let revisions: Vec<&str> = history.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(revisions.ends_with(&["2", "3"]), "{history}");

    let before = creation_times(&kubectl);
    kubectl.run("rollout restart statefulset/web").ok();
    wait_for_rollout(&kubectl);
    eventually("all Pods to be replaced", || {
        let now = creation_times(&kubectl);
        now.len() == 2 && !now.iter().any(|uid| before.contains(uid)) && counts(&kubectl) == [2; 5]
    });
    let status = kubectl.value("statefulset/web", "/status");
    assert_eq!((&status["currentRevision"], &status["collisionCount"]), (&status["updateRevision"], &json!(0)));
    delete_and_wait(&kubectl);
}

#[e2e_test("a StatefulSet keeps Pods below its partition")]
fn stateful_set_keeps_pods_below_partition(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let partition = |n: u32| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": n}}});
    stateful_set(&kubectl, &partition(1), &env("one"));
    wait_for_rollout(&kubectl);
    kubectl.run("set env statefulset/web A=two").ok();
    eventually("only the last Pod to be updated", || {
        pods(&kubectl) == "web-0=one web-1=two" && counts(&kubectl)[1] == 2
    });
    // A Pod below the partition is created from the old template.
    let before = creation_times(&kubectl);
    kubectl.run("delete pod web-0").ok();
    eventually("the first Pod to be replaced", || {
        let now = creation_times(&kubectl);
        now.len() == 2 && now[0] != before[0]
    });
    assert_eq!(pods(&kubectl), "web-0=one web-1=two");
    eventually("two ready Pods", || counts(&kubectl) == [2, 2, 2, 1, 1]);
    kubectl.args(&["patch", "statefulset", "web", "-p", &json!({"spec": partition(0)}).to_string()], "").ok();
    eventually("all Pods to be updated", || pods(&kubectl) == "web-0=two web-1=two" && counts(&kubectl) == [2; 5]);

    // The OnDelete strategy.
    let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
    kubectl.args(&["patch", "statefulset", "web", "-p", &on_delete.to_string()], "").ok();
    kubectl.run("set env statefulset/web A=three").ok();
    kubectl.run("delete pod web-1").ok();
    eventually("one updated Pod", || pods(&kubectl) == "web-0=two web-1=three");
    delete_and_wait(&kubectl);
}

#[e2e_test("podManagementPolicy Parallel waits for no Pod")]
fn parallel_stateful_set_waits_for_no_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = |fields: &Value| {
        let mut spec = json!({"replicas": 3, "podManagementPolicy": "Parallel"});
        spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": fields});
        spec
    };
    let mut broken = env("one");
    broken["readinessProbe"] = json!({"exec": {"command": ["false"]}});
    stateful_set(&kubectl, &spec(&json!({})), &broken);
    eventually("all Pods", || pods(&kubectl) == "web-0=one web-1=one web-2=one");
    // A template that is never ready is replaced by one that is.
    let mut whole = env("two");
    whole["readinessProbe"] = Value::Null;
    stateful_set(&kubectl, &spec(&json!({})), &whole);
    eventually("all Pods to be updated and ready", || {
        pods(&kubectl) == "web-0=two web-1=two web-2=two" && counts(&kubectl) == [3; 5]
    });
    stateful_set(&kubectl, &spec(&json!({"maxUnavailable": 2})), &env("three"));
    eventually("all Pods to be updated again", || {
        pods(&kubectl) == "web-0=three web-1=three web-2=three" && counts(&kubectl) == [3; 5]
    });
    kubectl.run("scale statefulset web --replicas=0").ok();
    eventually("no Pods", || pods(&kubectl).is_empty() && counts(&kubectl) == [0; 5]);
    delete_and_wait(&kubectl);
}

#[e2e_test("a Pod of a StatefulSet is recreated under its name")]
fn stateful_set_recreates_pod_under_its_name(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    stateful_set(&kubectl, &json!({}), &json!({}));
    wait_for_rollout(&kubectl);
    let before = creation_times(&kubectl);
    kubectl.run("delete pod web-0 --force --grace-period=0").ok();
    eventually("the Pod to be recreated", || {
        let now = creation_times(&kubectl);
        now.len() == 2 && now[0] != before[0] && now[1] == before[1] && counts(&kubectl) == [2; 5]
    });
    // A failed Pod is replaced too.
    let failed = kubectl.value("pod/web-1", "/metadata/uid");
    let limit = json!({"spec": {"activeDeadlineSeconds": 1}});
    kubectl.args(&["patch", "pod", "web-1", "-p", &limit.to_string()], "").ok();
    eventually("the Pod to be replaced", || {
        kubectl.get("pod/web-1").is_some_and(|pod| pod["metadata"]["uid"] != failed) && counts(&kubectl) == [2; 5]
    });
    delete_and_wait(&kubectl);
}

fn with_claims(policy: &Value) -> Value {
    // No provisioner serves this class, so its Pods stay Pending; OrderedReady would stop at the first.
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "nobodys", "resources": {"requests": {"storage": "1Mi"}}}});
    json!({"replicas": 2, "podManagementPolicy": "Parallel", "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": policy})
}

#[e2e_test("persistentVolumeClaimRetentionPolicy keeps or deletes claims")]
fn claim_retention_policy_keeps_or_deletes_claims(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let claims = || names(&kubectl, "persistentvolumeclaims");
    stateful_set(&kubectl, &with_claims(&json!({"whenScaled": "Delete", "whenDeleted": "Retain"})), &json!({}));
    eventually("a claim for each Pod", || claims() == ["data-web-0", "data-web-1"]);
    assert_eq!(
        kubectl.value("pod/web-1", "/spec/volumes/0"),
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}})
    );
    let message = "create Claim data-web-1 Pod web-1 in StatefulSet web success";
    eventually("the Event", || kubectl.events("web").iter().any(|(_, text)| text == message));
    let labels = kubectl.value("persistentvolumeclaim/data-web-1", "/metadata/labels");
    assert_eq!(labels, json!({"app": "web"}));
    // The claim is deleted with the condemned Pod.
    kubectl.run("scale statefulset web --replicas=1").ok();
    eventually("the claim of the last Pod to be deleted", || claims() == ["data-web-0"]);
    // A missing claim is created while its Pod is Pending.
    let before = kubectl.value("persistentvolumeclaim/data-web-0", "/metadata/uid");
    kubectl.run("delete persistentvolumeclaim data-web-0 --wait=false").ok();
    let other =
        || kubectl.get("persistentvolumeclaim/data-web-0").is_some_and(|claim| claim["metadata"]["uid"] != before);
    eventually("the claim to be recreated", other);
    delete_and_wait(&kubectl);
    kubectl.run("delete persistentvolumeclaims --all").ok();

    stateful_set(&kubectl, &with_claims(&json!({"whenScaled": "Retain", "whenDeleted": "Delete"})), &json!({}));
    eventually("the StatefulSet to own the claims", || {
        claims().len() == 2
            && kubectl.value("persistentvolumeclaim/data-web-0", "/metadata/ownerReferences/0/kind") == "StatefulSet"
    });
    kubectl.run("scale statefulset web --replicas=1").ok();
    eventually("the Pod to be deleted", || names(&kubectl, "pods") == ["web-0"]);
    assert_eq!(claims().len(), 2);
    delete_and_wait(&kubectl);
    eventually("the claims to be deleted with the StatefulSet", || claims().is_empty());
}

#[e2e_test("a StatefulSet adopts orphaned Pods and ControllerRevisions")]
fn stateful_set_adopts_orphans(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    stateful_set(&kubectl, &json!({}), &json!({}));
    wait_for_rollout(&kubectl);
    let (before, history) = (creation_times(&kubectl), names(&kubectl, "controllerrevisions"));
    kubectl.run("delete statefulset web --cascade=orphan").ok();
    eventually("the Pods to be orphaned", || kubectl.value("pod/web-0", "/metadata/ownerReferences").is_null());
    stateful_set(&kubectl, &json!({}), &json!({}));
    wait_for_rollout(&kubectl);
    eventually("the Pods to be adopted", || {
        let owner = kubectl.value("statefulset/web", "/metadata/uid");
        kubectl.value("pod/web-1", "/metadata/ownerReferences/0/uid") == owner && counts(&kubectl) == [2; 5]
    });
    assert_eq!((creation_times(&kubectl), names(&kubectl, "controllerrevisions")), (before, history));
    kubectl.run("label pod web-1 app=other --overwrite").ok();
    eventually("the unselected Pod to be released", || {
        kubectl.value("pod/web-1", "/metadata/ownerReferences").is_null()
    });
    // The released Pod blocks the name until it is deleted.
    kubectl.run("delete pod web-1").ok();
    eventually("web-1 to be recreated", || counts(&kubectl) == [2; 5]);
    delete_and_wait(&kubectl);
}

#[e2e_test("a PodDisruptionBudget counts the replicas of a StatefulSet")]
fn disruption_budget_counts_stateful_set_replicas(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    stateful_set(&kubectl, &json!({"replicas": 2}), &json!({}));
    wait_for_rollout(&kubectl);
    kubectl.run("create poddisruptionbudget web --selector=app=web --max-unavailable=50%").ok();
    eventually("all Pods to be expected", || {
        let status = kubectl.value("poddisruptionbudget/web", "/status");
        (&status["expectedPods"], &status["disruptionsAllowed"]) == (&json!(2), &json!(1))
    });
    delete_and_wait(&kubectl);
}
