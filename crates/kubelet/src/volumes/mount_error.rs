//! Failures to mount volumes, with the texts of upstream's `FailedMount` Events.

use super::{atomic_writer::WriteError, claim::ClaimError, nested::NestedMountPointError, payload::PayloadError};
use crate::{blocking::BlockingTaskError, os_error::PathError};
use std::error::Error;

/// The failed volumes of a Pod.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.messages().join("; "))]
pub(crate) struct MountErrors(Vec<MountError>);

impl MountErrors {
    /// Returns an error if there are failures.
    pub(super) fn check(failures: Vec<MountError>) -> Result<(), Self> {
        if failures.is_empty() { Ok(()) } else { Err(Self(failures)) }
    }

    /// Returns a message for each volume that failed.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

/// Failure to mount a volume.
#[derive(Debug, thiserror::Error)]
pub(super) enum MountError {
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {source}"
    )]
    Claim { volume: String, source: ClaimError },
    #[error("MountVolume.NodeAffinity check failed for volume {volume:?} : no matching NodeSelectorTerms")]
    NodeAffinity { volume: String },
    #[error(
        "MountVolume.MountOptionSupport check failed for volume {volume:?} : Mount options are not supported for this volume type"
    )]
    MountOptions { volume: String },
    #[error("MountVolume.NewMounter initialization failed for volume {volume:?} : {source}")]
    NewMounter { volume: String, source: SetUpError },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    SetUp { volume: String, source: SetUpError },
    /// The directories of the Pod could not be created.
    #[error(transparent)]
    Directory(#[from] PathError),
    #[error(transparent)]
    Task(#[from] BlockingTaskError),
}

impl MountError {
    pub(super) fn set_up(volume: &str, source: impl Into<SetUpError>) -> Self {
        Self::SetUp { volume: volume.to_owned(), source: source.into() }
    }
}

/// Cause of [`MountError::SetUp`].
#[derive(Debug, thiserror::Error)]
pub(super) enum SetUpError {
    #[error("volumes of type {0} are not supported yet")]
    UnsupportedType(&'static str),
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    InUse,
    #[error(transparent)]
    NestedMountPoint(#[from] NestedMountPointError),
    #[error(transparent)]
    Payload(#[from] PayloadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Failure of a type of volume.
    #[error(transparent)]
    Plugin(Box<dyn Error + Send + Sync>),
}

impl SetUpError {
    pub(super) fn plugin(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Plugin(Box::new(error))
    }
}
