//! Killing one container while its Pod keeps running.

use crate::ProbeKind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Kill of a container that may be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerKill {
    pub(crate) cause: KillCause,
    /// When SIGKILL comes.
    pub(crate) deadline: Timestamp,
}

/// Cause of a container kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KillCause {
    /// It failed this probe. A policy that restarts what failed restarts it, whatever its exit code; beside it the rules
    /// count, as for every container that has ended (`computePodActions`).
    Probe(ProbeKind),
    /// Its postStart hook failed.
    PostStart,
    /// Its sandbox was lost while it ran. Whether it runs again in the next one was decided then, and is not for its exit
    /// code to say (`computePodActions`).
    Sandbox,
    /// Its image is another one now.
    Definition,
    /// All containers are restarted.
    RestartAll {
        /// Whether its own end asked for that. It waits for its back-off then, and the others do not.
        asked: bool,
    },
    /// Its resources change, and its `resizePolicy` says `RestartContainer`. It is started again, whatever its policy.
    Resize,
}
