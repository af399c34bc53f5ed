//! The administrator's kubeconfig: there while the API serves, and never in the place of somebody else's.

use anyhow::{Context, Result, bail};
use std::{io::ErrorKind, path::Path};

/// Removes the file at the place that was given, if a Podium wrote it; else the one of the data directory, which is Podium's,
/// whatever became of it.
///
/// # Errors
/// When the file that was given holds something else, which is left as it is.
pub(crate) fn clear(given: Option<&Path>, own: &Path) -> Result<()> {
    match given {
        Some(given) => remove(given),
        None => {
            let _ = std::fs::remove_file(own);
            Ok(())
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    // Reading a pipe, say, might never end.
    let is_file = std::fs::metadata(path).map(|metadata| metadata.is_file());
    if matches!(is_file, Ok(false)) {
        bail!("{} is not a regular file: choose another file with --kubeconfig", path.display());
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("kubeconfig {}", path.display())),
    };
    // What `mktemp` makes is nobody's.
    if !text.is_empty() && !server::is_admin_kubeconfig(&text) {
        bail!("{} holds something that Podium did not write: choose another file with --kubeconfig", path.display());
    }
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_podium_did_not_write_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        remove(&path).unwrap();
        let pki = server::Pki::load_or_create(&dir.path().join("pki"), &[], &[]).unwrap();
        pki.write_admin_kubeconfig(&path, "https://127.0.0.1:6443").unwrap();
        let own = std::fs::read_to_string(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        let config: serde_json::Value = serde_json::from_str(&own).unwrap();
        std::fs::write(&path, serde_saphyr::to_string(&config).unwrap()).unwrap();
        remove(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        let merged = own.replacen("\"contexts\": [", "\"contexts\": [{\"name\": \"other\", \"context\": {}},", 1);
        assert_ne!(merged, own);
        for foreign in ["my other clusters", "{}", &merged] {
            std::fs::write(&path, foreign).unwrap();
            assert!(remove(&path).unwrap_err().to_string().contains("did not write"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(remove(&pipe).unwrap_err().to_string().contains("not a regular file"));
        clear(None, &path).unwrap();
        assert!(!path.exists());
    }
}
