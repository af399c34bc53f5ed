//! Tests of pulls from a registry that works.

use super::{
    DEADLINE,
    image::{DOCKER_INDEX, DOCKER_MANIFEST, Image, OCI_INDEX, REPOSITORY, index, noise},
    memory_store::MemoryStore,
    options, pull, pull_with_progress,
    registry::Registry,
};
use crate::{BlobStore, Digest, LayerProgress, PullOptions, Reference, partial_blob::PartialBlob};
use bytes::Bytes;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

#[tokio::test]
async fn image_with_manifest_is_pulled_over_http() {
    let image = Image::new(&[noise(1, 3 << 20), noise(2, 100), noise(1, 3 << 20)]);
    let registry = Registry::serve(image.tagged()).await;
    let store = Arc::new(MemoryStore::default());
    let pulled = pull(&registry.reference(), &options(), &store).await.unwrap();
    assert_eq!(pulled.name, Reference::parse(&registry.reference()).unwrap());
    assert_eq!(pulled.manifest_digest, Digest::of(&image.manifest));
    assert_eq!(pulled.image_manifest_digest, Digest::of(&image.manifest));
    assert_eq!(pulled.image_id, Digest::of(&image.config));
    for blob in image.layers.iter().chain([&image.manifest, &image.config]) {
        assert_eq!(store.blob(&Digest::of(blob)).as_deref(), Some(&**blob));
    }
    // The layer that occurs twice is fetched once.
    assert_eq!(registry.blob_requests().len(), 3);
}

#[tokio::test]
async fn image_of_index_is_pulled_for_the_platform() {
    for (index_type, manifest_type) in [(OCI_INDEX, super::image::OCI_MANIFEST), (DOCKER_INDEX, DOCKER_MANIFEST)] {
        let own = Image::for_architecture("amd64", manifest_type, &[noise(1, 1000)]);
        let other = Image::for_architecture("arm64", manifest_type, &[noise(2, 1000)]);
        let index = index(index_type, &[("arm64", &other), ("amd64", &own)]);
        let digest = Digest::of(&index);
        let mut contents = own.contents();
        contents.insert(format!("{REPOSITORY}/manifests/1"), (index_type.to_owned(), index.clone()));
        contents.insert(format!("{REPOSITORY}/manifests/{digest}"), (index_type.to_owned(), index));
        let registry = Registry::serve(contents).await;
        for reference in [registry.reference(), format!("{}/team/app:other@{digest}", registry.address)] {
            let store = Arc::new(MemoryStore::default());
            let pulled = pull(&reference, &options(), &store).await.unwrap();
            assert_eq!(pulled.manifest_digest, digest);
            assert_eq!(pulled.image_manifest_digest, Digest::of(&own.manifest));
            assert_eq!(pulled.image_id, Digest::of(&own.config));
            assert!(store.blob(&digest).is_some() && store.blob(&Digest::of(&own.manifest)).is_some());
        }
    }
}

#[tokio::test]
async fn layers_of_all_compressions_are_pulled() {
    let layers: Vec<Bytes> = (0..5).map(|seed| noise(seed, 100)).collect();
    let mut image = Image::new(&layers);
    let mut manifest: Value = serde_json::from_slice(&image.manifest).unwrap();
    let (oci, docker) = ("application/vnd.oci.image.layer.v1.tar", "application/vnd.docker.image.rootfs.diff.tar");
    let types = [(oci, ""), (oci, "+gzip"), (oci, "+zstd"), (docker, ".gzip"), (docker, ".zstd")];
    for (number, (media_type, compression)) in types.into_iter().enumerate() {
        manifest["layers"][number]["mediaType"] = json!(format!("{media_type}{compression}"));
    }
    image.manifest = Bytes::from(manifest.to_string());
    let registry = Registry::serve(image.tagged()).await;
    let store = Arc::new(MemoryStore::default());
    pull(&registry.reference(), &options(), &store).await.unwrap();
    for (layer, kind) in layers.iter().zip(types) {
        assert_eq!(store.blob(&Digest::of(layer)).as_deref(), Some(&**layer), "{kind:?}");
    }
}

#[tokio::test]
async fn stored_blobs_are_not_fetched_again() {
    let image = Image::new(&[noise(1, 1000), noise(2, 1000)]);
    let registry = Registry::serve(image.tagged()).await;
    let store = Arc::new(MemoryStore::default());
    store.set_blob(&image.layers[0]);
    store.set_blob(&image.config);
    pull(&registry.reference(), &options(), &store).await.unwrap();
    let paths: Vec<String> = registry.blob_requests().into_iter().map(|r| r.path).collect();
    assert_eq!(paths, [format!("{REPOSITORY}/blobs/{}", Digest::of(&image.layers[1]))]);
}

