//! Tests of the API through `ApiServer::handle`, without sockets: what kubectl and client libraries see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod admission;
#[cfg(test)]
mod aggregation;
#[cfg(test)]
mod apparmor;
#[cfg(test)]
mod applies;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod authorization;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod common;
#[cfg(test)]
mod conflicts;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod crud;
#[cfg(test)]
mod custom;
#[cfg(test)]
mod decoding;
#[cfg(test)]
mod defaults;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod encryption;
#[cfg(test)]
mod escalation;
#[cfg(test)]
mod events;
#[cfg(test)]
mod fairness;
#[cfg(test)]
mod features;
#[cfg(test)]
mod full;
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
mod mirrors;
#[cfg(test)]
mod mutating_policies;
#[cfg(test)]
mod namespaces;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod old_forms;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod proxies;
#[cfg(test)]
mod resize;
#[cfg(test)]
mod resource_metrics;
#[cfg(test)]
mod reviews;
#[cfg(test)]
mod runtime_classes;
#[cfg(test)]
mod security;
#[cfg(test)]
mod service_changes;
mod services;
mod statuses;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod validation;
#[cfg(test)]
mod validation_sources;
#[cfg(test)]
mod validation_spec;
#[cfg(test)]
mod validation_systems;
#[cfg(test)]
mod warnings;
#[cfg(test)]
mod watches;
#[cfg(test)]
mod webhook_server;
#[cfg(test)]
mod webhooks;
