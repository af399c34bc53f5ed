//! The engine with real keepers and `runc`, as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

#[path = "keepers/adoption.rs"]
mod adoption;
#[path = "keepers/creation.rs"]
mod creation;
#[path = "keepers/sandbox_container.rs"]
mod sandbox_container;
#[path = "keepers/start.rs"]
mod start;
#[path = "keepers/support.rs"]
mod support;
