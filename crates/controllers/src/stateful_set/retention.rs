//! Owner references of a StatefulSet's claims (`persistentVolumeClaimRetentionPolicy`, `isClaimOwnerUpToDate`).

use informer::Cached;
use k8s_openapi::{
    api::{apps::v1::StatefulSetSpec, core::v1::PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

/// Summary of a claim: name and owner references.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ClaimSummary {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) terminating: bool,
}

impl Cached for ClaimSummary {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl ClaimSummary {
    pub(super) fn from_claim(claim: PersistentVolumeClaim) -> Self {
        let meta = claim.metadata;
        Self {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            owners: meta.owner_references.unwrap_or_default(),
            terminating: meta.deletion_timestamp.is_some(),
        }
    }

    /// Returns whether the claim has a reference to a deleted object of the owner's name (`hasStaleOwnerRef`).
    pub(super) fn is_stale(&self, owner: &OwnerReference) -> bool {
        self.owners.iter().find(|known| is_named(known, owner)).is_some_and(|known| known.uid != owner.uid)
    }

    fn is_owned_by(&self, owner: &OwnerReference) -> bool {
        self.owners.iter().any(|known| known.uid == owner.uid)
    }
}

fn is_named(one: &OwnerReference, other: &OwnerReference) -> bool {
    (&one.api_version, &one.kind, &one.name) == (&other.api_version, &other.kind, &other.name)
}

/// Retention policy: when claims are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetentionPolicy {
    /// With the set (`whenDeleted: Delete`).
    pub(super) deleted: bool,
    /// With the Pod, when the set is scaled down (`whenScaled: Delete`).
    pub(super) scaled: bool,
}

/// Change of a claim's owner references.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ClaimOwnerUpdate {
    /// The new owner references, if they differ.
    pub(super) owners: Option<Vec<OwnerReference>>,
    /// Whether another object controls the claim: then the policy does not apply.
    pub(super) conflict: bool,
}

