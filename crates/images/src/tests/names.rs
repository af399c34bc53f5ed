//! Names, lists and removal.

use super::{config, docker_archive, import, store, two_layers};
use crate::{BlobStore, Digest, Error, ImageStore, Lease};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::Barrier,
};

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

fn put(lease: &Lease, data: &[u8]) -> Digest {
    let mut blob = lease.open(&Digest::of(data)).unwrap().unwrap();
    blob.write(data).unwrap();
    blob.commit().unwrap();
    Digest::of(data)
}

/// Stores an image as a puller does. Returns the digest of its manifest.
fn pull(lease: &Lease, layers: &[Vec<u8>], settings: &Value) -> Digest {
    let config = config(layers, settings);
    let descriptor = |media_type: &str, data: &[u8]| json!({"mediaType": media_type, "digest": put(lease, data).to_string(), "size": data.len()});
    let layers: Vec<Value> =
        layers.iter().map(|layer| descriptor("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)).collect();
    let manifest = json!({"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "layers": layers,
        "config": descriptor("application/vnd.docker.container.image.v1+json", &config)});
    put(lease, manifest.to_string().as_bytes())
}

#[test]
fn pulled_image_is_listed_with_tags_and_digests() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let manifest = pull(&lease, &two_layers(), &json!({"User": "nobody", "StopSignal": "SIGQUIT"}));
    let index = json!({"schemaVersion": 2, "manifests": [{"mediaType": DOCKER_MANIFEST, "size": 1,
        "digest": manifest.to_string()}]});
    let target = put(&lease, index.to_string().as_bytes());
    assert_eq!(lease.store.find_manifest(&target).unwrap().manifest_digest, manifest);
    lease.unpack(&manifest).unwrap();
    let named = lease.tag_pulled("busybox:1", &target, &manifest).unwrap();
    assert_eq!(named.name, "docker.io/library/busybox:1");
    let by_digest = format!("docker.io/library/busybox@{target}");
    let error = lease.tag(&format!("busybox@{manifest}"), &target, &manifest).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");

    let images = store.list().unwrap();
    let [image] = images.as_slice() else { panic!("{images:?}") };
    assert_eq!(image.tags, ["docker.io/library/busybox:1"]);
    assert_eq!(image.digests, std::slice::from_ref(&by_digest));
    assert_eq!((image.uid, image.username.as_str(), image.pinned), (None, "nobody", false));
    assert_eq!(image.stop_signal.as_deref(), Some("SIGQUIT"));
    let size = two_layers().iter().map(Vec::len).sum::<usize>() as u64;
    assert!(image.size > size && image.size < size + 2000, "{}", image.size);

    let id = image.id.to_string();
    for reference in ["busybox:1", &by_digest, &format!("busybox:2@{target}"), &id, &image.id.hex()] {
        assert_eq!(store.resolve(reference).unwrap().id, image.id, "{reference}");
        assert_eq!(store.image(reference).unwrap(), *image);
    }
    for reference in ["busybox", "busybox:2", &id[..20], &format!("a@{target}"), &image.id.hex()[..12]] {
        assert!(matches!(store.resolve(reference), Err(Error::NotFound(_))), "{reference}");
    }
    assert_eq!(store.resolve("nope").unwrap_err().to_string(), "image \"nope\": not found");
    store.set_pinned("busybox:1", true).unwrap();
    assert!(store.image(&id).unwrap().pinned);
}

#[test]
fn image_without_a_blob_gets_no_name() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let manifest = pull(&lease, &two_layers(), &json!({}));
    let layer = Digest::of(&two_layers()[1]);
    std::fs::remove_file(store.root().join("blobs/sha256").join(layer.hex())).unwrap();
    let error = lease.tag("a", &manifest, &manifest).unwrap_err();
    assert_eq!(error.to_string(), format!("content digest {layer}: not found"));
    std::fs::write(store.root().join("blobs/sha256").join(layer.hex()), "x").unwrap();
    assert!(matches!(lease.tag("a", &manifest, &manifest), Err(Error::InvalidImage { .. })));
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn names_move_and_are_removed_one_by_one() {
    let (_dir, store) = store();
    let first = import(&store, &two_layers(), "a:1");
    let second = import(&store, &two_layers()[..1], "a:1");
    assert_ne!(first, second);
    assert!(matches!(store.resolve(&first.to_string()), Err(Error::NotFound(_))));
    let named = store.resolve("a:1").unwrap();
    let lease = store.lease().unwrap();
    lease.tag("b:1", &named.target, &named.manifest).unwrap();
    lease.tag(&format!("b@{}", named.target), &named.target, &named.manifest).unwrap();
    assert_eq!(store.remove("a:1").unwrap(), ["docker.io/library/a:1"]);
    assert!(matches!(store.remove("a:1"), Err(Error::NotFound(_))));
    // The last tag takes the digest with it.
    assert_eq!(store.remove("b:1").unwrap().len(), 2);
    assert!(store.list().unwrap().is_empty());
    lease.tag("a:1", &named.target, &named.manifest).unwrap();
    lease.tag("a:2", &named.target, &named.manifest).unwrap();
    assert_eq!(store.remove(&second.to_string()).unwrap().len(), 2);
}

#[test]
fn damaged_manifest_is_not_taken_for_the_image() {
    let (_dir, store) = store();
    let id = import(&store, &two_layers(), "a");
    let manifest = store.resolve("a").unwrap().manifest;
    std::fs::write(store.root().join("blobs/sha256").join(manifest.hex()), "{}").unwrap();
    assert!(store.list().unwrap().is_empty());
    assert!(matches!(store.image(&id.to_string()), Err(Error::InvalidImage { .. })));
    store.collect(std::time::Duration::ZERO).unwrap();
    assert!(store.config(&id).is_ok(), "a collection keeps what the name refers to");
}

#[test]
fn damaged_document_is_pulled_again() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let manifest = pull(&lease, &two_layers(), &json!({}));
    let path = store.root().join("blobs/sha256").join(manifest.hex());
    let data = std::fs::read(&path).unwrap();
    std::fs::write(&path, "{}").unwrap();
    assert!(!lease.contains(&manifest).unwrap());
    put(&lease, &data);
    assert!(lease.contains(&manifest).unwrap());
    assert!(lease.tag("a", &manifest, &manifest).is_ok());
}

