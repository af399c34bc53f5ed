//! Sources of Pods: the API, and the manifests of static Pods (upstream's `sourcesReady`).
//!
//! Until each source has been read once, a sandbox or cgroup without a Pod may belong to a Pod that is not known yet.

use std::sync::atomic::{AtomicBool, Ordering};

/// Which sources have been read since the kubelet started.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    api: AtomicBool,
    manifests: AtomicBool,
}

impl Sources {
    /// Returns whether all sources have been read.
    pub(crate) fn are_read(&self) -> bool {
        [&self.api, &self.manifests].iter().all(|source| source.load(Ordering::SeqCst))
    }

    /// Records that the API has listed all Pods of the node. Returns whether all sources have been read with this first.
    pub(crate) fn api_is_read(&self) -> bool {
        !self.api.swap(true, Ordering::SeqCst) && self.are_read()
    }

    /// As [`Sources::api_is_read`], of the manifests of static Pods.
    pub(crate) fn manifests_are_read(&self) -> bool {
        !self.manifests.swap(true, Ordering::SeqCst) && self.are_read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sources_must_be_read() {
        let sources = Sources::default();
        assert!(!sources.api_is_read() && !sources.are_read());
        assert!(sources.manifests_are_read() && sources.are_read());
        assert!(!sources.api_is_read() && !sources.manifests_are_read(), "only once");
    }
}