impl RetentionPolicy {
    pub(super) fn from_spec(spec: &StatefulSetSpec) -> Self {
        let policy = spec.persistent_volume_claim_retention_policy.as_ref();
        let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
        Self {
            deleted: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
            scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }

    /// Returns whether the set, and whether the Pod should own the claim. `condemned` says whether the Pod is to be
    /// scaled down.
    fn wanted(self, condemned: bool) -> (bool, bool) {
        (self.deleted && !(self.scaled && condemned), self.scaled && condemned)
    }

    /// Returns the owner references of a new claim.
    pub(super) fn initial_owners(self, set: &OwnerReference) -> Option<Vec<OwnerReference>> {
        self.wanted(false).0.then(|| vec![set.clone()])
    }

    pub(super) fn update_owners(
        self,
        claim: &ClaimSummary,
        set: &OwnerReference,
        pod: &OwnerReference,
        condemned: bool,
    ) -> ClaimOwnerUpdate {
        // The garbage collector handles references to deleted owners.
        if claim.is_stale(set) || claim.is_stale(pod) {
            return ClaimOwnerUpdate::default();
        }
        let ours = |owner: &OwnerReference| is_named(owner, set) || is_named(owner, pod);
        let others = || claim.owners.iter().filter(|owner| !ours(owner)).cloned();
        let is_owned = (claim.is_owned_by(set), claim.is_owned_by(pod));
        let conflict = (self.deleted || self.scaled) && others().any(|owner| owner.controller == Some(true));
        if conflict {
            return ClaimOwnerUpdate { owners: (is_owned.0 || is_owned.1).then(|| others().collect()), conflict };
        }
        let mut known = claim.owners.iter().filter(|owner| owner.uid == set.uid || owner.uid == pod.uid);
        let (expected, controlled) = (self.wanted(condemned), known.all(|owner| owner.controller == Some(true)));
        if is_owned == expected && controlled {
            return ClaimOwnerUpdate::default();
        }
        let set = expected.0.then(|| set.clone());
        let pod = expected.1.then(|| pod.clone());
        ClaimOwnerUpdate { owners: Some(others().chain(set).chain(pod).collect()), conflict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, uid: &str, controller: bool) -> OwnerReference {
        let (api_version, name) = if kind == "Pod" { ("v1", "web-0") } else { ("apps/v1", "web") };
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            controller: Some(controller),
            block_owner_deletion: Some(true),
        }
    }

    fn set() -> OwnerReference {
        owner("StatefulSet", "s", true)
    }

    fn pod() -> OwnerReference {
        owner("Pod", "p", true)
    }

    const KEEP: RetentionPolicy = RetentionPolicy { deleted: false, scaled: false };
    const WITH_SET: RetentionPolicy = RetentionPolicy { deleted: true, scaled: false };
    const WITH_POD: RetentionPolicy = RetentionPolicy { deleted: false, scaled: true };
    const BOTH: RetentionPolicy = RetentionPolicy { deleted: true, scaled: true };

    fn update_owners(policy: RetentionPolicy, condemned: bool, owners: &[OwnerReference]) -> ClaimOwnerUpdate {
        let claim = ClaimSummary { owners: owners.to_vec(), ..ClaimSummary::default() };
        policy.update_owners(&claim, &set(), &pod(), condemned)
    }

    /// Checks the UIDs of the resulting owner references.
    #[track_caller]
    fn check(policy: RetentionPolicy, condemned: bool, owners: &[OwnerReference], expected: &str) {
        let updated = update_owners(policy, condemned, owners).owners;
        let changes = updated.is_some();
        let last = updated.unwrap_or_else(|| owners.to_vec());
        let uids: Vec<&str> = last.iter().map(|owner| owner.uid.as_str()).collect();
        assert_eq!(uids.join(" "), expected);
        assert_eq!(update_owners(policy, condemned, &last).owners, None, "once it is done there is nothing to do");
        assert_eq!(changes, last != owners);
    }

    #[test]
    fn claim_owners_follow_the_retention_policy() {
        for condemned in [false, true] {
            check(KEEP, condemned, &[], "");
            check(KEEP, condemned, &[set(), pod()], "");
            check(WITH_SET, condemned, &[], "s");
            check(WITH_SET, condemned, &[pod()], "s");
        }
        check(WITH_POD, false, &[], "");
        check(WITH_POD, true, &[], "p");
        check(WITH_POD, false, &[set(), pod()], "");
        check(BOTH, false, &[], "s");
        check(BOTH, true, &[set()], "p");
        check(BOTH, false, &[pod()], "s");
        assert_eq!(BOTH.initial_owners(&set()), Some(vec![set()]));
        assert_eq!(WITH_POD.initial_owners(&set()), None);
    }

    #[test]
    fn claim_owner_reference_becomes_a_controller() {
        let last = update_owners(WITH_SET, false, &[owner("StatefulSet", "s", false)]).owners;
        assert_eq!(last, Some(vec![set()]));
    }

    #[test]
    fn claim_of_another_controller_keeps_its_owner() {
        let other = OwnerReference { name: "other".into(), ..owner("StatefulSet", "o", true) };
        assert_eq!(
            update_owners(WITH_SET, false, std::slice::from_ref(&other)),
            ClaimOwnerUpdate { owners: None, conflict: true }
        );
        let both = update_owners(WITH_SET, false, &[other.clone(), set()]);
        assert_eq!(both, ClaimOwnerUpdate { owners: Some(vec![other.clone()]), conflict: true });
        assert_eq!(update_owners(KEEP, false, &[other]), ClaimOwnerUpdate::default());
        let other_set = OwnerReference { name: "guest".into(), controller: None, ..owner("StatefulSet", "g", true) };
        check(WITH_SET, false, &[other_set], "g s");
    }

    #[test]
    fn claim_of_a_deleted_owner_is_not_changed() {
        for gone in [owner("StatefulSet", "old", true), owner("Pod", "old", true)] {
            assert_eq!(update_owners(BOTH, false, std::slice::from_ref(&gone)), ClaimOwnerUpdate::default());
        }
        let claim = ClaimSummary { owners: vec![owner("Pod", "old", true)], ..ClaimSummary::default() };
        assert!(claim.is_stale(&pod()) && !claim.is_stale(&set()));
    }
}
