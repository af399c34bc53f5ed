//! Tables: what Kubernetes documents about a Pod's life, row by row.

#[path = "../common/mod.rs"]
mod common;

mod backoff;
mod conditions;
mod example_states;
mod init_containers;
mod reasons;
mod restart_policy;
mod restarts_of_the_kubelet;
mod sandboxes;
mod sidecars;
mod termination;
