//! Volumes of claims (`persistentVolumeClaim` and `ephemeral`): the PersistentVolume of a claim, and its path for the Pod
//! (upstream's `pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go`).
//!
//! It is mounted at the Pod's directory, or a symbolic link there leads to it. A mounted volume is found there after a restart,
//! without the API, and independent of the claim's current state.

use super::{
    mount_error::{MountError, SetUpError},
    removal,
};
use crate::{Shared, deadline::within_deadline, pods::spec};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Volume};
use kube::Api;
use lifecycle::Pod;
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

/// Returns whether a volume belongs to a claim: it outlives the Pod and does not count as its local storage.
pub(crate) fn is_claim(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
}

/// Returns the path of a claim's volume that is mounted at the Pod's directory `dir`.
pub(super) fn mounted_path(dir: &Path) -> Option<PathBuf> {
    fs::read_link(dir).ok().or_else(|| is_bind_mounted(dir).then(|| dir.to_owned()))
}

/// Returns whether a volume is bind-mounted at the Pod's directory.
pub(crate) fn is_bind_mounted(dir: &Path) -> bool {
    removal::is_mount_point(dir)
}

/// Failure to find the PersistentVolume of a claim, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("error processing PVC {claim}: {source}")]
    Process { claim: String, source: Box<BindingError> },
    /// The claim of an ephemeral volume belongs to another object.
    #[error("{0}")]
    NotOwned(#[source] Box<dyn Error + Send + Sync>),
    #[error("volume {volume} has volumeMode {mode}, but is specified in volumeMounts")]
    Mounted { volume: String, mode: String },
    #[error("volume {volume} has volumeMode {mode}, but is specified in volumeDevices")]
    UsedAsDevice { volume: String, mode: String },
    #[error("volumes of mode {0} are not supported yet")]
    UnsupportedMode(String),
}

/// Cause of [`ClaimError::Process`].
#[derive(Debug, thiserror::Error)]
pub(super) enum BindingError {
    #[error("failed to fetch PVC from API server: {}", api_message(.0))]
    FetchClaim(#[source] kube::Error),
    #[error("failed to fetch PV {volume} from API server: {}", api_message(.source))]
    FetchVolume { volume: String, source: kube::Error },
    #[error("PVC is being deleted")]
    Deleted,
    #[error("PVC is not bound")]
    NotBound,
    #[error("PVC has empty pvc.Spec.VolumeName")]
    NoVolumeName,
    #[error("found PV object {0} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim")]
    NoClaimRef(String),
    #[error(
        "found PV object {volume} but its pv.Spec.ClaimRef.UID {reference_uid} does not point to claim.UID {claim_uid}"
    )]
    OtherClaim { volume: String, reference_uid: String, claim_uid: String },
}

/// Returns whether the claim's volume is read-only for the Pod.
pub(super) fn is_read_only(volume: &Volume) -> bool {
    volume.persistent_volume_claim.as_ref().is_some_and(|source| source.read_only == Some(true))
}

/// Finds the PersistentVolume of a Pod's claim; `None` if it is already mounted.
///
/// # Errors
/// Fails with the message of upstream's Event.
pub(super) async fn find(
    shared: &Shared,
    pod: &Pod,
    volume: &Volume,
    claim: &str,
) -> Result<Option<PersistentVolume>, MountError> {
    if mounted_path(&shared.paths.volume(pod.uid(), &volume.name)).is_some() {
        return Ok(None);
    }
    let found = find_volume(shared, pod, volume, claim).await.and_then(|found| {
        check_mode(&found, pod, &volume.name)?;
        Ok(found)
    });
    let found = found.map_err(|source| MountError::Claim { volume: volume.name.clone(), source })?;
    let name = || found.metadata.name.clone().unwrap_or_default();
    if !matches_this_node(shared, &found).await {
        return Err(MountError::NodeAffinity { volume: name() });
    }
    if is_read_write_once_pod(&found) && is_used_by_another(shared, pod, claim) {
        return Err(MountError::set_up(&name(), SetUpError::InUse));
    }
    Ok(Some(found))
}

/// Returns the PersistentVolume that the claim is bound to.
async fn find_volume(shared: &Shared, pod: &Pod, volume: &Volume, name: &str) -> Result<PersistentVolume, ClaimError> {
    let failed = |cause: BindingError| ClaimError::Process {
        claim: format!("{}/{name}", pod.namespace()),
        source: Box::new(cause),
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(shared.client.clone(), pod.namespace());
    let claim = within_deadline(claims.get(name)).await;
    let claim = claim.map_err(|error| failed(BindingError::FetchClaim(error)))?;
    let volume_name = bound_volume_name(&claim).map_err(failed)?;
    if volume.ephemeral.is_some() {
        api::persistent_volume_claim::check_owned_by_pod(&claim, pod.object())
            .map_err(|error| ClaimError::NotOwned(error.into()))?;
    }
    let found = within_deadline(Api::<PersistentVolume>::all(shared.client.clone()).get(volume_name)).await;
    let found = found.map_err(|source| failed(BindingError::FetchVolume { volume: volume_name.to_owned(), source }))?;
    check_bound(&found, &claim).map_err(failed)?;
    Ok(found)
}

fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// Returns the name of the bound volume, unless the claim is being deleted.
fn bound_volume_name(claim: &PersistentVolumeClaim) -> Result<&str, BindingError> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(BindingError::Deleted);
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err(BindingError::NotBound);
    }
    api::persistent_volume_claim::volume_name(claim).ok_or(BindingError::NoVolumeName)
}

