//! `emptyDir`: a directory, or memory.

use super::{give_to_group, make_dir};
use crate::os_error;
use api::quantity::Amount;
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
};
use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

/// What an `emptyDir` is made of.
pub(super) struct EmptyDir {
    memory: bool,
    /// Bytes; only memory is limited by the kernel.
    limit: Option<i64>,
}

impl EmptyDir {
    /// `memory_of_pod` is what the Pod, or else the node, has: what lies in memory can never be more.
    pub(super) fn new(source: &EmptyDirVolumeSource, memory_of_pod: Option<Amount>) -> Result<Self, String> {
        let limit = source.size_limit.as_ref().map(Amount::try_from).transpose().map_err(|e| e.to_string())?;
        let memory = match source.medium.as_deref().unwrap_or_default() {
            "" => false,
            "Memory" => true,
            other => return Err(format!("emptyDir with medium {other:?} is not supported yet")),
        };
        let limit = limit.filter(|l| *l > Amount::ZERO).into_iter().chain(memory_of_pod.filter(|_| memory)).min();
        Ok(Self { memory, limit: limit.map(Amount::value).filter(|bytes| *bytes > 0) })
    }

    /// Memory, for what must never be on a disk.
    pub(super) fn in_memory(memory_of_pod: Option<Amount>) -> Self {
        Self { memory: true, limit: memory_of_pod.map(Amount::value).filter(|bytes| *bytes > 0) }
    }

    /// A directory, for what is not secret.
    pub(super) fn on_disk() -> Self {
        Self { memory: false, limit: None }
    }

    pub(super) fn set_up(&self, dir: &Path, group: Option<u32>) -> Result<(), String> {
        make_dir(dir, 0o777)?;
        let is_mounted = is_mounted(dir).map_err(|e| format!("stat {}: {}", dir.display(), os_error::words(&e)))?;
        if self.memory && !is_mounted {
            self.mount(dir)
                .map_err(|e| format!("mounting a tmpfs at {}: {}", dir.display(), e.desc().to_lowercase()))?;
        }
        // New files belong to the group of their directory.
        give_to_group(dir, group)
            .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(self.mode(group))))
            .map_err(|e| format!("chmod {}: {}", dir.display(), os_error::words(&e)))
    }

    /// Upstream leaves a tmpfs as the kernel makes it, which sets the sticky bit.
    fn mode(&self, group: Option<u32>) -> u32 {
        let sticky = if self.memory { 0o1000 } else { 0 };
        let set_group = if group.is_some() { 0o2000 } else { 0 };
        sticky | set_group | 0o777
    }

    /// Mounts a tmpfs that is never swapped out, where the kernel knows of that (6.3).
    fn mount(&self, dir: &Path) -> nix::Result<()> {
        let size = self.limit.map(|bytes| format!("size={bytes}"));
        let tmpfs = |options: Vec<&str>| {
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), Some(options.join(",").as_str()))
        };
        match tmpfs(size.as_deref().into_iter().chain(["noswap"]).collect()) {
            Err(Errno::EINVAL) => tmpfs(size.as_deref().into_iter().collect()),
            done => done,
        }
    }
}

/// Whether something is mounted at a directory of the Pod: nothing of it is a file system of its own but what is.
fn is_mounted(dir: &Path) -> io::Result<bool> {
    let parent = dir.parent().map_or_else(|| fs::metadata(dir), fs::metadata)?;
    Ok(fs::metadata(dir)?.dev() != parent.dev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn empty_dir(source: serde_json::Value) -> Result<EmptyDir, String> {
        EmptyDir::new(&serde_json::from_value(source).unwrap(), Some(Amount::units(2 << 20)))
    }

    #[test]
    fn everybody_may_write_and_what_is_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        let task = empty_dir(json!({})).unwrap();
        task.set_up(&volume, None).unwrap();
        fs::write(volume.join("f"), "kept").unwrap();
        task.set_up(&volume, None).unwrap();
        assert_eq!(crate::node_file::read_text(volume.join("f")).unwrap(), "kept");
        assert_eq!(fs::metadata(&volume).unwrap().permissions().mode() & 0o7777, 0o777);
    }

    #[test]
    fn memory_has_the_mode_of_a_tmpfs() {
        let mode = |source, group| empty_dir(source).unwrap().mode(group);
        assert_eq!((mode(json!({}), None), mode(json!({}), Some(4711))), (0o777, 0o2777));
        let memory = || json!({"medium": "Memory"});
        assert_eq!((mode(memory(), None), mode(memory(), Some(4711))), (0o1777, 0o3777));
        let (secret, config_map) = (EmptyDir::in_memory(None), EmptyDir::on_disk());
        assert_eq!((secret.mode(None), secret.mode(Some(4711))), (0o1777, 0o3777));
        assert_eq!((config_map.mode(None), config_map.mode(Some(4711))), (0o777, 0o2777));
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        assert!(empty_dir(json!({"medium": "HugePages"})).err().unwrap().contains("HugePages"));
    }

    #[track_caller]
    fn check_limit(source: serde_json::Value, expected: Option<i64>) {
        assert_eq!(empty_dir(source).unwrap().limit, expected);
    }

    #[test]
    fn memory_is_limited_by_the_volume_and_by_what_the_pod_may_have() {
        check_limit(json!({"medium": "Memory", "sizeLimit": "1Mi"}), Some(1 << 20));
        check_limit(json!({"medium": "Memory", "sizeLimit": "1Gi"}), Some(2 << 20));
        check_limit(json!({"medium": "Memory"}), Some(2 << 20));
        check_limit(json!({}), None);
    }
}
