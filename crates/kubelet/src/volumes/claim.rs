//! Volumes of claims, `persistentVolumeClaim` and `ephemeral`: what stands behind them, and where it is for the Pod
//! (upstream's `pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go`).
//!
//! A path of the node is a link in the Pod's directory, a volume of the node is bound there: what was set up once is seen
//! there, without asking the API, whatever has become of the claim since and however often Podium was started anew.

use super::{failed, host_path::HostPath, local::Local, ownership::Ownership, removal};
use crate::{Shared, deadline::within_deadline, pods::spec};
use api::claim::BESIDE_SOURCE;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Volume};
use kube::Api;
use lifecycle::Pod;
use serde_json::{Value, json};
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Whether a claim stands behind a volume: then it lives longer than the Pod, and is none of the Pod's own storage.
pub(crate) fn is_claim(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
}

/// Where the volume is that was set up at the Pod's directory for it.
pub(super) fn place(dir: &Path) -> Option<PathBuf> {
    fs::read_link(dir).ok().or_else(|| is_bound(dir).then(|| dir.to_owned()))
}

/// Whether a volume of the node is bound to the Pod's directory.
pub(crate) fn is_bound(dir: &Path) -> bool {
    removal::is_mount_point(dir)
}

/// A volume that a claim of the Pod is bound to, and that can be had on this node.
pub(super) struct Claimed {
    /// The name of the PersistentVolume.
    volume: String,
    source: Source,
}

enum Source {
    HostPath(HostPath),
    Local(Local),
}

impl Claimed {
    /// Makes it be at the Pod's directory for it; `pods` is where all Pods have theirs.
    pub(super) fn set_up(&self, dir: &Path, ownership: Option<Ownership>, pods: &Path) -> Result<(), String> {
        let done = match &self.source {
            Source::HostPath(host) => host.check().and_then(|()| link(host.path(), dir)),
            Source::Local(local) => {
                let step = "MountVolume.NewMounter initialization";
                local.check().map_err(|e| step_failed(step, &self.volume, &e))?;
                local.set_up(dir, ownership, pods)
            }
        };
        done.map_err(|e| failed(&self.volume, &e))
    }
}

fn link(path: &Path, dir: &Path) -> Result<(), String> {
    let make = || {
        dir.parent().map_or(Ok(()), fs::create_dir_all)?;
        symlink(path, dir)
    };
    make().map_err(|e: io::Error| format!("{}: {e}", dir.display()))
}

fn step_failed(step: &str, volume: &str, error: &str) -> String {
    format!("{step} failed for volume {volume:?} : {error}")
}

/// Finds out what is behind a claim of the Pod; nothing is to be done for what was set up before.
///
/// # Errors
/// As upstream's events tell it.
pub(super) async fn prepare(
    shared: &Shared,
    pod: &Pod,
    volume: &Volume,
    claim: &str,
) -> Result<Option<Claimed>, String> {
    if place(&shared.paths.volume(pod.uid(), &volume.name)).is_some() {
        return Ok(None);
    }
    let found = find(shared, pod, volume, claim).await.and_then(|found| {
        check_mode(&found, pod, &volume.name)?;
        Ok(found)
    });
    let found = found.map_err(|e| {
        let name = &volume.name;
        let lists = format!("unmounted volumes=[{name}], unattached volumes=[], failed to process volumes=[{name}]");
        format!("Unable to attach or mount volumes: {lists}: {e}")
    })?;
    let name = found.metadata.name.clone().unwrap_or_default();
    if !reaches(shared, &found).await {
        return Err(step_failed("MountVolume.NodeAffinity check", &name, "no matching NodeSelectorTerms"));
    }
    if is_exclusive(&found) && is_used_by_another(shared, pod, claim) {
        let why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
        return Err(failed(&name, why));
    }
    let readonly = volume.persistent_volume_claim.as_ref().is_some_and(|source| source.read_only == Some(true));
    let source = source(&name, &found.spec.unwrap_or_default(), readonly)?;
    Ok(Some(Claimed { volume: name, source }))
}

