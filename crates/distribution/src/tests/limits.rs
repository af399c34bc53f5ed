//! Tests of registries that send wrong or endless content: nothing of it is published, and neither disk nor memory
//! fill.

use super::{
    image::{Image, OCI_INDEX, OCI_MANIFEST, REPOSITORY, descriptor, index, noise},
    memory_store::MemoryStore,
    options, pull,
    registry::{Body, Contents, Recorded, Registry, endless, hang, reply, with_header},
};
use crate::{Digest, PullErrorKind};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Pulls from a registry, and checks the error.
async fn check(
    contents: Contents,
    handler: impl Fn(&Recorded) -> Option<Response<Body>> + Send + Sync + 'static,
    kind: PullErrorKind,
    message: &str,
) -> (Arc<MemoryStore>, Registry) {
    let registry = Registry::with_handler(contents, handler).await;
    let store = Arc::new(MemoryStore::default());
    let error = pull(&registry.reference(), &options(), &store).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(message), "{error}");
    (store, registry)
}

#[tokio::test]
async fn layer_with_another_digest_is_not_published() {
    let image = Image::new(&[noise(1, 1000)]);
    let digest = Digest::of(&image.layers[0]);
    let mut contents = image.tagged();
    contents.insert(format!("{REPOSITORY}/blobs/{digest}"), (String::new(), noise(2, 1000)));
    let message = format!(
        "failed to copy: failed commit on ref \"layer-{digest}\": unexpected commit digest {}, expected {digest}: \
         failed precondition",
        Digest::of(&noise(2, 1000))
    );
    let (store, registry) = check(contents, |_| None, PullErrorKind::DigestMismatch, &message).await;
    assert!(store.blob(&digest).is_none());
    assert_eq!(registry.blob_requests().len(), 2);
}

#[tokio::test]
async fn manifest_with_another_digest_is_rejected() {
    let (image, other) = (Image::new(&[noise(1, 1000)]), Image::new(&[noise(2, 1000)]));
    let digest = Digest::of(&image.manifest);
    let wrong = (OCI_MANIFEST.to_owned(), other.manifest.clone());
    // By digest.
    let mut contents = image.tagged();
    contents.insert(format!("{REPOSITORY}/manifests/{digest}"), wrong.clone());
    let registry = Registry::serve(contents).await;
    let store = Arc::new(MemoryStore::default());
    let reference = format!("{}/team/app@{digest}", registry.address);
    let error = pull(&reference, &options(), &store).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::DigestMismatch, "{error}");
    // Of an index.
    let index = index(OCI_INDEX, &[("amd64", &image)]);
    let mut contents = image.contents();
    contents.insert(format!("{REPOSITORY}/manifests/1"), (OCI_INDEX.to_owned(), index));
    contents.insert(format!("{REPOSITORY}/manifests/{digest}"), wrong);
    let (store, _) = check(contents, |_| None, PullErrorKind::DigestMismatch, "unexpected commit digest").await;
    assert!(store.blob(&digest).is_none() && store.blob(&Digest::of(&other.manifest)).is_none());
    // By its header.
    let manifest = image.manifest.clone();
    let digest = Digest::of(b"other").to_string();
    let handler = move |request: &Recorded| {
        let response = || with_header(reply(StatusCode::OK, manifest.clone()), "docker-content-digest", &digest);
        (!request.is_blob()).then(response)
    };
    check(image.tagged(), handler, PullErrorKind::DigestMismatch, "unexpected commit digest").await;
}

#[tokio::test]
async fn config_with_another_digest_or_size_is_rejected() {
    let image = Image::new(&[]);
    let digest = Digest::of(&image.config);
    let path = format!("{REPOSITORY}/blobs/{digest}");
    let mut contents = image.tagged();
    contents.insert(path.clone(), (String::new(), Bytes::from(vec![b' '; image.config.len()])));
    let (store, _) = check(contents, |_| None, PullErrorKind::DigestMismatch, "unexpected commit digest").await;
    assert!(store.blob(&digest).is_none());
    let mut config = descriptor("", &image.config);
    config["size"] = json!(image.config.len() + 1);
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [] }).to_string();
    let mut contents = image.contents();
    contents.insert(format!("{REPOSITORY}/manifests/1"), (OCI_MANIFEST.to_owned(), manifest.into()));
    check(contents, |_| None, PullErrorKind::DigestMismatch, "failed size validation").await;
}

#[tokio::test]
async fn image_for_another_platform_is_rejected() {
    let image = Image::for_architecture("arm64", OCI_MANIFEST, &[noise(1, 10)]);
    let message = format!("no match for platform in manifest {}: not found", Digest::of(&image.manifest));
    let (store, registry) = check(image.tagged(), |_| None, PullErrorKind::NoPlatform, &message).await;
    assert!(store.blob(&Digest::of(&image.config)).is_none());
    assert_eq!(registry.blob_requests().len(), 1);
}

