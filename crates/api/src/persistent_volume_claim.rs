//! PersistentVolumeClaims and their PersistentVolumes: matching and binding, shared by scheduler, controllers and kubelet
//! (`k8s.io/component-helpers/storage/volume`, `k8s.io/component-helpers/storage/ephemeral`).

use crate::{affinity::matches_selector, quantity::Amount, selector::LabelRequirements};
use k8s_openapi::{
    api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, Volume},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// Annotation of a claim whose binding is complete; its volume is not chosen again (`AnnBindCompleted`).
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a volume or claim that the controller bound, as opposed to its user (`AnnBoundByController`).
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of a dynamically provisioned volume: its provisioner (`AnnDynamicallyProvisioned`).
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation of a claim: the node that the scheduler selected for its Pod (`AnnSelectedNode`).
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotations of a claim that name its provisioner; the second is the deprecated name, which provisioners still read
/// (`AnnStorageProvisioner`, `AnnBetaStorageProvisioner`).
pub const PROVISIONERS: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// Provisioner of a class without dynamic provisioning (`NotSupportedProvisioner`).
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Fields of a `PersistentVolumeSpec` that are not its volume source.
pub const NON_SOURCE_FIELDS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
/// Beta annotation for the storage class; it takes precedence over the field (`BetaStorageClassAnnotation`).
const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the name of the claim that a Pod's volume refers to or, for an ephemeral volume, that is created for it.
#[must_use]
pub fn claim_name(pod: &str, volume: &Volume) -> Option<String> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(ephemeral_claim_name(pod, &volume.name)),
        (None, None) => None,
    }
}

/// Returns the name of the claim that is created for a Pod's ephemeral volume (`VolumeClaimName`).
#[must_use]
pub fn ephemeral_claim_name(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// The claim of an ephemeral volume was not created for the Pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
pub struct ClaimOwnerError {
    claim: String,
    pod: String,
}

/// Checks that the claim of an ephemeral volume was created for this Pod (`VolumeIsForPod`).
///
/// # Errors
/// When the Pod is not the claim's controller, with upstream's message.
pub fn check_owned_by_pod(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), ClaimOwnerError> {
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    if controllers.any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref()) {
        return Ok(());
    }
    let named = |meta: &ObjectMeta| {
        format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    };
    Err(ClaimOwnerError { claim: named(&claim.metadata), pod: named(&pod.metadata) })
}

/// Returns the value of an annotation.
#[must_use]
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the storage class of a claim; `""` if it has none (`GetPersistentVolumeClaimClass`).
#[must_use]
pub fn claim_storage_class(claim: &PersistentVolumeClaim) -> &str {
    let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&claim.metadata, BETA_STORAGE_CLASS).or_else(field).unwrap_or_default()
}

/// Returns whether a claim sets its storage class, even to `""` (`PersistentVolumeClaimHasClass`).
#[must_use]
pub fn has_storage_class(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, BETA_STORAGE_CLASS).is_some()
        || claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
}

/// Returns the storage class of a volume; `""` if it has none (`GetPersistentVolumeClass`).
#[must_use]
pub fn volume_storage_class(volume: &PersistentVolume) -> &str {
    let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&volume.metadata, BETA_STORAGE_CLASS).or_else(field).unwrap_or_default()
}

/// Returns the claim that a volume is bound to or reserved for (`spec.claimRef`).
#[must_use]
pub fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Returns the volume that a claim is bound to or requests by name.
#[must_use]
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns whether a claim is fully bound, so that a Pod may use it (`isPVCFullyBound`).
#[must_use]
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// Returns whether a volume is bound to this claim or reserved for it (`IsVolumeBoundToClaim`).
#[must_use]
pub fn is_volume_bound_to_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|to| {
        to.name == claim.metadata.name
            && to.namespace == claim.metadata.namespace
            && to.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
    })
}

/// Returns whether the volume's node affinity matches the node (`CheckNodeAffinity`).
#[must_use]
pub fn node_affinity_matches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|terms| matches_selector(terms, node))
}

/// Returns the storage that a claim requests, in bytes.
#[must_use]
pub fn requested_storage(claim: &PersistentVolumeClaim) -> Amount {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage"));
    storage.and_then(|quantity| Amount::try_from(quantity).ok()).unwrap_or_default()
}

