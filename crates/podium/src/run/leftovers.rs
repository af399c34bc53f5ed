//! What a `podium run` left that was killed: its directory tells, and the next `podium run` removes it.

use crate::{data_dir::DataDir, up::destroy};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

const PREFIX: &str = "podium-run-";

/// The directory of this process.
pub(super) fn own(temporary: &Path) -> PathBuf {
    temporary.join(format!("{PREFIX}{}", std::process::id()))
}

/// Removes what others left; gives the directories, each with what went wrong, if something did.
pub(super) async fn remove(temporary: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut removed = Vec::new();
    for path in abandoned(temporary) {
        let Ok(dir) = DataDir::new(&path) else { continue };
        // Whoever holds it lives, whatever its number says.
        let Ok(lock) = dir.lock() else { continue };
        let error = destroy(&dir).await.err().map(|e| crate::told(&e));
        drop(lock);
        removed.push((path, error));
    }
    removed
}

/// Directories of this user whose process is gone.
fn abandoned(temporary: &Path) -> Vec<PathBuf> {
    let me = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        let gone = pid.is_some_and(|pid| pid != std::process::id() && !Path::new(&format!("/proc/{pid}")).exists());
        // A temporary directory is everybody's: what others put there is not ours to take down.
        let mine = fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && m.uid() == me);
        gone && mine && DataDir::new(&entry.path()).is_ok_and(|dir| dir.was_used())
    });
    ours.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_of_this_user_used_is_abandoned() {
        let dir = tempfile::tempdir().unwrap();
        // No process has so large a number.
        let names = ["podium-run-4194399", "podium-run-1", "podium-run-x", "other-4194399"];
        for name in names {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("podium.lock"), "").unwrap();
        }
        fs::create_dir(dir.path().join("podium-run-4194398")).unwrap();
        std::os::unix::fs::symlink(dir.path().join(names[0]), dir.path().join("podium-run-4194397")).unwrap();
        assert_eq!(abandoned(dir.path()), [dir.path().join(names[0])]);
    }
}
