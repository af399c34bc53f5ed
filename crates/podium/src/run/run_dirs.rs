//! Data directories of `podium run`: each run creates one, and removes those of earlier runs that were killed.

use crate::{data_dir::DataDir, up::destroy};
use anyhow::{Result, bail};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

const PREFIX: &str = "podium-run-";
/// Default parent of the data directories. /run is often mounted `noexec`, and is limited to a part of the memory.
const PARENT: &str = "/var/lib/podium-run";
/// Maximum number of names tried if an earlier process with the same PID left a directory.
const MAX_NAMES: usize = 100;

/// Returns the parent of the data directories: `TMPDIR`, if only the caller and root may write to it.
pub(super) fn parent() -> PathBuf {
    let temporary = std::env::var_os("TMPDIR").map(PathBuf::from);
    temporary.filter(|path| DataDir::is_private(path)).unwrap_or_else(|| PARENT.into())
}

/// Creates a new data directory for this process.
///
/// # Errors
/// If the directory cannot be created, or another user could replace a component of its path.
pub(super) fn create(parent: &Path) -> Result<DataDir> {
    let pid = std::process::id();
    for number in 0..MAX_NAMES {
        let name = if number == 0 { format!("{PREFIX}{pid}") } else { format!("{PREFIX}{pid}-{number}") };
        if let Some(dir) = DataDir::create(parent, &name)? {
            return Ok(dir);
        }
    }
    bail!("failed to create a data directory in {}: all names are taken", parent.display())
}

/// Removes the data directories of killed runs, also in `/tmp`, where earlier versions created them. Returns the
/// directories, each with the error if its removal failed.
pub(super) async fn remove_abandoned(parent: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut parents = vec![parent.to_path_buf(), std::env::temp_dir()];
    parents.dedup();
    let mut removed = Vec::new();
    for path in parents.iter().flat_map(|parent| abandoned(parent)) {
        let dir = match DataDir::new(&path) {
            Ok(dir) => dir,
            Err(error) => {
                removed.push((path, Some(crate::format_error(&error))));
                continue;
            }
        };
        // A held lock means that the process is alive, whatever the PID in the name.
        let Ok(lock) = dir.lock() else { continue };
        let error = destroy(&dir).await.err().map(|e| crate::format_error(&e));
        drop(lock);
        removed.push((path, error));
    }
    removed
}

/// Returns the directories of this user that only the user can read and whose process has exited.
fn abandoned(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let run_dirs = entries.filter(|entry| {
        let name = entry.file_name();
        let pid = name.to_str().and_then(pid_of);
        let has_exited = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        has_exited && is_own(&entry.path()) && DataDir::is_used(&entry.path())
    });
    run_dirs.map(|entry| entry.path()).collect()
}

/// Returns the PID of the process that created the directory of this name.
fn pid_of(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    rest.split_once('-').map_or(rest, |(pid, _)| pid).parse().ok()
}

/// Whether the path is a directory, not a link, that belongs to the caller and has no permissions for others.
fn is_own(path: &Path) -> bool {
    let me = nix::unistd::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == me && m.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn create_used(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::write(path.join("podium.lock"), "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test]
    async fn abandoned_directory_of_an_older_podium_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("podium-run-4194399");
        create_used(&path, 0o700);
        fs::create_dir(path.join("containerd")).unwrap();
        fs::write(path.join("containerd/config.toml"), "").unwrap();
        let removed = remove_abandoned(dir.path()).await;
        let error = removed.iter().find(|(found, _)| *found == path).and_then(|(_, error)| error.clone());
        assert!(error.as_ref().is_some_and(|error| error.contains("older Podium")), "{removed:?}");
        assert!(path.exists());
    }

    #[test]
    fn abandoned_directory_is_private_and_its_process_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        // 4194304 is the kernel's largest PID, so no process has these PIDs.
        let names = ["podium-run-4194399", "podium-run-4194399-1", "podium-run-1", "podium-run-x", "other-4194399"];
        for name in names {
            create_used(&dir.path().join(name), 0o700);
        }
        create_used(&dir.path().join("podium-run-4194396"), 0o755);
        fs::create_dir(dir.path().join("podium-run-4194398")).unwrap();
        std::os::unix::fs::symlink(dir.path().join(names[0]), dir.path().join("podium-run-4194397")).unwrap();
        let mut found = abandoned(dir.path());
        found.sort();
        assert_eq!(found, [dir.path().join(names[0]), dir.path().join(names[1])]);
    }

    #[test]
    fn existing_run_directory_is_not_reused() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().canonicalize().unwrap().join("runs");
        let run_dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        assert_eq!(create(&parent).unwrap().root(), run_dir);
        fs::write(run_dir.join("ca.crt"), "CA of another user").unwrap();
        let second = create(&parent).unwrap();
        assert_ne!(second.root(), run_dir);
        assert!(fs::read_dir(second.root()).unwrap().next().is_none());
    }

    #[test]
    fn parent_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("runs");
        fs::create_dir(&parent).unwrap();
        assert!(DataDir::is_private(&parent));
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!DataDir::is_private(&parent));
        create(&parent).unwrap_err();
        if nix::unistd::geteuid().is_root() {
            fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
            chown(&parent, Some(65534), None).unwrap();
            assert!(!DataDir::is_private(&parent));
            create(&parent).unwrap_err();
        }
        assert!(fs::read_dir(&parent).unwrap().next().is_none());
    }
}
