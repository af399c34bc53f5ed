//! Mounted root file systems. Need root.

use super::{Layer, Mounted, import, is_root, store, two_layers};
use crate::{create_upper, mount_overlay};
use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
};

/// Mounts lower directories with a new upper one.
fn mount(base: &Path, lower: &[PathBuf]) -> Mounted {
    let [upper, work, target] = ["upper", "work", "target"].map(|name| base.join(name));
    for dir in [&work, &target] {
        files::create_private_dir_all(dir).unwrap();
    }
    create_upper(lower, &upper).unwrap();
    mount_overlay(lower, &upper, &work, &target, &["volatile"]).unwrap();
    Mounted(target)
}

#[test]
fn container_sees_the_merged_layers() {
    if !is_root() {
        return;
    }
    let (dir, store) = store();
    let mut layers = two_layers();
    layers.push(Layer::new().dir("etc", 0o700).file("etc/.wh..wh..opq", b"").file("etc/d", b"d").build());
    let id = import(&store, &layers, "a");
    let lower = store.acquire(Path::new("/"), "c", &id.to_string()).unwrap().lower_dirs;
    let base = dir.path().join("odd, name:with \\ characters");
    let mounted = mount(&base, &lower[1..]);
    assert_eq!(super::names_in(&mounted.0.join("etc")), ["a", "c"]);
    fs::write(mounted.0.join("etc/a"), "new").unwrap();
    assert_eq!(fs::read(base.join("upper/etc/a")).unwrap(), b"new");
    assert_eq!(fs::read(lower[2].join("etc/a")).unwrap(), b"a");
    drop(mounted);
    let mounted = mount(&dir.path().join("opaque"), &lower);
    assert_eq!(super::names_in(&mounted.0.join("etc")), ["d"]);
}

#[test]
fn any_user_may_pass_the_root_directory() {
    if !is_root() {
        return;
    }
    let (dir, store) = store();
    let id = import(&store, &two_layers(), "a");
    let lower = store.acquire(Path::new("/"), "c", &id.to_string()).unwrap().lower_dirs;
    chown(&lower[0], Some(1), Some(2)).unwrap();
    let mounted = mount(dir.path(), &lower);
    let root = fs::metadata(&mounted.0).unwrap();
    assert_eq!((root.mode() & 0o7777, root.uid(), root.gid()), (0o755, 1, 2));
}

#[test]
fn opaque_root_hides_all_layers_below() {
    if !is_root() {
        return;
    }
    let (dir, store) = store();
    let mut layers = two_layers();
    layers.push(Layer::new().file(".wh..wh..opq", b"").file("only", b"").build());
    let id = import(&store, &layers, "a");
    let lower = store.acquire(Path::new("/"), "c", &id.to_string()).unwrap().lower_dirs;
    assert_eq!(lower.len(), 1);
    let mounted = mount(dir.path(), &lower);
    assert_eq!(super::names_in(&mounted.0), ["only"]);
}

#[test]
fn image_with_127_layers_is_mounted() {
    if !is_root() {
        return;
    }
    let (dir, store) = store();
    let layers: Vec<Vec<u8>> = (0..127)
        .map(|n| Layer::new().file(&format!("file-{n}"), b"").file("top", n.to_string().as_bytes()).build())
        .collect();
    let id = import(&store, &layers, "a");
    let lower = store.acquire(Path::new("/"), "c", &id.to_string()).unwrap().lower_dirs;
    assert_eq!(lower.len(), 127);
    let mounted = mount(&dir.path().join("x".repeat(200)), &lower);
    assert_eq!(fs::read(mounted.0.join("top")).unwrap(), b"126");
    assert_eq!(super::names_in(&mounted.0).len(), 128);
    drop(mounted);
    let target = dir.path().join("volume");
    fs::create_dir(&target).unwrap();
    store.mount_read_only(&lower, &target).unwrap();
    let mounted = Mounted(target);
    assert_eq!(super::names_in(&mounted.0).len(), 128);
}

#[test]
fn image_volumes_are_read_only() {
    if !is_root() {
        return;
    }
    for layers in [1, 2] {
        let (dir, store) = store();
        let id = import(&store, &two_layers()[..layers], "a");
        let lower = store.acquire(Path::new("/"), "c", &id.to_string()).unwrap().lower_dirs;
        let target = dir.path().join("volume");
        fs::create_dir(&target).unwrap();
        store.mount_read_only(&lower, &target).unwrap();
        let mounted = Mounted(target);
        assert_eq!(fs::read(mounted.0.join("etc/a")).unwrap(), b"a");
        let error = fs::write(mounted.0.join("etc/new"), "").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn options_that_exceed_a_page_are_refused() {
    let (dir, _store) = store();
    let lower = vec![dir.path().to_path_buf(); 250];
    let error = mount_overlay(&lower, dir.path(), dir.path(), dir.path(), &[]).unwrap_err();
    assert!(error.to_string().contains("exceed 4095 bytes"), "{error}");
    mount_overlay(&[], dir.path(), dir.path(), dir.path(), &[]).unwrap_err();
    let error = mount_overlay(&[dir.path().join("missing")], dir.path(), dir.path(), dir.path(), &[]).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}
