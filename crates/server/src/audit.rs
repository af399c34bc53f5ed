//! The audit log: who did what, as a policy says, a line of JSON for each stage of a request
//! (`k8s.io/apiserver/pkg/endpoints/filters/audit.go`).
//!
//! Without one, a [`Trail`] is nothing and costs nothing.

mod event;
mod policy;
mod sink;
mod trail;

pub(crate) use policy::Level;
pub use policy::{AuditPolicy, AuditPolicyError};
pub use sink::{AuditRotation, OpenLog};
pub(crate) use trail::{Peer, Trail};

use event::Event;
use sink::Sink;
use std::{io, path::Path};

/// A policy, and where what it asks for is written.
#[derive(Debug)]
pub struct AuditLog {
    policy: AuditPolicy,
    sink: Sink,
}

impl AuditLog {
    /// Writes to this file, which is opened by `append` now and after each rotation, or to standard output for `-`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(policy: AuditPolicy, path: &Path, rotation: AuditRotation, append: OpenLog) -> io::Result<Self> {
        Ok(Self { policy, sink: Sink::open(path, rotation, append)? })
    }

    /// Waits until everything is written that happened before.
    pub async fn flush(&self) {
        self.sink.flush().await;
    }
}
