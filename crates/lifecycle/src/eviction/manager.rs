//! Eviction manager: which thresholds are met, and since when (the pure half of `managerImpl.synchronize`).
//!
//! `ranking.rs` selects the Pod to evict; the loop is `crates/kubelet/src/eviction.rs`.

use super::{EvictionPolicy, Signal, SignalObservations, Threshold};
use crate::{NodePressure, container::elapsed};
use api::quantity::Amount;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// State of the eviction manager. Thresholds are identified by their index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvictionManager {
    /// Thresholds that were met and whose minimum reclaim is not reached.
    unresolved: BTreeSet<usize>,
    /// When each threshold was first met (`thresholdsFirstObservedAt`).
    since: BTreeMap<usize, Timestamp>,
    /// When each condition was last observed (`nodeConditionsLastObservedAt`).
    pressed: BTreeMap<NodePressure, Timestamp>,
    shown: Vec<NodePressure>,
}

/// Met threshold for which a Pod is evicted.
#[derive(Debug, Clone, PartialEq)]
pub struct MetThreshold {
    /// The threshold.
    pub(super) threshold: Threshold,
    /// Threshold and available quantities for the message, of the first threshold of the same resource.
    pub(super) quantities: Option<(String, String)>,
    pub(super) max_pod_grace_seconds: Option<u32>,
}

impl MetThreshold {
    /// Returns the signal of the threshold.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.threshold.signal
    }

    /// Returns whether dead containers and unused images are removed first, because they are on the full disk
    /// (`buildSignalToNodeReclaimFuncs`). `split_disks` means that images have a separate file system.
    #[must_use]
    pub fn reclaims_unused_first(&self, split_disks: bool) -> bool {
        match self.threshold.signal {
            Signal::ImageFsAvailable | Signal::ImageFsInodesFree => true,
            Signal::NodeFsAvailable | Signal::NodeFsInodesFree => !split_disks,
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable | Signal::PidAvailable => false,
        }
    }

    /// Returns the starved resource, as messages name it.
    #[must_use]
    pub fn resource(&self) -> &'static str {
        self.threshold.signal.resource().as_str()
    }
}

impl EvictionManager {
    /// Returns the pressure conditions of the node.
    #[must_use]
    pub fn pressures(&self) -> &[NodePressure] {
        &self.shown
    }

    /// Processes new observations. Returns the threshold for which a Pod must be evicted, if any; at most one Pod is
    /// evicted at a time.
    pub fn observe(
        &mut self,
        policy: &EvictionPolicy,
        observations: &SignalObservations,
        now: Timestamp,
    ) -> Option<MetThreshold> {
        let all = policy.thresholds.iter().enumerate();
        let is_low = |t: &Threshold, with_reclaim: bool| is_met(t, observations, with_reclaim);
        let exceeded: BTreeSet<usize> = all
            .clone()
            .filter(|(n, t)| is_low(t, false) || self.unresolved.contains(n) && is_low(t, true))
            .map(|(n, _)| n)
            .collect();
        self.since = exceeded.iter().map(|n| (*n, self.since.get(n).copied().unwrap_or(now))).collect();
        let exceeded = |n: &usize| exceeded.contains(n);
        self.pressed.extend(all.clone().filter(|(n, _)| exceeded(n)).map(|(_, t)| (t.signal.pressure(), now)));
        self.pressed.retain(|_, at| *at == now || elapsed(*at, now) < policy.transition_period);
        self.shown = self.pressed.keys().copied().collect();
        let grace_elapsed = |n: usize, t: &Threshold| self.since.get(&n).is_some_and(|at| elapsed(*at, now) >= t.grace);
        let met: Vec<(usize, &Threshold)> = all.filter(|(n, t)| grace_elapsed(*n, t)).collect();
        self.unresolved = met.iter().map(|(n, _)| *n).collect();
        // Memory takes precedence, because the kernel's OOM killer does not wait.
        let is_memory = |t: &Threshold| t.signal.pressure() == NodePressure::Memory;
        let first = met.iter().find(|(_, t)| is_memory(t)).or(met.first())?.1;
        let resource = first.signal.resource();
        let same_resource = met.iter().map(|(_, t)| *t).find(|t| t.signal.resource() == resource);
        let quantities = same_resource.and_then(|t| {
            let observation = observations.get(&t.signal)?;
            Some((t.level.format(observation.capacity), format_amount(t.signal, observation.available)))
        });
        let max_pod_grace_seconds = policy.max_pod_grace_seconds;
        Some(MetThreshold { threshold: first.clone(), quantities, max_pod_grace_seconds })
    }
}

/// Returns whether no threshold is met, including the minimum reclaim (`reclaimNodeLevelResources`).
#[must_use]
pub fn is_reclaimed(policy: &EvictionPolicy, observations: &SignalObservations) -> bool {
    !policy.thresholds.iter().any(|threshold| is_met(threshold, observations, true))
}

/// Returns whether the threshold is met; `with_reclaim` adds the minimum reclaim.
fn is_met(threshold: &Threshold, observations: &SignalObservations, with_reclaim: bool) -> bool {
    let Some(observation) = observations.get(&threshold.signal) else {
        return false;
    };
    let reclaim = threshold.min_reclaim.as_ref().filter(|_| with_reclaim).map(|level| level.of(observation.capacity));
    let required = threshold.level.of(observation.capacity).saturating_add(reclaim.unwrap_or_default());
    required > Amount::units(observation.available)
}

/// Formats bytes as upstream does, and other units as plain numbers.
fn format_amount(signal: Signal, n: i64) -> String {
    match signal {
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree | Signal::PidAvailable => Amount::units(n).to_quantity().0,
        _ => Amount::units(n).to_binary_quantity().0,
    }
}
