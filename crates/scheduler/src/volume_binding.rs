//! PersistentVolumes and claims in scheduling: pure (plugins `VolumeBinding` and `VolumeRestrictions`).

use crate::{filter_and_score::FilterStatus, fit_error};
use api::{
    object_key::object_key,
    persistent_volume_claim::{
        ClaimOwnerError, NO_PROVISIONER, SELECTED_NODE, annotation, bind_volume_to_claim, check_owned_by_pod,
        claim_name, claim_ref, claim_storage_class, find_matching_volume, is_bound, is_volume_bound_to_claim,
        node_affinity_matches, requested_storage, volume_name,
    },
};
use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// Why no node can satisfy the claims of a Pod, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("persistentvolumeclaim {0:?} not found")]
    NotFound(String),
    /// The controller creates the claims of ephemeral volumes after the Pod.
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim {0:?}")]
    NotCreated(String),
    #[error("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}")]
    Lost { name: String, volume: String },
    #[error("persistentvolumeclaim {0:?} is being deleted")]
    Terminating(String),
    #[error(transparent)]
    Owner(#[from] ClaimOwnerError),
    #[error("pod has unbound immediate PersistentVolumeClaims")]
    UnboundImmediate,
}

/// Cache of claims, volumes and storage classes.
#[derive(Debug, Default)]
pub struct VolumeCache {
    /// Claims by namespace and name.
    pub(crate) claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// By name.
    pub(crate) volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// By name.
    pub(crate) classes: BTreeMap<String, Arc<StorageClass>>,
}

/// Writes that precede the binding of a Pod (upstream's `PodVolumes`): pairs of the current and the updated object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodVolumes {
    /// Existing volumes to bind to claims of the Pod (`StaticBindings`).
    pub(crate) bindings: Vec<(PersistentVolume, PersistentVolume)>,
    /// Claims to provision for the node (`DynamicProvisions`).
    pub(crate) provisions: Vec<(PersistentVolumeClaim, PersistentVolumeClaim)>,
    /// Whether earlier requests are still pending.
    pub(crate) pending: bool,
}

/// Claims of a Pod (upstream's `PodVolumeClaims`).
pub(crate) struct PodClaims<'a> {
    storage: &'a VolumeCache,
    bound: Vec<&'a PersistentVolumeClaim>,
    /// Claims with `WaitForFirstConsumer`, the smallest first.
    delayed: Vec<&'a PersistentVolumeClaim>,
}

/// Returns the keys of the Pod's claims.
pub(crate) fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(move |volume| claim_name(name.unwrap_or_default(), volume));
    names.map(move |claim| format!("{}/{claim}", namespace.unwrap_or_default()))
}

impl PodVolumes {
    /// Returns whether all volumes are bound.
    pub(crate) fn is_ready(&self) -> bool {
        !self.pending && self.is_empty()
    }

    /// Returns the name of the first claim to provision.
    pub(crate) fn first_provisioned(&self) -> Option<&str> {
        self.provisions.first()?.1.metadata.name.as_deref()
    }

    /// Returns whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

impl VolumeCache {
    /// Assumes the writes in the cache (`AssumePodVolumes`).
    pub(crate) fn assume(&mut self, pod_volumes: &PodVolumes) {
        for (_, volume) in &pod_volumes.bindings {
            self.volumes.insert(object_key(&volume.metadata), Arc::new(volume.clone()));
        }
        for (_, claim) in &pod_volumes.provisions {
            self.claims.insert(object_key(&claim.metadata), Arc::new(claim.clone()));
        }
    }

    /// Reverts assumed writes that failed, unless the object has changed since (`RevertAssumedPodVolumes`).
    pub(crate) fn revert(&mut self, pod_volumes: PodVolumes) {
        for (original, _) in pod_volumes.bindings {
            if let Some(current) = self.volumes.get_mut(&object_key(&original.metadata))
                && is_same_version(&current.metadata, &original.metadata)
            {
                *current = Arc::new(original);
            }
        }
        for (original, _) in pod_volumes.provisions {
            if let Some(current) = self.claims.get_mut(&object_key(&original.metadata))
                && is_same_version(&current.metadata, &original.metadata)
            {
                *current = Arc::new(original);
            }
        }
    }

