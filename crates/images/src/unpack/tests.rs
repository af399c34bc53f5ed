//! Needs root: owners, devices and whiteouts.

mod attacks;
mod parents;

use super::*;
use crate::tests::{Layer, MTIME, is_root, names_in};
use std::{
    fs::{self as std_fs, Metadata},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};
use tar::EntryType;

const LIMITS: Limits = Limits { bytes: 64 << 20, entries: 10_000 };

/// Layers in a temporary directory.
struct Layers {
    dir: tempfile::TempDir,
    count: usize,
}

impl Layers {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), count: 0 }
    }

    fn path(&self, layer: usize) -> PathBuf {
        self.dir.path().join(layer.to_string())
    }

    /// Unpacks a layer above the previous ones.
    fn add(&mut self, archive: &[u8]) -> io::Result<PathBuf> {
        self.add_limited(archive, &LIMITS)
    }

    fn add_limited(&mut self, archive: &[u8], limits: &Limits) -> io::Result<PathBuf> {
        let path = self.path(self.count);
        std_fs::create_dir(&path)?;
        let parents = (0..self.count).rev().map(|layer| Tree::open(&self.path(layer))).collect::<io::Result<_>>()?;
        let digest = unpack(archive, Tree::open(&path)?, parents, limits)?;
        assert_eq!(digest, Digest::of(archive));
        self.count += 1;
        Ok(path)
    }
}

fn metadata(path: &Path) -> Metadata {
    std_fs::symlink_metadata(path).unwrap()
}

