//! Library of the end-to-end tests: clusters, kubectl, Pods, an image registry, and waiting for conditions.
#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests fail by panicking")]

mod api_get;
mod cgroup;
mod cluster;
mod cluster_builder;
mod e2e_test;
mod following;
mod kubectl;
mod pod;
mod processes;
mod registry;
mod shell;
mod tools;
mod wait;

pub use cgroup::pod_cgroup;
pub use cluster::{Cluster, podium_binary};
pub use cluster_builder::{ClusterBuilder, write_kubelet_config};
pub use e2e_test::{E2eTest, TestBody};
pub use following::Following;
/// Used by the expansion of [`e2e_test`].
#[doc(hidden)]
pub use inventory;
pub use kubectl::{Kubectl, Outcome};
pub use pod::{PodBuilder, container};
pub use processes::Process;
pub use registry::{PASSWORD, Registry, USER};
pub use shell::{Line, Shell};
pub use test_containerd::Containerd;
pub use test_macros::e2e_test;
pub use tools::{fetched_tool, tool};
pub use wait::{eventually, scaled, wait_for};
