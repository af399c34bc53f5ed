//! Table tests: a claim or volume with its context, and the next step.
#![expect(clippy::needless_pass_by_value, reason = "rows of a table read better without references")]

use super::{
    claim::{self, ClaimContext},
    volume,
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Merges `change` over the object, two levels deep.
fn changed(mut object: Value, change: Value) -> Value {
    for (part, fields) in change.as_object().expect("an object") {
        match (object[part].as_object_mut(), fields.as_object()) {
            (Some(known), Some(fields)) => known.extend(fields.clone()),
            _ => object[part] = fields.clone(),
        }
    }
    object
}

fn claim(change: Value) -> PersistentVolumeClaim {
    let claim = json!({
        "metadata": {"name": "c", "namespace": "x", "uid": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": "s"},
    });
    serde_json::from_value(changed(claim, change)).expect("a claim")
}

fn volume(name: &str, change: Value) -> PersistentVolume {
    let volume = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "storageClassName": "s"},
        "status": {"phase": "Available"},
    });
    serde_json::from_value(changed(volume, change)).expect("a volume")
}

fn class(name: &str, change: Value) -> StorageClass {
    let class =
        json!({"metadata": {"name": name}, "provisioner": "example.com/disk", "volumeBindingMode": "Immediate"});
    serde_json::from_value(changed(class, change)).expect("a class")
}

fn claim_ref(uid: &str) -> Value {
    json!({"namespace": "x", "name": "c", "uid": uid})
}

/// Formats a step.
#[track_caller]
fn check(claim: PersistentVolumeClaim, volumes: Vec<PersistentVolume>, classes: Vec<StorageClass>, expected: &str) {
    check_with(claim, volumes, classes, None, expected);
}

#[track_caller]
fn check_with(
    claim: PersistentVolumeClaim,
    volumes: Vec<PersistentVolume>,
    classes: Vec<StorageClass>,
    pod: Option<&str>,
    expected: &str,
) {
    let volumes: Vec<_> = volumes.into_iter().map(Arc::new).collect();
    let classes: Vec<_> = classes.into_iter().map(Arc::new).collect();
    let step = match claim::plan(&claim, &ClaimContext { volumes: &volumes, classes: &classes, pod }) {
        claim::Step::Wait(event) => {
            event.map_or("wait".to_owned(), |event| format!("{}: {}", event.reason, event.message))
        }
        claim::Step::Lost(event) => format!("{}: {}", event.reason, event.message),
        claim::Step::AssignDefaultClass(class) => format!("classify {class}"),
        claim::Step::Bind(volume) => format!("bind {}", volume.metadata.name.as_deref().unwrap_or_default()),
        claim::Step::Provision => "provision".to_owned(),
    };
    assert_eq!(step, expected);
}

#[test]
fn claim_binds_an_existing_volume_or_is_provisioned() {
    check(claim(json!({})), vec![volume("v", json!({}))], vec![], "bind v");
    check(claim(json!({})), vec![], vec![class("s", json!({}))], "provision");
    check(claim(json!({})), vec![], vec![], "provision");
    let none = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    check(claim(json!({"spec": {"storageClassName": ""}})), vec![volume("v", json!({}))], vec![], none);
    check(
        claim(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        vec![volume("v", json!({}))],
        vec![],
        "wait",
    );
}

#[test]
fn claim_waits_for_its_first_consumer() {
    let class = || vec![class("s", json!({"volumeBindingMode": "WaitForFirstConsumer"}))];
    let free = || vec![volume("v", json!({}))];
    let first = "WaitForFirstConsumer: waiting for first consumer to be created before binding";
    check(claim(json!({})), free(), class(), first);
    let scheduled = "WaitForPodScheduled: waiting for pod p to be scheduled";
    check_with(claim(json!({})), free(), class(), Some("p"), scheduled);
    let selected = || claim(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}));
    check(selected(), free(), class(), "provision");
    check(claim(json!({})), vec![volume("v", json!({"spec": {"claimRef": claim_ref("1")}}))], class(), "bind v");
}

