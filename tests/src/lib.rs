//! What end-to-end tests share: a cluster of their own, kubectl, and waiting for conditions.
#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests fail by panicking")]

mod cgroup;
mod cluster;
mod kubectl;
mod objects;
mod processes;
mod registry;
mod setup;
mod shell;
mod tool;
mod wait;

pub use cgroup::pod_cgroup;
pub use cluster::{Cluster, podium_binary};
pub use kubectl::{Kubectl, Outcome};
pub use processes::Process;
pub use registry::{PASSWORD, Registry, USER};
pub use setup::{Setup, kubelet_config_in};
pub use shell::{Line, Shell};
pub use tool::tool;
pub use wait::{eventually, wait_for};
