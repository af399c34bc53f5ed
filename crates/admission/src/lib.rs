//! What admission decides about an object, given the others that matter: objects in, a decision out. No I/O, no clock.
//!
//! Who asks, what is stored and what a client is told is the server's matter.
#![forbid(unsafe_code)]

pub use expr::{Authorize, Question, Type, Verdict};

pub mod about;
pub mod conditions;
pub mod limit_range;
pub mod matching;
pub mod pod_security;
pub mod policy;
pub mod quota;
pub mod review;
pub mod webhook;
