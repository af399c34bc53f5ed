//! Removal of the administrator's kubeconfig, which exists only while the API server serves. Foreign files are kept.

use anyhow::{Context, Result, bail};
use std::{io::ErrorKind, path::Path};

/// Removes the kubeconfig. A file given by `--kubeconfig` is removed only if Podium wrote it; the default one, in the data
/// directory, always.
///
/// # Errors
/// When the given file was not written by Podium; it is kept.
pub(crate) fn clear(flag: Option<&Path>, default: &Path) -> Result<()> {
    match flag {
        Some(path) => remove(path),
        None => {
            let _ = std::fs::remove_file(default);
            Ok(())
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    // Reading a FIFO might block forever.
    let is_file = std::fs::metadata(path).map(|metadata| metadata.is_file());
    if matches!(is_file, Ok(false)) {
        bail!("{} is not a regular file: choose another file with --kubeconfig", path.display());
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("kubeconfig {}", path.display())),
    };
    // An empty file, as created by `mktemp`, may be replaced.
    if !text.is_empty() && !auth::pki::is_admin_kubeconfig(&text) {
        bail!("{} was not written by Podium: choose another file with --kubeconfig", path.display());
    }
    std::fs::remove_file(path).with_context(|| format!("failed to remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_of_another_writer_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        remove(&path).unwrap();
        let pki = auth::pki::Pki::load_or_create(&dir.path().join("pki"), &[], &[]).unwrap();
        pki.write_admin_kubeconfig(&path, "https://127.0.0.1:6443").unwrap();
        let content = std::fs::read_to_string(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        let config: serde_json::Value = serde_json::from_str(&content).unwrap();
        std::fs::write(&path, serde_saphyr::to_string(&config).unwrap()).unwrap();
        remove(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        let merged = content.replacen("\"contexts\": [", "\"contexts\": [{\"name\": \"other\", \"context\": {}},", 1);
        assert_ne!(merged, content);
        for foreign in ["my other clusters", "{}", &merged] {
            std::fs::write(&path, foreign).unwrap();
            assert!(remove(&path).unwrap_err().to_string().contains("was not written by Podium"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(remove(&pipe).unwrap_err().to_string().contains("not a regular file"));
        clear(None, &path).unwrap();
        assert!(!path.exists());
    }
}
