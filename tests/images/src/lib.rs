//! Container images built locally, for tests and demos without a registry.
//!
//! Most are Debian's static busybox with a link for each of its applets, as a `docker save` archive.
#![forbid(unsafe_code)]

pub mod oci;
mod pause;

use data_encoding::HEXLOWER;
pub use oci::{OciImage, busybox_index, busybox_oci};
pub use pause::{PAUSE, pause};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

/// Image name that examples and tests use, as in the Kubernetes documentation.
pub const BUSYBOX: &str = "docker.io/library/busybox:1.28";

/// OCI architecture of this machine.
pub const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// An error of building an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Debian's package `busybox-static` is not installed.
    #[error("no static busybox found: install the package busybox-static")]
    NoBusybox,
    /// `busybox --list` failed.
    #[error("busybox --list failed: {0}")]
    ListApplets(#[source] io::Error),
    /// The archive could not be written.
    #[error("failed to write the image archive: {0}")]
    Write(#[from] io::Error),
}

/// Options of a busybox image.
#[derive(Debug, Clone, Default)]
pub struct ImageConfig {
    /// `USER`.
    pub user: Option<String>,
    /// `STOPSIGNAL`.
    pub stop_signal: Option<String>,
    /// `ENTRYPOINT`.
    pub entrypoint: Option<Vec<String>>,
    /// `CMD`. Default: `sh`.
    pub cmd: Option<Vec<String>>,
    /// OCI architecture. Default: that of this machine.
    pub architecture: Option<String>,
    /// Further or other settings, for example `{"Volumes": {"/v": {}}}`.
    pub settings: serde_json::Map<String, Value>,
    /// Further files.
    pub files: Vec<(String, ExtraFile)>,
}

/// A file of an image in addition to busybox. A file at the same path replaces busybox's.
#[derive(Debug, Clone)]
pub enum ExtraFile {
    /// Regular file with this content.
    Regular(String),
    /// Symbolic link to this path.
    Symlink(String),
    /// Named pipe.
    Fifo,
    /// Character device with these major and minor numbers.
    CharDevice(u32, u32),
}

/// Writes a busybox image under these names to `out`.
///
/// # Errors
/// When busybox is not installed, or the file cannot be written.
pub fn busybox(out: &Path, names: &[&str], config: &ImageConfig) -> Result<(), ImageError> {
    let (image, layer) = image(config)?;
    write_archive(out, names, &image, &layer)
}

/// Returns the image's configuration and its layer.
fn image(config: &ImageConfig) -> Result<(Value, Vec<u8>), ImageError> {
    let layer = busybox_layer(&config.files)?;
    let digest = HEXLOWER.encode(&Sha256::digest(&layer));
    let mut settings = json!({
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "Cmd": config.cmd.clone().unwrap_or_else(|| vec!["sh".to_owned()]),
        "WorkingDir": "/",
    });
    if let Some(user) = &config.user {
        settings["User"] = json!(user);
    }
    if let Some(signal) = &config.stop_signal {
        settings["StopSignal"] = json!(signal);
    }
    if let Some(entrypoint) = &config.entrypoint {
        settings["Entrypoint"] = json!(entrypoint);
    }
    for (name, value) in &config.settings {
        settings[name] = value.clone();
    }
    let image = json!({
        "architecture": config.architecture.as_deref().unwrap_or(ARCHITECTURE),
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        "history": [],
    });
    Ok((image, layer))
}

fn write_archive(out: &Path, names: &[&str], image: &Value, layer: &[u8]) -> Result<(), ImageError> {
    let image = image.to_string();
    let config_name = format!("{}.json", HEXLOWER.encode(&Sha256::digest(image.as_bytes())));
    let manifest = json!([{"Config": config_name, "RepoTags": names, "Layers": ["layer.tar"]}]).to_string();
    let mut archive = tar::Builder::new(io::BufWriter::new(std::fs::File::create(out)?));
    append(&mut archive, "layer.tar", layer, 0o644)?;
    append(&mut archive, &config_name, image.as_bytes(), 0o644)?;
    append(&mut archive, "manifest.json", manifest.as_bytes(), 0o644)?;
    io::Write::flush(&mut archive.into_inner()?)?;
    Ok(())
}

fn busybox_layer(files: &[(String, ExtraFile)]) -> Result<Vec<u8>, ImageError> {
    let binary = find_busybox().ok_or(ImageError::NoBusybox)?;
    let list = Command::new(&binary).arg("--list").output().map_err(ImageError::ListApplets)?;
    let mut layer = tar::Builder::new(Vec::new());
    for (dir, mode) in
        [("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("home", 0o755), ("tmp", 0o1777), ("var", 0o755)]
    {
        let mut header = header(tar::EntryType::Directory, 0, mode);
        layer.append_data(&mut header, format!("{dir}/"), io::empty())?;
    }
    append(&mut layer, "bin/busybox", &std::fs::read(&binary)?, 0o755)?;
    for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|a| *a != "busybox" && !a.is_empty()) {
        let mut header = header(tar::EntryType::Symlink, 0, 0o777);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    append(
        &mut layer,
        "etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
        0o644,
    )?;
    append(&mut layer, "etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)?;
    for (path, file) in files {
        append_extra(&mut layer, path, file)?;
    }
    Ok(layer.into_inner()?)
}

fn append_extra(layer: &mut tar::Builder<Vec<u8>>, path: &str, file: &ExtraFile) -> io::Result<()> {
    match file {
        ExtraFile::Regular(text) => append(layer, path, text.as_bytes(), 0o644),
        ExtraFile::Symlink(target) => layer.append_link(&mut header(tar::EntryType::Symlink, 0, 0o777), path, target),
        ExtraFile::Fifo => layer.append_data(&mut header(tar::EntryType::Fifo, 0, 0o644), path, io::empty()),
        ExtraFile::CharDevice(major, minor) => {
            let mut header = header(tar::EntryType::Char, 0, 0o666);
            header.set_device_major(*major)?;
            header.set_device_minor(*minor)?;
            layer.append_data(&mut header, path, io::empty())
        }
    }
}

fn find_busybox() -> Option<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(PathBuf::from).find(|p| p.exists())
}

fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    // A fixed time keeps digests reproducible.
    header.set_mtime(0);
    header
}

fn append<W: io::Write>(archive: &mut tar::Builder<W>, path: &str, data: &[u8], mode: u32) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, data.len() as u64, mode);
    archive.append_data(&mut header, path, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_has_layer_and_manifest() {
        if find_busybox().is_none() {
            println!("skipped: no busybox");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        busybox(&path, &[BUSYBOX], &ImageConfig::default()).unwrap();
        let mut archive = tar::Archive::new(std::fs::File::open(&path).unwrap());
        let names: Vec<String> =
            archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!((names[0].as_str(), names[2].as_str()), ("layer.tar", "manifest.json"));
    }
}
