//! Runs nft, iptables, conntrack and modprobe: they have no other stable interface.

use crate::Error;
use std::{path::PathBuf, process::Stdio, time::Duration};
use tokio::{io::AsyncWriteExt, process::Command};

const TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the path of a program, if it is installed. The PATH of a service often lacks the sbin directories.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Runs a program with `input` on stdin and returns its stdout.
pub(crate) async fn run(program: &'static str, args: &[&str], input: &str) -> Result<String, Error> {
    let failed = |reason: String| Error::Program { program, reason };
    let file = find(program).ok_or_else(|| failed("not installed".into()))?;
    let run = async {
        let mut child = Command::new(file)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that exits without reading its input reports why on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(TIMEOUT, run)
        .await
        .map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))?
        .map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}: {}", output.status, stderr.trim())))
}
