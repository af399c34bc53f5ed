//! What the kubelet remembers of Pods, counted. What grows with the Pods that are gone is a leak.

use crate::{Kubelet, Shared};
use std::collections::BTreeMap;

impl Kubelet {
    /// How many entries there are of everything that is remembered of Pods, by what it is.
    #[must_use]
    pub fn remembered(&self) -> BTreeMap<&'static str, usize> {
        counts(&self.shared)
    }
}

pub(crate) fn counts(shared: &Shared) -> BTreeMap<&'static str, usize> {
    let mut counts = shared.pods.counts();
    counts.insert("mirrors", shared.mirrors.count());
    counts.insert("rates", shared.rates.count());
    counts.insert("tokens", shared.tokens.count());
    counts
}
