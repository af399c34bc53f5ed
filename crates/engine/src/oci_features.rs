//! Features of an OCI runtime, as its subcommand `features` reports them (`features.md` of the OCI runtime specification).

use serde::Deserialize;
use std::{path::Path, process::Stdio, time::Duration};
use tokio::{io::AsyncReadExt, process::Command};

/// Deadline of the subcommand.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum size of the document in bytes. That of `runc` has 8 KiB.
const MAX_DOCUMENT: u64 = 1 << 20;

/// Features of an OCI runtime that Podium uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features {
    /// Whether it knows the mount option `rro`.
    pub(crate) recursive_read_only_mounts: bool,
    /// Whether it makes ID-mapped mounts.
    pub(crate) id_mapped_mounts: bool,
}

/// Document of the features. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    mount_options: Vec<String>,
    linux: LinuxFeatures,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LinuxFeatures {
    mount_extensions: Option<MountExtensions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MountExtensions {
    idmap: Option<IdMap>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IdMap {
    enabled: Option<bool>,
}

/// Returns the features of an OCI runtime; none if it does not report them, as `runc` before 1.1.
pub(crate) async fn query(program: &Path, args: &[String]) -> Features {
    match tokio::time::timeout(DEADLINE, run(program, args)).await {
        Ok(Ok(features)) => features,
        Ok(Err(error)) => {
            tracing::info!(program = %program.display(), error, "the OCI runtime does not report its features");
            Features::default()
        }
        Err(_) => {
            tracing::warn!(program = %program.display(), "the OCI runtime did not report its features in time");
            Features::default()
        }
    }
}

async fn run(program: &Path, args: &[String]) -> Result<Features, String> {
    let mut command = Command::new(program);
    command.args(args).arg("features");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut document = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(MAX_DOCUMENT).read_to_end(&mut document).await;
        read.map_err(|error| error.to_string())?;
    }
    if document.len() as u64 == MAX_DOCUMENT {
        return Err(format!("the document exceeds {MAX_DOCUMENT} bytes"));
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(status.to_string());
    }
    parse(&document).map_err(|error| error.to_string())
}

fn parse(document: &[u8]) -> serde_json::Result<Features> {
    let document: Document = serde_json::from_slice(document)?;
    let idmap = document.linux.mount_extensions.and_then(|extensions| extensions.idmap);
    Ok(Features {
        recursive_read_only_mounts: document.mount_options.iter().any(|option| option == "rro"),
        id_mapped_mounts: idmap.and_then(|idmap| idmap.enabled) == Some(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const WITH_RRO: Features = Features { recursive_read_only_mounts: true, id_mapped_mounts: false };

    #[test]
    fn features_are_those_of_the_document() {
        let runc =
            br#"{"ociVersionMin": "1.0.0", "mountOptions": ["ro", "rro"], "linux": {"seccomp": {"enabled": true}}}"#;
        assert_eq!(parse(runc).unwrap(), WITH_RRO);
        assert_eq!(parse(br#"{"mountOptions": ["ro", "rrox"]}"#).unwrap(), Features::default());
        let idmap = br#"{"linux": {"mountExtensions": {"idmap": {"enabled": true}}}}"#;
        assert_eq!(parse(idmap).unwrap(), Features { recursive_read_only_mounts: false, id_mapped_mounts: true });
        for without in ["{}", r#"{"idmap": {"enabled": false}}"#, r#"{"idmap": {}}"#] {
            let document = format!(r#"{{"linux": {{"mountExtensions": {without}}}}}"#);
            assert_eq!(parse(document.as_bytes()).unwrap(), Features::default(), "{without}");
        }
        assert_eq!(parse(b"{}").unwrap(), Features::default());
        assert!(parse(b"[").is_err() && parse(br#"{"mountOptions": "rro"}"#).is_err());
    }

    /// Returns the features that a program with this script reports.
    async fn of_script(script: &str) -> Features {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("runtime");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        query(&program, &["--debug".to_owned()]).await
    }

    #[tokio::test]
    async fn runtime_that_reports_no_features_has_none() {
        let document = r#"{"mountOptions": ["rro"]}"#;
        assert_eq!(of_script(&format!("[ \"$*\" = '--debug features' ] && echo '{document}'")).await, WITH_RRO);
        for script in [
            &format!("echo '{document}'; exit 1"),
            "echo '{'",
            "",
            "kill -9 $$",
            &format!("echo '{document}'; cat /dev/zero"),
        ] {
            assert_eq!(of_script(script).await, Features::default(), "{script}");
        }
        assert_eq!(query(Path::new("/no-such-runtime"), &[]).await, Features::default());
    }
}
