//! Imports image archives into containerd with `ctr images import`.

use flate2::write::MultiGzDecoder;
use std::{
    borrow::Cow,
    collections::BTreeSet,
    io::{self, Write as _},
    process::Stdio,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};

/// Error of an image import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// `ctr` is not installed.
    #[error("failed to run ctr (Debian package containerd): {0}")]
    Program(#[source] io::Error),
    /// The archive could not be read.
    #[error("failed to read the archive: {0}")]
    Read(#[source] io::Error),
    /// containerd does not respond. Error text of `ctr`.
    #[error("{0}")]
    Unreachable(String),
    /// containerd rejected the archive. Error text of containerd.
    #[error("the archive is corrupt or contains no image: {0}")]
    Refused(String),
    /// The archive was imported, but contains no named image.
    #[error("no image in the archive has a name: save it by its name and tag, not by its ID")]
    Nameless,
}

/// Imports a docker-archive or OCI archive and returns the names of its images. Calls `progress` with the number of bytes
/// sent.
///
/// # Errors
/// If the archive cannot be read, or containerd rejects it. Partially imported images are removed.
pub async fn import(
    endpoint: &str,
    archive: &mut (dyn AsyncRead + Send + Unpin),
    mut progress: impl FnMut(u64) + Send,
) -> Result<Vec<String>, ImportError> {
    let before = names(endpoint).await?;
    let mut child =
        ctr(endpoint, &[&["images", "import"], local(endpoint).await?, &["--snapshotter", "overlayfs", "-"]].concat())
            .stdin(Stdio::piped())
            .spawn()
            .map_err(ImportError::Program)?;
    let stdin = child.stdin.take();
    let send = async {
        let Some(mut stdin) = stdin else { return Ok(()) };
        let (mut buffer, mut sent, mut unpack) = (vec![0; 256 << 10], 0, None);
        loop {
            let n = archive.read(&mut buffer).await.map_err(ImportError::Read)?;
            let unpack = unpack.get_or_insert_with(|| Unpack::of(&buffer[..n]));
            let plain = unpack.part(&buffer[..n]).map_err(ImportError::Read)?;
            // If ctr stops reading, its exit reports the cause.
            if stdin.write_all(&plain).await.is_err() || n == 0 {
                return Ok(());
            }
            sent += n as u64;
            progress(sent);
        }
    };
    let (sent, output) = tokio::join!(Box::pin(send), child.wait_with_output());
    sent?;
    let output = output.map_err(ImportError::Program)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let imported = unpacking(&text);
    if !output.status.success() {
        // containerd records images before it unpacks them, so images that failed to unpack must be removed.
        let checked = run(endpoint, &["images", "check"]).await?;
        let incomplete = broken(&checked, &before, &imported);
        if !incomplete.is_empty() {
            run(endpoint, &[&["images", "rm"], incomplete.as_slice()].concat()).await?;
        }
        return Err(refusal(&output.stderr));
    }
    if imported.is_empty() { Err(ImportError::Nameless) } else { Ok(imported.into_iter().map(str::to_owned).collect()) }
}

/// Returns the flags for an import by `ctr` itself: `ctr` 1.7 and later delegate to the daemon by default, with another
/// output format.
async fn local(endpoint: &str) -> Result<&'static [&'static str], ImportError> {
    let help = run(endpoint, &["images", "import", "--help"]).await?;
    Ok(if help.contains("--local") { &["--local"] } else { &[] })
}

/// Parses the images of an import from lines of the form `unpacking NAME (sha256:…)...done`.
fn unpacking(text: &str) -> Vec<&str> {
    text.lines().filter_map(|l| l.strip_prefix("unpacking ")?.split_once(' ')).map(|(name, _)| name).collect()
}

/// Returns the images that a failed import leaves behind: partially unpacked ones, and ones that were not unpacked. A
/// complete image was pulled concurrently. `checked` has a line per image: first the name, last whether it is unpacked.
fn broken<'a>(checked: &'a str, before: &BTreeSet<String>, imported: &[&str]) -> Vec<&'a str> {
    let images = checked.lines().filter_map(|line| Some((line.split_whitespace().next()?, line.trim_end())));
    images
        .filter(|(name, line)| line.ends_with(" false") || line.ends_with(" true") && imported.contains(name))
        .map(|(name, _)| name)
        .filter(|name| !before.contains(*name))
        .collect()
}

/// Decompressor of an archive: the output of `docker save` is often compressed with gzip.
enum Unpack {
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl Unpack {
    /// Detects the compression from the first bytes of the archive.
    fn of(begin: &[u8]) -> Self {
        if begin.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))
        } else {
            Self::Plain
        }
    }

    /// Decompresses the next chunk of the archive. An empty chunk marks its end.
    fn part<'a>(&mut self, part: &'a [u8]) -> io::Result<Cow<'a, [u8]>> {
        match self {
            Self::Plain => Ok(part.into()),
            Self::Gzip(decoder) => {
                if part.is_empty() {
                    decoder.try_finish()?;
                }
                decoder.write_all(part)?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
        }
    }
}

/// Returns the names of the images in containerd.
async fn names(endpoint: &str) -> Result<BTreeSet<String>, ImportError> {
    Ok(run(endpoint, &["images", "ls", "-q"]).await?.lines().map(str::to_owned).collect())
}

/// Runs `ctr` and returns its output.
async fn run(endpoint: &str, args: &[&str]) -> Result<String, ImportError> {
    let output = ctr(endpoint, args).stdin(Stdio::null()).output().await.map_err(ImportError::Program)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(refusal(&output.stderr))
}

fn ctr(endpoint: &str, args: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command
        .arg("--address")
        .arg(endpoint.trim_start_matches("unix://"))
        .args(["--namespace", "k8s.io"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Returns the error of `ctr`: the last line of its output, after log lines.
fn refusal(output: &[u8]) -> ImportError {
    let text = String::from_utf8_lossy(output);
    let words = text.trim().lines().last().unwrap_or_default();
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
    fn failed_import_removes_only_its_own_images() {
        let checked = "REF TYPE DIGEST STATUS SIZE UNPACKED \nold:1 t sha256:0 complete (2/2) 2.0 MiB/2.0 MiB true\n\
                       halfway:1 t sha256:1 incomplete (1/2) 1.0 MiB/2.0 MiB false   \npulled:1 t sha256:2 complete \
                       (2/2) 2.0 MiB/2.0 MiB true\nfirst:1 t sha256:3 complete (2/2) 2.0 MiB/2.0 MiB true\n";
        let before = BTreeSet::from(["old:1".to_owned()]);
        let imported = unpacking("unpacking first:1 (sha256:3)...done\nunpacking halfway:1 (sha256:1)...");
        assert_eq!(broken(checked, &before, &imported), ["halfway:1", "first:1"]);
    }

    #[test]
    fn corrupt_archive_is_not_reported_as_unavailable() {
        let away = refusal(b"ctr: failed to dial \"/x.sock\": context deadline exceeded\n");
        assert!(matches!(away, ImportError::Unreachable(_)), "{away}");
        let corrupt = refusal(b"time=\"now\" level=info msg=\"apply failure\"\nctr: archive/tar: invalid tar header\n");
        assert_eq!(corrupt.to_string(), "the archive is corrupt or contains no image: archive/tar: invalid tar header");
    }
}
