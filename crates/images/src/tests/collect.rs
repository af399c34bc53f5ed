//! Uses and collection.

use super::{import, names_in, store, two_layers};
use crate::{BlobStore, Collected, Digest, Error};
use std::{fs, path::Path, time::Duration};

/// Files of the store that collection removes when nothing refers to them.
fn content(root: &Path) -> Vec<String> {
    ["blobs/sha256", "layers", "ingest", "trash"].iter().flat_map(|dir| names_in(&root.join(dir))).collect()
}

#[test]
fn use_keeps_the_layers_of_a_removed_image() {
    let (dir, store) = store();
    let id = import(&store, &two_layers(), "a");
    let owner = dir.path().join("cluster");
    fs::create_dir(&owner).unwrap();
    let lower = store.acquire(&owner, "c1", &id).unwrap();
    assert_eq!(lower.len(), 2);
    assert_eq!(store.acquire(&owner, "c1", &id).unwrap(), lower);
    assert_eq!(store.uses(&owner).unwrap(), [("c1".to_owned(), id)]);
    store.remove("a").unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.layers, collected.uses), (0, 0));
    assert_eq!(fs::read(lower[0].join("etc/c")).unwrap(), b"c");
    assert!(store.config(&id).is_ok());
    // Another container of the same image, which has no name any more.
    store.acquire(&owner, "c2", &id).unwrap();
    for user in ["c1", "c2", "c2"] {
        store.release(&owner, user).unwrap();
    }
    assert_eq!(store.collect(Duration::ZERO).unwrap().layers, 2);
    assert_eq!(content(store.root()), [""; 0]);
    assert!(matches!(store.acquire(&owner, "c3", &id), Err(Error::NotFound(_))));
}

#[test]
fn uses_end_with_the_directory_of_their_owner() {
    let (dir, store) = store();
    let id = import(&store, &two_layers(), "a");
    for owner in ["one", "two"] {
        fs::create_dir(dir.path().join(owner)).unwrap();
        store.acquire(&dir.path().join(owner), "c", &id).unwrap();
    }
    store.remove("a").unwrap();
    fs::remove_dir(dir.path().join("one")).unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.uses, collected.layers), (1, 0));
    fs::remove_dir(dir.path().join("two")).unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.uses, collected.layers), (1, 2));
    // As after a power failure.
    let torn = store.root().join("uses/torn");
    fs::create_dir(&torn).unwrap();
    fs::write(torn.join("c"), "").unwrap();
    store.collect(Duration::ZERO).unwrap();
    assert_eq!(names_in(&store.root().join("uses")), [""; 0]);
}

#[test]
fn collection_keeps_what_names_refer_to() {
    let (_dir, store) = store();
    import(&store, &two_layers(), "a");
    let before = content(store.root());
    let removed = store.collect(Duration::ZERO).unwrap();
    let after = content(store.root());
    assert_eq!(removed.layers, 0);
    assert!(after.iter().all(|name| before.contains(name)));
    let image = store.image("a").unwrap();
    assert!(store.acquire(Path::new("/"), "c", &image.id).is_ok());
    let mut archive = Vec::new();
    store.save(&["a"], &mut archive).unwrap();
    // A layer of two images stays with the second one.
    import(&store, &two_layers()[..1], "b");
    store.release(Path::new("/"), "c").unwrap();
    store.remove("a").unwrap();
    assert_eq!(store.collect(Duration::ZERO).unwrap().layers, 1);
    assert_eq!(names_in(&store.root().join("layers")).len(), 1);
}

#[test]
fn collection_waits_for_leases_and_then_gives_up() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let digest = lease.put(b"data").unwrap();
    assert!(matches!(store.collect(Duration::from_millis(30)), Err(Error::Busy)));
    let writer = lease.open(&Digest::of(b"other")).unwrap().unwrap();
    drop(lease);
    // A partial blob has the lease, too.
    assert!(matches!(store.collect(Duration::ZERO), Err(Error::Busy)));
    drop(writer);
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!(collected, Collected { blobs: 1, blob_bytes: 4, ..Collected::default() });
    assert!(!store.blob_path(&digest).exists());
}

#[test]
fn leftovers_of_dead_processes_are_collected() {
    let (_dir, store) = store();
    let ingest = store.root().join("ingest");
    fs::create_dir_all(ingest.join("layer-x/fs/a/b")).unwrap();
    fs::create_dir_all(store.root().join("trash/x/y")).unwrap();
    fs::create_dir_all(store.root().join("layers/stray")).unwrap();
    for name in ["layer-x.lock", "tmp-0123", "blob-old", "blob-new"] {
        fs::write(ingest.join(name), "x").unwrap();
    }
    let old = std::time::SystemTime::now() - Duration::from_secs(7200);
    fs::File::options().write(true).open(ingest.join("blob-old")).unwrap().set_modified(old).unwrap();
    store.collect(Duration::ZERO).unwrap();
    assert_eq!(content(store.root()), ["blob-new"]);
}

#[test]
fn missing_layer_is_unpacked_when_it_is_needed() {
    let (_dir, store) = store();
    let id = import(&store, &two_layers(), "a");
    fs::remove_dir_all(store.root().join("layers")).unwrap();
    fs::create_dir(store.root().join("layers")).unwrap();
    let lower = store.acquire(Path::new("/"), "c", &id).unwrap();
    assert_eq!(fs::read(lower[1].join("etc/b")).unwrap(), b"b");
}

#[test]
fn image_without_layers_has_an_empty_lower_directory() {
    let (_dir, store) = store();
    let id = import(&store, &[], "a");
    assert_eq!(store.acquire(Path::new("/"), "c", &id).unwrap(), [store.root().join("empty")]);
}

#[test]
fn names_of_users_stay_in_their_directory() {
    let (_dir, store) = store();
    let id = import(&store, &[], "a");
    let long = "x".repeat(256);
    for user in ["", ".", "..", "../x", "a/b", "a\0b", ".x", "ä", &long] {
        let error = store.acquire(Path::new("/"), user, &id).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        store.release(Path::new("/"), user).unwrap_err();
    }
    store.acquire(Path::new("relative"), "a", &id).unwrap_err();
}
