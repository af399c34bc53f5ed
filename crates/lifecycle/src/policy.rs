//! Node-wide settings that Pods depend on: addresses, backoffs, feature gates.

use api::feature_gates::{FeatureGates, Gate};
use k8s_openapi::api::core::v1::PodSpec;
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, time::Duration};

/// Exponential backoff with a cap (`doBackOff`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffPolicy {
    /// The first delay.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
    /// The backoff is reset after this time without a failure.
    pub reset_after: Duration,
}

impl BackoffPolicy {
    /// Returns the delay after this one.
    #[must_use]
    pub fn next(&self, delay: Duration) -> Duration {
        if delay.is_zero() { self.initial.min(self.max) } else { (delay * 2).min(self.max) }
    }
}

/// Node-wide settings that Pods depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePolicy {
    /// The node's addresses, the primary one first (`status.hostIPs`).
    pub host_ips: Vec<IpAddr>,
    /// Scheme of container ids, for example `containerd`.
    pub runtime_name: String,
    /// Backoff of container restarts.
    pub container_backoff: BackoffPolicy,
    /// Backoff of image pulls.
    pub image_backoff: BackoffPolicy,
    /// Backoff of other failed steps: volumes, sandboxes, container configurations.
    pub retry_backoff: BackoffPolicy,
    /// Minimum time between the stop signal and SIGKILL (`minimumGracePeriodInSeconds`).
    pub minimum_grace: Duration,
    /// Feature gates.
    pub gates: FeatureGates,
    /// Support of recursive read-only mounts.
    #[serde(default)]
    pub recursive_read_only_mounts: HandlerSupport,
}

/// Support of a feature by the runtime handlers of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HandlerSupport {
    /// Whether the default handler has it.
    pub default_handler: bool,
    /// Whether all handlers have it. The handler of a RuntimeClass is not known without the API.
    pub all_handlers: bool,
}

impl HandlerSupport {
    /// Returns whether the handler of a Pod certainly has the feature.
    #[must_use]
    pub fn for_pod(self, pod: &PodSpec) -> bool {
        let has_class = pod.runtime_class_name.as_ref().is_some_and(|name| !name.is_empty());
        if has_class { self.all_handlers } else { self.default_handler }
    }
}

const SECOND: Duration = Duration::from_secs(1);

impl Default for NodePolicy {
    /// Upstream's values (`MaxCrashLoopBackOff`, `minimumGracePeriodInSeconds`).
    fn default() -> Self {
        let backoff =
            |initial, max| BackoffPolicy { initial: SECOND * initial, max: SECOND * max, reset_after: SECOND * 600 };
        Self {
            host_ips: Vec::new(),
            runtime_name: "containerd".to_owned(),
            container_backoff: backoff(10, 300),
            image_backoff: backoff(10, 300),
            retry_backoff: backoff(1, 60),
            minimum_grace: SECOND * 2,
            gates: FeatureGates::default(),
            recursive_read_only_mounts: HandlerSupport::default(),
        }
    }
}

impl NodePolicy {
    /// Sets the container backoff from the feature gates and `crashLoopBackOff.maxContainerRestartPeriod` of the
    /// KubeletConfiguration, with upstream's precedence (`newCrashLoopBackOff`).
    #[must_use]
    pub fn with_crash_loop_backoff(mut self, gates: FeatureGates, node_max: Option<Duration>) -> Self {
        let (mut initial, mut max) = if gates.enabled(Gate::ReduceDefaultCrashLoopBackOffDecay) {
            (SECOND, SECOND * 60)
        } else {
            (SECOND * 10, SECOND * 300)
        };
        if let Some(node_max) = node_max.filter(|_| gates.enabled(Gate::KubeletCrashLoopBackOffMax)) {
            max = node_max;
            initial = initial.min(max);
        }
        self.container_backoff = BackoffPolicy { initial, max, ..self.container_backoff };
        self.gates = gates;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(gates: &str, node_max: Option<u64>, expected: (u64, u64)) {
        let gates = FeatureGates::parse(gates).unwrap();
        let b =
            NodePolicy::default().with_crash_loop_backoff(gates, node_max.map(Duration::from_secs)).container_backoff;
        assert_eq!((b.initial.as_secs(), b.max.as_secs()), expected);
    }

    #[test]
    fn crash_loop_backoff_node_config_overrides_gate_and_default() {
        check("", None, (10, 300));
        check("", Some(100), (10, 100));
        check("", Some(2), (2, 2));
        check("ReduceDefaultCrashLoopBackOffDecay=true", None, (1, 60));
        check("ReduceDefaultCrashLoopBackOffDecay=true", Some(300), (1, 300));
        check("KubeletCrashLoopBackOffMax=false", Some(2), (10, 300));
    }
}
