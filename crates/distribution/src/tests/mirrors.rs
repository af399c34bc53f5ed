//! Tests of mirrors.

use super::{
    image::{Image, REPOSITORY, noise},
    memory_store::MemoryStore,
    options_with_hosts, pull,
    registry::{Registry, cut, reply, with_header},
};
use crate::{Digest, PullErrorKind, PullOptions};
use bytes::Bytes;
use http::StatusCode;
use runtime::RegistryAuth;
use std::sync::Arc;

/// Options with a mirror, whose table has more lines, and the registry itself.
fn mirrored(dir: &tempfile::TempDir, registry: &Registry, mirror: &Registry, lines: &str) -> PullOptions {
    let (server, host) = (registry.port(), mirror.port());
    let text = format!("server = \"http://registry.test:{server}\"\n[host.\"http://mirror.test:{host}\"]\n{lines}\n");
    options_with_hosts(dir.path(), "registry.test", &text)
}

const REFERENCE: &str = "registry.test/team/app:1";

#[tokio::test]
async fn mirror_is_used_first_and_gets_the_registrys_name() {
    let image = Image::new(&[noise(1, 1000)]);
    let (registry, mirror) = (Registry::serve(image.tagged()).await, Registry::serve(image.tagged()).await);
    let dir = tempfile::tempdir().unwrap();
    let options = mirrored(&dir, &registry, &mirror, "");
    pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap();
    assert_eq!(registry.requests().len(), 0);
    assert_eq!(mirror.requests()[0].path, format!("{REPOSITORY}/manifests/1?ns=registry.test"));
    assert!(mirror.requests().iter().all(|r| r.path.ends_with("?ns=registry.test")));
}

#[tokio::test]
async fn mirror_without_resolve_serves_only_digests() {
    let image = Image::new(&[noise(1, 1000)]);
    let (registry, mirror) = (Registry::serve(image.tagged()).await, Registry::serve(image.tagged()).await);
    let dir = tempfile::tempdir().unwrap();
    let options = mirrored(&dir, &registry, &mirror, "capabilities = [\"pull\"]");
    pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap();
    assert!(mirror.requests().iter().all(|r| !r.path.contains("/manifests/1")));
    assert_eq!((registry.requests().len(), mirror.requests().len()), (1, 2));
    let by_digest = format!("registry.test/team/app@{}", Digest::of(&image.manifest));
    pull(&by_digest, &options, &Arc::new(MemoryStore::default())).await.unwrap();
    assert_eq!((registry.requests().len(), mirror.requests().len()), (1, 5));
}

#[tokio::test]
async fn broken_mirror_is_passed_over_at_once() {
    let image = Image::new(&[noise(1, 1000)]);
    for status in [StatusCode::NOT_FOUND, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::UNAUTHORIZED] {
        let registry = Registry::serve(image.tagged()).await;
        let mirror = Registry::with_handler(image.tagged(), move |_| Some(reply(status, ""))).await;
        let dir = tempfile::tempdir().unwrap();
        let options = mirrored(&dir, &registry, &mirror, "");
        pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap();
        assert_eq!((registry.requests().len(), mirror.requests().len()), (3, 3), "{status}");
    }
    let registry = Registry::serve(image.tagged()).await;
    let mirror = Registry::serve(image.tagged()).await;
    let dir = tempfile::tempdir().unwrap();
    let options = mirrored(&dir, &registry, &mirror, "");
    drop(mirror);
    pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap();
}

#[tokio::test]
async fn error_of_the_host_that_came_furthest_is_reported() {
    let image = Image::new(&[]);
    let registry = Registry::serve(std::collections::BTreeMap::new()).await;
    let mirror = Registry::with_handler(image.tagged(), |_| Some(reply(StatusCode::FORBIDDEN, ""))).await;
    let dir = tempfile::tempdir().unwrap();
    let options = mirrored(&dir, &registry, &mirror, "");
    let error = pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Unauthorized, "{error}");
}

