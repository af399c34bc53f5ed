//! Tests of the whole store, and what they have in common: layers and archives made in memory.

mod blobs;
mod clusters;
mod collect;
mod import;
mod measure;
mod names;
mod overlay;
mod processes;

use crate::{Digest, ImageStore};
use serde_json::{Value, json};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tar::{Builder, EntryType, Header};

/// Returns whether the test can create devices and mounts.
pub(crate) fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("skipped: needs root");
    }
    is_root
}

/// Makes a layer. Names are written as they are.
pub(crate) struct Layer(Builder<Vec<u8>>);

/// Modification time of all entries.
pub(crate) const MTIME: u64 = 1_234_567_890;

impl Layer {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub(crate) fn add(mut self, kind: EntryType, path: &str, link: &str, mode: u32, data: &[u8]) -> Self {
        let mut header = header(kind, path.as_bytes(), link.as_bytes(), mode, data.len() as u64);
        header.set_cksum();
        self.0.append(&header, data).unwrap();
        self
    }

    pub(crate) fn file(self, path: &str, data: &[u8]) -> Self {
        self.add(EntryType::Regular, path, "", 0o644, data)
    }

    pub(crate) fn dir(self, path: &str, mode: u32) -> Self {
        self.add(EntryType::Directory, path, "", mode, b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, path, target, 0o777, b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.add(EntryType::Link, path, target, 0o644, b"")
    }

    pub(crate) fn owned(mut self, kind: EntryType, path: &str, mode: u32, (uid, gid): (u64, u64)) -> Self {
        let mut header = header(kind, path.as_bytes(), b"", mode, 0);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        header.set_cksum();
        self.0.append(&header, io::empty()).unwrap();
        self
    }

    pub(crate) fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        self.0.append_pax_extensions(records.iter().copied()).unwrap();
        self
    }

    pub(crate) fn build(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

fn header(kind: EntryType, path: &[u8], link: &[u8], mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[..path.len()].copy_from_slice(path);
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(MTIME);
    header
}

/// Returns a configuration for this machine with these layers.
pub(crate) fn config(layers: &[Vec<u8>], settings: &Value) -> Vec<u8> {
    let platform = distribution::Platform::default();
    let diff_ids: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    let config = json!({
        "architecture": platform.architecture, "os": "linux", "config": settings,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    config.to_string().into_bytes()
}

/// Returns an archive with these files.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    files.iter().fold(Layer::new(), |archive, (path, data)| archive.file(path, data)).build()
}

/// Returns an archive of `docker save`.
pub(crate) fn docker_archive(layers: &[Vec<u8>], names: &[&str]) -> Vec<u8> {
    let config = config(layers, &json!({"User": "1000:1000", "StopSignal": "SIGQUIT"}));
    let paths: Vec<String> = (0..layers.len()).map(|at| format!("{at}/layer.tar")).collect();
    let manifest = json!([{"Config": "config.json", "RepoTags": names, "Layers": paths}]).to_string();
    let mut files: Vec<(&str, &[u8])> = vec![("manifest.json", manifest.as_bytes()), ("config.json", &config)];
    files.extend(paths.iter().zip(layers).map(|(path, layer)| (path.as_str(), layer.as_slice())));
    tar(&files)
}

pub(crate) fn store() -> (tempfile::TempDir, ImageStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&dir.path().join("images")).unwrap();
    (dir, store)
}

/// Two layers: one with a directory and files, and one that hides a file.
pub(crate) fn two_layers() -> Vec<Vec<u8>> {
    let lower = Layer::new().dir("etc/", 0o755).file("etc/a", b"a").file("etc/b", b"b").build();
    vec![lower, Layer::new().file("etc/.wh.b", b"").file("etc/c", b"c").build()]
}

/// Imports an image, and returns its ID.
pub(crate) fn import(store: &ImageStore, layers: &[Vec<u8>], name: &str) -> Digest {
    store.import(docker_archive(layers, &[name]).as_slice(), |_| {}).unwrap();
    store.resolve(name).unwrap().id
}

/// Returns the names of a directory, sorted.
pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Checks that all that is visible in a store is complete.
pub(crate) fn check_store(store: &ImageStore) {
    for name in names_in(&store.root().join("blobs/sha256")) {
        let data = fs::read(store.root().join("blobs/sha256").join(&name)).unwrap();
        assert_eq!(Digest::of(&data).hex(), name);
    }
    for image in store.list().unwrap() {
        assert!(!image.tags.is_empty());
    }
    assert_eq!(store.list().unwrap().len(), names_in(&store.root().join("names")).len());
}

/// Deterministic pseudo-random numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end
    }

    pub(crate) fn choose<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Unmounts when it is dropped.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}
