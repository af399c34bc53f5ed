//! The keeper with `runc`, as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

#[path = "runc/attach.rs"]
mod attach;
#[path = "runc/exec.rs"]
mod exec;
#[path = "runc/full_disk.rs"]
mod full_disk;
#[path = "runc/lifecycle.rs"]
mod lifecycle;
#[path = "runc/logs.rs"]
mod logs;
#[path = "runc/namespaces.rs"]
mod namespaces;
#[path = "runc/protocol.rs"]
mod protocol;
#[path = "runc/support.rs"]
mod support;
