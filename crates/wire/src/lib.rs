//! Forms of API objects in requests, responses and storage, driven by one table of the types of all built-in kinds
//! ([`protobuf::message_table`]): protobuf, JSON in upstream's field order, and typed decoding. [`enums`] has the values of enum
//! fields. Both tables are generated from a Kubernetes release.
//!
//! Pure: no I/O, no clock, no randomness. Objects are JSON trees, so that exact bytes survive patches, apply and storage.
#![forbid(unsafe_code)]

pub mod accept;
pub mod enums;
pub mod indent;
pub mod json_order;
pub mod partial_json;
pub mod protobuf;
pub mod typed;
