//! Tests of the persistent volume controller against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::{Options, Provisioner, VolumeDirectories};
use fake_api::FakeApi;
use serde_json::{Value, json};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const CLAIM: &str = "api/v1/namespaces/x/persistentvolumeclaims/c";
const VOLUME: &str = "api/v1/persistentvolumes/v";
/// Name of the volume that is provisioned for the claim.
const MADE: &str = "api/v1/persistentvolumes/pvc-1";
const CLASS: &str = "apis/storage.k8s.io/v1/storageclasses/s";

/// Fake directories, which cannot be deleted while they are busy.
#[derive(Clone, Default)]
struct Nowhere {
    busy: Arc<AtomicBool>,
    removed: Arc<AtomicBool>,
}

impl VolumeDirectories for Nowhere {
    fn create(&self, volume: &str) -> io::Result<PathBuf> {
        Ok(PathBuf::from("/data").join(volume))
    }

    fn remove(&self, volume: &str, path: &Path) -> io::Result<()> {
        if path != Path::new("/data").join(volume) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.busy.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.removed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn start(directories: &Nowhere) -> FakeApi {
    let api = FakeApi::new();
    let provisioner = Some(Provisioner::new("podium/local", "n", directories.clone()));
    let options = Options { provisioner, ..Options::default() };
    tokio::spawn(controllers::run(api.client(), options, CancellationToken::new()));
    api
}

fn claim(api: &FakeApi, change: Value) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}});
    let mut claim = json!({"metadata": {"name": "c", "namespace": "x", "uid": "1"}, "spec": spec,
        "status": {"phase": "Pending"}});
    claim["metadata"].as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    api.put(CLAIM, claim);
}

fn class(api: &FakeApi, policy: &str) {
    api.put(
        CLASS,
        json!({"metadata": {"name": "s"}, "provisioner": "podium/local", "reclaimPolicy": policy,
        "volumeBindingMode": "Immediate"}),
    );
}

fn phase(api: &FakeApi, path: &str) -> Option<String> {
    Some(api.get(path)?["status"]["phase"].as_str()?.to_owned())
}

fn is(api: &FakeApi, path: &str, expected: &str) -> bool {
    phase(api, path).as_deref() == Some(expected)
}

fn recorded_events(api: &FakeApi, reason: &str) -> Option<String> {
    let events = api.list("api/v1/events");
    let event = events.iter().find(|event| event["reason"] == reason)?;
    Some(event["message"].as_str()?.to_owned())
}

#[tokio::test(start_paused = true)]
async fn claim_binds_existing_volume_which_is_retained() {
    let api = start(&Nowhere::default());
    api.put(
        VOLUME,
        json!({"metadata": {"name": "v", "uid": "9"}, "status": {"phase": "Pending"}, "spec": {
        "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "s",
        "hostPath": {"path": "/data"}, "persistentVolumeReclaimPolicy": "Retain"}}),
    );
    api.wait_until("it is free", |api| is(api, VOLUME, "Available")).await;
    claim(&api, json!({}));
    api.wait_until("both are bound", |api| is(api, VOLUME, "Bound") && is(api, CLAIM, "Bound")).await;
    let bound = api.get(CLAIM).expect("a claim");
    assert_eq!((&bound["spec"]["volumeName"], &bound["status"]["capacity"]["storage"]), (&json!("v"), &json!("2Gi")));
    assert_eq!(bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(api.get(VOLUME).expect("a volume")["spec"]["claimRef"]["uid"], "1");
    api.delete(CLAIM);
    api.wait_until("it is released", |api| is(api, VOLUME, "Released")).await;
    // The volume is not bound to another claim.
    claim(&api, json!({"uid": "2"}));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is(&api, VOLUME, "Released") && is(&api, CLAIM, "Pending"));
}

