//! Table tests of the documented Pod lifecycle.

#[path = "../common/mod.rs"]
#[cfg(test)]
mod common;

#[cfg(test)]
mod admission;
#[cfg(test)]
mod backoff;
#[cfg(test)]
mod conditions;
#[cfg(test)]
mod container_cleanup;
#[cfg(test)]
mod ephemeral_containers;
#[cfg(test)]
mod eviction;
#[cfg(test)]
mod eviction_properties;
#[cfg(test)]
mod example_states;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod images;
#[cfg(test)]
mod init_containers;
#[cfg(test)]
mod kubelet_restarts;
#[cfg(test)]
mod pod_updates;
#[cfg(test)]
mod preemption;
#[cfg(test)]
mod probe_kills;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod reasons;
#[cfg(test)]
mod resize;
#[cfg(test)]
mod restart_all;
#[cfg(test)]
mod restart_policy;
#[cfg(test)]
mod sandbox_changes;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod sidecars;
#[cfg(test)]
mod termination;
