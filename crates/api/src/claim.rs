//! Claims to storage, and the volumes that they are bound to: what scheduler, controllers and kubelet must agree on
//! (`k8s.io/component-helpers/storage/volume`, `k8s.io/component-helpers/storage/ephemeral`).

use crate::affinity::matches_selector;
use crate::quantity::Amount;
use crate::selector::Selector;
use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A claim has this once it was bound for good: from then on its volume is not chosen anew.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// A volume, or a claim, whose other half was chosen by the control plane, and not by its user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// A volume that was made for a claim, by this provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The node for whose Pod a claim's volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Who is asked for a claim's volume; the second name is the older one, which provisioners still read.
pub const PROVISIONERS: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// The provisioner of a class whose volumes nobody makes.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// What the spec of a volume says beside where the volume is, which is its one other field.
pub const BESIDE_SOURCE: [&str; 9] = [
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
/// How classes were told before there was a field for it; it has the last word.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The claim behind a volume of a Pod; of an ephemeral volume, the one that is made for it.
#[must_use]
pub fn name_of(pod: &str, volume: &Volume) -> Option<String> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(made_name(pod, &volume.name)),
        (None, None) => None,
    }
}

/// What the claim is called that is made for an ephemeral volume of a Pod.
#[must_use]
pub fn made_name(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// Whether the claim was made for this Pod, as those of ephemeral volumes are (`VolumeIsForPod`).
///
/// # Errors
/// Upstream's words for one that was not.
pub fn check_made_for(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), String> {
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    if controllers.any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref()) {
        return Ok(());
    }
    let named = |meta: &ObjectMeta| {
        format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    };
    let (claim, pod) = (named(&claim.metadata), named(&pod.metadata));
    Err(format!("PVC {claim} was not created for pod {pod} (pod is not owner)"))
}

/// The value of an annotation.
#[must_use]
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The class that a claim asks for; `""` for none.
#[must_use]
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&claim.metadata, OLD_CLASS).or_else(field).unwrap_or_default()
}

/// Whether a claim says of which class its volume is to be, if only of none.
#[must_use]
pub fn names_class(claim: &PersistentVolumeClaim) -> bool {
    annotation(&claim.metadata, OLD_CLASS).is_some()
        || claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
}

/// The class that a volume is of; `""` for none.
#[must_use]
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&volume.metadata, OLD_CLASS).or_else(field).unwrap_or_default()
}

/// The claim that a volume is bound to, or kept for.
#[must_use]
pub fn reference(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// The volume that a claim is bound to, or asks for by name.
#[must_use]
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether the claim and its volume know of each other, and so a Pod may use it (`isPVCFullyBound`).
#[must_use]
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// Whether the volume is bound to this claim, or kept for it (`IsVolumeBoundToClaim`).
#[must_use]
pub fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    reference(volume).is_some_and(|to| {
        to.name == claim.metadata.name
            && to.namespace == claim.metadata.namespace
            && to.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
    })
}

/// Whether the volume can be reached from this node (`CheckNodeAffinity`).
#[must_use]
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|terms| matches_selector(terms, node))
}

/// How much a claim asks for.
#[must_use]
pub fn requested(claim: &PersistentVolumeClaim) -> Amount {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage"));
    storage.and_then(|quantity| Amount::try_from(quantity).ok()).unwrap_or_default()
}

/// How much a volume holds.
#[must_use]
pub fn capacity(volume: &PersistentVolume) -> Amount {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    let storage = capacity.and_then(|capacity| capacity.get("storage"));
    storage.and_then(|quantity| Amount::try_from(quantity).ok()).unwrap_or_default()
}

/// Why a volume that a claim asks for by name cannot be its own (`checkVolumeSatisfyClaim`).
#[must_use]
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    if requested(claim) > capacity(volume) {
        return Some("requested PV is too small");
    }
    if class_of_volume(volume) != class_of_claim(claim) {
        return Some("storageClassName does not match");
    }
    if !has_attributes(volume, claim) {
        return Some("volumeAttributesClassName does not match");
    }
    if !has_mode(volume, claim) {
        return Some("incompatible volumeMode");
    }
    (!has_access_modes(volume, claim)).then_some("incompatible accessMode")
}

/// The volume for a claim: the one that is kept for it, or of those that are free and fit the one with the fewest ways to
/// be mounted, and of these the smallest (`FindMatchingVolume`). With a node, only what can be reached from there.
#[must_use]
pub fn find<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume>,
    node: Option<&Node>,
    delayed: bool,
) -> Option<&'a PersistentVolume> {
    let spec = claim.spec.as_ref()?;
    let selector = spec.selector.as_ref().map(Selector::from_object);
    let selected = |volume: &PersistentVolume| match &selector {
        None => true,
        Some(Err(_)) => false,
        Some(Ok(selector)) => {
            let labels = volume.metadata.labels.as_ref();
            selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
        }
    };
    let reached = |volume: &PersistentVolume| node.is_none_or(|node| reaches(volume, node));
    let mut best: Option<(Rank<'_>, &PersistentVolume)> = None;
    for volume in volumes.filter(|volume| could_be(volume, claim)) {
        if is_for(volume, claim) {
            return Some(volume).filter(|volume| reached(volume));
        }
        let is_free = reference(volume).is_none() && phase(volume) == Some("Available");
        // Whose binding waits for a Pod is not bound without a node.
        if !is_free || (delayed && node.is_none()) || !selected(volume) || !reached(volume) {
            continue;
        }
        if class_of_volume(volume) != class_of_claim(claim) || !has_access_modes(volume, claim) {
            continue;
        }
        let rank = (modes(volume).len(), capacity(volume), volume.metadata.name.as_deref().unwrap_or_default());
        if best.as_ref().is_none_or(|(other, _)| rank < *other) {
            best = Some((rank, volume));
        }
    }
    best.map(|(_, volume)| volume)
}

/// The less, the better: ways to be mounted, size, and the name so that the choice is always the same.
type Rank<'a> = (usize, Amount, &'a str);

/// What even a volume that is kept for a claim must have.
fn could_be(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.metadata.deletion_timestamp.is_none()
        && capacity(volume) >= requested(claim)
        && has_mode(volume, claim)
        && has_attributes(volume, claim)
}

fn has_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    const DEFAULT: &str = "Filesystem";
    let has = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(DEFAULT);
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or(DEFAULT);
    has == asked
}

fn has_attributes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    has.unwrap_or_default() == asked.unwrap_or_default()
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let asked = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    asked.iter().all(|mode| modes(volume).contains(mode))
}

fn modes(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

/// The phase of a volume.
#[must_use]
pub fn phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.phase.as_deref()
}

/// The volume, bound to the claim (`GetBindVolumeToClaim`); nothing if it is already.
#[must_use]
pub fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let meta = &claim.metadata;
    let known = is_for(volume, claim);
    if known && reference(volume).is_some_and(|to| to.uid == meta.uid) {
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
    if !known {
        let annotations = bound.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    Some(bound)
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