#[test]
fn claim_without_class_gets_the_default_class() {
    let marked = |name: &str, made: &str| {
        let mark = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        class(name, json!({"metadata": {"creationTimestamp": made, "annotations": mark}}))
    };
    let classes =
        || vec![marked("old", "2026-01-01T00:00:00Z"), marked("new", "2026-01-02T00:00:00Z"), class("s", json!({}))];
    check(claim(json!({"spec": {"storageClassName": null}})), vec![], classes(), "classify new");
    check(claim(json!({"spec": {"storageClassName": "s"}})), vec![], classes(), "provision");
    let none = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    check(claim(json!({"spec": {"storageClassName": ""}})), vec![], classes(), none);
}

#[test]
fn prebound_claim_binds_only_its_named_volume() {
    let requires = || claim(json!({"spec": {"volumeName": "v"}}));
    check(requires(), vec![volume("v", json!({})), volume("w", json!({}))], vec![], "bind v");
    check(requires(), vec![volume("w", json!({}))], vec![], "wait");
    let small = volume("v", json!({"spec": {"capacity": {"storage": "1Gi"}}}));
    check(
        requires(),
        vec![small],
        vec![],
        "VolumeMismatch: Cannot bind to requested volume \"v\": requested PV is too small",
    );
    let taken = volume("v", json!({"spec": {"claimRef": {"namespace": "x", "name": "other", "uid": "2"}}}));
    check(requires(), vec![taken], vec![], "FailedBinding: volume \"v\" already bound to a different claim.");
}

#[test]
fn claim_without_its_bound_volume_is_lost() {
    let bound = |volume: &str| {
        let done = json!({"pv.kubernetes.io/bind-completed": "yes"});
        claim(json!({"metadata": {"annotations": done}, "spec": {"volumeName": volume}}))
    };
    let data = "Data on the volume is lost!";
    check(bound(""), vec![], vec![], &format!("ClaimLost: Bound claim has lost reference to PersistentVolume. {data}"));
    check(bound("v"), vec![], vec![], &format!("ClaimLost: Bound claim has lost its PersistentVolume. {data}"));
    let others = volume("v", json!({"spec": {"claimRef": claim_ref("2")}}));
    let twice = "ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly";
    check(bound("v"), vec![others], vec![], twice);
    check(bound("v"), vec![volume("v", json!({"spec": {"claimRef": claim_ref("1")}}))], vec![], "bind v");
    check(bound("v"), vec![volume("v", json!({}))], vec![], "bind v");
}

#[track_caller]
fn check_volume(change: Value, claim: Option<PersistentVolumeClaim>, expected: volume::Step) {
    assert_eq!(volume::plan(&volume("v", change), claim.as_ref()), expected);
}

#[test]
fn volume_is_released_when_its_claim_is_gone() {
    use volume::Step;
    let bound_to = |name: &str| Some(claim(json!({"spec": {"volumeName": name}})));
    check_volume(json!({}), None, Step::Phase("Available"));
    check_volume(json!({"spec": {"claimRef": {"namespace": "x", "name": "c"}}}), None, Step::Phase("Available"));
    check_volume(json!({"spec": {"claimRef": claim_ref("1")}}), Some(claim(json!({}))), Step::Claim);
    check_volume(json!({"spec": {"claimRef": claim_ref("1")}}), bound_to("v"), Step::Phase("Bound"));
    check_volume(json!({"spec": {"claimRef": claim_ref("1")}}), None, Step::Release);
    check_volume(json!({"spec": {"claimRef": claim_ref("2")}}), bound_to("v"), Step::Release);
    check_volume(json!({"spec": {"claimRef": claim_ref("1")}}), bound_to("w"), Step::Unbind);
    let made = json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "x"}},
        "spec": {"claimRef": claim_ref("1"), "persistentVolumeReclaimPolicy": "Delete"}});
    check_volume(made, bound_to("w"), Step::Release);
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pv-controller"]});
    check_volume(json!({"metadata": going}), None, Step::Release);
}

#[test]
fn prebound_volume_stays_reserved_for_its_claim() {
    let unbound = |change: Value| serde_json::to_value(volume::without_claim(&volume("v", change))).expect("JSON");
    let chosen = unbound(json!({"spec": {"claimRef": claim_ref("1")}}));
    assert_eq!(chosen["spec"]["claimRef"], json!({"namespace": "x", "name": "c"}));
    let by_controller = json!({"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}});
    let free = unbound(json!({"metadata": by_controller, "spec": {"claimRef": claim_ref("1")}}));
    assert_eq!((&free["spec"]["claimRef"], &free["metadata"]["annotations"]), (&Value::Null, &json!({})));
}
