//! Identity of actions, to deduplicate actions in flight.

use crate::{Action, Hook, ProbeKind};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identity of an [`Action`].
///
/// Equal requests have equal keys; a relevant change (a shorter grace period) gives another key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ActionKey {
    /// Key of [`Action::Admit`].
    Admit,
    /// Key of [`Action::MountVolumes`].
    MountVolumes,
    /// Key of [`Action::UnmountVolumes`].
    UnmountVolumes,
    /// Key of [`Action::CreateSandbox`].
    CreateSandbox {
        /// Attempt, from 0.
        attempt: u32,
    },
    /// Key of [`Action::StopSandbox`].
    StopSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Key of [`Action::RemoveSandbox`].
    RemoveSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Key of [`Action::EnsureImage`], with or without a pull.
    EnsureImage {
        /// The container's name.
        container: String,
        /// The image: another image is another request.
        image: String,
    },
    /// Key of [`Action::StartContainer`].
    StartContainer {
        /// The container's name.
        container: String,
        /// Its restart count, from 0.
        attempt: u32,
    },
    /// Key of [`Action::StopContainer`].
    StopContainer {
        /// The runtime's id.
        id: String,
        /// Time of SIGKILL: a shorter grace period is another request; the same one seconds later is not.
        deadline: Timestamp,
    },
    /// Key of [`Action::RemoveContainer`].
    RemoveContainer {
        /// The runtime's id.
        id: String,
    },
    /// Key of [`Action::RunHook`].
    RunHook {
        /// The hook.
        hook: Hook,
        /// The runtime's id.
        id: String,
    },
    /// Key of [`Action::Probe`].
    Probe {
        /// The probe.
        probe: ProbeKind,
        /// The runtime's id.
        id: String,
        /// Number of earlier results from this container.
        attempt: u64,
    },
    /// Key of [`Action::DecideResize`].
    DecideResize {
        /// `metadata.generation` of the request.
        generation: i64,
        /// Number of earlier decisions.
        tries: u32,
    },
    /// Key of [`Action::ActuateResources`].
    ActuateResources {
        /// `metadata.generation` of the request.
        generation: i64,
        /// Number of earlier attempts.
        tries: u32,
    },
    /// Key of [`Action::Record`].
    Record {
        /// Sequence number of the Event within the Pod.
        sequence: u64,
    },
    /// Key of [`Action::DeleteFromApi`].
    DeleteFromApi,
    /// Key of [`Action::Forget`].
    Forget,
}

impl Action {
    /// Returns the identity of the action.
    #[must_use]
    pub fn key(&self) -> ActionKey {
        match self {
            Self::Admit => ActionKey::Admit,
            Self::MountVolumes => ActionKey::MountVolumes,
            Self::UnmountVolumes => ActionKey::UnmountVolumes,
            Self::CreateSandbox { attempt } => ActionKey::CreateSandbox { attempt: *attempt },
            Self::StopSandbox { id } => ActionKey::StopSandbox { id: id.clone() },
            Self::RemoveSandbox { id } => ActionKey::RemoveSandbox { id: id.clone() },
            Self::EnsureImage { container, image, .. } => {
                ActionKey::EnsureImage { container: container.clone(), image: image.clone() }
            }
            Self::StartContainer { container, attempt, .. } => {
                ActionKey::StartContainer { container: container.clone(), attempt: *attempt }
            }
            Self::StopContainer { id, deadline, .. } => {
                ActionKey::StopContainer { id: id.clone(), deadline: *deadline }
            }
            Self::RemoveContainer { id, .. } => ActionKey::RemoveContainer { id: id.clone() },
            Self::RunHook { id, hook, .. } => ActionKey::RunHook { hook: *hook, id: id.clone() },
            Self::Probe { id, probe, attempt, .. } => {
                ActionKey::Probe { probe: *probe, id: id.clone(), attempt: *attempt }
            }
            Self::DecideResize { generation, tries } => {
                ActionKey::DecideResize { generation: *generation, tries: *tries }
            }
            Self::ActuateResources { generation, tries } => {
                ActionKey::ActuateResources { generation: *generation, tries: *tries }
            }
            Self::Record(event) => ActionKey::Record { sequence: event.sequence },
            Self::DeleteFromApi => ActionKey::DeleteFromApi,
            Self::Forget => ActionKey::Forget,
        }
    }
}

/// The form for logs and tests, as `start/NAME/ATTEMPT`.
impl fmt::Display for ActionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admit => f.write_str("admit"),
            Self::MountVolumes => f.write_str("mount"),
            Self::UnmountVolumes => f.write_str("unmount"),
            Self::CreateSandbox { attempt } => write!(f, "create-sandbox/{attempt}"),
            Self::StopSandbox { id } => write!(f, "stop-sandbox/{id}"),
            Self::RemoveSandbox { id } => write!(f, "remove-sandbox/{id}"),
            Self::EnsureImage { container, image } => write!(f, "image/{container}/{image}"),
            Self::StartContainer { container, attempt } => write!(f, "start/{container}/{attempt}"),
            Self::StopContainer { id, deadline } => write!(f, "stop/{id}/{deadline}"),
            Self::RemoveContainer { id } => write!(f, "remove/{id}"),
            Self::RunHook { hook, id } => write!(f, "hook/{hook:?}/{id}"),
            Self::Probe { probe, id, attempt } => write!(f, "probe/{probe:?}/{id}/{attempt}"),
            Self::DecideResize { generation, tries } => write!(f, "resize/{generation}/{tries}"),
            Self::ActuateResources { generation, tries } => write!(f, "actuate/{generation}/{tries}"),
            Self::Record { sequence } => write!(f, "event/{sequence}"),
            Self::DeleteFromApi => f.write_str("delete"),
            Self::Forget => f.write_str("forget"),
        }
    }
}
