//! The Kubernetes API types (re-exported from `k8s-openapi`) and helpers for them that several components share.
//!
//! **Invariant:** pure functions over objects. No I/O, no clock, no client.
#![forbid(unsafe_code)]

pub mod address;
pub mod affinity;
pub mod certificate;
pub mod claim;
pub mod connection_table;
pub mod cron;
pub mod duration;
pub mod feature_gates;
pub mod field;
pub mod findings;
pub mod float;
pub mod host_port;
pub mod key;
pub mod lean;
pub mod mentions;
pub mod names;
pub mod pod;
pub mod quantity;
pub mod quote;
pub mod resources;
pub mod rfc3339;
pub mod selector;
pub mod signals;
pub mod static_pod;
pub mod taint;
pub mod text;
pub mod version;

pub use k8s_openapi;

/// The Kubernetes version whose API and semantics Podium implements.
pub const KUBERNETES_VERSION: &str = "v1.35.0";
