//! The Kubernetes API types (re-exported from `k8s-openapi`) and helpers for them that several components share.
//!
//! **Invariant:** pure functions over objects. No I/O, no clock, no client.
#![forbid(unsafe_code)]

pub mod address;
pub mod affinity;
pub mod bounded_messages;
pub mod certificate;
pub mod connection_limiter;
pub mod cron;
pub mod duration;
pub mod feature_gates;
pub mod field;
pub mod float;
pub mod go_quote;
pub mod host_port;
pub mod metrics;
pub mod names;
pub mod object_key;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_references;
pub mod quantity;
pub mod resources;
pub mod rfc3339;
pub mod selector;
pub mod signals;
pub mod static_pod;
pub mod taint;
pub mod text;
pub mod version;
pub mod volume_source;

pub use k8s_openapi;

/// The Kubernetes version whose API and semantics Podium implements.
pub const KUBERNETES_VERSION: &str = "v1.35.0";
