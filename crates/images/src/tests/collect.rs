//! Uses and collection.

use super::{Layer, docker_archive, import, names_in, store, two_layers};
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
    let acquired = store.acquire(&owner, "c1", &id.to_string()).unwrap();
    let lower = &acquired.lower_dirs;
    assert_eq!(
        (acquired.id, acquired.tags.as_slice(), lower.len()),
        (id, &["docker.io/library/a:latest".to_owned()][..], 2)
    );
    assert_eq!(Digest::of(&acquired.config), id);
    assert_eq!(store.acquire(&owner, "c1", "a").unwrap(), acquired);
    assert_eq!(store.uses(&owner).unwrap(), [("c1".to_owned(), Some(id))]);
    // The name moves.
    store.import(docker_archive(&[], &["a"]).as_slice(), |_| {}).unwrap();
    store.remove("a").unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.layers, collected.uses), (0, 0));
    assert_eq!(fs::read(lower[0].join("etc/c")).unwrap(), b"c");
    assert!(store.config(&id).is_ok());
    // The image does not exist any more.
    assert!(matches!(store.acquire(&owner, "c2", &id.to_string()), Err(Error::NotFound(_))));
    for user in ["c1", "c1"] {
        store.release(&owner, user).unwrap();
    }
    assert_eq!(store.collect(Duration::ZERO).unwrap().layers, 2);
    assert_eq!(content(store.root()), [""; 0]);
}

#[test]
fn uses_end_with_the_directory_of_their_owner() {
    let (dir, store) = store();
    let id = import(&store, &two_layers(), "a");
    for owner in ["one", "two"] {
        fs::create_dir(dir.path().join(owner)).unwrap();
        store.acquire(&dir.path().join(owner), "c", &id.to_string()).unwrap();
    }
    // The name has moved.
    store.import(docker_archive(&[], &["a"]).as_slice(), |_| {}).unwrap();
    fs::remove_dir(dir.path().join("one")).unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.uses, collected.layers), (1, 0));
    fs::remove_dir(dir.path().join("two")).unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.uses, collected.layers), (1, 2));
    assert_eq!(names_in(&store.root().join("uses")), [""; 0]);
}

#[test]
fn use_that_is_not_understood_counts_as_in_use() {
    for text in ["", "\0\0\0", r#"{"version": 2, "image": 1}"#] {
        let (dir, store) = store();
        let id = import(&store, &two_layers(), "a");
        let owner = dir.path().join("cluster");
        fs::create_dir(&owner).unwrap();
        store.acquire(&owner, "c", &id.to_string()).unwrap();
        let uses = store.root().join("uses");
        let file = uses.join(&names_in(&uses)[0]).join("c");
        fs::write(&file, text).unwrap();
        fs::write(store.root().join("blobs/sha256").join(Digest::of(b"").hex()), vec![0; 5 << 20]).unwrap();
        store.remove("a").unwrap();
        let collected = store.collect(Duration::ZERO).unwrap();
        // Compressed layers are not what a container needs.
        assert_eq!((collected.layers, collected.uses, collected.blobs, collected.problems.len()), (0, 0, 1, 1));
        assert!(collected.problems[0].contains(file.to_str().unwrap()), "{collected:?}");
        assert!(store.config(&id).is_ok());
        // Its owner knows whether the container exists.
        assert_eq!(store.uses(&owner).unwrap(), [("c".to_owned(), None)]);
        fs::remove_dir(&owner).unwrap();
        let collected = store.collect(Duration::ZERO).unwrap();
        assert_eq!((collected.layers, collected.uses, collected.problems), (2, 1, vec![]));
        assert_eq!(content(store.root()), [""; 0]);
    }
}

#[test]
fn damaged_image_does_not_stop_collection() {
    let (_dir, store) = store();
    let id = import(&store, &two_layers(), "a");
    let named = store.resolve("a").unwrap();
    let other = import(&store, &[super::Layer::new().file("other", b"x").build()], "b");
    import(&store, &[super::Layer::new().file("removed", b"x").build()], "c");
    store.remove("c").unwrap();
    let blobs = store.root().join("blobs/sha256");
    fs::write(blobs.join(named.manifest.hex()), "{}").unwrap();
    fs::write(blobs.join(id.hex()), "{}").unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.layers, collected.problems.len()), (1, 1));
    let problem = &collected.problems[0];
    assert!(
        problem.contains(&named.manifest.to_string()) && problem.contains("docker.io/library/a:latest"),
        "{problem}"
    );
    // The other image, and all that the damaged one refers to, is there.
    assert!(store.image(&other.to_string()).is_ok());
    assert_eq!(names_in(&store.root().join("layers")).len(), 3);
    for layer in two_layers() {
        assert!(blobs.join(Digest::of(&layer).hex()).exists());
    }
    // Importing it again repairs it.
    assert_eq!(import(&store, &two_layers(), "a"), id);
    assert!(store.image("a").is_ok());
    assert_eq!(store.collect(Duration::ZERO).unwrap().problems, [""; 0]);
}

