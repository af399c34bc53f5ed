//! `emptyDir`: a directory, or memory.

use super::{give_to_group, make_dir, mount_points};
use api::quantity::Amount;
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use nix::mount::{MsFlags, mount};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

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

    pub(super) fn set_up(&self, dir: &Path, group: Option<u32>) -> Result<(), String> {
        make_dir(dir, 0o777)?;
        if self.memory && !mount_points()?.iter().any(|m| m == dir) {
            let options = self.limit.map(|bytes| format!("size={bytes}"));
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), options.as_deref())
                .map_err(|e| format!("mounting a tmpfs at {}: {e}", dir.display()))?;
        }
        // New files belong to the group of their directory.
        let mode = if group.is_some() { 0o2777 } else { 0o777 };
        give_to_group(dir, group)
            .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(mode)))
            .map_err(|e| format!("{}: {e}", dir.display()))
    }
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
        assert_eq!(fs::read_to_string(volume.join("f")).unwrap(), "kept");
        assert_eq!(fs::metadata(&volume).unwrap().permissions().mode() & 0o7777, 0o777);
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