fn has_whiteout(path: &Path) -> bool {
    let metadata = metadata(path);
    metadata.file_type().is_char_device() && metadata.rdev() == 0
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

fn is_opaque_at(path: &Path) -> bool {
    xattr(path, "trusted.overlay.opaque").as_deref() == Some(b"y")
}

#[test]
fn entries_keep_their_attributes() {
    if !is_root() {
        return;
    }
    // cap_net_raw=ep
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let archive = Layer::new()
        .dir("./", 0o711)
        .dir("tmp/", 0o1777)
        .pax(&[("SCHILY.xattr.security.capability", &capability), ("SCHILY.xattr.user.a", b"value")])
        .owned(EntryType::Regular, "tmp/ping", 0o755, (5, 6))
        .owned(EntryType::Regular, "tmp/su", 0o6755, (7, 8))
        .pax(&[
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.security.selinux", b"label"),
        ])
        .dir("tmp/plain", 0o750)
        .owned(EntryType::Char, "null", 0o666, (0, 0))
        .owned(EntryType::Block, "disk", 0o660, (0, 6))
        .owned(EntryType::Fifo, "fifo", 0o622, (1, 1))
        .symlink("link", "/etc/passwd")
        .hard_link("tmp/hard", "tmp/su")
        .file("./tmp/../file", b"data")
        .build();
    let root = Layers::new_kept(&archive);
    let at = |path: &str| metadata(&root.1.join(path));
    let mode = |path: &str| at(path).mode() & 0o7777;
    assert_eq!((at("").mode() & 0o7777, mode("tmp"), mode("tmp/plain")), (0o711, 0o1777, 0o750));
    assert_eq!((mode("tmp/ping"), at("tmp/ping").uid(), at("tmp/ping").gid()), (0o755, 5, 6));
    assert_eq!((mode("tmp/su"), at("tmp/su").uid(), at("tmp/su").nlink()), (0o6755, 7, 2));
    assert_eq!(at("tmp/su").ino(), at("tmp/hard").ino());
    assert_eq!(xattr(&root.1.join("tmp/ping"), "security.capability").as_deref(), Some(&capability[..]));
    assert_eq!(xattr(&root.1.join("tmp/ping"), "user.a").as_deref(), Some(&b"value"[..]));
    for name in ["trusted.overlay.redirect", "trusted.overlay.opaque", "user.overlay.opaque", "security.selinux"] {
        assert_eq!(xattr(&root.1.join("tmp/plain"), name), None, "{name}");
    }
    assert!(at("null").file_type().is_char_device() && at("disk").file_type().is_block_device());
    assert_eq!((at("null").rdev(), mode("null"), mode("disk"), at("disk").gid()), (0x103, 0o666, 0o660, 6));
    assert!(at("fifo").file_type().is_fifo());
    assert_eq!((mode("fifo"), at("fifo").uid()), (0o622, 1));
    assert_eq!(std_fs::read_link(root.1.join("link")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(std_fs::read(root.1.join("file")).unwrap(), b"data");
    for path in ["", "tmp", "tmp/plain", "tmp/su", "null", "link", "file", "fifo"] {
        assert_eq!(at(path).mtime(), MTIME.cast_signed(), "{path}");
    }
}

impl Layers {
    /// Unpacks one layer, and returns it with the directory that contains it.
    fn new_kept(archive: &[u8]) -> (Self, PathBuf) {
        let mut layers = Self::new();
        let path = layers.add(archive).unwrap();
        (layers, path)
    }
}

#[test]
fn whiteouts_become_devices_and_opaque_directories() {
    if !is_root() {
        return;
    }
    let archive = Layer::new()
        .file("a/.wh.gone", b"")
        .dir("b", 0o755)
        .file("b/.wh..wh..opq", b"")
        .file("b/new", b"")
        .file(".wh..wh.plnk", b"")
        .dir(".wh..wh.aufs/", 0o700)
        .file(".wh..wh.aufs/x", b"")
        // Whiteouts hide lower layers only.
        .file("c/own", b"")
        .file(".wh.c", b"")
        .file("file", b"own")
        .file(".wh.file", b"")
        // A whiteout and then a new directory.
        .file(".wh.d", b"")
        .file("d/new", b"")
        .file(".wh.e", b"")
        .file("e", b"file")
        .build();
    let (_layers, root) = Layers::new_kept(&archive);
    assert!(has_whiteout(&root.join("a/gone")));
    assert!(is_opaque_at(&root.join("b")) && is_opaque_at(&root.join("c")) && is_opaque_at(&root.join("d")));
    assert!(!is_opaque_at(&root.join("a")) && !is_opaque_at(&root));
    assert_eq!(names_in(&root), ["a", "b", "c", "d", "e", "file"]);
    assert_eq!(std_fs::read(root.join("file")).unwrap(), b"own");
    assert_eq!(std_fs::read(root.join("e")).unwrap(), b"file");
}

#[test]
fn later_entries_replace_earlier_ones() {
    if !is_root() {
        return;
    }
    let archive = Layer::new()
        .file("a", b"first")
        .hard_link("b", "a")
        .file("a", b"second")
        .dir("c/d/e", 0o755)
        .file("c/d/e/f", b"")
        .file("c", b"file")
        .symlink("d", "a")
        .dir("d", 0o700)
        .file("d/x", b"")
        .dir("d", 0o711)
        .build();
    let (_layers, root) = Layers::new_kept(&archive);
    let read = |path: &str| std_fs::read(root.join(path)).unwrap();
    assert_eq!((read("a"), read("b"), read("c")), (b"second".to_vec(), b"first".to_vec(), b"file".to_vec()));
    assert_eq!(metadata(&root.join("d")).mode() & 0o7777, 0o711);
    assert_eq!(names_in(&root.join("d")), ["x"]);
}

#[test]
fn own_links_in_paths_are_resolved_beneath_the_root() {
    if !is_root() {
        return;
    }
    let archive = Layer::new()
        .dir("usr/lib", 0o755)
        .symlink("lib", "/usr/lib")
        .file("lib/a", b"")
        .symlink("usr/back", "../lib/./")
        .file("usr/back/sub/b", b"")
        .symlink("dangling", "new/dir")
        .file("dangling/c", b"")
        .hard_link("hard", "lib/a")
        .build();
    let (_layers, root) = Layers::new_kept(&archive);
    assert_eq!(names_in(&root.join("usr/lib")), ["a", "sub"]);
    assert_eq!(names_in(&root.join("usr/lib/sub")), ["b"]);
    assert_eq!(names_in(&root.join("new/dir")), ["c"]);
    assert_eq!(metadata(&root.join("hard")).nlink(), 2);
}

#[test]
fn holes_use_no_space() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = std_fs::File::create(dir.path().join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 30 << 20).unwrap();
    let mut zeros = vec![0; 10 << 20];
    zeros[5 << 20] = 1;
    let output = Command::new("tar").args(["-cSf-", "sparse"]).current_dir(dir.path()).output().unwrap();
    let mut layers = Layers::new();
    let sparse = layers.add(&output.stdout).unwrap().join("sparse");
    let data = std_fs::read(&sparse).unwrap();
    assert_eq!((data.len(), &data[30 << 20..]), ((30 << 20) + 3, &b"end"[..]));
    assert!(metadata(&sparse).blocks() * 512 < 1 << 20);
    let dense = layers.add(&Layer::new().file("zeros", &zeros).build()).unwrap().join("zeros");
    assert!(std_fs::read(&dense).unwrap() == zeros);
    assert!(metadata(&dense).blocks() * 512 < 1 << 20);
}

#[test]
fn limits_end_an_endless_layer() {
    if !is_root() {
        return;
    }
    let zeros = vec![0; 2 << 20];
    let limits = Limits { bytes: 1 << 20, entries: 10 };
    let bomb = |archive: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        io::Write::write_all(&mut encoder, archive).unwrap();
        encoder.finish().unwrap()
    };
    let large = bomb(&Layer::new().file("a", &zeros).build());
    // What follows the end of the archive counts, too.
    let trailing = bomb(&[Layer::new().file("a", b"").build(), zeros].concat());
    for archive in [large, trailing] {
        assert!(archive.len() < 10_000);
        let error = Layers::new().add_limited(&archive, &limits).unwrap_err().to_string();
        assert!(error.contains("more than 1048576 uncompressed bytes"), "{error}");
    }
    let many = (0..11).fold(Layer::new(), |layer, n| layer.file(&n.to_string(), b"")).build();
    let implied = Layer::new().file("1/2/3/4/5/6/7/8/9/10/11", b"").build();
    for archive in [many, implied] {
        let error = Layers::new().add_limited(&archive, &limits).unwrap_err().to_string();
        assert!(error.contains("too many files"), "{error}");
    }
    let huge = Layer::new().pax(&[("GNU.sparse.size", b"9223372036854775807"), ("GNU.sparse.map", b"0,1")]);
    let error = Layers::new().add(&huge.file("a", b"x").build()).unwrap_err().to_string();
    assert!(error.contains("the file has more than"), "{error}");
}
