//! Decides which Pods of a StatefulSet to create, update and delete, one by one or in parallel (`updateStatefulSet`).

use super::{
    identity::{claim_names, identity_matches, name, storage_matches},
    retention::{ClaimSummary, RetentionPolicy},
    rolling_update,
};
use crate::{controller_history::CONTROLLER_REVISION_HASH, pod_summary::PodSummary};
use jiff::Timestamp;
use k8s_openapi::{api::apps::v1::StatefulSetSpec, apimachinery::pkg::apis::meta::v1::OwnerReference};
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc, time::Duration};

/// Maximum number of Pods that one sync creates.
const BURST_REPLICAS: usize = 500;

/// Snapshot of a StatefulSet, its Pods and its claims.
pub(super) struct StatefulSetSnapshot<'a> {
    pub(super) name: &'a str,
    pub(super) spec: &'a StatefulSetSpec,
    /// The owner reference of its Pods and claims.
    pub(super) owner: OwnerReference,
    /// Whether the set is being deleted.
    pub(super) is_deleting: bool,
    /// By ordinal.
    pub(super) pods: BTreeMap<i64, Arc<PodSummary>>,
    /// The claims of the namespace, by name.
    pub(super) claims: BTreeMap<String, Arc<ClaimSummary>>,
    /// Names of the current and the update revision.
    pub(super) current: &'a str,
    pub(super) update: &'a str,
    /// The feature gate `MaxUnavailableStatefulSet`.
    pub(super) max_unavailable_enabled: bool,
    pub(super) now: Timestamp,
}

/// A write. Steps are applied in order, up to the first failure.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Creates a Pod with its claims, of the update revision or of the current one.
    CreatePod {
        ordinal: i64,
        updated: bool,
    },
    /// Creates the missing claims of a Pod.
    CreateClaims {
        ordinal: i64,
        pod: Arc<PodSummary>,
    },
    /// Updates the owner references of a claim, and reports a conflicting controller.
    UpdateClaimOwners {
        claim: String,
        owners: Option<Vec<OwnerReference>>,
        conflict: bool,
    },
    /// Updates the identity and the storage of a Pod.
    UpdatePod {
        ordinal: i64,
        pod: Arc<PodSummary>,
    },
    DeletePod(Arc<PodSummary>),
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Number of Pods that are deleted for the rolling update.
    pub(super) rolled: i32,
    /// Delay of the next sync without an event.
    pub(super) requeue_after: Option<Duration>,
}

