//! Audit log: a JSON line for each stage of a request, as an audit policy configures
//! (`k8s.io/apiserver/pkg/endpoints/filters/audit.go`).
//!
//! Without an audit log, an [`AuditContext`] holds the audit ID only.
#![forbid(unsafe_code)]

mod audit_context;
mod event;
mod log_backend;
mod objects;
mod policy;

pub use audit_context::{AuditContext, Peer};
pub use log_backend::{AuditRotation, OpenLog};
pub use policy::Level;
pub use policy::{AuditPolicy, AuditPolicyError};

use event::Event;
use log_backend::LogBackend;
use std::{io, path::Path};

/// An audit policy and the log backend.
#[derive(Debug)]
pub struct AuditLog {
    policy: AuditPolicy,
    backend: LogBackend,
}

impl AuditLog {
    /// Opens the log file with `append`, which is also called after each rotation; `-` is standard output.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(policy: AuditPolicy, path: &Path, rotation: AuditRotation, append: OpenLog) -> io::Result<Self> {
        Ok(Self { policy, backend: LogBackend::open(path, rotation, append)? })
    }

    /// Waits until all earlier events are written.
    pub async fn flush(&self) {
        self.backend.flush().await;
    }
}