/// Returns the storage capacity of a volume, in bytes.
#[must_use]
pub fn capacity(volume: &PersistentVolume) -> Amount {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    let storage = capacity.and_then(|capacity| capacity.get("storage"));
    storage.and_then(|quantity| Amount::try_from(quantity).ok()).unwrap_or_default()
}

/// Returns why a volume does not satisfy a claim that requests it by name (`checkVolumeSatisfyClaim`).
#[must_use]
pub fn check_volume_satisfies_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    if requested_storage(claim) > capacity(volume) {
        return Some("requested PV is too small");
    }
    if volume_storage_class(volume) != claim_storage_class(claim) {
        return Some("storageClassName does not match");
    }
    if !matches_volume_attributes_class(volume, claim) {
        return Some("volumeAttributesClassName does not match");
    }
    if !matches_volume_mode(volume, claim) {
        return Some("incompatible volumeMode");
    }
    (!offers_access_modes(volume, claim)).then_some("incompatible accessMode")
}

/// Finds the volume for a claim (`FindMatchingVolume`): the one that is reserved for it, else among the available ones that
/// match the one with the fewest access modes, then the smallest. With a node, the volume's node affinity must match it.
#[must_use]
pub fn find_matching_volume<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume>,
    node: Option<&Node>,
    delayed: bool,
) -> Option<&'a PersistentVolume> {
    let spec = claim.spec.as_ref()?;
    let selector = spec.selector.as_ref().map(LabelRequirements::from_object);
    let selected = |volume: &PersistentVolume| match &selector {
        None => true,
        Some(Err(_)) => false,
        Some(Ok(selector)) => {
            let labels = volume.metadata.labels.as_ref();
            selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
        }
    };
    let matches_node = |volume: &PersistentVolume| node.is_none_or(|node| node_affinity_matches(volume, node));
    let mut best: Option<(Rank<'_>, &PersistentVolume)> = None;
    for volume in volumes.filter(|volume| is_candidate(volume, claim)) {
        if is_volume_bound_to_claim(volume, claim) {
            return Some(volume).filter(|volume| matches_node(volume));
        }
        let is_free = claim_ref(volume).is_none() && phase(volume) == Some("Available");
        // Delayed binding (`WaitForFirstConsumer`) needs a node.
        if !is_free || (delayed && node.is_none()) || !selected(volume) || !matches_node(volume) {
            continue;
        }
        if volume_storage_class(volume) != claim_storage_class(claim) || !offers_access_modes(volume, claim) {
            continue;
        }
        let rank =
            (access_modes_of(volume).len(), capacity(volume), volume.metadata.name.as_deref().unwrap_or_default());
        if best.as_ref().is_none_or(|(other, _)| rank < *other) {
            best = Some((rank, volume));
        }
    }
    best.map(|(_, volume)| volume)
}

/// Sort key of a candidate, lowest first: number of access modes, capacity, and the name to be deterministic.
type Rank<'a> = (usize, Amount, &'a str);

/// Returns whether a volume passes the checks that apply even to one that is reserved for the claim.
fn is_candidate(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.metadata.deletion_timestamp.is_none()
        && capacity(volume) >= requested_storage(claim)
        && matches_volume_mode(volume, claim)
        && matches_volume_attributes_class(volume, claim)
}

fn matches_volume_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    const DEFAULT: &str = "Filesystem";
    let has = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(DEFAULT);
    let requested = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(DEFAULT);
    has == requested
}

fn matches_volume_attributes_class(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let requested = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    has.unwrap_or_default() == requested.unwrap_or_default()
}

fn offers_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let requested = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    requested.iter().all(|mode| access_modes_of(volume).contains(mode))
}

fn access_modes_of(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

/// Returns the phase of a volume.
#[must_use]
pub fn phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.phase.as_deref()
}

/// Returns the volume with its reference to the claim set (`GetBindVolumeToClaim`); `None` if it is already bound.
#[must_use]
pub fn bind_volume_to_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let meta = &claim.metadata;
    let already_reserved = is_volume_bound_to_claim(volume, claim);
    if already_reserved && claim_ref(volume).is_some_and(|to| to.uid == meta.uid) {
        return None;
    }
    let mut bound = volume.clone();
    let spec = bound.spec.get_or_insert_default();
    spec.claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        ..ObjectReference::default()
    });
    if !already_reserved {
        let annotations = bound.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    Some(bound)
}

#[cfg(test)]
mod tests;