impl StatefulSetSnapshot<'_> {
    /// Returns whether each Pod waits for its predecessor (`OrderedReady`).
    pub(super) fn is_monotonic(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    pub(super) fn count(&self) -> i64 {
        i64::from(self.spec.replicas.unwrap_or(1).max(0))
    }

    /// Returns the first ordinal, and the one after the last.
    pub(super) fn range(&self) -> (i64, i64) {
        let start = i64::from(self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0));
        (start, start + self.count())
    }

    pub(super) fn partition(&self) -> i64 {
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        i64::from(rolling.and_then(|rolling| rolling.partition).unwrap_or(0))
    }

    pub(super) fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        strategy != Some("OnDelete")
    }

    /// Returns whether a new Pod of this ordinal has the update revision (`newVersionedStatefulSetPod`).
    fn uses_update_revision(&self, ordinal: i64) -> bool {
        !self.is_rolling() || ordinal >= self.range().0 + self.partition()
    }

    pub(super) fn is_updated(&self, pod: &PodSummary) -> bool {
        revision(pod) == self.update
    }

    fn is_available(&self, pod: &PodSummary) -> bool {
        is_ready(pod) && pod.is_available(self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    /// Returns whether the Pod is available and not terminating.
    pub(super) fn is_healthy(&self, pod: &PodSummary) -> bool {
        self.is_available(pod) && !pod.terminating
    }

    /// Returns the owner reference to a Pod, with an empty UID if the Pod does not exist.
    fn pod_owner(&self, ordinal: i64) -> OwnerReference {
        let uid = self.pods.get(&ordinal).map(|pod| pod.uid.clone()).unwrap_or_default();
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name(self.name, ordinal),
            uid,
            ..self.owner.clone()
        }
    }

    /// Returns the existing claims of an ordinal.
    fn claims_of(&self, ordinal: i64) -> impl Iterator<Item = &Arc<ClaimSummary>> {
        claim_names(self.name, self.spec, ordinal).into_iter().filter_map(|name| self.claims.get(&name))
    }

    /// Plans a sync. `backoff` returns the remaining delay before a terminal Pod is deleted.
    pub(super) fn plan(&self, mut backoff: impl FnMut(i64) -> Option<Duration>) -> Plan {
        let after = self.spec.min_ready_seconds.unwrap_or(0);
        let waiting = self.pods.values().filter(|pod| !pod.terminating);
        let requeue_after = waiting.filter_map(|pod| pod.time_until_available(after, self.now)).min();
        let mut plan = Plan { requeue_after, ..Plan::default() };
        if !self.is_deleting
            && self.plan_replicas(&mut plan, &mut backoff).is_continue()
            && self.plan_condemned(&mut plan).is_continue()
        {
            rolling_update::roll_out(self, &mut plan);
        }
        plan
    }

    /// Stops the sync at a Pod that is not healthy, if Pods are ordered.
    fn wait_if_monotonic(&self) -> ControlFlow<()> {
        if self.is_monotonic() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Plans the Pods within the range of ordinals, first to last (`processReplica`).
    fn plan_replicas(&self, plan: &mut Plan, backoff: &mut impl FnMut(i64) -> Option<Duration>) -> ControlFlow<()> {
        let (start, end) = self.range();
        let mut made = 0;
        for ordinal in start..end {
            match self.pods.get(&ordinal) {
                // A terminal Pod is recreated once it is gone, whatever its phase.
                Some(pod) if pod.is_terminal() => {
                    self.plan_terminated_pod(ordinal, pod, plan, backoff);
                    self.wait_if_monotonic()?;
                }
                Some(pod) => self.plan_replica(ordinal, pod, plan)?,
                // The claim is deleted with the Pod that it was created for.
                None if self.has_stale_claim(ordinal) => self.wait_if_monotonic()?,
                None => {
                    plan.steps.push(Step::CreatePod { ordinal, updated: self.uses_update_revision(ordinal) });
                    self.wait_if_monotonic()?;
                    made += 1;
                }
            }
            if made == BURST_REPLICAS {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn plan_terminated_pod(
        &self,
        ordinal: i64,
        pod: &Arc<PodSummary>,
        plan: &mut Plan,
        backoff: &mut impl FnMut(i64) -> Option<Duration>,
    ) {
        if pod.terminating {
            return;
        }
        match backoff(ordinal) {
            Some(left) => plan.requeue_after = Some(plan.requeue_after.map_or(left, |known| known.min(left))),
            None => plan.steps.push(Step::DeletePod(Arc::clone(pod))),
        }
    }

    fn plan_replica(&self, ordinal: i64, pod: &Arc<PodSummary>, plan: &mut Plan) -> ControlFlow<()> {
        let pending = pod.phase == "Pending";
        if pending && self.is_missing_claims(ordinal) {
            plan.steps.push(Step::CreateClaims { ordinal, pod: Arc::clone(pod) });
        }
        if pending {
            self.plan_claim_owners(ordinal, false, true, plan);
        }
        if !self.is_healthy(pod) {
            self.wait_if_monotonic()?;
        }
        if !pending {
            self.plan_claim_owners(ordinal, false, false, plan);
        }
        if !identity_matches(pod) || !storage_matches(pod, self.name, self.spec, ordinal) {
            plan.steps.push(Step::UpdatePod { ordinal, pod: Arc::clone(pod) });
        }
        ControlFlow::Continue(())
    }

    /// Plans the deletion of Pods outside the range of ordinals, last to first (`processCondemned`).
    fn plan_condemned(&self, plan: &mut Plan) -> ControlFlow<()> {
        let (start, end) = self.range();
        let outside = || self.pods.iter().filter(move |(ordinal, _)| !(start..end).contains(*ordinal));
        for (ordinal, _) in outside() {
            self.plan_claim_owners(*ordinal, true, false, plan);
        }
        let first_broken = outside().find(|(_, pod)| !self.is_healthy(pod)).map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in outside().rev() {
            if pod.terminating {
                self.wait_if_monotonic()?;
                continue;
            }
            if !self.is_available(pod) && first_broken != Some(*ordinal) {
                self.wait_if_monotonic()?;
            }
            plan.steps.push(Step::DeletePod(Arc::clone(pod)));
            self.wait_if_monotonic()?;
        }
        ControlFlow::Continue(())
    }

    fn has_stale_claim(&self, ordinal: i64) -> bool {
        let owner = self.pod_owner(ordinal);
        RetentionPolicy::from_spec(self.spec).scaled && self.claims_of(ordinal).any(|claim| claim.is_stale(&owner))
    }

    /// Returns whether claims are missing or terminating.
    fn is_missing_claims(&self, ordinal: i64) -> bool {
        let names = claim_names(self.name, self.spec, ordinal);
        names.iter().any(|name| self.claims.get(name).is_none_or(|claim| claim.terminating))
    }

    /// Plans the owner references of claims. A conflicting controller is only reported for `new` Pods.
    fn plan_claim_owners(&self, ordinal: i64, condemned: bool, new: bool, plan: &mut Plan) {
        let (policy, pod) = (RetentionPolicy::from_spec(self.spec), self.pod_owner(ordinal));
        for claim in self.claims_of(ordinal) {
            let update = policy.update_owners(claim, &self.owner, &pod, condemned);
            if update.owners.is_some() || (update.conflict && new) {
                let (owners, conflict) = (update.owners, update.conflict);
                plan.steps.push(Step::UpdateClaimOwners { claim: claim.name.clone(), owners, conflict });
            }
        }
    }
}

/// Returns the name of the Pod's revision.
pub(super) fn revision(pod: &PodSummary) -> &str {
    pod.labels.get(CONTROLLER_REVISION_HASH).map_or("", String::as_str)
}

/// Returns whether the Pod is running and ready (`isRunningAndReady`).
pub(super) fn is_ready(pod: &PodSummary) -> bool {
    pod.phase == "Running" && pod.ready.is_some()
}
