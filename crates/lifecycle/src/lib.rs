//! The Pod state machine: computes a Pod's actions and status from its events and the time.
//!
//! **Invariant:** this crate is pure. No I/O, no clock, no randomness, no async, no logging: time and jitter are
//! arguments. The documented behaviour of a Pod's lifecycle on its node is decided here only.
//!
//! **Invariant:** the same events in the same order give the same plan and the same status.
//!
//! The four functions:
//!
//! | function | result |
//! | --- | --- |
//! | [`observe()`] | applies one event to the state of a Pod |
//! | [`plan()`] | the actions that are due, and the time of the next wake-up |
//! | [`status()`] | the `PodStatus` to report |
//! | [`explain()`] | the reasons for the Pod's state and its next step |
#![forbid(unsafe_code)]
// Client-supplied numbers are used in time arithmetic, which must saturate.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod action;
mod action_key;
mod admission;
mod apparmor;
mod conditions;
mod container;
mod container_cleanup;
mod container_kill;
mod event;
pub mod eviction;
mod explain;
mod history;
mod hooks;
mod image_backoff;
mod observe;
mod phase;
mod plan;
mod pod;
mod policy;
mod preemption;
mod probe_worker;
mod resize;
mod restart;
mod restart_all;
mod restore_from_status;
mod shutdown;
mod status;
pub mod sysctls;
mod termination;
mod time;
mod volatile;

pub use action::*;
pub use action_key::ActionKey;
pub use admission::{AdmissionDecision, AdmissionNodeInfo, NodePressure, admit};
pub use apparmor::profile as apparmor_profile;
pub use conditions::{OWNED_CONDITIONS, RESIZE_CONDITIONS};
pub use event::*;
pub use explain::{Explanation, explain};
pub use history::{History, HistoryRecord, ReplayError, ReplayResult, replay};
pub use observe::observe;
pub use plan::{Plan, plan};
pub use pod::Pod;
pub use policy::{BackoffPolicy, HandlerSupport, NodePolicy};
pub use preemption::Preemption;
pub use resize::{Allocation, ResizeDecision, decide as decide_resize};
pub use shutdown::{ShutdownGrace, ShutdownGroup, ShutdownPod, ShutdownPolicy};
pub use status::{resolve_recursive_read_only, status};
