//! Sizes of the kubelet's per-Pod maps. A map that grows with removed Pods is a leak.

use crate::{Kubelet, Shared};
use std::collections::BTreeMap;

impl Kubelet {
    /// Returns the number of entries of each per-Pod map.
    #[must_use]
    pub fn cache_sizes(&self) -> BTreeMap<&'static str, usize> {
        counts(&self.shared)
    }
}

pub(crate) fn counts(shared: &Shared) -> BTreeMap<&'static str, usize> {
    let mut counts = shared.pods.counts();
    counts.insert("mirrors", shared.mirror_pods.count());
    counts.insert("rates", shared.rates.count());
    counts.insert("tokens", shared.tokens.count());
    counts
}
