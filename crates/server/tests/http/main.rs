//! Tests of the API through `ApiServer::handle`, without sockets, as kubectl and client libraries use it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic on failure")]

#[cfg(test)]
mod admission;
#[cfg(test)]
mod aggregation;
#[cfg(test)]
mod apparmor;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod authorization;
#[cfg(test)]
mod certificate_renewal;
#[cfg(test)]
mod common;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod crud;
#[cfg(test)]
mod custom_resources;
#[cfg(test)]
mod decoding;
#[cfg(test)]
mod defaults;
#[cfg(test)]
mod deprecated_apis;
#[cfg(test)]
mod echo_server;
#[cfg(test)]
mod encryption;
#[cfg(test)]
mod escalation;
#[cfg(test)]
mod events;
#[cfg(test)]
mod feature_gates;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod impersonation;
#[cfg(test)]
mod ip_addresses;
#[cfg(test)]
mod kinds;
mod lists;
#[cfg(test)]
mod managed_fields;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod mirror_pods;
#[cfg(test)]
mod mutating_admission_policies;
#[cfg(test)]
mod namespaces;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod pod_resize;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod preconditions;
#[cfg(test)]
mod priority_and_fairness;
#[cfg(test)]
mod proxies;
#[cfg(test)]
mod resource_metrics;
#[cfg(test)]
mod response_encoding;
#[cfg(test)]
mod reviews;
#[cfg(test)]
mod runtime_classes;
#[cfg(test)]
mod security_contexts;
#[cfg(test)]
mod server_side_apply;
#[cfg(test)]
mod service_updates;
mod services;
mod status_updates;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod validating_admission_policies;
#[cfg(test)]
mod validation;
#[cfg(test)]
mod validation_os_and_affinity;
#[cfg(test)]
mod validation_pod_spec;
#[cfg(test)]
mod validation_volume_sources;
#[cfg(test)]
mod warnings;
#[cfg(test)]
mod watches;
#[cfg(test)]
mod webhook_server;
#[cfg(test)]
mod webhooks;