#[test]
fn damaged_image_of_an_earlier_version_keeps_its_layers() {
    let (_dir, store) = store();
    import(&store, &two_layers(), "a");
    let named = store.resolve("a").unwrap();
    let path = store.root().join("names").join(&names_in(&store.root().join("names"))[0]);
    let mut old: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for field in ["blobs", "layers"] {
        old.as_object_mut().unwrap().remove(field).unwrap();
    }
    fs::write(&path, old.to_string()).unwrap();
    assert_eq!(store.collect(Duration::ZERO).unwrap().layers, 0);
    fs::remove_file(store.root().join("blobs/sha256").join(named.manifest.hex())).unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.layers, collected.problems.len()), (0, 1));
}

#[test]
fn name_that_is_not_understood_keeps_everything() {
    let (_dir, store) = store();
    import(&store, &two_layers(), "a");
    let path = store.root().join("names").join(&names_in(&store.root().join("names"))[0]);
    let before = content(store.root());
    fs::write(&path, r#"{"version": 2, "name": ["docker.io/library/a:latest"]}"#).unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.blobs, collected.layers, collected.problems.len()), (0, 0, 1));
    assert!(before.iter().filter(|name| !name.contains('-')).all(|name| content(store.root()).contains(name)));
    // One that is damaged names nothing for anyone.
    fs::write(&path, r#"{"name": "docker.io/libr"#).unwrap();
    let collected = store.collect(Duration::ZERO).unwrap();
    assert_eq!((collected.layers, collected.problems.len()), (2, 1));
    assert!(collected.problems[0].contains("the image has lost this name"), "{collected:?}");
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
    assert!(store.acquire(Path::new("/"), "c", &image.id.to_string()).is_ok());
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
    let lower = store.acquire(Path::new("/"), "c", &id.to_string()).unwrap().lower_dirs;
    assert_eq!(fs::read(lower[1].join("etc/b")).unwrap(), b"b");
}

#[test]
fn image_without_layers_has_an_empty_lower_directory() {
    let (_dir, store) = store();
    let id = import(&store, &[], "a");
    assert_eq!(store.acquire(Path::new("/"), "c", &id.to_string()).unwrap().lower_dirs, [store.root().join("empty")]);
}

#[test]
fn names_of_users_stay_in_their_directory() {
    let (_dir, store) = store();
    let id = import(&store, &[], "a");
    let long = "x".repeat(256);
    for user in ["", ".", "..", "../x", "a/b", "a\0b", ".x", "ä", &long] {
        let error = store.acquire(Path::new("/"), user, &id.to_string()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        store.release(Path::new("/"), user).unwrap_err();
    }
    store.acquire(Path::new("relative"), "a", &id.to_string()).unwrap_err();
}

#[test]
fn damaged_layer_is_not_unpacked_and_makes_the_image_absent() {
    let (_dir, store) = store();
    let layers = [Layer::new().file("large", &vec![1; 5 << 20]).build()];
    let archive = docker_archive(&layers, &["a"]);
    store.import(archive.as_slice(), |_| {}).unwrap();
    let layer = Digest::of(&layers[0]);
    let mut damaged = layers[0].clone();
    damaged[1 << 20] ^= 1;
    let damage = || {
        fs::write(store.blob_path(&layer), &damaged).unwrap();
        fs::remove_dir_all(store.root().join("layers")).unwrap();
        fs::create_dir(store.root().join("layers")).unwrap();
    };
    damage();
    assert!(store.image("a").is_ok(), "nobody has read the layer yet");
    let error = store.save(&["a"], &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), format!("invalid image {layer}: the stored file is damaged"));
    let error = store.acquire(Path::new("/"), "c", "a").unwrap_err();
    assert!(matches!(error, Error::Unpack { .. }), "{error}");
    // The kubelet pulls it again.
    assert!(matches!(store.image("a"), Err(Error::MissingBlob(missing)) if missing == layer));
    assert_eq!(store.list().unwrap(), []);
    for _ in 0..2 {
        store.import(archive.as_slice(), |_| {}).unwrap();
        assert!(store.acquire(Path::new("/"), "c", "a").is_ok());
        damage();
    }
}
