//! Which Pods a StatefulSet makes and deletes, one after the other or all at once (`updateStatefulSet`).

use super::identity::{claim_names, has_claims, is_itself, name};
use super::retention::{Claim, Retention};
use super::rollout;
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
const BURST: usize = 500;

/// A StatefulSet, its Pods and its claims.
pub(super) struct Facts<'a> {
    pub(super) name: &'a str,
    pub(super) spec: &'a StatefulSetSpec,
    /// As its Pods and claims name it.
    pub(super) owner: OwnerReference,
    /// Whether it is being deleted.
    pub(super) ending: bool,
    /// By their numbers.
    pub(super) pods: BTreeMap<i64, Arc<PodSummary>>,
    /// Those of its namespace, by name.
    pub(super) claims: BTreeMap<String, Arc<Claim>>,
    /// The names of the revision that its Pods had before, and of that which they shall have.
    pub(super) current: &'a str,
    pub(super) update: &'a str,
    /// Whether several Pods may be replaced at once (`MaxUnavailableStatefulSet`).
    pub(super) several: bool,
    pub(super) now: Timestamp,
}

/// What is done, in this order; what fails ends it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A Pod is made, with its claims: of the revision that Pods shall have, or of that which they had.
    Make {
        ordinal: i64,
        updated: bool,
    },
    /// The claims of a Pod are made that are missing.
    Claims {
        ordinal: i64,
        pod: Arc<PodSummary>,
    },
    /// A claim gets other owners, or it is told that it has one that should not be.
    Keep {
        claim: String,
        owners: Option<Vec<OwnerReference>>,
        conflict: bool,
    },
    /// A Pod is told which one it is.
    Repair {
        ordinal: i64,
        pod: Arc<PodSummary>,
    },
    Delete(Arc<PodSummary>),
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// How many Pods are deleted for the new revision.
    pub(super) rolled: i32,
    /// When to look again without a change.
    pub(super) again: Option<Duration>,
}

