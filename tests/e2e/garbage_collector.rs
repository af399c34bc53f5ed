//! Garbage collection by owner references: background, foreground and orphan.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

fn config_map(kubectl: &Kubectl, name: &str, owner: Option<&str>, finalizers: &[&str]) {
    let mut metadata = json!({"name": name, "finalizers": finalizers});
    if let Some(owner) = owner {
        metadata["ownerReferences"] = json!([reference(kubectl, owner)]);
    }
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string());
}

fn reference(kubectl: &Kubectl, owner: &str) -> Value {
    let uid = kubectl.value(&format!("configmap/{owner}"), "/metadata/uid");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": true})
}

#[e2e_test("background deletion deletes dependents")]
fn background_deletion_deletes_dependents(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config_map(&kubectl, "owner", None, &[]);
    config_map(&kubectl, "other", None, &[]);
    let pod = PodBuilder::new("p")
        .metadata(&json!({"ownerReferences": [reference(&kubectl, "owner")]}))
        .grace_period(0)
        .command(&["sleep", "1000"]);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    kubectl.run("delete configmap other").ok();
    kubectl.run("delete configmap owner").ok();
    eventually("the Pod to be deleted", || kubectl.get("pod/p").is_none());
}

#[e2e_test("an owner reference matches name, UID and namespace")]
fn owner_reference_matches_name_and_namespace(cluster: &Cluster) {
    let (kubectl, elsewhere) = (cluster.kubectl(), cluster.kubectl());
    config_map(&kubectl, "owner", None, &[]);
    config_map(&kubectl, "other", None, &[]);
    let own = reference(&kubectl, "owner");
    let dependent = |kubectl: &Kubectl, name: &str, changed: Value| {
        let mut reference = own.clone();
        changed.as_object().into_iter().flatten().for_each(|(field, value)| reference[field] = value.clone());
        let metadata = json!({"name": name, "ownerReferences": [reference]});
        kubectl.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string());
    };
    dependent(&kubectl, "right", json!({}));
    dependent(&kubectl, "another", json!({"name": "other"}));
    dependent(&kubectl, "nobody", json!({"name": "nobody"}));
    dependent(&kubectl, "kind", json!({"kind": "Secret"}));
    dependent(&elsewhere, "far", json!({}));
    eventually("dependents of absent owners to be deleted", || {
        let gone = |kubectl: &Kubectl, name: &str| kubectl.get(&format!("configmap/{name}")).is_none();
        ["another", "nobody", "kind"].iter().all(|name| gone(&kubectl, name)) && gone(&elsewhere, "far")
    });
    assert!(kubectl.get("configmap/right").is_some());
    eventually("the Event with the reason", || {
        let is_reported = |(reason, message): &(String, String)| {
            reason == "OwnerRefInvalidNamespace" && message.contains("does not exist in namespace")
        };
        elsewhere.events("far").iter().any(is_reported)
    });
}

#[e2e_test("kubectl delete --cascade=foreground waits for dependents")]
fn foreground_deletion_waits_for_dependents(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config_map(&kubectl, "owner", None, &[]);
    config_map(&kubectl, "dependent", Some("owner"), &["example.com/hold"]);
    kubectl.run("delete configmap owner --cascade=foreground --wait=false").ok();
    eventually("the dependent to be terminating", || {
        kubectl.get("configmap/dependent").is_some_and(|o| o["metadata"]["deletionTimestamp"].is_string())
    });
    assert_eq!(kubectl.value("configmap/owner", "/metadata/finalizers"), json!(["foregroundDeletion"]));
    kubectl
        .args(&["patch", "configmap", "dependent", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#], "")
        .ok();
    eventually("both to be deleted", || {
        ["owner", "dependent"].iter().all(|n| kubectl.get(&format!("configmap/{n}")).is_none())
    });
}

#[e2e_test("kubectl delete --cascade=orphan keeps dependents")]
fn orphan_deletion_keeps_dependents(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config_map(&kubectl, "owner", None, &[]);
    config_map(&kubectl, "dependent", Some("owner"), &[]);
    kubectl.run("delete configmap owner --cascade=orphan").ok();
    assert!(kubectl.get("configmap/owner").is_none());
    let left = kubectl.get("configmap/dependent").expect("it stays");
    assert!(left["metadata"].get("ownerReferences").is_none(), "{left}");
}

#[e2e_test("circular owner references do not block deletion")]
fn circular_owners_do_not_block_deletion(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| config_map(&kubectl, name, None, &[]));
    for (name, owner) in names.iter().zip(["c", "a", "b"]) {
        let patch = json!({"metadata": {"ownerReferences": [reference(&kubectl, owner)]}}).to_string();
        kubectl.args(&["patch", "configmap", name, "--type=merge", "-p", &patch], "").ok();
    }
    kubectl.run("delete configmap a --cascade=foreground --timeout=60s").ok();
    eventually("all to be deleted", || names.iter().all(|name| kubectl.get(&format!("configmap/{name}")).is_none()));
}

#[e2e_test("a cluster-scoped object with a namespaced owner is kept")]
fn cluster_scoped_dependent_of_namespaced_owner_is_kept(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config_map(&kubectl, "owner", None, &[]);
    let owner = reference(&kubectl, "owner");
    let class = |name: &str| {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1,
            "metadata": {"name": name, "ownerReferences": [owner]}});
        kubectl.apply(&class.to_string());
    };
    let (name, later) = ("owned-by-what-is-in-a-namespace", "owned-by-what-was-in-a-namespace");
    class(name);
    let is_reported = || {
        let all = kubectl.run("get events -A -o json").ok();
        serde_json::from_str::<Value>(&all).unwrap()["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["reason"] == "OwnerRefInvalidNamespace" && event["involvedObject"]["name"] == name)
    };
    eventually("the Event with the reason", is_reported);
    // The garbage collector has processed the first object when this later one is deleted.
    kubectl.run("delete configmap owner").ok();
    class(later);
    config_map(&kubectl, "other", None, &[]);
    config_map(&kubectl, "dependent", Some("other"), &[]);
    kubectl.run("delete configmap other").ok();
    eventually("the dependent to be deleted", || kubectl.get("configmap/dependent").is_none());
    for name in [name, later] {
        kubectl.run(&format!("delete priorityclass {name}")).ok();
    }
}
