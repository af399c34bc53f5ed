//! Which Pods a StatefulSet makes and deletes, one after the other or all at once (`updateStatefulSet`).

use super::identity::{claim_names, identity_matches, name, storage_matches};
use super::retention::{ClaimSummary, RetentionPolicy};
use super::rolling_update;
use crate::controller_history::CONTROLLER_REVISION_HASH;
use crate::pod_summary::PodSummary;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// No more Pods are made at once.
const BURST_REPLICAS: usize = 500;

/// A StatefulSet, its Pods and its claims.
pub(super) struct StatefulSetSnapshot<'a> {
    pub(super) name: &'a str,
    pub(super) spec: &'a StatefulSetSpec,
    /// As its Pods and claims name it.
    pub(super) owner: OwnerReference,
    /// Whether it is being deleted.
    pub(super) is_deleting: bool,
    /// By their numbers.
    pub(super) pods: BTreeMap<i64, Arc<PodSummary>>,
    /// Those of its namespace, by name.
    pub(super) claims: BTreeMap<String, Arc<ClaimSummary>>,
    /// The names of the revision that its Pods had before, and of that which they shall have.
    pub(super) current: &'a str,
    pub(super) update: &'a str,
    /// Whether max_unavailable_enabled Pods may be replaced at once (`MaxUnavailableStatefulSet`).
    pub(super) max_unavailable_enabled: bool,
    pub(super) now: Timestamp,
}

/// What is done, in this order; what fails ends it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A Pod is made, with its claims: of the revision that Pods shall have, or of that which they had.
    CreatePod {
        ordinal: i64,
        updated: bool,
    },
    /// The claims of a Pod are made that are missing.
    CreateClaims {
        ordinal: i64,
        pod: Arc<PodSummary>,
    },
    /// A claim gets other owners, or it is told that it has one that should not be.
    UpdateClaimOwners {
        claim: String,
        owners: Option<Vec<OwnerReference>>,
        conflict: bool,
    },
    /// A Pod is told which one it is.
    UpdatePod {
        ordinal: i64,
        pod: Arc<PodSummary>,
    },
    DeletePod(Arc<PodSummary>),
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// How many Pods are deleted for the new revision.
    pub(super) rolled: i32,
    /// When to look again without a change.
    pub(super) requeue_after: Option<Duration>,
}

impl StatefulSetSnapshot<'_> {
    /// Whether each Pod waits for the one before it.
    pub(super) fn is_monotonic(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    pub(super) fn count(&self) -> i64 {
        i64::from(self.spec.replicas.unwrap_or(1).max(0))
    }

    /// The first number, and that after the last.
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

    /// Whether a new Pod of this number has the new revision (`newVersionedStatefulSetPod`).
    fn uses_update_revision(&self, ordinal: i64) -> bool {
        !self.is_rolling() || ordinal >= self.range().0 + self.partition()
    }

    pub(super) fn is_updated(&self, pod: &PodSummary) -> bool {
        revision(pod) == self.update
    }

    fn is_available(&self, pod: &PodSummary) -> bool {
        is_ready(pod) && pod.is_available(self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    /// Whether it serves, and goes on to.
    pub(super) fn is_healthy(&self, pod: &PodSummary) -> bool {
        self.is_available(pod) && !pod.terminating
    }

    /// How a claim names a Pod, which may be none yet.
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

    /// The claims of a number that are there.
    fn claims_of(&self, ordinal: i64) -> impl Iterator<Item = &Arc<ClaimSummary>> {
        claim_names(self.name, self.spec, ordinal).into_iter().filter_map(|name| self.claims.get(&name))
    }

    /// `pause` says how long a Pod that has ended waits before it is deleted.
    pub(super) fn plan(&self, mut backoff: impl FnMut(i64) -> Option<Duration>) -> Plan {
        let after = self.spec.min_ready_seconds.unwrap_or(0);
        let soon = self.pods.values().filter(|pod| !pod.terminating);
        let requeue_after = soon.filter_map(|pod| pod.time_until_available(after, self.now)).min();
        let mut plan = Plan { requeue_after, ..Plan::default() };
        if !self.is_deleting
            && self.plan_replicas(&mut plan, &mut backoff).is_continue()
            && self.plan_condemned(&mut plan).is_continue()
        {
            rolling_update::roll_out(self, &mut plan);
        }
        plan
    }

    /// What keeps the next Pods waiting, where they wait for each other.
    fn wait_if_monotonic(&self) -> ControlFlow<()> {
        if self.is_monotonic() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Those that there should be, from the first to the last.
    fn plan_replicas(&self, plan: &mut Plan, backoff: &mut impl FnMut(i64) -> Option<Duration>) -> ControlFlow<()> {
        let (start, end) = self.range();
        let mut made = 0;
        for ordinal in start..end {
            match self.pods.get(&ordinal) {
                // It is made again, however it ended, once it is gone.
                Some(pod) if pod.is_terminal() => {
                    self.plan_terminated_pod(ordinal, pod, plan, backoff);
                    self.wait_if_monotonic()?;
                }
                Some(pod) => self.plan_replica(ordinal, pod, plan)?,
                // Its claim goes with the Pod that it was made for.
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

    /// Those that are too many, from the last to the first.
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

    /// Whether claims are missing, or about to be.
    fn is_missing_claims(&self, ordinal: i64) -> bool {
        let names = claim_names(self.name, self.spec, ordinal);
        names.iter().any(|name| self.claims.get(name).is_none_or(|claim| claim.terminating))
    }

    /// Claims have the owners that the policy gives them; that somebody else controls one is told of Pods that are `new`.
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

/// The revision that a Pod was made of.
pub(super) fn revision(pod: &PodSummary) -> &str {
    pod.labels.get(CONTROLLER_REVISION_HASH).map_or("", String::as_str)
}

/// Whether it runs and is ready.
pub(super) fn is_ready(pod: &PodSummary) -> bool {
    pod.phase == "Running" && pod.ready.is_some()
}
