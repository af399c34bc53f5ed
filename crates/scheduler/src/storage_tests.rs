//! Tables: claims, volumes and classes, and what a Pod that uses them waits for.

use crate::cluster::Cluster;
use crate::fit::{Decision, fit};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// A claim `c` of class `s` and a Pod that uses it, in a cluster of the nodes `n1` and `n2`.
struct Case {
    cluster: Cluster,
    pod: Pod,
}

impl Case {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        for name in ["n1", "n2"] {
            cluster.set_node(&object(json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
            })));
        }
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let pod = json!({"metadata": {"name": "p", "namespace": "x", "uid": "p"}, "spec": {"containers": [], "volumes": [volume]}});
        Self { cluster, pod: object(pod) }
    }

    fn claim(mut self, spec: &Value, change: &Value) -> Self {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "x", "uid": "1"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "s"},
        });
        for (part, fields) in [("spec", spec), ("metadata", change)] {
            claim[part].as_object_mut().expect("a part").extend(fields.as_object().expect("fields").clone());
        }
        self.cluster.storage.claims.insert("x/c".to_owned(), object(claim));
        self
    }

    fn bound(self, volume: &str, spec: &Value) -> Self {
        let mut all = json!({"volumeName": volume});
        all.as_object_mut().expect("a spec").extend(spec.as_object().expect("fields").clone());
        self.claim(&all, &json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}))
    }

    fn class(mut self, provisioner: &str, mode: &str, change: &Value) -> Self {
        let mut class = json!({"metadata": {"name": "s"}, "provisioner": provisioner, "volumeBindingMode": mode});
        class.as_object_mut().expect("a class").extend(change.as_object().expect("fields").clone());
        self.cluster.storage.classes.insert("s".to_owned(), object(class));
        self
    }

    /// A volume that can be reached from one node.
    fn volume(mut self, name: &str, node: &str, change: &Value) -> Self {
        let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "s",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        });
        spec.as_object_mut().expect("a spec").extend(change.as_object().expect("fields").clone());
        let volume = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}});
        self.cluster.storage.volumes.insert(name.to_owned(), object(volume));
        self
    }

    fn decide(&self) -> String {
        match fit(&self.pod, &self.cluster) {
            Decision::Node(node) => node,
            Decision::Unschedulable(message) => message.split(" no new claims").next().unwrap_or_default().to_owned(),
            other @ (Decision::Waits(_) | Decision::Preempts(_)) => panic!("{other:?}"),
            Decision::Volumes(orders) if orders.is_written() => "waits".to_owned(),
            Decision::Volumes(orders) => {
                let bound = orders.bindings.iter().map(|(_, after)| {
                    let (name, to) = (after.metadata.name.as_deref(), api::claim::reference(after));
                    format!(
                        "{} for {}",
                        name.unwrap_or_default(),
                        to.and_then(|to| to.name.as_deref()).unwrap_or_default()
                    )
                });
                let made = orders.provisions.iter().map(|(_, after)| {
                    let node = api::claim::annotation(&after.metadata, "volume.kubernetes.io/selected-node");
                    format!(
                        "make {} at {}",
                        after.metadata.name.as_deref().unwrap_or_default(),
                        node.unwrap_or_default()
                    )
                });
                bound.chain(made).collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[track_caller]
    fn check(&self, expected: &str) {
        assert_eq!(self.decide(), expected);
    }
}

const LATER: &str = "WaitForFirstConsumer";

fn nowhere(why: &str) -> String {
    format!("0/2 nodes are available: {why}.")
}

#[test]
fn a_claim_that_cannot_be_used_is_told_in_upstreams_words() {
    let none = json!({});
    Case::new().check(&nowhere("persistentvolumeclaim \"c\" not found"));
    let own = json!({"metadata": {"name": "p", "namespace": "x", "uid": "p"},
        "spec": {"containers": [], "volumes": [{"name": "v", "ephemeral": {}}]}});
    let coming = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"";
    Case { pod: object(own), ..Case::new() }.check(&nowhere(coming));
    Case::new().claim(&none, &none).check(&nowhere("pod has unbound immediate PersistentVolumeClaims"));
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    Case::new().claim(&none, &going).check(&nowhere("persistentvolumeclaim \"c\" is being deleted"));
}

#[test]
fn a_pod_goes_where_its_volume_is() {
    let none = json!({});
    Case::new().bound("v", &none).volume("v", "n2", &none).check("n2");
    let elsewhere = nowhere("2 node(s) didn't match PersistentVolume's node affinity");
    Case::new().bound("v", &none).volume("v", "n3", &none).check(&elsewhere);
    let gone = nowhere("2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
    Case::new().bound("v", &none).check(&gone);
}

#[test]
fn a_claim_that_waits_for_its_pod_gets_a_volume_of_its_node() {
    let none = json!({});
    let waits = || Case::new().claim(&none, &none).class("kubernetes.io/no-provisioner", LATER, &none);
    waits().volume("v", "n2", &none).check("v for c");
    waits().check(&nowhere("2 node(s) didn't find available persistent volumes to bind"));
    let kept = json!({"claimRef": {"namespace": "x", "name": "c", "uid": "1"}});
    waits().volume("v", "n2", &kept).check("waits");
    waits()
        .volume("v", "n3", &kept)
        .volume("w", "n1", &none)
        .check(&nowhere("2 node(s) didn't find available persistent volumes to bind"));
}

#[test]
fn a_volume_is_made_for_the_node_of_the_pod() {
    let none = json!({});
    let made = |change: &Value| Case::new().claim(&none, &none).class("example.com/disk", LATER, change);
    made(&none).check("make c at n1");
    let zone = json!({"key": "kubernetes.io/hostname", "values": ["n2"]});
    made(&json!({"allowedTopologies": [{"matchLabelExpressions": [zone]}]})).check("make c at n2");
    let asked = json!({"annotations": {"volume.kubernetes.io/selected-node": "n2"}});
    Case::new().claim(&none, &asked).class("example.com/disk", LATER, &none).check("waits");
}

#[test]
fn what_is_assumed_counts_until_it_is_taken_back() {
    let none = json!({});
    let mut case =
        Case::new().claim(&none, &none).class("kubernetes.io/no-provisioner", LATER, &none).volume("v", "n1", &none);
    let Decision::Volumes(orders) = fit(&case.pod, &case.cluster) else { panic!("nothing is ordered") };
    case.cluster.storage.assume(&orders);
    case.check("waits");
    case.cluster.storage.revert(*orders);
    case.check("v for c");
}

#[test]
fn a_claim_for_one_pod_at_a_time_is_not_given_to_a_second_one() {
    let once = json!({"accessModes": ["ReadWriteOncePod"]});
    let mut case = Case::new().bound("v", &once).volume("v", "n1", &json!({}));
    case.check("n1");
    let other = Pod { metadata: object(json!({"name": "q", "namespace": "x"})), ..case.pod.clone() };
    case.cluster.assume("q", &other, "n1");
    let taken = "2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    // The other node is refused for the same reason: wherever it is, it is used.
    case.check(&nowhere(taken));
    case.cluster.remove_pod("q");
    case.check("n1");
}
