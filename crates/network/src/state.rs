//! Saved Pod CIDR of a data directory, and the machine-wide lock of its allocation.

use crate::{Error, names::Names};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Timeout of the lock, which is held for a few netlink calls only.
const LOCK_DEADLINE: Duration = Duration::from_secs(15);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    pod_cidr: Ipv4Net,
}

fn path(names: &Names) -> PathBuf {
    names.dir().join("state.json")
}

/// Loads the CIDR of the last run. An invalid file is ignored: a new CIDR is allocated.
pub(crate) fn load_cidr(names: &Names) -> Result<Option<Ipv4Net>, Error> {
    let path = path(names);
    match fs::read(&path) {
        Ok(bytes) => Ok(serde_json::from_slice::<State>(&bytes)
            .inspect_err(|e| tracing::warn!(path = %path.display(), error = %e, "failed to parse saved pod CIDR"))
            .ok()
            .map(|s| s.pod_cidr)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::file("read", &path)(e)),
    }
}

/// Saves the CIDR.
pub(crate) fn save_cidr(names: &Names, pod_cidr: Ipv4Net) -> Result<(), Error> {
    let path = path(names);
    let text = serde_json::to_vec_pretty(&State { pod_cidr }).map_err(|e| Error::file("write", &path)(e.into()))?;
    replace(&path, &text)
}

/// Writes a file atomically and durably.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    // An unchanged file is not written: a full disk must not prevent the start.
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut file = files::create_private(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(Error::file("write", path))
}

/// Lock of the CIDR allocation; released when dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl Lock {
    /// Waits for the lock at `path`, which must be the same for all instances on the machine.
    pub(crate) async fn take(path: &Path) -> Result<Self, Error> {
        if let Some(dir) = path.parent() {
            files::create_private_dir_all(dir).map_err(Error::file("create", dir))?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        let file = file.map_err(Error::file("open", path))?;
        let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
        match tokio::time::timeout(LOCK_DEADLINE, locked).await {
            Ok(Ok(Ok(file))) => Ok(Self(file)),
            Ok(Ok(Err(e))) => Err(Error::file("lock", path)(e)),
            Ok(Err(e)) => Err(Error::file("lock", path)(io::Error::other(e))),
            Err(_) => Err(Error::LockTimeout(path.to_path_buf())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_cidr_is_loaded_and_invalid_file_is_ignored() {
        let dir = tempfile::tempdir().expect("a directory");
        let names = Names::of(dir.path());
        fs::create_dir_all(names.dir()).expect("a directory");
        assert_eq!(load_cidr(&names).expect("readable"), None);
        let cidr = "10.244.9.0/24".parse().expect("a CIDR");
        save_cidr(&names, cidr).expect("writable");
        assert_eq!(load_cidr(&names).expect("readable"), Some(cidr));
        fs::write(path(&names), "{").expect("writable");
        assert_eq!(load_cidr(&names).expect("readable"), None);
    }
}
