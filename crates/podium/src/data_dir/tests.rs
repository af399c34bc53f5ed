use super::*;

#[tokio::test]
async fn lock_waits_briefly_for_an_exiting_process() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = DataDir::new(dir.path()).unwrap();
    let lock = data_dir.lock().unwrap();
    let (locked, ()) = tokio::join!(data_dir.lock_with_retry(), async {
        tokio::time::sleep(LOCK_RETRY_INTERVAL * 3).await;
        drop(lock);
    });
    let _held = locked.unwrap();
    data_dir.lock_with_retry().await.unwrap_err();
}

#[tokio::test]
async fn lock_without_a_process_id_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = DataDir::new(dir.path()).unwrap();
    let lock = data_dir.lock().unwrap();
    // A process that was killed between locking the file and writing its ID, or that exits meanwhile.
    fs::write(data_dir.lock_file(), "").unwrap();
    let (locked, ()) = tokio::join!(data_dir.lock_with_retry(), async {
        tokio::time::sleep(LOCK_RETRY_INTERVAL * 3).await;
        drop(lock);
    });
    locked.unwrap();
}

#[test]
fn lock_file_that_is_a_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    for is_symbolic in [true, false] {
        let root = dir.path().join("data");
        fs::create_dir(&root).unwrap();
        fs::write(&victim, "precious").unwrap();
        let lock = root.join("podium.lock");
        let linked =
            if is_symbolic { std::os::unix::fs::symlink(&victim, &lock) } else { fs::hard_link(&victim, &lock) };
        linked.unwrap();
        let data_dir = DataDir::new(&root).unwrap();
        data_dir.lock().unwrap_err();
        assert_eq!(data_dir.holder(), None);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn data_directory_of_another_user_is_refused_unchanged() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for foreign in ["data", "data/pki"] {
        let root = dir.path().join("data");
        fs::create_dir_all(root.join("pki")).unwrap();
        fs::write(root.join("pki/ca.crt"), "a foreign CA").unwrap();
        std::os::unix::fs::chown(dir.path().join(foreign), Some(65534), None).unwrap();
        let error = format!("{:#}", DataDir::new(&root).unwrap_err());
        assert!(error.contains(&format!("{foreign} (owner ")) && error.contains("must be root"), "{error}");
        assert!(!root.join("podium.lock").exists() && root.join("pki/ca.crt").exists());
        fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn data_directory_removal_does_not_follow_links() {
    let dir = tempfile::tempdir().unwrap();
    let (root, victim) = (dir.path().join("data"), dir.path().join("victim"));
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("f"), "precious").unwrap();
    let data_dir = DataDir::new(&root).unwrap();
    let lock = data_dir.lock().unwrap();
    std::os::unix::fs::symlink(&victim, data_dir.kubelet()).unwrap();
    assert!(data_dir.remove().unwrap());
    drop(lock);
    assert_eq!(fs::read_to_string(victim.join("f")).unwrap(), "precious");
}

#[test]
fn data_directory_path_is_resolved_through_links() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    for name in ["", "sub", "sub/more"] {
        let root = |above: &Path| DataDir::new(&above.join(name)).unwrap().root;
        assert_eq!(root(&link), root(&real), "{name}");
    }
}

#[test]
fn failed_start_removes_only_the_files_it_created() {
    let dir = tempfile::tempdir().unwrap();
    let check = |before: &[&str], since: &[&str], expected: Option<&[&str]>| {
        let root = dir.path().join("data");
        let _ = std::fs::remove_dir_all(&root);
        let write = |names: &[&str]| {
            for name in names {
                std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
                std::fs::write(root.join(name), "").unwrap();
            }
        };
        let data_dir = DataDir::new(&root).unwrap();
        write(before);
        let lock = data_dir.lock().unwrap();
        write(since);
        if data_dir.is_failed_first_start(&lock) {
            data_dir.remove_created(lock).unwrap();
        }
        let left = std::fs::read_dir(&root).ok().map(|entries| {
            let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        });
        let expected = expected.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(left, expected, "{before:?} {since:?}");
    };
    check(&[], &[], None);
    check(&[], &["runtime-endpoint", "pki/ca.crt", "network/conf"], None);
    check(&[], &["store/1", "pki/ca.crt"], Some(&["pki", "podium.lock", "store"]));
    check(&["podium.lock"], &[], Some(&["podium.lock"]));
    check(&["mine"], &[], Some(&["mine"]));
    // The directory may belong to another program.
    check(&["volumes/mine"], &[], Some(&["podium.lock", "volumes"]));
}

#[test]
fn locked_data_directory_error_names_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = DataDir::new(dir.path()).unwrap();
    let lock = data_dir.lock().unwrap();
    let error = data_dir.lock().unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    assert_eq!(data_dir.holder(), i32::try_from(std::process::id()).ok());
    drop(lock);
    assert_eq!(data_dir.holder(), None);
    data_dir.lock().unwrap();
}

#[test]
fn data_directory_of_an_older_podium_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("containerd")).unwrap();
    // A directory of something else.
    DataDir::new(dir.path()).unwrap();
    fs::write(dir.path().join("containerd/config.toml"), "").unwrap();
    let error = DataDir::new(dir.path()).unwrap_err().to_string();
    assert!(error.contains("podium down --data-dir") && error.contains("older Podium"), "{error}");
}