/// The volume that the claim is bound to.
async fn find(shared: &Shared, pod: &Pod, volume: &Volume, name: &str) -> Result<PersistentVolume, String> {
    let failed = |error: String| format!("error processing PVC {}/{name}: {error}", pod.namespace());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(shared.client.clone(), pod.namespace());
    let claim = within_deadline(claims.get(name)).await;
    let claim = claim.map_err(|e| failed(format!("failed to fetch PVC from API server: {}", told(e))))?;
    let of = name_of_volume(&claim).map_err(|e| failed(e.to_owned()))?;
    if volume.ephemeral.is_some() {
        api::claim::check_made_for(&claim, pod.object())?;
    }
    let found = within_deadline(Api::<PersistentVolume>::all(shared.client.clone()).get(of)).await;
    let found = found.map_err(|e| failed(format!("failed to fetch PV {of} from API server: {}", told(e))))?;
    check_bound(&found, &claim).map_err(failed)?;
    Ok(found)
}

fn told(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// What a claim is bound to; one that is going is for no Pod any more.
fn name_of_volume(claim: &PersistentVolumeClaim) -> Result<&str, &'static str> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("PVC is being deleted");
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err("PVC is not bound");
    }
    api::claim::volume_name(claim).ok_or("PVC has empty pvc.Spec.VolumeName")
}

/// Whether the volume knows of the claim, too.
fn check_bound(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let Some(reference) = api::claim::reference(volume) else {
        return Err(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        ));
    };
    let (known, own) =
        (reference.uid.as_deref().unwrap_or_default(), claim.metadata.uid.as_deref().unwrap_or_default());
    if known == own {
        return Ok(());
    }
    Err(format!("found PV object {name} but its pv.Spec.ClaimRef.UID {known} does not point to claim.UID {own}"))
}

/// Whether the Pod uses the volume as what it is, and that can be had here.
fn check_mode(found: &PersistentVolume, pod: &Pod, volume: &str) -> Result<(), String> {
    let mode = found.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
    let is_filesystem = mode == "Filesystem";
    let mut mounts = api::pod::containers(spec(pod)).flat_map(|(_, c)| c.volume_mounts.iter().flatten());
    if !is_filesystem && mounts.any(|mount| mount.name == volume) {
        return Err(format!("volume {volume} has volumeMode {mode}, but is specified in volumeMounts"));
    }
    let mut devices = api::pod::containers(spec(pod)).flat_map(|(_, c)| c.volume_devices.iter().flatten());
    if is_filesystem && devices.any(|device| device.name == volume) {
        return Err(format!("volume {volume} has volumeMode {mode}, but is specified in volumeDevices"));
    }
    if is_filesystem { Ok(()) } else { Err(format!("volumes of mode {mode} are not supported yet")) }
}

/// Whether the volume can be had on this node; a node that cannot be asked for keeps nothing from a Pod that is on it.
async fn reaches(shared: &Shared, found: &PersistentVolume) -> bool {
    if found.spec.as_ref().is_none_or(|spec| spec.node_affinity.is_none()) {
        return true;
    }
    let node = within_deadline(Api::<Node>::all(shared.client.clone()).get(&shared.options.node_name)).await;
    node.ok().is_none_or(|node| api::claim::reaches(found, &node))
}

fn is_exclusive(found: &PersistentVolume) -> bool {
    let modes = found.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.iter().any(|mode| mode == "ReadWriteOncePod")
}

/// Whether the claim's volume is there for another Pod of this node, which the scheduler may not have been asked for.
fn is_used_by_another(shared: &Shared, pod: &Pod, claim: &str) -> bool {
    let others = shared.pods.all().into_iter().map(|handle| handle.state.borrow().clone());
    others.filter(|other| other.uid() != pod.uid() && other.namespace() == pod.namespace()).any(|other| {
        let its = |volume: &&Volume| api::claim::name_of(other.name(), volume).as_deref() == Some(claim);
        let mut volumes = spec(&other).volumes.iter().flatten().filter(its);
        volumes.any(|volume| place(&shared.paths.volume(other.uid(), &volume.name)).is_some())
    })
}

