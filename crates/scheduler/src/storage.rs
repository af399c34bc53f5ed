//! What the scheduler knows of claims to storage, and what it says of a node for their sake: pure
//! (the plugins `VolumeBinding` and `VolumeRestrictions`).

use crate::message;
use api::claim::{
    NO_PROVISIONER, SELECTED_NODE, annotation, bind, check_made_for, class_of_claim, find, is_bound, is_for, name_of,
    reaches, reference, requested, volume_name,
};
use api::key::key;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, HashSet};

/// Claims, volumes and classes.
#[derive(Debug, Default)]
pub struct Storage {
    /// By namespace and name.
    pub(crate) claims: BTreeMap<String, PersistentVolumeClaim>,
    /// By name.
    pub(crate) volumes: BTreeMap<String, PersistentVolume>,
    /// By name.
    pub(crate) classes: BTreeMap<String, StorageClass>,
}

/// What is to be written before a Pod may go to its node. Each object is there as it was, and as it shall be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Orders {
    /// Volumes that are there, for claims of the Pod.
    pub(crate) bindings: Vec<(PersistentVolume, PersistentVolume)>,
    /// Claims whose volumes are to be made for this node.
    pub(crate) provisions: Vec<(PersistentVolumeClaim, PersistentVolumeClaim)>,
    /// Whether something was ordered before and has not come yet.
    pub(crate) outstanding: bool,
}

/// The claims of a Pod that decide.
pub(crate) struct Claims<'a> {
    storage: &'a Storage,
    bound: Vec<&'a PersistentVolumeClaim>,
    /// Those that are bound when their Pod has a node, the smallest first.
    delayed: Vec<&'a PersistentVolumeClaim>,
}

/// The keys of the claims that a Pod uses.
pub(crate) fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(move |volume| name_of(name.unwrap_or_default(), volume));
    names.map(move |claim| format!("{}/{claim}", namespace.unwrap_or_default()))
}

impl Orders {
    /// Whether the Pod can go to its node.
    pub(crate) fn is_ready(&self) -> bool {
        !self.outstanding && self.is_written()
    }

    /// The name of the first claim whose volume is to be made.
    pub(crate) fn first_made(&self) -> Option<&str> {
        self.provisions.first()?.1.metadata.name.as_deref()
    }

    /// Whether there is nothing to be written.
    pub(crate) fn is_written(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

impl Storage {
    /// From now on it counts as written.
    pub(crate) fn assume(&mut self, orders: &Orders) {
        for (_, volume) in &orders.bindings {
            self.volumes.insert(key(&volume.metadata), volume.clone());
        }
        for (_, claim) in &orders.provisions {
            self.claims.insert(key(&claim.metadata), claim.clone());
        }
    }

    /// It was not written: what nobody has changed meanwhile is as it was.
    pub(crate) fn revert(&mut self, orders: Orders) {
        for (before, _) in orders.bindings {
            if let Some(known) = self.volumes.get_mut(&key(&before.metadata))
                && is_version_of(&known.metadata, &before.metadata)
            {
                *known = before;
            }
        }
        for (before, _) in orders.provisions {
            if let Some(known) = self.claims.get_mut(&key(&before.metadata))
                && is_version_of(&known.metadata, &before.metadata)
            {
                *known = before;
            }
        }
    }

    /// The claims of a Pod.
    ///
    /// # Errors
    /// Why it can go to no node at all, in upstream's words.
    pub(crate) fn claims_of(&self, pod: &Pod) -> Result<Claims<'_>, String> {
        let mut all = Claims { storage: self, bound: vec![], delayed: vec![] };
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(name) = name_of(name.unwrap_or_default(), volume) else { continue };
            let is_own = volume.ephemeral.is_some();
            let claim = self.claims.get(&format!("{}/{name}", namespace.unwrap_or_default()));
            let Some(claim) = claim else { return Err(message::no_claim(&name, is_own)) };
            check(claim, &name)?;
            if is_own {
                check_made_for(claim, pod)?;
            }
            if is_bound(claim) {
                all.bound.push(claim);
            } else if volume_name(claim).is_none() && self.waits_for_consumer(claim) {
                all.delayed.push(claim);
            } else {
                return Err(message::UNBOUND.to_owned());
            }
        }
        all.delayed.sort_by_key(|claim| requested(claim));
        Ok(all)
    }

    fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = self.classes.get(class_of_claim(claim));
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    }

    /// Whether somebody makes a volume for the claim that can be reached from the node.
    fn is_made(&self, claim: &PersistentVolumeClaim, node: &Node) -> bool {
        let Some(class) = self.classes.get(class_of_claim(claim)) else { return false };
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

fn is_version_of(known: &ObjectMeta, before: &ObjectMeta) -> bool {
    known.uid == before.uid && known.resource_version == before.resource_version
}

/// What keeps a claim from being used at all.
fn check(claim: &PersistentVolumeClaim, name: &str) -> Result<(), String> {
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
        let volume = volume_name(claim).unwrap_or_default();
        return Err(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    Ok(())
}

impl Claims<'_> {
    /// The claims that only one Pod at a time may use.
    pub(crate) fn exclusive(&self) -> impl Iterator<Item = String> {
        let all = self.bound.iter().chain(&self.delayed);
        let exclusive = all.filter(|claim| {
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            modes.into_iter().flatten().any(|mode| mode == "ReadWriteOncePod")
        });
        exclusive.map(|claim| key(&claim.metadata))
    }

    /// What is to be done before the Pod may go to this node (`FindPodVolumes`).
    ///
    /// # Errors
    /// Why it may not go there.
    pub(crate) fn at(&self, node: &Node) -> Result<Orders, Vec<String>> {
        let mut reasons = Vec::new();
        let volumes: Vec<_> = self.bound.iter().filter_map(|claim| volume_name(claim)).collect();
        let volumes: Vec<_> = volumes.into_iter().map(|name| self.storage.volumes.get(name)).collect();
        if volumes.iter().flatten().any(|volume| !reaches(volume, node)) {
            reasons.push(message::VOLUME_ELSEWHERE.to_owned());
        }
        let orders = self.bind_at(node);
        if orders.is_none() {
            reasons.push(message::NO_VOLUME.to_owned());
        }
        if volumes.iter().any(Option::is_none) {
            reasons.push(message::VOLUME_GONE.to_owned());
        }
        orders.filter(|_| reasons.is_empty()).ok_or(reasons)
    }

    fn bind_at(&self, node: &Node) -> Option<Orders> {
        let (mut orders, mut taken) = (Orders::default(), HashSet::new());
        for claim in &self.delayed {
            if let Some(selected) = annotation(&claim.metadata, SELECTED_NODE) {
                if Some(selected) != node.metadata.name.as_deref() {
                    return None;
                }
                orders.outstanding = true;
                continue;
            }
            let free = self.storage.volumes.iter().filter(|(name, _)| !taken.contains(name.as_str()));
            match find(claim, free.map(|(_, volume)| volume), Some(node), true) {
                Some(volume) => {
                    taken.extend(volume.metadata.name.as_deref());
                    match bind(volume, claim) {
                        Some(bound) => orders.bindings.push((volume.clone(), bound)),
                        None => orders.outstanding = true,
                    }
                }
                // One that is kept for the claim is its own, and is not at this node.
                None if self.is_kept_elsewhere(claim) || !self.storage.is_made(claim, node) => return None,
                None => {
                    let mut asked = (*claim).clone();
                    let annotations = asked.metadata.annotations.get_or_insert_default();
                    annotations.insert(SELECTED_NODE.to_owned(), node.metadata.name.clone().unwrap_or_default());
                    orders.provisions.push(((*claim).clone(), asked));
                }
            }
        }
        Some(orders)
    }

    fn is_kept_elsewhere(&self, claim: &PersistentVolumeClaim) -> bool {
        self.storage.volumes.values().any(|volume| reference(volume).is_some() && is_for(volume, claim))
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