impl Facts<'_> {
    /// Whether each Pod waits for the one before it.
    pub(super) fn in_turn(&self) -> bool {
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
    fn gets_update(&self, ordinal: i64) -> bool {
        !self.is_rolling() || ordinal >= self.range().0 + self.partition()
    }

    pub(super) fn is_updated(&self, pod: &PodSummary) -> bool {
        revision(pod) == self.update
    }

    fn is_available(&self, pod: &PodSummary) -> bool {
        is_ready(pod) && pod.is_available(self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    /// Whether it serves, and goes on to.
    pub(super) fn serves(&self, pod: &PodSummary) -> bool {
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
    fn claims_of(&self, ordinal: i64) -> impl Iterator<Item = &Arc<Claim>> {
        claim_names(self.name, self.spec, ordinal).into_iter().filter_map(|name| self.claims.get(&name))
    }

    /// `pause` says how long a Pod that has ended waits before it is deleted.
    pub(super) fn plan(&self, mut pause: impl FnMut(i64) -> Option<Duration>) -> Plan {
        let after = self.spec.min_ready_seconds.unwrap_or(0);
        let soon = self.pods.values().filter(|pod| !pod.terminating);
        let again = soon.filter_map(|pod| pod.time_until_available(after, self.now)).min();
        let mut plan = Plan { again, ..Plan::default() };
        if !self.ending && self.replicas(&mut plan, &mut pause).is_continue() && self.condemned(&mut plan).is_continue()
        {
            rollout::roll(self, &mut plan);
        }
        plan
    }

    /// What keeps the next Pods waiting, where they wait for each other.
    fn held(&self) -> ControlFlow<()> {
        if self.in_turn() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Those that there should be, from the first to the last.
    fn replicas(&self, plan: &mut Plan, pause: &mut impl FnMut(i64) -> Option<Duration>) -> ControlFlow<()> {
        let (start, end) = self.range();
        let mut made = 0;
        for ordinal in start..end {
            match self.pods.get(&ordinal) {
                // It is made again, however it ended, once it is gone.
                Some(pod) if pod.is_terminal() => {
                    self.ended(ordinal, pod, plan, pause);
                    self.held()?;
                }
                Some(pod) => self.replica(ordinal, pod, plan)?,
                // Its claim goes with the Pod that it was made for.
                None if self.has_stale_claim(ordinal) => self.held()?,
                None => {
                    plan.steps.push(Step::Make { ordinal, updated: self.gets_update(ordinal) });
                    self.held()?;
                    made += 1;
                }
            }
            if made == BURST {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn ended(
        &self,
        ordinal: i64,
        pod: &Arc<PodSummary>,
        plan: &mut Plan,
        pause: &mut impl FnMut(i64) -> Option<Duration>,
    ) {
        if pod.terminating {
            return;
        }
        match pause(ordinal) {
            Some(left) => plan.again = Some(plan.again.map_or(left, |again| again.min(left))),
            None => plan.steps.push(Step::Delete(Arc::clone(pod))),
        }
    }

    fn replica(&self, ordinal: i64, pod: &Arc<PodSummary>, plan: &mut Plan) -> ControlFlow<()> {
        let pending = pod.phase == "Pending";
        if pending && self.lacks_claims(ordinal) {
            plan.steps.push(Step::Claims { ordinal, pod: Arc::clone(pod) });
        }
        if pending {
            self.keep_claims(ordinal, false, true, plan);
        }
        if !self.serves(pod) {
            self.held()?;
        }
        if !pending {
            self.keep_claims(ordinal, false, false, plan);
        }
        if !is_itself(pod) || !has_claims(pod, self.name, self.spec, ordinal) {
            plan.steps.push(Step::Repair { ordinal, pod: Arc::clone(pod) });
        }
        ControlFlow::Continue(())
    }

    /// Those that are too many, from the last to the first.
    fn condemned(&self, plan: &mut Plan) -> ControlFlow<()> {
        let (start, end) = self.range();
        let outside = || self.pods.iter().filter(move |(ordinal, _)| !(start..end).contains(*ordinal));
        for (ordinal, _) in outside() {
            self.keep_claims(*ordinal, true, false, plan);
        }
        let first_broken = outside().find(|(_, pod)| !self.serves(pod)).map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in outside().rev() {
            if pod.terminating {
                self.held()?;
                continue;
            }
            if !self.is_available(pod) && first_broken != Some(*ordinal) {
                self.held()?;
            }
            plan.steps.push(Step::Delete(Arc::clone(pod)));
            self.held()?;
        }
        ControlFlow::Continue(())
    }

    fn has_stale_claim(&self, ordinal: i64) -> bool {
        let owner = self.pod_owner(ordinal);
        Retention::of(self.spec).scaled && self.claims_of(ordinal).any(|claim| claim.is_stale(&owner))
    }

    /// Whether claims are missing, or about to be.
    fn lacks_claims(&self, ordinal: i64) -> bool {
        let names = claim_names(self.name, self.spec, ordinal);
        names.iter().any(|name| self.claims.get(name).is_none_or(|claim| claim.terminating))
    }

    /// Claims have the owners that the policy gives them; that somebody else controls one is told of Pods that are `new`.
    fn keep_claims(&self, ordinal: i64, leaves: bool, new: bool, plan: &mut Plan) {
        let (policy, pod) = (Retention::of(self.spec), self.pod_owner(ordinal));
        for claim in self.claims_of(ordinal) {
            let upkeep = policy.upkeep(claim, &self.owner, &pod, leaves);
            if upkeep.owners.is_some() || (upkeep.conflict && new) {
                let (owners, conflict) = (upkeep.owners, upkeep.conflict);
                plan.steps.push(Step::Keep { claim: claim.name.clone(), owners, conflict });
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