#[tokio::test]
async fn progress_of_each_layer_is_reported() {
    let image = Image::new(&[noise(1, 3 << 20), noise(2, 100), noise(3, 200)]);
    let registry = Registry::serve(image.tagged()).await;
    let store = Arc::new(MemoryStore::default());
    store.set_blob(&image.layers[2]);
    let (pulled, reports) = pull_with_progress(&registry.reference(), &options(), &store).await;
    pulled.unwrap();
    let mut last: BTreeMap<Digest, LayerProgress> = BTreeMap::new();
    for report in &reports {
        assert!(last.get(&report.digest).is_none_or(|last| last.received <= report.received));
        last.insert(report.digest, *report);
    }
    for layer in &image.layers {
        let (digest, size) = (Digest::of(layer), layer.len() as u64);
        assert_eq!(last[&digest], LayerProgress { digest, received: size, size });
    }
    assert!(reports.iter().filter(|r| r.digest == Digest::of(&image.layers[0])).count() > 3);
}

#[tokio::test]
async fn empty_layer_is_stored() {
    let image = Image::new(&[noise(1, 0)]);
    let registry = Registry::serve(image.tagged()).await;
    let store = Arc::new(MemoryStore::default());
    pull(&registry.reference(), &options(), &store).await.unwrap();
    assert_eq!(store.blob(&Digest::of(b"")), Some(Vec::new()));
}

#[tokio::test]
async fn blob_of_another_process_is_awaited() {
    let image = Image::new(&[noise(1, 1000)]);
    let registry = Registry::serve(image.tagged()).await;
    let layer = Digest::of(&image.layers[0]);
    for completes in [true, false] {
        let store = Arc::new(MemoryStore::default());
        store.set_locked(layer, true);
        let (reference, options) = (registry.reference(), options());
        let mut pulling = std::pin::pin!(pull(&reference, &options, &store));
        let config = Digest::of(&image.config);
        let deadline = Instant::now() + DEADLINE;
        while store.blob(&config).is_none() {
            let step = tokio::time::timeout(Duration::from_millis(10), &mut pulling).await;
            assert!(step.is_err() && Instant::now() < deadline, "the pull does not wait, or does nothing");
        }
        let before = registry.blob_requests().len();
        if completes {
            store.set_blob(&image.layers[0]);
        } else {
            store.set_locked(layer, false);
        }
        pulling.await.unwrap();
        assert_eq!(registry.blob_requests().len() - before, usize::from(!completes));
        assert!(store.blob(&layer).is_some());
        assert_eq!(store.is_locked(&layer), completes);
    }
}

#[tokio::test(start_paused = true)]
async fn blob_of_another_process_is_polled_with_backoff() {
    let (store, digest) = (Arc::new(MemoryStore::default()), Digest::of(b"content"));
    store.set_locked(digest, true);
    let shared: Arc<dyn BlobStore> = Arc::<MemoryStore>::clone(&store);
    let mut opening = std::pin::pin!(PartialBlob::open(&shared, digest));
    assert!(tokio::time::timeout(Duration::from_secs(600), &mut opening).await.is_err());
    let opened = store.opened();
    assert!((590..=610).contains(&opened), "{opened}");
    store.set_locked(digest, false);
    let start = Instant::now();
    assert!(opening.await.unwrap().is_some());
    assert!(start.elapsed() <= Duration::from_secs(1));
}

#[tokio::test]
async fn registry_may_have_an_ipv6_address() {
    let image = Image::new(&[noise(1, 10)]);
    let Ok(registry) = Registry::start_at("::1", image.tagged()).await else {
        println!("skipped: no IPv6 here");
        return;
    };
    let reference = format!("[::1]:{}/team/app:1", registry.port());
    pull(&reference, &options(), &Arc::new(MemoryStore::default())).await.unwrap();
}

/// Every layer is requested by one of at most three parallel transfers.
#[tokio::test]
async fn at_most_three_layers_are_transferred_at_once() {
    let layers: Vec<_> = (0..8).map(|seed| noise(seed, 1000)).collect();
    let image = Image::new(&layers);
    let config = Digest::of(&image.config).to_string();
    // Responses without an end keep each transfer busy.
    let registry = Registry::with_handler(image.tagged(), move |request| {
        let is_layer = request.is_blob() && !request.path.contains(&config);
        is_layer.then(|| super::registry::hang(noise(9, 1), 1000))
    })
    .await;
    let store = Arc::new(MemoryStore::default());
    let mut options = options();
    options.timeouts.idle = DEADLINE;
    let reference = registry.reference();
    let mut pulling = std::pin::pin!(pull(&reference, &options, &store));
    let deadline = Instant::now() + DEADLINE;
    while registry.blob_requests().len() < 1 + 3 {
        assert!(Instant::now() < deadline, "{:?}", registry.blob_requests());
        assert!(tokio::time::timeout(Duration::from_millis(10), &mut pulling).await.is_err());
    }
    // A further request would come soon.
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut pulling).await.is_err());
    assert_eq!(registry.blob_requests().len(), 1 + 3);
}

#[test]
fn pull_can_move_between_threads() {
    fn assert_send<T: Send>(_: T) {}
    let store: Arc<dyn BlobStore> = Arc::new(MemoryStore::default());
    assert_send(crate::pull("a", &PullOptions::default(), &store, &|_| {}));
}