    /// Returns the claims of a Pod (`GetPodVolumeClaims`).
    ///
    /// # Errors
    /// If no node can satisfy them.
    pub(crate) fn pod_claims(&self, pod: &Pod) -> Result<PodClaims<'_>, ClaimError> {
        let mut all = PodClaims { storage: self, bound: vec![], delayed: vec![] };
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(name) = claim_name(name.unwrap_or_default(), volume) else { continue };
            let is_ephemeral = volume.ephemeral.is_some();
            let claim = self.claims.get(&format!("{}/{name}", namespace.unwrap_or_default()));
            let Some(claim) = claim else {
                return Err(if is_ephemeral { ClaimError::NotCreated(name) } else { ClaimError::NotFound(name) });
            };
            check_claim(claim, &name)?;
            if is_ephemeral {
                check_owned_by_pod(claim, pod)?;
            }
            if is_bound(claim) {
                all.bound.push(claim);
            } else if volume_name(claim).is_none() && self.is_delayed_binding(claim) {
                all.delayed.push(claim);
            } else {
                return Err(ClaimError::UnboundImmediate);
            }
        }
        all.delayed.sort_by_key(|claim| requested_storage(claim));
        Ok(all)
    }

    fn is_delayed_binding(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = self.classes.get(claim_storage_class(claim));
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    }

    /// Returns whether the claim's class can provision a volume for the node.
    fn can_provision(&self, claim: &PersistentVolumeClaim, node: &Node) -> bool {
        let Some(class) = self.classes.get(claim_storage_class(claim)) else { return false };
        let labels = node.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key));
        let topologies = class.allowed_topologies.as_deref().unwrap_or_default();
        let is_here = topologies.iter().any(|term| {
            let all = term.match_label_expressions.as_deref().unwrap_or_default();
            !all.is_empty() && all.iter().all(|e| label(&e.key).is_some_and(|value| e.values.contains(value)))
        });
        class.provisioner != NO_PROVISIONER && (topologies.is_empty() || is_here)
    }
}

fn is_same_version(current: &ObjectMeta, original: &ObjectMeta) -> bool {
    current.uid == original.uid && current.resource_version == original.resource_version
}

/// Checks that the claim is neither lost nor being deleted.
fn check_claim(claim: &PersistentVolumeClaim, name: &str) -> Result<(), ClaimError> {
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
        let volume = volume_name(claim).unwrap_or_default().to_owned();
        return Err(ClaimError::Lost { name: name.to_owned(), volume });
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(ClaimError::Terminating(name.to_owned()));
    }
    Ok(())
}

impl PodClaims<'_> {
    /// Returns the keys of the `ReadWriteOncePod` claims.
    pub(crate) fn read_write_once_pod(&self) -> impl Iterator<Item = String> {
        let all = self.bound.iter().chain(&self.delayed);
        let read_write_once_pod = all.filter(|claim| {
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            modes.into_iter().flatten().any(|mode| mode == "ReadWriteOncePod")
        });
        read_write_once_pod.map(|claim| object_key(&claim.metadata))
    }

    /// Returns the writes that precede a binding to this node (`FindPodVolumes`).
    ///
    /// # Errors
    /// If the node is rejected.
    pub(crate) fn find_pod_volumes(&self, node: &Node) -> Result<PodVolumes, FilterStatus> {
        let mut reasons = Vec::new();
        let volumes: Vec<_> = self.bound.iter().filter_map(|claim| volume_name(claim)).collect();
        let volumes: Vec<_> = volumes.into_iter().map(|name| self.storage.volumes.get(name)).collect();
        if volumes.iter().flatten().any(|volume| !node_affinity_matches(volume, node)) {
            reasons.push(fit_error::VOLUME_NODE_AFFINITY.to_owned());
        }
        let pod_volumes = self.find_bindings(node);
        if pod_volumes.is_none() {
            reasons.push(fit_error::NO_AVAILABLE_VOLUME.to_owned());
        }
        if volumes.iter().any(Option::is_none) {
            reasons.push(fit_error::VOLUME_NOT_FOUND.to_owned());
        }
        pod_volumes.filter(|_| reasons.is_empty()).ok_or(FilterStatus { reasons, resolvable: false })
    }

    fn find_bindings(&self, node: &Node) -> Option<PodVolumes> {
        let (mut pod_volumes, mut chosen) = (PodVolumes::default(), HashSet::new());
        for claim in &self.delayed {
            if let Some(selected) = annotation(&claim.metadata, SELECTED_NODE) {
                if Some(selected) != node.metadata.name.as_deref() {
                    return None;
                }
                pod_volumes.pending = true;
                continue;
            }
            let free = self.storage.volumes.iter().filter(|(name, _)| !chosen.contains(name.as_str()));
            match find_matching_volume(claim, free.map(|(_, volume)| &**volume), Some(node), true) {
                Some(volume) => {
                    chosen.extend(volume.metadata.name.as_deref());
                    match bind_volume_to_claim(volume, claim) {
                        Some(bound) => pod_volumes.bindings.push((volume.clone(), bound)),
                        None => pod_volumes.pending = true,
                    }
                }
                // A volume with a `claimRef` to this claim is on another node.
                None if self.has_reserved_volume(claim) || !self.storage.can_provision(claim, node) => return None,
                None => {
                    let mut updated = (*claim).clone();
                    let annotations = updated.metadata.annotations.get_or_insert_default();
                    annotations.insert(SELECTED_NODE.to_owned(), node.metadata.name.clone().unwrap_or_default());
                    pod_volumes.provisions.push(((*claim).clone(), updated));
                }
            }
        }
        Some(pod_volumes)
    }

    fn has_reserved_volume(&self, claim: &PersistentVolumeClaim) -> bool {
        self.storage
            .volumes
            .values()
            .any(|volume| claim_ref(volume).is_some() && is_volume_bound_to_claim(volume, claim))
    }
}

#[cfg(test)]
mod tests;