#[tokio::test]
async fn layer_is_cut_at_its_size() {
    let layer = noise(1, 100_000);
    let image = Image::new(std::slice::from_ref(&layer));
    let path = Digest::of(&layer).to_string();
    // Without an announced size.
    let blob = path.clone();
    let handler = move |request: &Recorded| request.path.ends_with(&blob).then(endless);
    let (store, _) = check(image.tagged(), handler, PullErrorKind::DigestMismatch, "failed size validation").await;
    assert!(store.written() < 300_000, "{}", store.written());
    // With another announced size.
    for size in [layer.len() - 1, layer.len() + 1, 1 << 40] {
        let blob = path.clone();
        let handler = move |request: &Recorded| request.path.ends_with(&blob).then(|| hang(Bytes::new(), size));
        let message = format!("failed size validation: {size} != {}", layer.len());
        let (store, _) = check(image.tagged(), handler, PullErrorKind::DigestMismatch, &message).await;
        assert!(store.partial(&Digest::of(&layer)).is_none());
    }
}

#[tokio::test]
async fn image_above_the_size_limit_is_not_fetched() {
    let mut layer = descriptor("application/vnd.oci.image.layer.v1.tar+gzip", b"a");
    layer["size"] = json!(1_u64 << 40);
    let config = descriptor("", b"{}");
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer] }).to_string();
    let mut contents = Contents::new();
    contents.insert(format!("{REPOSITORY}/manifests/1"), (OCI_MANIFEST.to_owned(), manifest.into()));
    let (_, registry) = check(contents, |_| None, PullErrorKind::TooLarge, "byte image, the limit is").await;
    assert_eq!(registry.blob_requests().len(), 0);
}

#[tokio::test]
async fn manifest_is_limited() {
    let announced = |_: &Recorded| Some(hang(Bytes::new(), 5 << 20));
    let message = "rejecting 5242880 byte manifest, the limit is 4194304 bytes";
    check(Contents::new(), announced, PullErrorKind::TooLarge, message).await;
    check(Contents::new(), |_| Some(endless()), PullErrorKind::TooLarge, "byte manifest").await;
}

#[tokio::test]
async fn manifest_that_never_ends_is_given_up() {
    let drip = |_: &Recorded| Some(hang(Bytes::from_static(b"{"), 100));
    let registry = Registry::with_handler(Contents::new(), drip).await;
    let mut options = options();
    options.timeouts.idle = Duration::from_millis(200);
    let error = pull(&registry.reference(), &options, &Arc::new(MemoryStore::default())).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("no progress"), "{error}");
}

#[tokio::test]
async fn nested_indexes_are_limited() {
    // An index cannot contain its own digest, but a chain of them may be long.
    let image = Image::new(&[]);
    let mut contents = image.contents();
    let mut child = descriptor(OCI_MANIFEST, &image.manifest);
    for depth in 0..6 {
        child["platform"] = json!({ "os": "linux", "architecture": "amd64" });
        let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [child] }).to_string();
        child = descriptor(OCI_INDEX, index.as_bytes());
        let index = (OCI_INDEX.to_owned(), Bytes::from(index));
        contents.insert(format!("{REPOSITORY}/manifests/{}", Digest::of(&index.1)), index.clone());
        if depth == 2 {
            contents.insert(format!("{REPOSITORY}/manifests/2"), index.clone());
        }
        contents.insert(format!("{REPOSITORY}/manifests/1"), index);
    }
    let (_, registry) = check(contents, |_| None, PullErrorKind::InvalidManifest, "too many nested indexes").await;
    let reference = format!("{}/team/app:2", registry.address);
    pull(&reference, &options(), &Arc::new(MemoryStore::default())).await.unwrap();
}

#[tokio::test]
async fn endless_error_is_cut() {
    let handler = |_: &Recorded| {
        let mut response = endless();
        *response.status_mut() = StatusCode::FORBIDDEN;
        Some(response)
    };
    check(Contents::new(), handler, PullErrorKind::Unauthorized, "403 Forbidden").await;
}

#[tokio::test]
async fn endless_headers_are_cut() {
    let handler = |_: &Recorded| {
        let mut response = reply(StatusCode::OK, "{}");
        for _ in 0..1000 {
            response = with_header(response, "x-header", &"a".repeat(1000));
        }
        Some(response)
    };
    check(Contents::new(), handler, PullErrorKind::Connection, "failed to do request").await;
}

#[tokio::test]
async fn registry_that_never_responds_is_given_up() {
    let registry = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut options = options();
    options.timeouts.dial = Duration::from_millis(200);
    options.timeouts.response = Duration::from_millis(200);
    let reference = format!("{}/a", registry.local_addr().unwrap());
    let error = pull(&reference, &options, &Arc::new(MemoryStore::default())).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Timeout, "{error}");
}