#[tokio::test(start_paused = true)]
async fn provisioned_volume_is_deleted_with_its_claim() {
    let directories = Nowhere::default();
    let api = start(&directories);
    class(&api, "Delete");
    claim(&api, json!({}));
    api.wait_until("it is bound", |api| is(api, CLAIM, "Bound")).await;
    let made = api.get(MADE).expect("a volume");
    assert_eq!(made["spec"]["local"]["path"], "/data/pvc-1");
    assert_eq!((&made["spec"]["capacity"]["storage"], &made["spec"]["storageClassName"]), (&json!("1Gi"), &json!("s")));
    directories.busy.store(true, Ordering::Relaxed);
    api.delete(CLAIM);
    api.wait_until("it fails", |api| is(api, MADE, "Failed")).await;
    api.wait_until("the Event is recorded", |api| recorded_events(api, "VolumeFailedDelete").is_some()).await;
    assert_eq!(
        recorded_events(&api, "VolumeFailedDelete").expect("an event"),
        "failed to delete volume \"pvc-1\": resource busy"
    );
    directories.busy.store(false, Ordering::Relaxed);
    api.wait_until("it is gone", |api| api.get(MADE).is_none()).await;
    assert!(directories.removed.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn deleted_bound_volume_deletes_its_data() {
    let directories = Nowhere::default();
    let api = start(&directories);
    class(&api, "Delete");
    claim(&api, json!({}));
    api.wait_until("it is bound", |api| is(api, CLAIM, "Bound")).await;
    api.delete(MADE);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(api.get(MADE).is_some() && !directories.removed.load(Ordering::Relaxed), "its claim is still there");
    api.delete(CLAIM);
    api.wait_until("it is gone", |api| api.get(MADE).is_none()).await;
    assert!(directories.removed.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn volume_that_cannot_be_reclaimed_fails() {
    let api = start(&Nowhere::default());
    let was_bound = |name: &str, policy: &str, by: Value| {
        let gone = json!({"namespace": "x", "name": name, "uid": "gone"});
        let volume = json!({"metadata": {"name": name, "uid": name, "annotations": by}, "status": {"phase": "Bound"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"},
                "persistentVolumeReclaimPolicy": policy, "claimRef": gone}});
        let path = format!("api/v1/persistentvolumes/{name}");
        api.put(&path, volume);
        path
    };
    let by_hand = was_bound("by-hand", "Delete", json!({}));
    let recycled = was_bound("recycled", "Recycle", json!({}));
    // The data is at another path: the directory of this name must not be deleted.
    let moved = was_bound("moved", "Delete", json!({"pv.kubernetes.io/provisioned-by": "podium/local"}));
    let others = was_bound("others", "Delete", json!({"pv.kubernetes.io/provisioned-by": "example.com/disk"}));
    let message = |path: &str| Some(api.get(path)?["status"]["message"].as_str()?.to_owned());
    api.wait_until("two have failed", |api| is(api, &by_hand, "Failed") && is(api, &recycled, "Failed")).await;
    let no_plugin = "Error getting deleter volume plugin for volume \"by-hand\": no deletable volume plugin matched";
    assert_eq!(message(&by_hand).as_deref(), Some(no_plugin));
    api.wait_until("another has failed", |api| is(api, &moved, "Failed")).await;
    assert_eq!(message(&moved).as_deref(), Some("failed to delete volume \"moved\": invalid input parameter"));
    assert_eq!(message(&recycled).as_deref(), Some("No recycler plugin found for the volume!"));
    api.wait_until("it is for others", |api| is(api, &others, "Released")).await;
}

#[tokio::test(start_paused = true)]
async fn claim_waits_for_its_class_and_is_lost_without_volume() {
    let api = start(&Nowhere::default());
    claim(&api, json!({}));
    api.wait_until("the provisioning failure is recorded", |api| recorded_events(api, "ProvisioningFailed").is_some())
        .await;
    assert_eq!(
        recorded_events(&api, "ProvisioningFailed").expect("an event"),
        "storageclass.storage.k8s.io \"s\" not found"
    );
    class(&api, "Retain");
    api.wait_until("it is bound", |api| is(api, CLAIM, "Bound")).await;
    assert_eq!(api.get(MADE).expect("a volume")["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    api.remove(MADE);
    api.wait_until("it is lost", |api| is(api, CLAIM, "Lost")).await;
    api.wait_until("the Event is recorded", |api| recorded_events(api, "ClaimLost").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn failed_provisioning_is_reported_and_rescheduled() {
    let api = start(&Nowhere::default());
    api.put(
        CLASS,
        json!({"metadata": {"name": "s"}, "provisioner": "podium/local",
        "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    claim(&api, json!({"annotations": {"volume.kubernetes.io/selected-node": "elsewhere"}}));
    let annotations = |api: &FakeApi| api.get(CLAIM).expect("a claim")["metadata"]["annotations"].clone();
    api.wait_until("it is given up", |api| annotations(api)["volume.kubernetes.io/selected-node"].is_null()).await;
    let message = "Failed to provision volume with StorageClass \"s\": volumes of \"podium/local\" are on node \"n\" only, \
               not on \"elsewhere\"";
    assert_eq!(recorded_events(&api, "ProvisioningFailed").expect("an event"), message);
    assert_eq!(annotations(&api)["volume.kubernetes.io/storage-provisioner"], "podium/local");
}

#[tokio::test(start_paused = true)]
async fn ephemeral_volume_claim_is_owned_by_its_pod() {
    let api = start(&Nowhere::default());
    class(&api, "Delete");
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
    api.put(
        "api/v1/namespaces/x/pods/p",
        json!({"metadata": {"name": "p", "namespace": "x", "uid": "7"},
        "spec": {"containers": [], "volumes": [volume]}, "status": {"phase": "Pending"}}),
    );
    let path = "api/v1/namespaces/x/persistentvolumeclaims/p-v";
    api.wait_until("it is made", |api| api.get(path).is_some()).await;
    assert_eq!(api.get(path).expect("a claim")["metadata"]["ownerReferences"][0]["uid"], "7");
    api.remove(path);
    api.wait_until("it is made again", |api| api.get(path).is_some()).await;
    // The failure is recorded as an Event of the Pod.
    api.refuse_next("POST api/v1/namespaces/x/persistentvolumeclaims", 403);
    api.remove(path);
    api.wait_until("the Event is recorded", |api| recorded_events(api, "FailedBinding").is_some()).await;
    let message = recorded_events(&api, "FailedBinding").expect("an event");
    assert!(message.starts_with("ephemeral volume v: create PVC p-v: "), "{message}");
}
