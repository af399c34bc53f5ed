//! Importing image archives into containerd, through its own `ctr`, which ships with it.

use std::{io, path::PathBuf, process::Stdio};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};

/// Why an archive could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// `ctr` is not installed.
    #[error("cannot run ctr, which is part of Debian's package containerd: {0}")]
    Program(#[source] io::Error),
    /// The archive could not be read.
    #[error("cannot read the archive: {0}")]
    Read(#[source] io::Error),
    /// containerd does not answer; the words of `ctr`.
    #[error("{0}")]
    Unreachable(String),
    /// containerd did not take it; its own words.
    #[error("the archive is broken, or holds no image: {0}")]
    Refused(String),
}

/// Imports a docker-archive or OCI archive and gives the names of its images. `progress` is told how many bytes were sent.
///
/// # Errors
/// When the archive cannot be read, or containerd does not take it; nothing is left then.
pub async fn import(
    endpoint: &str,
    archive: &mut (dyn AsyncRead + Send + Unpin),
    mut progress: impl FnMut(u64) + Send,
) -> Result<Vec<String>, ImportError> {
    let program = crate::containerd::find_ctr().unwrap_or_else(|| PathBuf::from("ctr"));
    let mut child = Command::new(program)
        .arg("--address")
        .arg(endpoint.trim_start_matches("unix://"))
        .args(["--namespace", "k8s.io", "images", "import", "--snapshotter", "overlayfs", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(ImportError::Program)?;
    let stdin = child.stdin.take();
    let send = async {
        let Some(mut stdin) = stdin else { return Ok(()) };
        let (mut buffer, mut sent) = (vec![0; 256 << 10], 0);
        loop {
            let n = archive.read(&mut buffer).await.map_err(ImportError::Read)?;
            // When ctr stops reading, its own words say why.
            if n == 0 || stdin.write_all(&buffer[..n]).await.is_err() {
                return Ok(());
            }
            sent += n as u64;
            progress(sent);
        }
    };
    let (sent, output) = tokio::join!(Box::pin(send), child.wait_with_output());
    sent?;
    let output = output.map_err(ImportError::Program)?;
    if !output.status.success() {
        return Err(refusal(String::from_utf8_lossy(&output.stderr).trim()));
    }
    // Each image is a line: `unpacking NAME (sha256:…)...done`.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .lines()
        .filter_map(|l| l.strip_prefix("unpacking ")?.split_once(' '))
        .map(|(name, _)| name.to_owned())
        .collect())
}

/// What `ctr` has to say.
fn refusal(words: &str) -> ImportError {
    let words = words.strip_prefix("ctr: ").unwrap_or(words);
    if words.contains("failed to dial") {
        return ImportError::Unreachable(words.to_owned());
    }
    ImportError::Refused(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_archive_is_not_a_containerd_that_is_away() {
        let away = refusal("ctr: failed to dial \"/x.sock\": context deadline exceeded");
        assert!(matches!(away, ImportError::Unreachable(_)), "{away}");
        let broken = refusal("ctr: archive/tar: invalid tar header");
        assert_eq!(broken.to_string(), "the archive is broken, or holds no image: archive/tar: invalid tar header");
    }
}