/// Checks that the volume refers to the claim, too.
fn check_bound(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), BindingError> {
    let name = volume.metadata.name.clone().unwrap_or_default();
    let Some(reference) = api::persistent_volume_claim::claim_ref(volume) else {
        return Err(BindingError::NoClaimRef(name));
    };
    let (reference_uid, claim_uid) =
        (reference.uid.clone().unwrap_or_default(), claim.metadata.uid.clone().unwrap_or_default());
    if reference_uid == claim_uid {
        Ok(())
    } else {
        Err(BindingError::OtherClaim { volume: name, reference_uid, claim_uid })
    }
}

/// Checks that the Pod uses the volume according to its `volumeMode`, which must be supported.
fn check_mode(found: &PersistentVolume, pod: &Pod, volume: &str) -> Result<(), ClaimError> {
    let mode = found.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
    let is_filesystem = mode == "Filesystem";
    let (volume_name, mode) = (volume.to_owned(), mode.to_owned());
    let mut mounts = api::pod::containers(spec(pod)).flat_map(|(_, c)| c.volume_mounts.iter().flatten());
    if !is_filesystem && mounts.any(|mount| mount.name == volume) {
        return Err(ClaimError::Mounted { volume: volume_name, mode });
    }
    let mut devices = api::pod::containers(spec(pod)).flat_map(|(_, c)| c.volume_devices.iter().flatten());
    if is_filesystem && devices.any(|device| device.name == volume) {
        return Err(ClaimError::UsedAsDevice { volume: volume_name, mode });
    }
    if is_filesystem { Ok(()) } else { Err(ClaimError::UnsupportedMode(mode)) }
}

/// Returns whether the volume's node affinity matches this node. Without the Node object it does: the Pod is already bound.
async fn matches_this_node(shared: &Shared, found: &PersistentVolume) -> bool {
    if found.spec.as_ref().is_none_or(|spec| spec.node_affinity.is_none()) {
        return true;
    }
    let node = within_deadline(Api::<Node>::all(shared.client.clone()).get(&shared.options.node_name)).await;
    node.ok().is_none_or(|node| api::persistent_volume_claim::node_affinity_matches(found, &node))
}

fn is_read_write_once_pod(found: &PersistentVolume) -> bool {
    let modes = found.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.iter().any(|mode| mode == "ReadWriteOncePod")
}

/// Returns whether another Pod of this node has the claim's volume mounted. A Pod may be bound without the scheduler's check.
fn is_used_by_another(shared: &Shared, pod: &Pod, claim: &str) -> bool {
    let others = shared.pods.all().into_iter().map(|handle| handle.state.borrow().clone());
    others.filter(|other| other.uid() != pod.uid() && other.namespace() == pod.namespace()).any(|other| {
        let its =
            |volume: &&Volume| api::persistent_volume_claim::claim_name(other.name(), volume).as_deref() == Some(claim);
        let mut volumes = spec(&other).volumes.iter().flatten().filter(its);
        volumes.any(|volume| mounted_path(&shared.paths.volume(other.uid(), &volume.name)).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(object: Value) -> PersistentVolumeClaim {
        serde_json::from_value(object).unwrap()
    }

    fn volume(spec: Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
    }

    #[test]
    fn unbound_or_deleted_claim_is_rejected() {
        for (object, expected) in [
            (json!({"status": {"phase": "Bound"}, "spec": {"volumeName": "pv"}}), Ok("pv")),
            (json!({"status": {"phase": "Pending"}, "spec": {"volumeName": "pv"}}), Err("PVC is not bound")),
            (json!({"spec": {"volumeName": "pv"}}), Err("PVC is not bound")),
            (json!({"status": {"phase": "Bound"}, "spec": {}}), Err("PVC has empty pvc.Spec.VolumeName")),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Bound"},
                    "spec": {"volumeName": "pv"}}),
                Err("PVC is being deleted"),
            ),
        ] {
            let claim = claim(object.clone());
            let found = bound_volume_name(&claim).map_err(|e| e.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{object}");
        }
    }

    #[test]
    fn volume_of_another_claim_is_rejected() {
        let bound = claim(json!({"metadata": {"uid": "a"}}));
        let check = |spec| check_bound(&volume(spec), &bound).map_err(|e| e.to_string());
        assert_eq!(check(json!({"claimRef": {"uid": "a"}})), Ok(()));
        assert!(check(json!({})).unwrap_err().starts_with("found PV object pv but it has a nil pv.Spec.ClaimRef"));
        assert_eq!(
            check(json!({"claimRef": {"uid": "b"}})).unwrap_err(),
            "found PV object pv but its pv.Spec.ClaimRef.UID b does not point to claim.UID a"
        );
    }
}
