//! Admission plugins as pure functions: LimitRanger, ResourceQuota, PodSecurity, admission webhooks and policies. No I/O, no
//! clock.
//!
//! The server implements authentication, storage and responses.
#![forbid(unsafe_code)]

pub use aggregate::Aggregate;
pub use expr::{AuthorizationAttributes, AuthorizationDecision, Authorizer, Type};

mod aggregate;
pub mod attributes;
pub mod conditions;
pub mod limit_range;
pub mod matching;
pub mod pod_security;
pub mod policy;
pub mod quota;
pub mod review;
pub mod webhook;