#[tokio::test]
async fn wrong_layer_of_a_mirror_is_fetched_from_the_registry() {
    let layer = noise(1, 2 << 20);
    let image = Image::new(std::slice::from_ref(&layer));
    let path = format!("{REPOSITORY}/blobs/{}", Digest::of(&layer));
    // A whole wrong layer, and the begin of one, which the registry would continue.
    for is_cut in [false, true] {
        let registry = Registry::serve(image.tagged()).await;
        let blob = path.clone();
        let mirror = Registry::with_handler(image.tagged(), move |request| {
            let wrong = noise(2, 2 << 20);
            request.path.starts_with(&blob).then(|| match request.count {
                0 if is_cut => cut(wrong.slice(..1 << 20), wrong.len()),
                _ if is_cut => reply(StatusCode::NOT_FOUND, ""),
                _ => reply(StatusCode::OK, wrong),
            })
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        let options = mirrored(&dir, &registry, &mirror, "");
        let store = Arc::new(MemoryStore::default());
        pull(REFERENCE, &options, &store).await.unwrap();
        assert_eq!(store.blob(&Digest::of(&layer)).as_deref(), Some(&*layer), "{is_cut}");
        assert_eq!(registry.requests().last().unwrap().header("range"), "", "{is_cut}");
    }
}

#[tokio::test]
async fn interrupted_layer_of_a_mirror_is_continued_by_the_registry() {
    let layer = noise(1, 2 << 20);
    let image = Image::new(std::slice::from_ref(&layer));
    let registry = Registry::serve(image.tagged()).await;
    let (blob, served) = (format!("{REPOSITORY}/blobs/{}", Digest::of(&layer)), layer.clone());
    let mirror = Registry::with_handler(image.tagged(), move |request| {
        request.path.starts_with(&blob).then(|| match request.count {
            0 => cut(served.slice(..1 << 20), served.len()),
            _ => reply(StatusCode::NOT_FOUND, ""),
        })
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let options = mirrored(&dir, &registry, &mirror, "");
    let store = Arc::new(MemoryStore::default());
    pull(REFERENCE, &options, &store).await.unwrap();
    assert_eq!(store.blob(&Digest::of(&layer)).as_deref(), Some(&*layer));
    let ranges: Vec<String> = registry.requests().iter().map(|r| r.header("range").to_owned()).collect();
    assert!(ranges.len() == 1 && ranges[0].starts_with("bytes="), "{ranges:?}");
}

#[tokio::test]
async fn mirror_gets_no_credentials_of_the_registry() {
    let image = Image::new(&[noise(1, 1000)]);
    let registry = Registry::with_handler(image.tagged(), |request| {
        let is_anonymous = request.header("authorization").is_empty();
        is_anonymous.then(|| with_header(reply(StatusCode::UNAUTHORIZED, ""), "www-authenticate", "Basic realm=x"))
    })
    .await;
    let mirror = Registry::with_handler(image.tagged(), |request| {
        let is_anonymous = request.header("authorization").is_empty();
        is_anonymous.then(|| with_header(reply(StatusCode::UNAUTHORIZED, ""), "www-authenticate", "Basic realm=x"))
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let mut options = mirrored(&dir, &registry, &mirror, "");
    let password = RegistryAuth { username: "user".to_owned(), password: "pass".to_owned(), ..RegistryAuth::default() };
    for address in ["", "registry.test"] {
        options.credentials = vec![RegistryAuth { server_address: address.to_owned(), ..password.clone() }];
        pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap();
    }
    assert!(mirror.requests().iter().all(|r| r.header("authorization").is_empty()));
    // Unless they are for the mirror.
    let address = format!("http://mirror.test:{}", mirror.port());
    options.credentials = vec![RegistryAuth { server_address: address, ..password }];
    let before = registry.requests().len();
    pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap();
    assert_eq!(registry.requests().len(), before);
    // Or hosts.toml has them.
    let header = format!("[host.\"http://mirror.test:{}\".header]\nauthorization = \"Basic abc\"\n", mirror.port());
    let options = mirrored(&dir, &registry, &mirror, &header);
    pull(REFERENCE, &options, &Arc::new(MemoryStore::default())).await.unwrap();
    assert_eq!(mirror.requests().last().unwrap().header("authorization"), "Basic abc");
    assert_eq!(registry.requests().len(), before);
}

#[tokio::test]
async fn root_of_the_api_may_be_another_path() {
    let image = Image::new(&[noise(1, 1000)]);
    let moved = image.tagged().into_iter().map(|(path, content)| (path.replace("/v2/", "/prefix/"), content)).collect();
    let (registry, mirror) = (Registry::serve(image.tagged()).await, Registry::serve(moved).await);
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "server = \"http://registry.test:{}\"\n[host.\"http://mirror.test:{}/prefix\"]\noverride_path = true\n",
        registry.port(),
        mirror.port()
    );
    let options = options_with_hosts(dir.path(), "registry.test", &text);
    let store = Arc::new(MemoryStore::default());
    pull(REFERENCE, &options, &store).await.unwrap();
    assert_eq!(registry.requests().len(), 0);
    assert_eq!(store.blob(&Digest::of(&image.layers[0])).map(Bytes::from), Some(image.layers[0].clone()));
}
