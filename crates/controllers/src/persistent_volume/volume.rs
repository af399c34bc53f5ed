//! Decides the next step for a volume (`syncVolume`). Does no I/O.

use super::provisioner::FINALIZER;
use api::persistent_volume_claim::{BOUND_BY_CONTROLLER, PROVISIONED_BY, annotation, claim_ref, volume_name};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// The next step for a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Set the phase.
    Phase(&'static str),
    /// The claim is not bound yet: sync the claim.
    Claim,
    /// The claim has another volume.
    Unbind,
    /// The claim is gone, according to the cache.
    Release,
}

/// Plans a step. `claim` is the one that `spec.claimRef` names.
pub(super) fn plan(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Step {
    let Some(to) = claim_ref(volume) else {
        let is_held = volume.metadata.finalizers.iter().flatten().any(|held| held == FINALIZER);
        // An unbound volume with the finalizer was deleted: delete its data, too.
        let is_going = is_held && volume.metadata.deletion_timestamp.is_some();
        return if is_going { Step::Release } else { Step::Phase("Available") };
    };
    let Some(uid) = to.uid.as_deref().filter(|uid| !uid.is_empty()) else {
        // The volume is reserved for a claim that may not exist yet.
        return Step::Phase("Available");
    };
    let Some(claim) = claim.filter(|claim| claim.metadata.uid.as_deref() == Some(uid)) else { return Step::Release };
    match volume_name(claim) {
        None => Step::Claim,
        Some(name) if volume.metadata.name.as_deref() == Some(name) => Step::Phase("Bound"),
        Some(_) if was_provisioned_for_claim(volume) => Step::Release,
        Some(_) => Step::Unbind,
    }
}

fn was_provisioned_for_claim(volume: &PersistentVolume) -> bool {
    annotation(&volume.metadata, PROVISIONED_BY).is_some() && policy(volume) == "Delete"
}

/// Returns the reclaim policy.
pub(super) fn policy(volume: &PersistentVolume) -> &str {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy.unwrap_or("Retain")
}

/// Returns the volume without its claim; a reservation by its user is kept (`unbindVolume`).
pub(super) fn without_claim(volume: &PersistentVolume) -> PersistentVolume {
    let mut volume = volume.clone();
    let by_controller = volume.metadata.annotations.as_mut().and_then(|all| all.remove(BOUND_BY_CONTROLLER)).is_some();
    if let Some(spec) = &mut volume.spec {
        if by_controller {
            spec.claim_ref = None;
        } else if let Some(to) = &mut spec.claim_ref {
            to.uid = None;
        }
    }
    volume
}
