//! Table and property tests of server-side apply.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod apply;
mod client_side_apply;
mod fields_v1;
mod fixture;
mod list_order;
mod managed_fields;
mod properties;
mod set_operations;
mod update;
mod validation;
mod versions;
