//! Table tests: claims, volumes and classes in, the decision for a Pod that uses them out.

use crate::{
    cache::Cache,
    schedule_pod::{Decision, schedule_pod},
};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// Claim `c` of class `s` and a Pod that uses it, in a cluster of the nodes `n1` and `n2`.
struct Case {
    cache: Cache,
    pod: Pod,
}

impl Case {
    fn new() -> Self {
        let mut cache = Cache::default();
        for name in ["n1", "n2"] {
            cache.set_node(&object(json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
            })));
        }
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let pod = json!({"metadata": {"name": "p", "namespace": "x", "uid": "p"}, "spec": {"containers": [], "volumes": [volume]}});
        Self { cache, pod: object(pod) }
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
        self.cache.storage.claims.insert("x/c".to_owned(), object(claim));
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
        self.cache.storage.classes.insert("s".to_owned(), object(class));
        self
    }

    /// Adds a volume with node affinity to one node.
    fn volume(mut self, name: &str, node: &str, change: &Value) -> Self {
        let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "s",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        });
        spec.as_object_mut().expect("a spec").extend(change.as_object().expect("fields").clone());
        let volume = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}});
        self.cache.storage.volumes.insert(name.to_owned(), object(volume));
        self
    }

    fn decide(&self) -> String {
        match schedule_pod(&self.pod, &self.cache) {
            Decision::Bind(node) => node,
            Decision::Unschedulable(message) => message.split(" no new claims").next().unwrap_or_default().to_owned(),
            other @ (Decision::UnschedulableKeepingNomination(_) | Decision::Preempt(_)) => panic!("{other:?}"),
            Decision::BindVolumes(pod_volumes) if pod_volumes.is_empty() => "waits".to_owned(),
            Decision::BindVolumes(pod_volumes) => {
                let bound = pod_volumes.bindings.iter().map(|(_, after)| {
                    let (name, to) = (after.metadata.name.as_deref(), api::persistent_volume_claim::claim_ref(after));
                    format!(
                        "{} for {}",
                        name.unwrap_or_default(),
                        to.and_then(|to| to.name.as_deref()).unwrap_or_default()
                    )
                });
                let made = pod_volumes.provisions.iter().map(|(_, after)| {
                    let node =
                        api::persistent_volume_claim::annotation(&after.metadata, "volume.kubernetes.io/selected-node");
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

fn no_node_available(message: &str) -> String {
    format!("0/2 nodes are available: {message}.")
}

#[test]
fn unusable_claim_is_reported_with_upstream_message() {
    let none = json!({});
    Case::new().check(&no_node_available("persistentvolumeclaim \"c\" not found"));
    let own = json!({"metadata": {"name": "p", "namespace": "x", "uid": "p"},
        "spec": {"containers": [], "volumes": [{"name": "v", "ephemeral": {}}]}});
    let coming = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"";
    Case { pod: object(own), ..Case::new() }.check(&no_node_available(coming));
    Case::new().claim(&none, &none).check(&no_node_available("pod has unbound immediate PersistentVolumeClaims"));
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    Case::new().claim(&none, &going).check(&no_node_available("persistentvolumeclaim \"c\" is being deleted"));
}

#[test]
fn bound_volume_selects_its_node() {
    let none = json!({});
    Case::new().bound("v", &none).volume("v", "n2", &none).check("n2");
    let elsewhere = no_node_available("2 node(s) didn't match PersistentVolume's node affinity");
    Case::new().bound("v", &none).volume("v", "n3", &none).check(&elsewhere);
    let gone = no_node_available("2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
    Case::new().bound("v", &none).check(&gone);
}

#[test]
fn delayed_claim_is_bound_to_volume_of_selected_node() {
    let none = json!({});
    let waits = || Case::new().claim(&none, &none).class("kubernetes.io/no-provisioner", LATER, &none);
    waits().volume("v", "n2", &none).check("v for c");
    waits().check(&no_node_available("2 node(s) didn't find available persistent volumes to bind"));
    let kept = json!({"claimRef": {"namespace": "x", "name": "c", "uid": "1"}});
    waits().volume("v", "n2", &kept).check("waits");
    waits()
        .volume("v", "n3", &kept)
        .volume("w", "n1", &none)
        .check(&no_node_available("2 node(s) didn't find available persistent volumes to bind"));
}

#[test]
fn delayed_claim_is_provisioned_for_selected_node() {
    let none = json!({});
    let made = |change: &Value| Case::new().claim(&none, &none).class("example.com/disk", LATER, change);
    made(&none).check("make c at n1");
    let zone = json!({"key": "kubernetes.io/hostname", "values": ["n2"]});
    made(&json!({"allowedTopologies": [{"matchLabelExpressions": [zone]}]})).check("make c at n2");
    let updated = json!({"annotations": {"volume.kubernetes.io/selected-node": "n2"}});
    Case::new().claim(&none, &updated).class("example.com/disk", LATER, &none).check("waits");
}

#[test]
fn assumed_volumes_count_until_reverted() {
    let none = json!({});
    let mut case =
        Case::new().claim(&none, &none).class("kubernetes.io/no-provisioner", LATER, &none).volume("v", "n1", &none);
    let Decision::BindVolumes(pod_volumes) = schedule_pod(&case.pod, &case.cache) else { panic!("no volume is bound") };
    case.cache.storage.assume(&pod_volumes);
    case.check("waits");
    case.cache.storage.revert(*pod_volumes);
    case.check("v for c");
}

#[test]
fn read_write_once_pod_claim_rejects_second_pod() {
    let once = json!({"accessModes": ["ReadWriteOncePod"]});
    let mut case = Case::new().bound("v", &once).volume("v", "n1", &json!({}));
    case.check("n1");
    let other = Pod { metadata: object(json!({"name": "q", "namespace": "x"})), ..case.pod.clone() };
    case.cache.assume("q", &other, "n1");
    let chosen = "2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    // Both nodes are rejected: a `ReadWriteOncePod` claim is exclusive cluster-wide.
    case.check(&no_node_available(chosen));
    case.cache.remove_pod("q");
    case.check("n1");
}
