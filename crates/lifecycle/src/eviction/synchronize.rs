//! The node's figures over time.

use super::{EvictionPolicy, NodeFigures, Signal, Threshold};
use crate::{Pressure, container::elapsed};
use api::quantity::Amount;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What the node's figures have come to so far (`managerImpl.synchronize`). Thresholds are known by their place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watch {
    /// Crossed, grace over, and not enough reclaimed since.
    unresolved: BTreeSet<usize>,
    /// Since when each threshold is crossed.
    since: BTreeMap<usize, Timestamp>,
    /// When each condition was last seen.
    pressed: BTreeMap<Pressure, Timestamp>,
    shown: Vec<Pressure>,
}

/// Something of which a Pod has to go.
#[derive(Debug, Clone, PartialEq)]
pub struct Starved {
    /// What was crossed.
    pub(super) threshold: Threshold,
    /// What must be left and what is, in words, of the first threshold that is about the same.
    pub(super) quantities: Option<(String, String)>,
    pub(super) max_pod_grace_seconds: Option<u32>,
}

impl Starved {
    /// What was crossed.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.threshold.signal
    }

    /// Whether what nobody uses goes first, dead containers and images: they are on the disk that fills up
    /// (`buildSignalToNodeReclaimFuncs`). `split_disks` says that images have a file system of their own.
    #[must_use]
    pub fn takes_unused_first(&self, split_disks: bool) -> bool {
        match self.threshold.signal {
            Signal::ImageFsAvailable | Signal::ImageFsInodesFree => true,
            Signal::NodeFsAvailable | Signal::NodeFsInodesFree => !split_disks,
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable | Signal::PidAvailable => false,
        }
    }

    /// What is lacking, by its name in messages.
    #[must_use]
    pub fn resource(&self) -> &'static str {
        self.threshold.signal.resource().as_str()
    }
}

impl Watch {
    /// What the node lacks, as its conditions show it.
    #[must_use]
    pub fn pressures(&self) -> &[Pressure] {
        &self.shown
    }

    /// Takes in what is seen now; gives what a Pod has to go for, if one has to. At most one goes at a time.
    pub fn observe(&mut self, policy: &EvictionPolicy, figures: &NodeFigures, now: Timestamp) -> Option<Starved> {
        let all = policy.thresholds.iter().enumerate();
        let low = |t: &Threshold, more: bool| crossed(t, figures, more);
        let crossed: BTreeSet<usize> = all
            .clone()
            .filter(|(n, t)| low(t, false) || self.unresolved.contains(n) && low(t, true))
            .map(|(n, _)| n)
            .collect();
        self.since = crossed.iter().map(|n| (*n, self.since.get(n).copied().unwrap_or(now))).collect();
        let crossed = |n: &usize| crossed.contains(n);
        self.pressed.extend(all.clone().filter(|(n, _)| crossed(n)).map(|(_, t)| (t.signal.pressure(), now)));
        self.pressed.retain(|_, at| *at == now || elapsed(*at, now) < policy.transition_period);
        self.shown = self.pressed.keys().copied().collect();
        let patient = |n: usize, t: &Threshold| self.since.get(&n).is_some_and(|at| elapsed(*at, now) >= t.grace);
        let met: Vec<(usize, &Threshold)> = all.filter(|(n, t)| patient(*n, t)).collect();
        self.unresolved = met.iter().map(|(n, _)| *n).collect();
        // Memory comes first: the kernel does not wait.
        let memory = |t: &Threshold| t.signal.pressure() == Pressure::Memory;
        let first = met.iter().find(|(_, t)| memory(t)).or(met.first())?.1;
        let resource = first.signal.resource();
        let about = met.iter().map(|(_, t)| *t).find(|t| t.signal.resource() == resource);
        let quantities = about.and_then(|t| {
            let figure = figures.get(&t.signal)?;
            Some((t.level.shown(figure.capacity), shown(t.signal, figure.available)))
        });
        let max_pod_grace_seconds = policy.max_pod_grace_seconds;
        Some(Starved { threshold: first.clone(), quantities, max_pod_grace_seconds })
    }
}

/// Whether so much is left of everything that no Pod has to go, with what must be reclaimed on top
/// (`reclaimNodeLevelResources`).
#[must_use]
pub fn is_enough(policy: &EvictionPolicy, figures: &NodeFigures) -> bool {
    !policy.thresholds.iter().any(|threshold| crossed(threshold, figures, true))
}

/// Whether less is left than must be; `more` asks for what must be reclaimed on top.
fn crossed(threshold: &Threshold, figures: &NodeFigures, more: bool) -> bool {
    let Some(figure) = figures.get(&threshold.signal) else {
        return false;
    };
    let reclaim = threshold.min_reclaim.as_ref().filter(|_| more).map(|level| level.of(figure.capacity));
    let least = threshold.level.of(figure.capacity).plus(reclaim.unwrap_or_default());
    least > Amount::units(figure.available)
}

/// Bytes as upstream writes them, and plain numbers.
fn shown(signal: Signal, n: i64) -> String {
    match signal {
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree | Signal::PidAvailable => Amount::units(n).to_quantity().0,
        _ => Amount::units(n).to_binary_quantity().0,
    }
}
