//! Records of sandboxes and containers on disk.
//!
//! A record is written before the object is reported, and replaced atomically, so that a process that was killed at any moment
//! leaves either the old record or the new one. An object without a readable record was never reported and is removed.

use jiff::Timestamp;
use runtime::{ContainerState, ContainerStatus, Exit, NamespaceMode, SandboxStatus, StopSignal};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

/// Version of the format. Records of another version are refused, never half-read.
pub(crate) const VERSION: u32 = 1;
/// Maximum size of a record in bytes: labels and annotations of a Pod are at most 256 KiB each.
const MAX_RECORD: u64 = 4 << 20;

/// Progress of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum SandboxState {
    /// It was not reported yet.
    Creating,
    /// Its namespaces and network exist.
    Ready,
    /// Its network is released, and its containers have ended.
    Stopped,
}

/// `sandbox.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxRecord {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) attempt: u32,
    pub(crate) created_at: Timestamp,
    pub(crate) state: SandboxState,
    pub(crate) network: NamespaceMode,
    pub(crate) pid: NamespaceMode,
    pub(crate) ipc: NamespaceMode,
    pub(crate) log_directory: PathBuf,
    pub(crate) runtime_handler: String,
    pub(crate) ips: Vec<IpAddr>,
    /// cgroup of the sandbox container, if the OCI runtime needs one.
    #[serde(default)]
    pub(crate) container_cgroup: Option<String>,
    /// Whether systemd creates the cgroups of the containers (cgroup driver `systemd`).
    #[serde(default)]
    pub(crate) systemd_cgroup: bool,
}

impl SandboxRecord {
    /// Whether the sandbox has a sandbox container, whose ID is that of the sandbox.
    pub(crate) const fn has_container(&self) -> bool {
        self.container_cgroup.is_some()
    }

    pub(crate) fn status(&self) -> SandboxStatus {
        SandboxStatus {
            id: runtime::SandboxId(self.id.clone()),
            uid: self.uid.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            attempt: self.attempt,
            ready: self.state == SandboxState::Ready,
            created_at: self.created_at,
            ips: self.ips.clone(),
        }
    }
}

/// `record.json` of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerRecord {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) created_at: Timestamp,
    /// Set before the start is requested: a container that may have run is never reported as created.
    pub(crate) started_at: Option<Timestamp>,
    /// Set if the container ended without an exit code of the keeper: it failed to start, or the keeper was killed.
    pub(crate) exit: Option<Exit>,
    /// Name of the image.
    pub(crate) image: String,
    /// Image ID.
    pub(crate) image_ref: String,
    /// Image in the Pod's spec.
    pub(crate) spec_image: String,
    pub(crate) stop_signal: Option<StopSignal>,
    pub(crate) tty: bool,
    /// Container whose process namespace is joined.
    #[serde(default)]
    pub(crate) target_container: Option<String>,
    /// The container's cgroup, relative to the root of its hierarchy.
    pub(crate) cgroup: String,
}

impl ContainerRecord {
    pub(crate) fn status(&self, state: ContainerState, exit: Option<Exit>) -> ContainerStatus {
        ContainerStatus {
            id: runtime::ContainerId(self.id.clone()),
            sandbox: Some(runtime::SandboxId(self.sandbox.clone())),
            uid: self.uid.clone(),
            name: self.name.clone(),
            attempt: self.attempt,
            state,
            created_at: self.created_at,
            started_at: self.started_at,
            exit,
            image: self.image.clone(),
            image_ref: self.image_ref.clone(),
            spec_image: Some(self.spec_image.clone()),
            stop_signal: self.stop_signal,
        }
    }
}

/// A record with a format version.
pub(crate) trait Record: Serialize + DeserializeOwned {
    fn version(&self) -> u32;
}

impl Record for SandboxRecord {
    fn version(&self) -> u32 {
        self.version
    }
}

impl Record for ContainerRecord {
    fn version(&self) -> u32 {
        self.version
    }
}

/// Writes a record durably.
///
/// # Errors
/// When the file system fails.
pub(crate) fn save(path: &Path, record: &impl Record) -> io::Result<()> {
    files::replace_private(path, &serde_json::to_vec(record)?)
}

/// Writes a record that a power failure may undo, because nothing depends on it then: it ends all sandboxes.
///
/// # Errors
/// When the file system fails.
pub(crate) fn save_unsynced(path: &Path, record: &impl Record) -> io::Result<()> {
    files::replace_private_unsynced(path, &serde_json::to_vec(record)?)
}

/// Reads a record; `None` if there is none, or it was never completed.
///
/// # Errors
/// When the file system fails, or the record has another version or is damaged.
pub(crate) fn load<R: Record>(path: &Path) -> io::Result<Option<R>> {
    let size = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if size > MAX_RECORD {
        return Err(io::Error::other(format!("{} is larger than a record", path.display())));
    }
    let text = fs::read(path)?;
    let record: R = match serde_json::from_slice(&text) {
        Ok(record) => record,
        // A power failure left the beginning of a record that was not synced, or zeros.
        Err(error) if error.is_eof() || text.contains(&0) => return Ok(None),
        Err(error) => return Err(io::Error::other(format!("{}: {error}", path.display()))),
    };
    if record.version() != VERSION {
        let (found, path) = (record.version(), path.display());
        return Err(io::Error::other(format!("{path} has format {found}, this Podium reads format {VERSION}")));
    }
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> SandboxRecord {
        let text = r#"{"version":1,"id":"s","uid":"u","name":"p","namespace":"n","attempt":0,
            "createdAt":"2026-01-01T00:00:00Z","state":"ready","network":"Pod","pid":"Container","ipc":"Pod",
            "logDirectory":"/l","runtimeHandler":"","ips":[]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn truncated_record_is_incomplete_and_a_damaged_one_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sandbox.json");
        assert_eq!(load::<SandboxRecord>(&path).unwrap(), None);
        save_unsynced(&path, &record()).unwrap();
        assert_eq!(load(&path).unwrap(), Some(record()));
        let text = fs::read(&path).unwrap();
        for length in [0, 1, text.len() - 1] {
            fs::write(&path, &text[..length]).unwrap();
            assert_eq!(load::<SandboxRecord>(&path).unwrap(), None, "{length}");
        }
        fs::write(&path, [b"x", text.as_slice()].concat()).unwrap();
        load::<SandboxRecord>(&path).unwrap_err();
        save(&path, &SandboxRecord { version: 2, ..record() }).unwrap();
        load::<SandboxRecord>(&path).unwrap_err();
    }
}
