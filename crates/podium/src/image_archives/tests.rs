use super::*;
use std::io::Write;

/// Returns an archive with one image, which has no layers.
fn archive(name: &str) -> Vec<u8> {
    let platform = distribution::Platform::default();
    let config = serde_json::json!({"architecture": platform.architecture, "os": "linux",
        "config": {"Env": [format!("NAME={name}")]}, "rootfs": {"type": "layers", "diff_ids": []}});
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": [name], "Layers": []}]);
    let mut tar = Vec::new();
    for (path, data) in [("manifest.json", manifest.to_string()), ("config.json", config.to_string())] {
        let mut header = [0_u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        tar.write_all(&header).unwrap();
        tar.write_all(data.as_bytes()).unwrap();
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

#[test]
fn archives_are_imported_once_and_bad_ones_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = DataDir::create(dir.path(), "data").unwrap().unwrap();
    let store = ImageStore::open(&dir.path().join("store")).unwrap().of_cluster(data_dir.root()).unwrap();
    let import = || ImageArchives::new(&data_dir, store.clone()).import_all(&CancellationToken::new()).0;
    files::create_private_dir_all(&data_dir.root().join("engine")).unwrap();
    assert_eq!(import(), 0, "the directory need not exist");
    let images = data_dir.root().join("images");
    fs::create_dir(&images).unwrap();
    for (file, data) in [
        ("a.tar", archive("a:1")),
        ("b.tar", b"no archive".to_vec()),
        ("c.txt", archive("c:1")),
        (".d.tar", archive("d:1")),
    ] {
        fs::write(images.join(file), data).unwrap();
    }
    fs::create_dir(images.join("e.tar")).unwrap();
    nix::unistd::mkfifo(&images.join("f.tar"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    let names = || store.list().unwrap().into_iter().flat_map(|image| image.tags).collect::<Vec<_>>();
    assert_eq!((import(), names()), (1, vec!["docker.io/library/a:1".to_owned()]));
    assert_eq!(import(), 0, "unchanged");
    // A changed archive, and one whose image was removed.
    fs::write(images.join("a.tar"), archive("a:22")).unwrap();
    assert_eq!((import(), names().len()), (1, 2));
    store.remove("a:22").unwrap();
    assert_eq!((import(), names().len()), (1, 2));
    assert_eq!(import(), 0);
    // Another store.
    let other = ImageStore::open(&dir.path().join("other")).unwrap().of_cluster(data_dir.root()).unwrap();
    assert_eq!(ImageArchives::new(&data_dir, other).import_all(&CancellationToken::new()).0, 1);
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(ImageArchives::new(&data_dir, store.clone()).import_all(&stop).0, 0);
}

/// Returns a data directory with archives, and a cluster's view of an image store.
fn data_dir(archives: &[(&str, &[u8])]) -> (tempfile::TempDir, DataDir, ImageStore) {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = DataDir::create(dir.path(), "data").unwrap().unwrap();
    let store = ImageStore::open(&dir.path().join("store")).unwrap().of_cluster(data_dir.root()).unwrap();
    for name in ["engine", "images"] {
        files::create_private_dir_all(&data_dir.root().join(name)).unwrap();
    }
    for (name, data) in archives {
        fs::write(data_dir.root().join("images").join(name), data).unwrap();
    }
    (dir, data_dir, store)
}

#[test]
fn refused_archive_is_reported_again_and_not_read_again() {
    let content = archive("a:1");
    let bad = vec![b'x'; content.len()];
    let (_dir, data_dir, store) = data_dir(&[("a.tar", &bad), ("b.tar", &archive("b:1"))]);
    let import = || ImageArchives::new(&data_dir, store.clone()).import_all(&CancellationToken::new());
    let path = data_dir.root().join("images/a.tar");
    let write = |content: &[u8], seconds: u64| {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, content, 0).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    };
    write(&bad, 1);
    let (imported, failures) = import();
    assert_eq!((imported, failures.len(), &failures[0].archive), (1, 1, &path));
    assert!(failures[0].error.contains("the archive is corrupt"), "{failures:?}");
    // The content is another one, but the file has not changed: it is not read.
    write(&content, 1);
    assert_eq!(import(), (0, failures.clone()));
    // Another version of Podium reads it, and so does a start after a change.
    let record = data_dir.root().join(RECORD);
    let text = fs::read_to_string(&record).unwrap();
    let version = |version: &str| format!(r#""podium_version":"{version}""#);
    fs::write(&record, text.replace(&version(PODIUM_VERSION), &version("0"))).unwrap();
    assert_eq!(import(), (1, Vec::new()));
    write(&bad, 2);
    assert_eq!(import(), (0, failures));
    write(&content, 3);
    assert_eq!(import(), (1, Vec::new()));
    assert_eq!(import(), (0, Vec::new()));
}

#[test]
fn failure_of_the_machine_is_not_recorded() {
    let (_dir, data_dir, store) = data_dir(&[("a.tar", &archive("a:1")), ("b.tar", &archive("b:1"))]);
    let import = || ImageArchives::new(&data_dir, store.clone()).import_all(&CancellationToken::new());
    // The store cannot be written.
    let ingest = store.root().join("ingest");
    fs::remove_dir(&ingest).unwrap();
    assert_eq!(import().1.len(), 2);
    fs::create_dir(&ingest).unwrap();
    assert_eq!(import(), (2, Vec::new()));
}

#[tokio::test]
async fn stop_does_not_wait_for_the_import() {
    let (_dir, data_dir, store) = data_dir(&[("a.tar", &archive("a:1"))]);
    let archives = ImageArchives::new(&data_dir, store.clone());
    let mut ended = archives.ended();
    // Another process changes the names of images, and the import waits for it.
    let names = files::open_private(
        &store.root().join("names.lock"),
        fs::OpenOptions::new().read(true).write(true).create(true),
    );
    let names = names.unwrap();
    names.lock().unwrap();
    let stop = CancellationToken::new();
    let importing = tokio::spawn(stop.clone().run_until_cancelled_owned(archives.import(stop.clone())));
    let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&names.metadata().unwrap()));
    let is_waiting = |lock: &str| lock.contains("-> FLOCK") && lock.contains(&inode);
    let begun = async {
        while !fs::read_to_string("/proc/locks").unwrap().lines().any(is_waiting) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), begun).await.unwrap();
    stop.cancel();
    assert_eq!(importing.await.unwrap(), None);
    assert!(!*ended.borrow());
    names.unlock().unwrap();
    assert!(ended.wait_for(|ended| *ended).await.is_ok_and(|ended| *ended));
}
