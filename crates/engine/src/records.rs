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

/// Newest version of the format, that of records in memory. Records of unknown versions are refused, never half-read. On disk,
/// a record has the oldest version that has all its fields, so that an earlier Podium reads it, or refuses to start.
pub(crate) const VERSION: u32 = 2;
/// Oldest version of the format.
const OLDEST_VERSION: u32 = 1;
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
pub(crate) trait Record: Clone + Serialize + DeserializeOwned {
    fn version(&mut self) -> &mut u32;

    /// Returns the oldest version of the format that has all fields of the record.
    fn oldest_version(&self) -> u32;
}

impl Record for SandboxRecord {
    fn version(&mut self) -> &mut u32 {
        &mut self.version
    }

    fn oldest_version(&self) -> u32 {
        // A Podium without these fields would leave the sandbox container running, and search other cgroups.
        if self.has_container() || self.systemd_cgroup { 2 } else { OLDEST_VERSION }
    }
}

impl Record for ContainerRecord {
    fn version(&mut self) -> &mut u32 {
        &mut self.version
    }

    fn oldest_version(&self) -> u32 {
        OLDEST_VERSION
    }
}

fn encode<R: Record>(record: &R) -> io::Result<Vec<u8>> {
    let mut record = record.clone();
    *record.version() = record.oldest_version();
    Ok(serde_json::to_vec(&record)?)
}

/// Writes a record durably.
///
/// # Errors
/// When the file system fails.
pub(crate) fn save(path: &Path, record: &impl Record) -> io::Result<()> {
    files::replace_private(path, &encode(record)?)
}

/// Writes a record that a power failure may undo, because nothing depends on it then: it ends all sandboxes.
///
/// # Errors
/// When the file system fails.
pub(crate) fn save_unsynced(path: &Path, record: &impl Record) -> io::Result<()> {
    files::replace_private_unsynced(path, &encode(record)?)
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
    let mut record: R = match serde_json::from_slice(&text) {
        Ok(record) => record,
        // A power failure left the beginning of a record that was not synced, or zeros.
        Err(error) if error.is_eof() || text.contains(&0) => return Ok(None),
        Err(error) => return Err(io::Error::other(format!("{}: {error}", path.display()))),
    };
    let found = *record.version();
    if !(OLDEST_VERSION..=VERSION).contains(&found) {
        let path = path.display();
        let text = format!("{path} has format {found}, this Podium reads formats {OLDEST_VERSION} to {VERSION}");
        return Err(io::Error::other(text));
    }
    *record.version() = VERSION;
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> SandboxRecord {
        let text = r#"{"version":2,"id":"s","uid":"u","name":"p","namespace":"n","attempt":0,
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
    }

    #[test]
    fn earlier_podium_refuses_records_with_new_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sandbox.json");
        let check = |record: SandboxRecord, version: u32| {
            save(&path, &record).unwrap();
            let saved: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            assert_eq!(saved["version"], version, "{record:?}");
            assert_eq!(load(&path).unwrap(), Some(record));
        };
        check(record(), 1);
        check(SandboxRecord { container_cgroup: Some("/pod/s".to_owned()), ..record() }, 2);
        check(SandboxRecord { systemd_cgroup: true, ..record() }, 2);
        for version in [0, 3] {
            fs::write(&path, serde_json::to_vec(&SandboxRecord { version, ..record() }).unwrap()).unwrap();
            let error = load::<SandboxRecord>(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("has format {version}, this Podium reads formats 1 to 2")), "{error}");
        }
    }
}
