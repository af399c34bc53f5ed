//! Killing one container while its Pod keeps running.

use crate::ProbeKind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Kill of a container that may be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerKill {
    pub(crate) cause: KillCause,
    /// Time of SIGKILL.
    pub(crate) deadline: Timestamp,
}

/// Cause of a container kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KillCause {
    /// A probe failed. The restart policy for failures applies, whatever the exit code, and the restart rules
    /// (`computePodActions`).
    Probe(ProbeKind),
    /// Its postStart hook failed.
    PostStart,
    /// Its sandbox was lost while it ran. It is restarted by the policy for failures, whatever its exit code
    /// (`computePodActions`).
    Sandbox,
    /// Its image changed in the spec.
    Definition,
    /// All containers are being restarted.
    RestartAll {
        /// Whether its own exit requested that; only then its restart has a backoff.
        #[serde(rename = "asked")]
        requested: bool,
    },
    /// A resize with `resizePolicy: RestartContainer`. It is restarted under any policy.
    Resize,
}
