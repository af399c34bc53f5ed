//! What server-side apply decides, as tables.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod algebra;
mod apply;
mod fields;
mod managers;
mod merging;
mod migration;
mod properties;
mod sample;
mod shapes;
mod updates;
mod versions;