/// What is to be set up; `name` is the volume's.
fn source(name: &str, spec: &PersistentVolumeSpec, readonly: bool) -> Result<Source, String> {
    const NO_OPTIONS: &str = "Mount options are not supported for this volume type";
    let options = spec.mount_options.as_ref().is_some_and(|options| !options.is_empty());
    match (&spec.host_path, &spec.local) {
        (Some(_), _) if options => Err(step_failed("MountVolume.MountOptionSupport check", name, NO_OPTIONS)),
        (Some(host), _) => Ok(Source::HostPath(HostPath::new(host))),
        (None, Some(_)) if options => Err(failed(name, "mountOptions of local volumes are not supported yet")),
        (None, Some(local)) => Ok(Source::Local(Local { path: PathBuf::from(&local.path), readonly })),
        (None, None) => Err(failed(name, &format!("volumes of type {} are not supported yet", kind(spec)))),
    }
}

/// The name of a PersistentVolume's type, as its spec has it.
fn kind(spec: &PersistentVolumeSpec) -> String {
    let value: Value = json!(spec);
    let mut fields = value.as_object().into_iter().flatten().map(|(field, _)| field);
    fields.find(|field| !BESIDE_SOURCE.contains(&field.as_str())).cloned().unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(object: Value) -> PersistentVolumeClaim {
        serde_json::from_value(object).unwrap()
    }

    fn volume(spec: Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_claim_that_is_not_bound_or_goes_is_for_no_pod() {
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
            assert_eq!(name_of_volume(&claim(object.clone())), expected, "{object}");
        }
    }

    #[test]
    fn a_volume_that_knows_of_another_claim_is_not_had() {
        let own = claim(json!({"metadata": {"uid": "a"}}));
        let check = |spec| check_bound(&volume(spec), &own);
        assert_eq!(check(json!({"claimRef": {"uid": "a"}})), Ok(()));
        assert!(check(json!({})).unwrap_err().starts_with("found PV object pv but it has a nil pv.Spec.ClaimRef"));
        assert_eq!(
            check(json!({"claimRef": {"uid": "b"}})).unwrap_err(),
            "found PV object pv but its pv.Spec.ClaimRef.UID b does not point to claim.UID a"
        );
    }

    #[track_caller]
    fn check_source(spec: Value, expected: &str) {
        assert_eq!(source("pv", &volume(spec).spec.unwrap(), false).err().as_deref().unwrap_or_default(), expected);
    }

    #[test]
    fn a_volume_of_a_type_or_with_options_that_cannot_be_had_is_told() {
        check_source(json!({"hostPath": {"path": "/d"}, "volumeMode": "Filesystem", "mountOptions": []}), "");
        check_source(json!({"local": {"path": "/d"}, "accessModes": ["ReadWriteOnce"]}), "");
        check_source(
            json!({"accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"}, "claimRef": {}}),
            "MountVolume.SetUp failed for volume \"pv\" : volumes of type nfs are not supported yet",
        );
        check_source(
            json!({"capacity": {"storage": "1Gi"}}),
            "MountVolume.SetUp failed for volume \"pv\" : volumes of type unknown are not supported yet",
        );
        let options = json!(["noatime"]);
        check_source(
            json!({"local": {"path": "/d"}, "mountOptions": options}),
            "MountVolume.SetUp failed for volume \"pv\" : mountOptions of local volumes are not supported yet",
        );
        check_source(
            json!({"hostPath": {"path": "/d"}, "mountOptions": options}),
            "MountVolume.MountOptionSupport check failed for volume \"pv\" : Mount options are not supported for this volume type",
        );
    }
}
