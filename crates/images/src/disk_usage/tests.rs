use super::*;
use std::{
    os::unix::fs::{MetadataExt, symlink},
    process::Command,
};

#[test]
fn files_directories_and_hard_links_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("upper");
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/b/file"), vec![1; 100_000]).unwrap();
    std::fs::hard_link(root.join("a/b/file"), root.join("link")).unwrap();
    std::fs::write(dir.path().join("outside"), vec![1; 1_000_000]).unwrap();
    symlink(dir.path(), root.join("symlink")).unwrap();
    let counted = ["", "a", "a/b", "a/b/file", "symlink"];
    let blocks = |path: &str| std::fs::symlink_metadata(root.join(path)).unwrap().blocks();
    let allocated = || counted.map(blocks).iter().sum::<u64>() * 512;
    let before = allocated();
    let usage = disk_usage(&root, Duration::from_secs(60)).unwrap();
    // Directories upper, a and b; file; symlink.
    assert_eq!(usage.inodes, 5);
    // File systems may allocate more or later, but not a second time for the other name.
    let after = allocated();
    assert!((before.min(after)..=before.max(after)).contains(&usage.bytes), "{usage:?}, {before}, {after}");
}

#[test]
fn directories_deeper_than_a_path_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut current = fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..3000 {
        fs::mkdirat(&current, "deep", Mode::RWXU).unwrap();
        current = fs::openat(&current, "deep", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let usage = disk_usage(dir.path(), Duration::from_secs(60));
    // The standard library would need an open file for each directory.
    assert!(Command::new("rm").arg("-rf").arg(dir.path().join("deep")).status().unwrap().success());
    assert_eq!(usage.unwrap().inodes, 3001);
}

#[test]
fn count_ends_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = disk_usage(dir.path(), Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    disk_usage(&dir.path().join("missing"), Duration::from_secs(1)).unwrap_err();
}