/// Returns a cluster's view of the store, and its data directory.
fn cluster(store: &ImageStore, dir: &Path) -> (PathBuf, ImageStore) {
    let data_dir = dir.join("cluster");
    std::fs::create_dir(&data_dir).unwrap();
    let store = store.of_cluster(&data_dir).unwrap();
    (data_dir, store)
}

#[test]
fn image_is_either_removed_or_used() {
    let (dir, store) = store();
    let (data_dir, store) = cluster(&store, dir.path());
    let archive = docker_archive(&two_layers(), &["a"]);
    let start = Barrier::new(2);
    for round in 0..200 {
        store.import(archive.as_slice(), |_| {}).unwrap();
        let id = store.resolve("a").unwrap().id.to_string();
        std::thread::scope(|scope| {
            let user = scope.spawn(|| {
                start.wait();
                store.acquire(&data_dir, "c", &id)
            });
            start.wait();
            let removed = if round % 2 == 0 { store.remove_for_cluster(&id) } else { store.remove("a") };
            let acquired = user.join().unwrap();
            assert!(matches!(acquired, Ok(_) | Err(Error::NotFound(_))), "{acquired:?}");
            assert!(matches!(removed, Ok(_) | Err(Error::InUse { .. })), "{removed:?}");
            assert_ne!(acquired.is_ok(), removed.is_ok(), "round {round}");
            assert_eq!(acquired.is_ok(), store.image(&id).is_ok());
        });
        store.release(&data_dir, "c").unwrap();
    }
}
